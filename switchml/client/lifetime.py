"""Closing of communicators at the exit of their process, and protection of objects with threads in forked children."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import weakref
from typing import Protocol

__all__ = ["forget", "never_destroy_in_children", "track"]


class Tracked(Protocol):
    """The methods of a communicator that this module calls."""

    def end(self, loss: str = "") -> None:
        """End this rank's part in the job; with a `loss`, report the rank as lost for that reason."""

    def disown(self) -> None:
        """Leave the communicator to the parent process, and refuse every call in this forked child."""


_open: weakref.WeakSet[Tracked] = weakref.WeakSet()
_with_threads: weakref.WeakSet[object] = weakref.WeakSet()


def never_destroy_in_children(thing: object) -> None:
    """Keep the garbage collector of a forked child from destroying `thing`.

    Its destructor waits for threads, but a child does not have the threads of its parent; Gloo's destructor would
    crash.
    """
    _with_threads.add(thing)


def track(communicator: Tracked) -> None:
    """End `communicator` when the process exits, and disown it in forked children."""
    _open.add(communicator)


def forget(communicator: Tracked) -> None:
    """Undo `track`."""
    _open.discard(communicator)


@atexit.register
def _end_all() -> None:
    # An uncaught exception has set sys.last_value by now. At an interactive prompt it may be an old one.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    loss = "" if error is None else f"its program ended by an exception ({type(error).__name__})"
    for communicator in list(_open):
        communicator.end(loss)


def _disown_all() -> None:
    for thing in list(_with_threads):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a reference that outlives even the interpreter
    for communicator in list(_open):
        communicator.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown_all)
