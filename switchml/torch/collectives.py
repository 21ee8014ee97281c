"""The collectives that go through the network, and how each is done over Gloo where there is none any more."""

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
        work: what the caller got.
        handles: what has to end before `finish`, of the library or of Gloo.
        end: the chunks of all calls up to this one, at least; set by the queue once it has ended in the network.

    """

    def __init__(
        self, name: str, tensors: Sequence[Tensor], private: bool, options: Options, timeout: timedelta
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.operands = [Operand(tensor, private, options) for tensor in tensors]
        self.work = CompletedLater(f"{name} of {_described(tensors)}" if tensors else name, tensors)
        self.handles: Sequence[Any] = ()
        self.bytes = sum(operand.target.nbytes for operand in self.operands)
        self.end = 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The caller's memory, as addresses and bytes."""
        return [operand.range for operand in self.operands]

    @property
    def waits(self) -> bool:
        """Whether a start waits for something, so that the calling thread must not do it."""
        return any(operand.waits for operand in self.operands)

    def start(self, comm: Communicator) -> None:
        """Submit to the network."""
        for operand in self.operands:
            operand.ready()
        self.handles = self._start(comm, self.timeout.total_seconds())

    def start_over_gloo(self, gloo: Any) -> None:
        """Start over Gloo, from the tensors as they were at the call."""
        for operand in self.operands:
            operand.ready()
        self.handles = self._start_over_gloo(gloo)

    def finish(self) -> bool:
        """Write the results to the caller's tensors, and tell whether they are known to hold NaN or infinity."""
        non_finite = self._decode()
        self.deliver()
        return non_finite

    def deliver(self) -> None:
        """Copy the results, which stand in the operands' targets, to the caller's tensors."""
        for operand in self.operands:
            operand.deliver()

    def complete(self, error: Exception | None = None) -> None:
        """Tell the caller that it has ended."""
        self.work.complete(error, [operand.delivered for operand in self.operands if operand.delivered is not None])

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        raise NotImplementedError

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _decode(self) -> bool:
        """Write the results to the operands' targets, and tell as `finish` does."""
        return False


class AllReduce(Collective):
    """Of one tensor, or of several that are submitted back to back."""

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
        self._parts = [encode(operand.target, self._reduction, self._world_size) for operand in self.operands]

    @property
    def waits(self) -> bool:
        """Whether a tensor has still to be copied from its device, or an exponent is agreed on first."""
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
    """An all-reduce of which the root alone keeps the result."""

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
        """Leave the tensors of the other ranks as they are."""
        if self._root:
            super().deliver()


class Broadcast(Collective):
    """Of any dtype: its bytes travel."""

    def __init__(self, tensor: Tensor, root: int, private: bool, options: Options, timeout: timedelta) -> None:
        super().__init__("broadcast", [tensor], private, options, timeout)
        self._root = root

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        return [comm.broadcast(self.operands[0].target, self._root, True, timeout)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        self.operands[0].restore()
        return [broadcast_over_gloo(gloo, self.operands[0].target, self._root, self.timeout)]


class Barrier(Collective):
    """No tensors: one empty packet of each rank."""

    def __init__(self, options: Options, timeout: timedelta) -> None:
        super().__init__("barrier", [], False, options, timeout)

    def _start(self, comm: Communicator, timeout: float) -> Sequence[Work]:
        return [comm.barrier(timeout, async_op=True)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        options = dist.BarrierOptions()
        options.timeout = self.timeout
        return [gloo.barrier(options)]


def broadcast_over_gloo(gloo: Any, tensor: Tensor, root: int, timeout: timedelta) -> Any:
    """Start a broadcast of a contiguous tensor of any dtype over Gloo, which knows fewer of them."""
    options = dist.BroadcastOptions()
    options.rootRank = root
    options.timeout = timeout
    return gloo.broadcast([tensor.flatten().view(torch.uint8)], options)


def _described(tensors: Sequence[Tensor]) -> str:
    if len(tensors) != 1:
        return f"{len(tensors)} tensors"
    return f"{tensors[0].numel()} {str(tensors[0].dtype).removeprefix('torch.')}"
