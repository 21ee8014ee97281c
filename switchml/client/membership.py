"""A process's membership in a job: the native one, with what it does for Python.

That is: the arrays of calls stay alive while native code uses them, and callbacks learn of failures.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

from switchml import _native
from switchml.client import lifetime
from switchml.client.calls import Call
from switchml.client.errors import SwitchMLError, WorldChanged
from switchml.client.failures import exception_of

__all__ = ["Membership"]

_MOST_DESCRIPTIONS: Final = 512  # of calls, that are kept
_WATCH_SECONDS: Final = 3600.0  # that the thread for callbacks waits at a time


class Membership:
    """A rank of a job, from its attachment to its end. No callback is called while a lock is held."""

    def __init__(self, native: _native.Membership) -> None:
        self._native = native
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards the members below
        self._failed: SwitchMLError | None = None  # that has ended all calls, once it was reported
        self._on_failure: list[Callable[[SwitchMLError], None]] = []
        self._on_change: list[Callable[[WorldChanged], None]] = []
        self._watcher: threading.Thread | None = None
        self._orphans: deque[tuple[_native.Work, Call]] = deque()  # calls whose Work was dropped
        self._descriptions: dict[tuple[object, ...], _native.Collective] = {}
        lifetime.track(self)

    @property
    def native(self) -> _native.Membership:
        """The native membership."""
        return self._native

    @property
    def failure(self) -> SwitchMLError | None:
        """The error that the next call will raise; None while the membership is usable."""
        failure = self._native.failure
        return self._failed or (None if failure is None else exception_of(failure))

    @property
    def condition(self) -> str:
        """The state in one word: "ready", "closed" or the name of an error."""
        if self._native.closed:
            return "closed"
        failure = self.failure
        return "ready" if failure is None or isinstance(failure, WorldChanged) else type(failure).__name__

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def on_failure(self, callback: Callable[[SwitchMLError], None]) -> None:
        """Call `callback` with the error that ends all calls: now if there is one, or as soon as there is."""
        with self._lock:
            error = self._failed
            if error is None:
                self._on_failure.append(callback)
                self._watch()
        if error is not None:
            callback(error)

    def on_change(self, callback: Callable[[WorldChanged], None]) -> None:
        """Call `callback` after each change to another epoch."""
        with self._lock:
            self._on_change.append(callback)
            self._watch()

    def _watch(self) -> None:
        if self._watcher is None:
            # The thread must not keep the membership alive.
            self._watcher = threading.Thread(
                target=_report,
                args=(self._native.events, weakref.WeakMethod(self._take)),
                name="switchml-events",
                daemon=True,
            )
            self._watcher.start()

    def _take(self, failure: _native.Failure) -> None:
        """Call the callbacks for a failure, or for a change of epoch."""
        error = exception_of(failure)
        callbacks: list[Callable[..., None]]
        with self._lock:
            if isinstance(error, WorldChanged):
                callbacks = list(self._on_change)
            else:
                self._failed = error
                callbacks, self._on_failure = list(self._on_failure), []
        for callback in callbacks:
            callback(error)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def submit(self, call: Call, timeout: float, awaited: bool) -> _native.Work:
        """Make a call, which may take `timeout` seconds. The caller keeps `call` until it has ended, or drops it.

        If it is `awaited`, this thread must wait for it next: it may begin only there.

        Raises:
            SwitchMLError: the job cannot continue.
            ValueError: some of the memory belongs to a call that has not ended.

        """
        while self._orphans and self._orphans[0][0].has_ended():
            self._orphans.popleft()
        known = self._descriptions.get(call.identity)
        if known is None:  # training repeats its calls, and to describe one takes a third of a small call
            if len(self._descriptions) >= _MOST_DESCRIPTIONS:
                self._descriptions.clear()
            native = self._native
            known = self._descriptions[call.identity] = call.described(native.world_size, native.formats)
        return self._native.submit(known, *call.addresses, timeout, awaited)

    def drop(self, work: _native.Work, call: Call) -> None:
        """Keep the arrays of a call until it has ended, though nothing will wait for it any more."""
        self._orphans.append((work, call))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def end(self, loss: str = "") -> None:
        """End the membership; with a `loss`, report this rank as lost for that reason. Idempotent."""
        if os.getpid() == self._pid:
            self._native.end(loss)
            lifetime.forget(self)

    def disown(self) -> None:
        """Leave the membership to the parent process; native code has closed this child's copy of the connection."""

    def __del__(self) -> None:
        if hasattr(self, "_descriptions"):  # construction has finished
            self.end()


def _report(events: _native.FailureEvents, take: weakref.WeakMethod[Callable[[_native.Failure], None]]) -> None:
    """Report each failure, until the membership ends."""
    while not events.ended:
        failure = events.next(_WATCH_SECONDS)
        method = take()
        if failure is not None and method is not None:
            method(failure)
        del method
