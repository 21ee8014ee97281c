"""The backends with which a rank can sum a tensor with the others."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["BACKENDS", "Backend", "SwitchMLBackend"]

Vector = npt.NDArray[np.float32]
Elements = npt.NDArray[np.float32 | np.uint16]  # float32, or the bits of bfloat16


class Backend(Protocol):
    """A rank's end of a process group. A tensor is prepared first, so that only the calls themselves are timed."""

    rank: int
    world_size: int

    @property
    def all_reduce(self) -> Callable[[Any], Any]:
        """Return the function that sums a prepared tensor."""

    @property
    def barrier(self) -> Callable[[], Any]:
        """Return the function that waits for all ranks."""

    def prepare(self, tensor: Elements) -> Any:
        """Return what the calls take for `tensor`, which they change in place."""

    def all_reduce_with(self, wire_bits: int) -> Callable[[Any], Any]:
        """Return `all_reduce` with this many bits for an element on the wire. Raises ValueError for other widths."""

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""

    def close(self) -> None:
        """Leave the group."""


class SwitchMLBackend:
    """A rank of a SwitchML job, through the public interface."""

    def __init__(self) -> None:
        import switchml

        self.communicator = switchml.connect()
        self.rank, self.world_size = self.communicator.rank, self.communicator.world_size
        self.all_reduce = self.communicator.all_reduce
        self.barrier = self.communicator.barrier

    def prepare(self, tensor: Elements) -> Any:
        """Return the tensor itself, or the same memory as an array of bfloat16."""
        if tensor.dtype == np.float32:
            return tensor
        import ml_dtypes

        return tensor.view(ml_dtypes.bfloat16)

    def all_reduce_with(self, wire_bits: int) -> Callable[[Any], Any]:
        """Return the all-reduce that sends elements in lanes of this many bits."""
        return functools.partial(self.communicator.all_reduce, wire_bits=wire_bits)

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""
        works = [self.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    def close(self) -> None:
        """End this rank's part in the job."""
        self.communicator.close()

    def time_python(self, tensor: Vector) -> tuple[float, float, float]:
        """Return the seconds of an all-reduce, those outside of native calls, and this thread's CPU time in the latter.

        The time includes reading the clocks, at most a microsecond.
        """
        calls = self.communicator._membership.calls
        native = _TimedNative(calls.native)
        calls.native = native  # type: ignore[assignment]
        try:
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            self.all_reduce(tensor)
            elapsed, cpu = time.perf_counter() - begin, time.thread_time() - begin_cpu
        finally:
            calls.native = native.native
        return elapsed, elapsed - native.seconds, cpu - native.cpu_seconds


class _TimedNative:
    """Stand in for the native communicator during one call, and add up the time inside of it."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.seconds = self.cpu_seconds = 0.0
        # Created beforehand, so that the call does not include it.
        for name in ("submit", "wait", "outcome", "release"):
            setattr(self, name, self._timed(getattr(native, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - begin
                self.cpu_seconds += time.thread_time() - begin_cpu

        return timed


class GlooBackend:
    """A rank of PyTorch's Gloo process group, with one thread for its own arithmetic."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self._torch, self._dist = torch, dist
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.all_reduce = dist.all_reduce
        self.barrier = dist.barrier

    def prepare(self, tensor: Elements) -> Any:
        """Return a torch tensor that shares its memory."""
        if tensor.dtype == np.float32:
            return self._torch.from_numpy(tensor)
        return self._torch.from_numpy(tensor.view(np.int16)).view(self._torch.bfloat16)

    def all_reduce_with(self, wire_bits: int) -> Callable[[Any], Any]:
        """Return the all-reduce, which sends elements in their own type."""
        if wire_bits != 32:
            raise ValueError("Gloo has no lanes of other widths")
        all_reduce: Callable[[Any], Any] = self._dist.all_reduce
        return all_reduce

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""
        works = [self._dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


BACKENDS: dict[str, Callable[[], Backend]] = {"switchml": SwitchMLBackend, "gloo": GlooBackend}
