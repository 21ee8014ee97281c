"""The deadlines of calls, which hold whatever the threads of a process group wait for.

Each wait for the library, for Gloo or for other ranks ends by itself at the deadline of the call that it is made for.
Other waits cannot: an operation of the store takes as long as the process that holds the store, which may be stopped.
So one thread of this process looks at the calls of all groups, and ends those that are late.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

__all__ = ["GRACE_SECONDS", "Deadline", "Watched", "look_at"]

GRACE_SECONDS: Final = 10.0
"""The time after a deadline in which the waits of the call end by themselves, with errors that say more."""
_LEAST_SECONDS: Final = 0.001  # no operation takes a timeout of 0
_LONGEST_WAIT_SECONDS: Final = 3600.0  # a condition cannot wait for as long as a timedelta can be


class Deadline(NamedTuple):
    """The time at which a call must have ended, on the clock time.monotonic(), and the timeout that set it."""

    at: float
    timeout: float

    @classmethod
    def after(cls, timeout: timedelta) -> Deadline:
        """Return the deadline of a call that is made now."""
        seconds = timeout.total_seconds()
        return cls(time.monotonic() + seconds, seconds)

    @property
    def passed(self) -> bool:
        """True if no time is left."""
        return time.monotonic() >= self.at

    @property
    def at_last(self) -> float:
        """The time at which the call is ended if it has not ended by itself."""
        return self.at + GRACE_SECONDS

    @property
    def seconds_left(self) -> float:
        """The seconds until then; at least one millisecond, after which an operation times out."""
        return max(self.at - time.monotonic(), _LEAST_SECONDS)

    @property
    def left(self) -> timedelta:
        """The same as a `timedelta`."""
        return timedelta(seconds=self.seconds_left)


class Watched(Protocol):
    """A group with calls."""

    def end_late_calls(self) -> None:
        """End the calls if one of them is late. Called at the time given to `look_at`, which it may call again."""


class _Watch:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._looks: weakref.WeakKeyDictionary[Watched, float] = weakref.WeakKeyDictionary()
        self._next = math.inf
        self._thread: threading.Thread | None = None

    def add(self, group: Watched, at: float) -> None:
        with self._changed:
            self._looks[group] = at = min(at, self._looks.get(group, math.inf))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="switchml-deadlines", daemon=True)
                self._thread.start()
            elif at < self._next:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._next = min(self._looks.values(), default=math.inf)
                self._changed.wait(max(0.0, min(self._next - time.monotonic(), _LONGEST_WAIT_SECONDS)))
                due = self._take_due(time.monotonic())
            while due:
                due.pop().end_late_calls()

    def _take_due(self, now: float) -> list[Watched]:
        due = [group for group, at in self._looks.items() if at <= now]
        for group in due:
            del self._looks[group]
        return due


_watch = _Watch()


def look_at(group: Watched, at: float) -> None:
    """Call `group.end_late_calls` once, at the earliest time given since the last call; the group may be destroyed."""
    _watch.add(group, at)


def _forget_groups() -> None:
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_forget_groups)
