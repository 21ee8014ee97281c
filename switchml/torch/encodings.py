"""Encodings of the sum of each dtype as sums of dtypes that `switchml.Communicator` supports.

| dtype | on the wire | result |
|---|---|---|
| float32 | float32, in lanes of `Options.wire` bits (`wire.py`) | the bound of `switchml.Communicator` |
| float16, bfloat16 | the dtype itself, likewise | the bound, rounded once to the dtype |
| float64 | float64, in three words | likewise |
| int32 | int32 | exact modulo 2^32 |
| int16 | int16, in lanes of 32 bits | exact modulo 2^16 |
| int8, uint8 | the dtype itself, in lanes of 16 bits (`wire.py`) | exact modulo 2^8 |
| bool | bool, in lanes of 8 bits, likewise | true if any rank's value is |
| int64 | int64, in one to three words, as the values of a packet need | exact modulo 2^64 |

An average of integers is the exact sum, divided and rounded towards zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from switchml.client.calls import SkipZeros
from switchml.client.errors import UnsupportedTensor
from switchml.client.wire import Integers, Wire
from switchml.torch import averages
from switchml.torch.deadlines import Deadline
from switchml.torch.exact_network import Handle, Network
from switchml.torch.options import Options
from switchml.torch.reductions import Reduction
from switchml.torch.wire import wire_of

__all__ = ["SUM_DTYPES", "Direct", "Encoding", "encode"]

SUM_DTYPES: Final = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)
"""The dtypes that can be summed in the network."""

_WIDER: Final = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int8: torch.int16,
    torch.uint8: torch.int16,
    torch.int16: torch.int32,
    torch.int32: torch.int64,
}
_BYTES: Final = {torch.int8: 2**7, torch.uint8: 2**8 - 1}  # the largest magnitudes


class Encoding(Protocol):
    """One tensor in a network reduction. It and its result are dense, contiguous and in CPU memory."""

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit the tensor; all ranks make the same calls in the same order."""

    def finish(self) -> None:
        """Write the result after all calls that `start` returned have ended."""


def encode(
    target: Tensor,
    reduction: Reduction,
    world_size: int,
    options: Options,
    part: Tensor | None = None,
    skip_zeros: SkipZeros = False,
) -> Encoding:
    """Return the encoding for reducing `target` in the network.

    Args:
        target: the tensor, which its result replaces if there is no `part`; otherwise it is only read.
        reduction: the operation.
        world_size: the number of ranks.
        options: those of the group.
        part: gets this rank's part of the result, which has one of equal length for each rank.
        skip_zeros: see `Options.skip_zeros`; only for tensors that take no wider copy, and without a `part`.

    Raises:
        UnsupportedTensor: `reduction` is not defined for the dtype.

    """
    floating = target.dtype.is_floating_point
    if reduction.name == "premul_sum" and not floating:
        raise UnsupportedTensor(
            f"PREMUL_SUM of {target.dtype} would round its products. It is unchanged; convert it to a floating-point "
            "dtype, or multiply it first and use SUM."
        )
    if reduction.name == "avg" and target.dtype == torch.bool:
        raise UnsupportedTensor("torch.bool has no average. The tensor is unchanged; convert it to a float dtype.")
    if target.dtype == torch.int64 and reduction.name == "avg":
        return LongAverage(target, world_size, part)
    wire = wire_of(target.dtype, world_size, options)
    if target.dtype in (torch.float32, torch.float64):
        return Direct(target, reduction, wire, part, skip_zeros)
    if target.dtype in (torch.float16, torch.bfloat16) and reduction.factor is None:
        return Direct(target, reduction, wire, part, skip_zeros)
    if not floating and reduction.name == "sum":
        return Direct(target, reduction, wire, part, skip_zeros)
    return Widened(target, reduction, world_size, wire, part)


