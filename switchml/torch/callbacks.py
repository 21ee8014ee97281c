"""Threads that run the callbacks of futures.

A callback may wait for another collective of the same group (PowerSGD's hook does). So it must block neither the thread
that completes collectives nor another callback: a new thread is started whenever all others are busy.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["run_callback"]

_LOG = logging.getLogger(__name__)
_IDLE_SECONDS: Final = 10.0  # after this time without a task a thread ends


class _Threads:
    def __init__(self) -> None:
        self._state = threading.Condition()
        self._tasks: deque[Callable[[], None]] = deque()
        self._idle = 0

    def run(self, task: Callable[[], None]) -> None:
        with self._state:
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._state.notify()
            else:
                threading.Thread(target=self._work, name="switchml-callbacks", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._state:
                self._idle += 1
                self._state.wait_for(lambda: self._tasks, _IDLE_SECONDS)
                self._idle -= 1
                if not self._tasks:
                    return
                task = self._tasks.popleft()
            try:
                task()
            except Exception:
                _LOG.exception("a callback of a collective's future raised")


_threads = _Threads()


def run_callback(task: Callable[[], None]) -> None:
    """Run `task` soon on another thread; tasks begin in the order in which they are given."""
    _threads.run(task)


def _forget_threads() -> None:
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_forget_threads)
