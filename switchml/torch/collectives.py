"""The collectives that go through the network, and how each of them continues over Gloo when the network is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor

from switchml.client.calls import SkipZeros
from switchml.client.wire import Wire
from switchml.client.work import Work
from switchml.torch.deadlines import Deadline
from switchml.torch.encodings import Direct, Encoding, encode
from switchml.torch.exact_network import ExactNetwork, Handle, Network
from switchml.torch.gloo_moves import all_gather_over_gloo, barrier_over_gloo, broadcast_over_gloo
from switchml.torch.gloo_reductions import GlooReduction, GlooScatter
from switchml.torch.long_sums import LongSumTurn
from switchml.torch.operands import Operand, memory_of
from switchml.torch.options import Options
from switchml.torch.profiling import begin_record
from switchml.torch.reductions import Reduction
from switchml.torch.works import CompletedLater

__all__ = [
    "AllGather",
    "AllReduce",
    "Barrier",
    "Broadcast",
    "Collective",
    "Conditions",
    "Reduce",
    "ReduceScatter",
    "WireReduce",
    "WireScatter",
]


class Conditions(NamedTuple):
    """The settings of a group for each of its collectives.

    Attributes:
        rank: the rank of this process in the group.
        world_size: the number of ranks of the group.
        private: True if the tensors are copied first, because the collective may have to start again over Gloo.
        options: those of the group.
        timeout: the longest duration of the call.

    """

    rank: int
    world_size: int
    private: bool
    options: Options
    timeout: timedelta


class Collective(ABC):
    """One collective of one group, from the call to its end.

    Attributes:
        conditions: what its group has set.
        operands: the tensors that get results.
        inputs: tensors that are only read.
        deadline: the time at which it must have ended.
        work: the handle that the caller got.
        handles: calls of the library or of Gloo that must end before `finish`.
        first_call: the number of calls of the network before its own; None if it has not been started there.
        long_bytes: the bytes of a sum of int64, whose path may depend on the values of earlier ones; otherwise 0.
        turn: its place among such sums; set by the queue.

    """

    def __init__(
        self,
        name: str,
        results: Sequence[Tensor],
        operands: Sequence[Operand],
        conditions: Conditions,
        inputs: Sequence[Operand] = (),
    ) -> None:
        self.name = name
        self.conditions = conditions
        self.deadline = Deadline.after(conditions.timeout)
        self.operands = operands
        self.inputs = inputs
        self.work = CompletedLater(name, results)
        self.work.record = begin_record(name.split()[0], [operand.target for operand in inputs] or results)
        self.handles: Sequence[Any] = ()
        self.first_call: int | None = None
        self.long_bytes = 0
        self.turn: LongSumTurn | None = None
        self.bytes = sum(operand.target.nbytes for operand in self.operands)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The caller's memory that gets results, as pairs of address and number of bytes."""
        return [operand.range for operand in self.operands]

    @property
    def reads(self) -> list[tuple[int, int]]:
        """The caller's memory that is only read, likewise."""
        return [operand.range for operand in self.inputs]

    @property
    def wire_bytes(self) -> int:
        """The bytes of values that its calls have put into packets; those of calls that have not ended do not count."""
        return sum(call.wire_bytes for call in self.handles if isinstance(call, Work))

    @property
    def waits(self) -> bool:
        """True if starting has to wait, so that the calling thread must not do it."""
        return any(operand.waits for operand in (*self.inputs, *self.operands))

    def start(self, network: Network) -> None:
        """Submit the collective to the network."""
        self.first_call = network.calls
        self._ready()
        self.handles = self._start(network, self.deadline)

    def start_again(self, exact: ExactNetwork) -> None:
        """Start with the values that the tensors had at the time of the call; an attempt may have changed them."""
        if self.first_call is not None:
            self._undo()
        self.start(exact)

    def start_over_gloo(self, gloo: Any) -> None:
        """Start the collective over Gloo, with the tensors' values at the time of the call."""
        self._ready()
        self.handles = self._start_over_gloo(gloo)

    def share(self, gloo: Any, giver: int, _exact: ExactNetwork | None, deadline: Deadline) -> None:
        """Write the result of rank `giver` to the targets of all ranks.

        Args:
            gloo: the group of Gloo.
            giver: a rank that has the result.
            _exact: makes sums over this group, if they must have the bits of the network.
            deadline: that of the ranks that wait for the result.

        """
        for operand in self.operands:
            broadcast_over_gloo(gloo, operand.target, giver, deadline.left).wait()

    def finish(self) -> None:
        """Write the results to the caller's tensors."""
        self._decode()
        self.deliver()

    def deliver(self) -> None:
        """Copy the results from the operands' targets to the caller's tensors."""
        for operand in self.operands:
            operand.deliver()

    def complete(self, error: Exception | None = None) -> None:
        """Complete the caller's work."""
        self.work.complete(error, [operand.delivered for operand in self.operands if operand.delivered is not None])

    def _ready(self) -> None:
        for operand in (*self.inputs, *self.operands):
            operand.ready()

    def _undo(self) -> None:
        """Forget an attempt, which may have changed the operands' targets."""
        self._ready()
        for operand in self.operands:
            operand.restore()

    @abstractmethod
    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Start the calls of the network, and return their handles."""

    @abstractmethod
    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        """Start the operations of the group of Gloo, and return them."""

    def _decode(self) -> None:  # noqa: B027 - most have their results there
        """Write the results to the operands' targets."""