class Direct:
    """Sums floats, bool and integers without a copy."""

    def __init__(
        self, target: Tensor, reduction: Reduction, wire: Wire | None, part: Tensor | None, skip_zeros: SkipZeros
    ) -> None:
        self._target = target
        self._reduction = reduction
        self._wire = wire
        self._part = part
        self._skip_zeros = skip_zeros

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit the tensor, or its products with the factor: a copy of them if the tensor is only read."""
        values = self._target
        if self._part is not None and self._reduction.factor is not None:
            values = values.clone()
        _premultiply(values, self._reduction)
        op = "avg" if self._reduction.name == "avg" else "sum"
        left = deadline.seconds_left
        if self._part is None:
            return [
                network.all_reduce(
                    values, op, async_op=True, timeout=left, wire=self._wire, skip_zeros=self._skip_zeros
                )
            ]
        return [network.reduce_scatter(values, self._part, op, async_op=True, timeout=left, wire=self._wire)]

    def finish(self) -> None:
        """Do nothing: the result is in place."""


class Widened:
    """Averages integers of up to 32 bits, and sums products of 16-bit floats and a factor, which must not be rounded.

    The sums are of a type that holds them, over the same wire. The result is then converted to the dtype.
    """

    def __init__(
        self, target: Tensor, reduction: Reduction, world_size: int, wire: Wire | None, part: Tensor | None
    ) -> None:
        self._target = target
        self._reduction = reduction
        self._world_size = world_size
        self._wire = wire
        self._part = part
        bytes_bound = _BYTES.get(target.dtype)
        if isinstance(wire, Integers) and bytes_bound is not None:
            self._wire = Integers(wire.bits, bytes_bound)
        many = bytes_bound is not None and self._wire == Integers(bound=bytes_bound)  # ranks: sums exceed 16 bits
        self._buffer = target.to(torch.int32 if many else _WIDER[target.dtype])
        self._sums = _room_for_sums(self._buffer, part, world_size)

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit the wider copy."""
        _premultiply(self._buffer, self._reduction)
        average = self._reduction.name == "avg" and self._target.dtype.is_floating_point
        op = "avg" if average else "sum"
        return [_start(network, self._buffer, self._sums, op, deadline, self._wire)]

    def finish(self) -> None:
        """Narrow the sum."""
        if self._reduction.name == "avg" and not self._target.dtype.is_floating_point:
            self._sums.div_(self._world_size, rounding_mode="trunc")
        _deliver(self._sums, self._target, self._part)


class LongAverage:
    """Averages int64 exactly, also if the sum exceeds int64: the sums of quotients and remainders do not."""

    def __init__(self, target: Tensor, world_size: int, part: Tensor | None) -> None:
        self._target = target
        self._world_size = world_size
        self._part = part
        self._terms = averages.parts(target, world_size)
        self._sums = _room_for_sums(self._terms, part, world_size)

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit quotients and remainders as one tensor."""
        return [_start(network, self._terms, self._sums, "sum", deadline)]

    def finish(self) -> None:
        """Put both sums together."""
        _deliver(averages.average(self._sums.view(-1, 2), self._world_size), self._target, self._part)


def _room_for_sums(values: Tensor, part: Tensor | None, world_size: int) -> Tensor:
    """Return where the sums go: `values` itself, or a new tensor of the size of a part if only a `part` is wanted."""
    return values if part is None else torch.empty(values.numel() // world_size, dtype=values.dtype)


def _start(
    network: Network,
    values: Tensor,
    sums: Tensor,
    op: str,
    deadline: Deadline,
    wire: Wire | None = None,
) -> Handle:
    """Start the sum of `values` in place if `sums` is `values`; otherwise into `sums`, which has this rank's part."""
    left = deadline.seconds_left
    if sums is values:
        return network.all_reduce(values, op, async_op=True, timeout=left, wire=wire)
    return network.reduce_scatter(values, sums, op, async_op=True, timeout=left, wire=wire)


def _deliver(result: Tensor, target: Tensor, part: Tensor | None) -> None:
    """Copy a result to `part`, or to `target` if there is no part."""
    place = target if part is None else part
    place.copy_(result.view(place.shape))


def _premultiply(values: Tensor, reduction: Reduction) -> None:
    if reduction.factor is not None:
        values *= reduction.factor
