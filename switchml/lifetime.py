"""What becomes of open communicators when their process ends or forks."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

__all__ = ["forget", "inherit", "track"]


class Tracked(Protocol):
    """A communicator, as far as it matters here."""

    def end(self, loss: str = "") -> None:
        """End this rank's part in the job; with a `loss`, it is reported as lost for that reason."""

    def disown(self) -> None:
        """Leave the communicator to the process that this one was forked from."""


_open: weakref.WeakSet[Tracked] = weakref.WeakSet()
_inherited: list[object] = []


def inherit(native: object) -> None:
    """Keep the native end of a forked parent's communicator: its threads are not here, so it cannot be destroyed."""
    _inherited.append(native)


def track(communicator: Tracked) -> None:
    """See to it that `communicator` is ended when the process exits, and left alone in forked children."""
    _open.add(communicator)


def forget(communicator: Tracked) -> None:
    """Take back `track`."""
    _open.discard(communicator)


@atexit.register
def _end_all() -> None:
    # An uncaught exception has left its mark in sys by now. At a prompt it may be an old one.
    crashed = getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")
    for communicator in list(_open):
        communicator.end("its program ended by an exception" if crashed else "")


def _disown_all() -> None:
    for communicator in list(_open):
        communicator.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown_all)