class _Sum(Collective):
    """A reduction of one tensor, or of several that are submitted back to back.

    Subclasses set what `_encoded` reads before they call this constructor.
    """

    def __init__(
        self,
        name: str,
        results: Sequence[Tensor],
        operands: Sequence[Operand],
        reduction: Reduction,
        conditions: Conditions,
        inputs: Sequence[Operand] = (),
    ) -> None:
        super().__init__(f"{name} ({reduction.name})", results, operands, conditions, inputs)
        self._reduction = reduction
        self._gloo_parts: Sequence[GlooReduction | GlooScatter] = []
        self._parts: list[Encoding] = [] if self.waits else self._encoded(self._targets)

    @property
    def _targets(self) -> list[Tensor]:
        return [operand.target for operand in self.operands]

    @abstractmethod
    def _encoded(self, results: Sequence[Tensor]) -> list[Encoding]:
        """Return the parts of the sum that write `results`."""

    @abstractmethod
    def _reduced(self, results: Sequence[Tensor]) -> Sequence[GlooReduction | GlooScatter]:
        """Return likewise the parts of the sum over Gloo."""

    def _undo(self) -> None:
        super()._undo()
        self._parts = []

    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        self._parts = self._parts or self._encoded(self._targets)
        return [work for part in self._parts for work in part.start(network, deadline)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        self._undo()
        self._gloo_parts = self._reduced(self._targets)
        return [part.start(gloo, self.deadline.left) for part in self._gloo_parts]

    def _decode(self) -> None:
        for part in (*self._gloo_parts, *self._parts):
            part.finish()


class AllReduce(_Sum):
    """An all-reduce of one tensor, or of several."""

    def __init__(
        self, tensors: Sequence[Tensor], reduction: Reduction, conditions: Conditions, name: str = "all_reduce"
    ) -> None:
        operands = [Operand(tensor, conditions.private, conditions.options) for tensor in tensors]
        super().__init__(name, tensors, operands, reduction, conditions)
        # If ranks may need results from the network again, the sum stays there.
        longs = name == "all_reduce" and tensors[0].dtype == torch.int64  # other calls may have no tensor
        if longs and reduction.name == "sum" and not conditions.private:
            self.long_bytes = self.bytes

    def _encoded(self, results: Sequence[Tensor]) -> list[Encoding]:
        world_size, options = self.conditions.world_size, self.conditions.options
        return [
            encode(result, self._reduction, world_size, options, skip_zeros=options.skip_zeros) for result in results
        ]

    def _reduced(self, results: Sequence[Tensor]) -> list[GlooReduction]:
        return [GlooReduction(result, self._reduction, self.conditions.world_size) for result in results]


class WireReduce(AllReduce):
    """An all-reduce of one tensor over a wire that the caller chooses, regardless of the options of the group."""

    def __init__(
        self, tensor: Tensor, reduction: Reduction, conditions: Conditions, wire: Wire, skip_zeros: SkipZeros
    ) -> None:
        self._wire = wire
        self._skip_zeros = skip_zeros
        super().__init__([tensor], reduction, conditions, "all_reduce_over")

    def _encoded(self, results: Sequence[Tensor]) -> list[Encoding]:
        return [Direct(result, self._reduction, self._wire, None, self._skip_zeros) for result in results]


class Reduce(AllReduce):
    """An all-reduce whose result only the root keeps."""

    def __init__(self, tensor: Tensor, reduction: Reduction, root: bool, conditions: Conditions) -> None:
        private = conditions.private or not root
        super().__init__([tensor], reduction, conditions._replace(private=private), "reduce")
        self._root = root

    def deliver(self) -> None:
        """Copy the results on the root; do nothing on the other ranks."""
        if self._root:
            super().deliver()


class ReduceScatter(_Sum):
    """A reduce-scatter of one tensor, or of several; the inputs are only read.

    If results are shared after a loss of the network, the ranks that lack them cannot get them from others, which have
    other parts. So all ranks reduce the inputs again, over Gloo.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        reduction: Reduction,
        conditions: Conditions,
        name: str,
    ) -> None:
        rank, options = conditions.rank, conditions.options
        read = [
            Operand(given, conditions.private or _mixed_up(given, output, rank), options, written=False)
            for given, output in zip(inputs, outputs, strict=True)
        ]
        operands = [Operand(output, False, options) for output in outputs]
        super().__init__(name, outputs, operands, reduction, conditions, read)
        self.bytes = sum(given.target.nbytes for given in read)

    def _encoded(self, results: Sequence[Tensor]) -> list[Encoding]:
        return [
            encode(given.target, self._reduction, self.conditions.world_size, self.conditions.options, result)
            for given, result in zip(self.inputs, results, strict=True)
        ]

    def _reduced(self, results: Sequence[Tensor]) -> list[GlooScatter]:
        return [
            GlooScatter(given.target, result, self._reduction, self.conditions.world_size)
            for given, result in zip(self.inputs, results, strict=True)
        ]

    def share(self, gloo: Any, _giver: int, exact: ExactNetwork | None, deadline: Deadline) -> None:
        """Reduce the inputs over Gloo; a rank that has its results already keeps those."""
        ended = self.work.is_completed()
        results = [torch.empty_like(output.target) if ended else output.target for output in self.operands]
        if exact is not None:
            assert self.first_call is not None
            exact.calls = self.first_call
            for part in self._encoded(results):
                part.start(exact, deadline)
                part.finish()
            return
        for scatter in self._reduced(results):
            scatter.start(gloo, deadline.left).wait()
            scatter.finish()


class WireScatter(ReduceScatter):
    """A reduce-scatter of one tensor over a wire that the caller chooses, regardless of the options of the group."""

    def __init__(self, output: Tensor, given: Tensor, reduction: Reduction, conditions: Conditions, wire: Wire) -> None:
        self._wire = wire
        super().__init__([output], [given], reduction, conditions, "reduce_scatter_over")

    def _encoded(self, results: Sequence[Tensor]) -> list[Encoding]:
        return [
            Direct(given.target, self._reduction, self._wire, result, skip_zeros=False)
            for given, result in zip(self.inputs, results, strict=True)
        ]


class AllGather(Collective):
    """An all-gather of one tensor of any dtype, or of several that are submitted back to back, as bytes.

    Args:
        outputs: for each input a tensor with a part for each rank, or a list of a CPU tensor for each rank.
        inputs: tensors, which are only read.

    """

    def __init__(
        self,
        outputs: Sequence[Tensor | Sequence[Tensor]],
        inputs: Sequence[Tensor],
        conditions: Conditions,
        name: str,
    ) -> None:
        private, options = conditions.private, conditions.options
        wholes = [
            output
            if isinstance(output, Tensor)
            else torch.empty((len(output), *given.shape), dtype=given.dtype, device="cpu")
            for output, given in zip(outputs, inputs, strict=True)
        ]
        self._pieces = [
            (piece.detach(), whole[rank])
            for output, whole in zip(outputs, wholes, strict=True)
            if not isinstance(output, Tensor)
            for rank, piece in enumerate(output)
        ]
        results = [piece for piece, _ in self._pieces] or wholes
        operands = [Operand(whole, private and not self._pieces, options) for whole in wholes]
        read = [
            Operand(given, private or _mixed_up(whole, given, conditions.rank), options, written=False)
            for given, whole in zip(inputs, wholes, strict=True)
        ]
        super().__init__(name, results, operands, conditions, read)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The caller's memory that gets results, as pairs of address and number of bytes."""
        return [memory_of(piece) for piece, _ in self._pieces] or super().ranges

    def deliver(self) -> None:
        """Copy the results to the caller's tensors."""
        super().deliver()
        for piece, part in self._pieces:
            piece.copy_(part.view(piece.shape))

    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        return [
            network.all_gather(given.target, whole.target, True, deadline.seconds_left)
            for given, whole in zip(self.inputs, self.operands, strict=True)
        ]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        return [
            all_gather_over_gloo(gloo, whole.target, given.target, self.deadline.left)
            for given, whole in zip(self.inputs, self.operands, strict=True)
        ]


class Broadcast(Collective):
    """A broadcast of a tensor of any dtype, as bytes."""

    def __init__(self, tensor: Tensor, root: int, conditions: Conditions) -> None:
        operand = Operand(tensor, conditions.private, conditions.options)
        super().__init__("broadcast", [tensor], [operand], conditions)
        self._root = root

    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        return [network.broadcast(self.operands[0].target, self._root, True, deadline.seconds_left)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        self._undo()
        return [broadcast_over_gloo(gloo, self.operands[0].target, self._root, self.deadline.left)]


class Barrier(Collective):
    """A barrier: a call without tensors, for which each rank sends one empty packet."""

    def __init__(self, conditions: Conditions) -> None:
        super().__init__("barrier", [], [], conditions)

    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        return [network.barrier(deadline.seconds_left, async_op=True)]

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        return [barrier_over_gloo(gloo, self.deadline.left)]


def _mixed_up(whole: Tensor, part: Tensor, rank: int) -> bool:
    """Return whether `part` overlaps `whole` outside the part of rank `rank`."""
    (begin, size), (part_begin, part_size) = memory_of(whole), memory_of(part)
    overlap = part_begin < begin + size and begin < part_begin + part_size
    return overlap and part_begin != begin + rank * part_size
