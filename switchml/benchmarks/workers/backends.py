"""The backends with which a rank can sum a tensor with the others."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import switchml

__all__ = ["BACKENDS", "Backend", "SwitchMLBackend"]

Vector = npt.NDArray[np.float32]
Elements = npt.NDArray[np.float32 | np.uint16 | np.int64]  # float32, the bits of bfloat16, or int64


class Backend(Protocol):
    """A rank's end of a process group. A tensor is prepared first, so that only the calls themselves are timed."""

    name: str
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

    def reduce_scatter_with(self, wire_bits: int) -> Callable[[Any, Any], Any]:
        """Return the reduce-scatter of a prepared tensor into a part, with the bits of `all_reduce_with`."""

    def all_gather(self, part: Any, whole: Any) -> Any:
        """Gather the ranks' parts."""

    def scatter_and_gather(self) -> Callable[[Any, Any, Any, Any], None]:
        """Return the reduce-scatter of one tensor into a part, at the same time as the gathering of another's parts.

        It takes the first tensor and its part, then a part of the second tensor and that tensor.
        """

    def broadcast(self, tensor: Any) -> Any:
        """Send the tensor of rank 0 to all ranks."""

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""

    def close(self) -> None:
        """Leave the group."""


class SwitchMLBackend:
    """A rank of a SwitchML job, through the public interface."""

    name = "switchml"

    def __init__(self) -> None:
        import switchml

        self.communicator = switchml.connect()
        self.rank, self.world_size = self.communicator.rank, self.communicator.world_size
        text = os.environ["SWITCHML_BENCH_WIRE"]
        wire = switchml.parse_wire(text) if text else None
        self.all_reduce: Callable[..., Any] = functools.partial(self.communicator.all_reduce, wire=wire)
        self.barrier = self.communicator.barrier
        self._gathering: switchml.Communicator | None = None

    def prepare(self, tensor: Elements) -> Any:
        """Return the tensor itself, or the same memory as an array of bfloat16."""
        if tensor.dtype != np.uint16:
            return tensor
        import ml_dtypes

        return tensor.view(ml_dtypes.bfloat16)

    def all_reduce_with(self, wire_bits: int) -> Callable[[Any], Any]:
        """Return the all-reduce that sends elements in lanes of this many bits."""
        return self.all_reduce if wire_bits == 32 else functools.partial(self.all_reduce, wire=_blocks(wire_bits))

    def reduce_scatter_with(self, wire_bits: int) -> Callable[[Any, Any], Any]:
        """Return the reduce-scatter that sends elements in lanes of this many bits."""
        return functools.partial(self.communicator.reduce_scatter, wire=_blocks(wire_bits))

    def all_gather(self, part: Any, whole: Any) -> Any:
        """Gather the ranks' parts."""
        return self.communicator.all_gather(part, whole)

    def scatter_and_gather(self) -> Callable[[Any, Any, Any, Any], None]:
        """Return the two collectives; a second job makes the gathers, because the calls of one job take turns."""
        import switchml

        if self._gathering is None:
            self._gathering = switchml.connect(
                job=f"gathers of {self.communicator.name}", rank=self.rank, world_size=self.world_size, create=True
            )
        gathering = self._gathering

        def both(whole: Any, part: Any, other_part: Any, other: Any) -> None:
            scatter = self.communicator.reduce_scatter(whole, part, async_op=True)
            gathering.all_gather(other_part, other)
            scatter.wait()

        return both

    def broadcast(self, tensor: Any) -> Any:
        """Send the tensor of rank 0 to all ranks."""
        return self.communicator.broadcast(tensor, 0)

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""
        works = [self.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    def close(self) -> None:
        """End this rank's part in its jobs."""
        if self._gathering is not None:
            self._gathering.close()
        self.communicator.close()


class GlooBackend:
    """A rank of PyTorch's Gloo process group, with one thread for its own arithmetic."""

    name = "gloo"

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
        if tensor.dtype != np.uint16:
            return self._torch.from_numpy(tensor)
        return self._torch.from_numpy(tensor.view(np.int16)).view(self._torch.bfloat16)

    def all_reduce_with(self, wire_bits: int) -> Callable[[Any], Any]:
        """Return the all-reduce, which sends elements in their own type."""
        _require_whole_words(wire_bits)
        all_reduce: Callable[[Any], Any] = self._dist.all_reduce
        return all_reduce

    def reduce_scatter_with(self, wire_bits: int) -> Callable[[Any, Any], Any]:
        """Return the reduce-scatter, which sends elements in their own type."""
        _require_whole_words(wire_bits)
        return lambda whole, part: self._dist.reduce_scatter_tensor(part, whole)

    def all_gather(self, part: Any, whole: Any) -> Any:
        """Gather the ranks' parts."""
        return self._dist.all_gather_into_tensor(whole, part)

    def scatter_and_gather(self) -> Callable[[Any, Any, Any, Any], None]:
        """Return the two collectives, started together."""

        def both(whole: Any, part: Any, other_part: Any, other: Any) -> None:
            scatter = self._dist.reduce_scatter_tensor(part, whole, async_op=True)
            self._dist.all_gather_into_tensor(other, other_part)
            scatter.wait()

        return both

    def broadcast(self, tensor: Any) -> Any:
        """Send the tensor of rank 0 to all ranks."""
        return self._dist.broadcast(tensor, 0)

    def all_reduce_queued(self, tensors: Sequence[Any]) -> None:
        """Start the sums of all `tensors`, then wait for all of them."""
        works = [self._dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


def _blocks(wire_bits: int) -> Any:
    """Return the wire with this many bits for an element; None for the usual one of its type."""
    from switchml import Blocks

    return None if wire_bits == 32 else Blocks(wire_bits)


def _require_whole_words(wire_bits: int) -> None:
    if wire_bits != 32:
        raise ValueError("Gloo has no lanes of other widths")


BACKENDS: dict[str, Callable[[], Backend]] = {"switchml": SwitchMLBackend, "gloo": GlooBackend}
