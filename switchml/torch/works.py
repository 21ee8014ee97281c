"""The handles that callers get: `torch.distributed.Work` for collectives in the network, and for some over Gloo.

A handle is completed when the result is in the caller's tensors, so that a program may poll it instead of waiting.
"""

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

from switchml.torch import recording
from switchml.torch.callbacks import run_callback
from switchml.torch.errors import SwitchMLBackendError, forked_error
from switchml.torch.profiling import begin_record, end_record
from switchml.torch.tracing import never_compiled

__all__ = ["CompletedLater", "completed_after"]

_NO_TIMEOUT: Final = timedelta(0)
_OUT_OF_TIME: Final = "Timed out"  # in Gloo's message


@never_compiled
class CompletedLater(dist.Work):  # type: ignore[misc]
    """A collective in flight, completed by another thread. Its tensors are the result once `wait` has returned.

    Attributes:
        record: its record in the profile of the thread that made the call, from `begin_record`; `wait` ends it, because
            the profiler does not watch the thread that completes the collective.

    """

    def __init__(self, name: str, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self._description = _described(name, tensors)
        self._tensors = list(tensors)
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._future: Any = None
        self._trigger: Any = None
        self._delivered: list[Any] = []  # CUDA events of the copies into the caller's tensors
        self.record: Any = None
        self._recorder = recording.recorder
        self._number = self._recorder.started(name, self._tensors) if self._recorder is not None else 0

    def complete(self, error: Exception | None = None, delivered: Sequence[Any] = ()) -> None:
        """End the collective, with `error` or successfully; `delivered` are the CUDA events of its tensors' copies."""
        with self._lock:
            self._error = error
            self._delivered = list(delivered)
            self._ended.set()
            trigger = self._trigger
        if self._recorder is not None:
            self._recorder.ended(self._number)
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
        if self._recorder is not None:
            self._recorder.waits(self._number)
        waiting = begin_record(f"wait for {self._description}", ())
        in_time = self._ended.wait(seconds)
        end_record(waiting)
        if not in_time:
            raise dist.DistBackendError(f"{self._description} has not ended within {seconds:g} s; it continues")
        if self._recorder is not None:
            self._recorder.waited(self._number)
        record, self.record = self.record, None
        end_record(record)
        self._outcome()
        return True

    def is_completed(self) -> bool:
        """Return whether the collective has ended, with success or failure, and its tensors hold the result."""
        return self._ended.is_set() and all(event.query() for event in self._delivered)

    def is_success(self) -> bool:
        """Return whether the collective has ended successfully."""
        return self.is_completed() and self._error is None

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


def completed_after(
    works: Sequence[Any],
    name: str,
    tensors: Sequence[Tensor],
    finish: Callable[[], Sequence[Any]] = tuple,
    others: Callable[[], str] = str,
) -> CompletedLater:
    """Return the handle of a collective that ends when `works` have ended and `finish` has done its last step.

    Args:
        works: of Gloo, or others of this module.
        name: the name of the collective.
        tensors: its results.
        finish: writes the results to `tensors`, and returns CUDA events of copies that are still under way. A thread of
            Gloo calls it, or this thread if the works have ended already.
        others: returns a sentence about the calls of other ranks, if they differ; called if Gloo is out of time.

    """
    later = CompletedLater(name, tensors)

    def end(wait: Callable[[], object]) -> None:
        try:
            with torch.inference_mode():
                wait()
                delivered = finish()
        except Exception as error:
            remark = others() if _OUT_OF_TIME in str(error) else ""
            reason = "CollectiveMismatch"
            later.complete(SwitchMLBackendError(f"switchml: {error}. {remark}", reason=reason) if remark else error)
        else:
            later.complete(None, delivered)

    try:
        futures = [work.get_future() for work in works]
    except RuntimeError:  # some works of Gloo have none, and end only in `wait`
        [work] = works
        later._source_rank = work._source_rank
        run_callback(lambda: end(work.wait))
    else:
        whole = futures[0] if len(futures) == 1 else torch.futures.collect_all(futures)
        whole.then(lambda _: end(whole.wait))
    return later


def _described(name: str, tensors: Sequence[Tensor]) -> str:
    if len(tensors) == 1:
        return f"{name} of {tensors[0].numel()} {str(tensors[0].dtype).removeprefix('torch.')}"
    return f"{name} of {len(tensors)} tensors" if tensors else name
