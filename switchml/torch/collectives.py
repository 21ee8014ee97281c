"""The collectives that go through the network, and how each of them continues over Gloo when the network is lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from switchml.communicator import Communicator
from switchml.torch.encodings import Encoding, encode
from switchml.torch.gloo_reductions import GlooReduction
from switchml.torch.operands import Operand
from switchml.torch.options import Options
from switchml.torch.reductions import Reduction
from switchml.torch.works import CompletedLater
from switchml.work import Work

__all__ = ["AllReduce", "Barrier", "Broadcast", "Collective", "Reduce"]


class Collective:
    """One collective of one group, from the call to its end.

    Attributes:
        work: the handle that the caller got.
        handles: calls of the library or of Gloo that must end before `finish`.
        end: at least the number of chunks of all calls up to this one; set by the queue after its end in the network.

    """

    def __init__(
        self, name: str, tensors: Sequence[Tensor], private: bool, options: Options, timeout: timedelta
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.operands = [Operand(tensor, private, options) for tensor in tensors]
        self.work = CompletedLater(f"{name} of {_described(tensors)}" if tensors else name, tensors)
        self.handles: Sequence[Any] = ()
        self.options = options
        self.bytes = sum(operand.target.nbytes for operand in self.operands)
        self.end = 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The caller's memory, as pairs of address and number of bytes."""
        return [operand.range for operand in self.operands]

    @property
    def waits(self) -> bool:
        """True if starting has to wait, so that the calling thread must not do it."""
        return any(operand.waits for operand in self.operands)

    def start(self, comm: Communicator) -> None:
        """Submit the collective to the network."""
        for operand in self.operands:
            operand.ready()
        self.handles = self._start(comm, self.timeout.total_seconds())

    def start_over_gloo(self, gloo: Any) -> None:
        """Start the collective over Gloo, with the tensors' values at the time of the call."""
        for operand in self.operands:
            operand.ready()
        self.handles = self._start_over_gloo(gloo)

    def finish(self) -> bool:
        """Write the results to the caller's tensors, and return whether they are known to hold NaN or infinity."""
        non_finite = self._decode()
        self.deliver()
        return non_finite

    def deliver(self) -> None:
        """Copy the results from the operands' targets to the caller's tensors."""
        for operand in self.operands:
            operand.deliver()

    def complete(self, error: Exception | None = None) -> None:
        """Complete the caller's work."""
        self.work.complete(error, [operand.delivered for operand in self.operands if operand.delivered is not None])

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        raise NotImplementedError

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _decode(self) -> bool:
        """Write the results to the operands' targets; return the same as `finish`."""
        return False


class AllReduce(Collective):
    """An all-reduce of one tensor, or of several that are submitted back to back."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        reduction: Reduction,
        world_size: int,
        private: bool,
        options: Options,
        timeout: timedelta,
        name: str = "all_reduce",
    ) -> None:
        super().__init__(f"{name} ({reduction.name})", tensors, private, options, timeout)
        self._reduction = reduction
        self._world_size = world_size
        self._parts: list[Encoding] = []
        self._gloo_parts: list[GlooReduction] = []
        if not any(operand.waits for operand in self.operands):
            self._encode()

    def _encode(self) -> None:
        self._parts = [
            encode(operand.target, self._reduction, self._world_size, self.options) for operand in self.operands
        ]

    @property
    def waits(self) -> bool:
        """True if a tensor must be copied from its device first, or the ranks must agree on an exponent."""
        return super().waits or any(part.waits for part in self._parts)

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        if not self._parts:
            self._encode()
        return [work for part in self._parts for work in part.start(comm, timeout)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        for operand in self.operands:
            operand.restore()
        self._gloo_parts = [
            GlooReduction(operand.target, self._reduction, self._world_size) for operand in self.operands
        ]
        return [part.start(gloo, self.timeout) for part in self._gloo_parts]

    def _decode(self) -> bool:
        if self._gloo_parts:
            for part in self._gloo_parts:
                part.finish()
            return False
        known = [part.finish() for part in self._parts]
        return any(known)


class Reduce(AllReduce):
    """An all-reduce whose result only the root keeps."""

    def __init__(
        self,
        tensor: Tensor,
        reduction: Reduction,
        root: bool,
        world_size: int,
        private: bool,
        options: Options,
        timeout: timedelta,
    ) -> None:
        super().__init__([tensor], reduction, world_size, private or not root, options, timeout, "reduce")
        self._root = root

    def deliver(self) -> None:
        """Copy the results on the root; do nothing on the other ranks."""
        if self._root:
            super().deliver()


class Broadcast(Collective):
    """A broadcast of a tensor of any dtype, as bytes."""

    def __init__(self, tensor: Tensor, root: int, private: bool, options: Options, timeout: timedelta) -> None:
        super().__init__("broadcast", [tensor], private, options, timeout)
        self._root = root

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        return [comm.broadcast(self.operands[0].target, self._root, True, timeout)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        self.operands[0].restore()
        return [broadcast_over_gloo(gloo, self.operands[0].target, self._root, self.timeout)]


class Barrier(Collective):
    """A barrier: a call without tensors, for which each rank sends one empty packet."""

    def __init__(self, options: Options, timeout: timedelta) -> None:
        super().__init__("barrier", [], False, options, timeout)

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        return [comm.barrier(timeout, async_op=True)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        options = dist.BarrierOptions()
        options.timeout = self.timeout
        return [gloo.barrier(options)]


def broadcast_over_gloo(gloo: Any, tensor: Tensor, root: int, timeout: timedelta) -> Any:
    """Start a broadcast of a contiguous tensor over Gloo, also for dtypes that Gloo does not support."""
    options = dist.BroadcastOptions()
    options.rootRank = root
    options.timeout = timeout
    return gloo.broadcast([tensor.flatten().view(torch.uint8)], options)


def _described(tensors: Sequence[Tensor]) -> str:
    if len(tensors) != 1:
        return f"{len(tensors)} tensors"
    return f"{tensors[0].numel()} {str(tensors[0].dtype).removeprefix('torch.')}"
