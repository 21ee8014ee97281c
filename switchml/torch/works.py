"""The handles that callers get: `torch.distributed.Work` for collectives in the network, and for some over Gloo."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from switchml.torch.callbacks import run_callback
from switchml.torch.errors import forked_error
from switchml.torch.tracing import never_compiled

__all__ = ["CompletedLater", "FinishedGlooWork"]

_NO_TIMEOUT: Final = timedelta(0)


@never_compiled
class CompletedLater(dist.Work):  # type: ignore[misc]
    """A collective in flight, completed by another thread. Its tensors are the result once `wait` has returned."""

    def __init__(self, description: str, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self._description = description
        self._tensors = list(tensors)
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._future: Any = None
        self._trigger: Any = None
        self._delivered: list[Any] = []  # CUDA events of the copies into the caller's tensors

    def complete(self, error: Exception | None = None, delivered: Sequence[Any] = ()) -> None:
        """End the collective, with `error` or successfully; `delivered` are the CUDA events of its tensors' copies."""
        with self._lock:
            self._error = error
            self._delivered = list(delivered)
            self._ended.set()
            trigger = self._trigger
        if trigger is not None:
            run_callback(lambda: trigger.set_result(None))

    def _order_after_delivery(self) -> None:
        """Make the current streams wait for the copies into the tensors."""
        for event in self._delivered:
            torch.cuda.current_stream(event.device).wait_event(event)

    def _outcome(self, _: object = None) -> list[Tensor]:
        """Return the tensors or raise the error (callback).

        It runs on streams of the future; CUDA work of a thread that waits for the future is ordered after them.
        """
        if self._error is not None:
            raise self._error
        self._order_after_delivery()
        return self._tensors

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait for the end, at most `timeout` (0: only the collective's own limit).

        Raises:
            torch.distributed.DistBackendError: the collective failed, and its tensors are undefined; or it has not
                ended within `timeout`, and continues.

        """
        seconds = timeout.total_seconds() if timeout > _NO_TIMEOUT else None
        if os.getpid() != self._pid and not self._ended.is_set():
            raise forked_error(self._description, self._pid)
        if not self._ended.wait(seconds):
            raise dist.DistBackendError(f"{self._description} has not ended within {seconds:g} s; it continues")
        self._outcome()
        return True

    def is_completed(self) -> bool:
        """Return whether the collective has ended, with success or failure."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Return whether the collective has ended successfully."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """Return the error; None if the collective did not fail, or has not ended."""
        return self._error

    def result(self) -> list[Tensor]:
        """Return its tensors, which hold the result once it has ended."""
        return self._tensors

    def synchronize(self) -> None:
        """Make the caller's CUDA streams wait for the result, without waiting on the CPU."""
        self._order_after_delivery()

    def block_current_stream(self) -> None:
        """Wait for the end, as `wait` does."""
        self.wait()

    def get_future(self) -> Any:
        """Return a `torch.futures.Future` of the list of tensors, which fails if the collective does."""
        with self._lock:
            if self._future is None:
                devices = sorted({t.device for t in self._tensors if t.device.type == "cuda"}, key=str)
                self._trigger = Future(devices=devices)
                # C++ code that waits (DDP's reducer) gets an error as such only if a callback raises it.
                self._future = self._trigger.then(self._outcome)
                late = self._ended.is_set()
            else:
                late = False
            trigger, future = self._trigger, self._future
        if late:
            trigger.set_result(None)
        return future

    def __repr__(self) -> str:
        state = "in flight" if not self._ended.is_set() else "failed" if self._error else "completed"
        return f"<switchml.torch work: {self._description}, {state}>"


@never_compiled
class FinishedGlooWork(dist.Work):  # type: ignore[misc]
    """Works of Gloo whose results need a last step, such as the division of an average, which is done once."""

    def __init__(self, works: Sequence[Any], tensors: Sequence[Tensor], finish: Callable[[], None]) -> None:
        super().__init__()
        self._works = list(works)
        self._tensors = list(tensors)
        self._finish: Callable[[], None] | None = finish
        self._lock = threading.RLock()  # a future that has ended calls `_last_step` at once
        self._future: Any = None

    def _last_step(self, _: object = None) -> list[Tensor]:
        with self._lock:
            if self._finish is not None:
                with torch.inference_mode():
                    self._finish()
                self._finish = None
        return self._tensors

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait for each work, at most `timeout` (0: only the collective's own limit); raise Gloo's errors."""
        for work in self._works:
            work.wait(timeout)
        self._last_step()
        return True

    def is_completed(self) -> bool:
        """Return whether Gloo's part has ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether Gloo's part has ended successfully."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        """Return the error; None if the collective did not fail, or has not ended."""
        return next((work.exception() for work in self._works if work.is_completed() and not work.is_success()), None)

    def result(self) -> list[Tensor]:
        """Return its tensors, which hold the result once `wait` has returned."""
        return self._tensors

    def get_future(self) -> Any:
        """Return a `torch.futures.Future` of the list of tensors."""
        with self._lock:
            if self._future is None:
                futures = [work.get_future() for work in self._works]
                whole = futures[0] if len(futures) == 1 else torch.futures.collect_all(futures)
                self._future = whole.then(lambda future: (future.wait(), self._last_step())[1])
            return self._future
