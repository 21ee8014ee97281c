"""What becomes of open communicators, and of what else has threads of its own, when their process ends or forks."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import weakref
from typing import Protocol

__all__ = ["forget", "never_destroy_in_children", "track"]


class Tracked(Protocol):
    """A communicator, as far as it matters here."""

    def end(self, loss: str = "") -> None:
        """End this rank's part in the job; with a `loss`, it is reported as lost for that reason."""

    def disown(self) -> None:
        """Leave the communicator to the process that this one was forked from, and refuse every call."""


_open: weakref.WeakSet[Tracked] = weakref.WeakSet()
_with_threads: weakref.WeakSet[object] = weakref.WeakSet()


def never_destroy_in_children(thing: object) -> None:
    """Keep `thing` out of the hands of a forked child's garbage collector.

    Destructors wait for threads, and a child does not have those of its parent: Gloo's would crash.
    """
    _with_threads.add(thing)


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
    for thing in list(_with_threads):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a reference that outlives even the interpreter
    for communicator in list(_open):
        communicator.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown_all)
