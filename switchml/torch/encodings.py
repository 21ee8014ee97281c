"""Encodings of the sum of each dtype as sums of dtypes that `switchml.Communicator` supports.

| dtype | on the wire | result |
|---|---|---|
| float32 | float32, in lanes of `Options.wire` bits (`wire.py`) | the bound of `switchml.Communicator` |
| float16, bfloat16 | the dtype itself, likewise | the bound, rounded once to the dtype |
| float64 | an exponent for the tensor, then fixed point as int64 | see `FixedPoint` |
| int32 | int32 | exact modulo 2^32 |
| int16 | int16, in lanes of 32 bits | exact modulo 2^16 |
| int8, uint8 | the dtype itself, in lanes of 16 bits (`wire.py`) | exact modulo 2^8 |
| bool | bool, in lanes of 8 bits, likewise | true if any rank's value is |
| int64 | int64, in one to three words, as the values of a packet need | exact modulo 2^64 |

An average of integers is the exact sum, divided and rounded towards zero.
"""

from __future__ import annotations

import math
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
_LOWEST_EXPONENT: Final = -1073  # of math.frexp, for the smallest float64
_EXPONENTS: Final = 1024 - _LOWEST_EXPONENT + 1


class Encoding(Protocol):
    """One tensor in a network reduction. It and its result are dense, contiguous and in CPU memory."""

    @property
    def waits(self) -> bool:
        """True if `start` waits for a result from the network before it returns."""

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit the tensor; all ranks make the same calls in the same order."""

    def finish(self) -> bool:
        """Write the result after all calls that `start` returned have ended.

        Returns:
            True if it holds NaN or infinity that no `NonFiniteError` of the library reports.

        """


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
    if target.dtype == torch.float64:
        return FixedPoint(target, reduction, world_size, part)
    if target.dtype == torch.int64 and reduction.name == "avg":
        return LongAverage(target, world_size, part)
    wire = wire_of(target.dtype, world_size, options)
    if target.dtype == torch.float32:
        return Direct(target, reduction, wire, part, skip_zeros)
    if target.dtype in (torch.float16, torch.bfloat16) and reduction.factor is None:
        return Direct(target, reduction, wire, part, skip_zeros)
    if not floating and reduction.name == "sum":
        return Direct(target, reduction, wire, part, skip_zeros)
    return Widened(target, reduction, world_size, wire, part)


class Direct:
    """Sums float32, float16, bfloat16, bool and integers without a copy."""

    waits = False

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

    def finish(self) -> bool:
        """Do nothing: the result is in place."""
        return False


class Widened:
    """Averages integers of up to 32 bits, and sums products of 16-bit floats and a factor, which must not be rounded.

    The sums are of a type that holds them, over the same wire. The result is then converted to the dtype.
    """

    waits = False

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

    def finish(self) -> bool:
        """Narrow the sum."""
        if self._reduction.name == "avg" and not self._target.dtype.is_floating_point:
            self._sums.div_(self._world_size, rounding_mode="trunc")
        _deliver(self._sums, self._target, self._part)
        return False


class LongAverage:
    """Averages int64 exactly, also if the sum exceeds int64: the sums of quotients and remainders do not."""

    waits = False

    def __init__(self, target: Tensor, world_size: int, part: Tensor | None) -> None:
        self._target = target
        self._world_size = world_size
        self._part = part
        self._terms = averages.parts(target, world_size)
        self._sums = _room_for_sums(self._terms, part, world_size)

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Submit quotients and remainders as one tensor."""
        return [_start(network, self._terms, self._sums, "sum", deadline)]

    def finish(self) -> bool:
        """Put both sums together."""
        _deliver(averages.average(self._sums.view(-1, 2), self._world_size), self._target, self._part)
        return False


class FixedPoint:
    """Sums float64 as integers of B = 62 - ceil(log2 N) bits, scaled by an exponent E that all N ranks agree on.

    2^E is the power of two above the largest magnitude in the whole tensor on any rank. The ranks find it with an int32
    sum over all exponents, in which each rank adds one at its own exponent. Every contribution is rounded to a multiple
    of 2^(E - B), and the integers are summed exactly as int64. So a sum differs from the exact one by at most N/2 *
    2^(E - B) plus half a unit in the last place of the float64 result, and does not depend on any order; an average is
    rounded once, after the division. If a rank has NaN or infinity, a second sum of integers counts them by kind, and
    the result is that of a floating-point sum.
    """

    waits = True

    def __init__(self, target: Tensor, reduction: Reduction, world_size: int, part: Tensor | None) -> None:
        self._target = target
        self._reduction = reduction
        self._world_size = world_size
        self._part = part
        self._shift = 0  # values are multiplied by 2^shift
        self._integers = torch.empty(0)
        self._kinds: Tensor | None = None
        self._kind_bits = 8 if world_size < 2**8 else 16  # of the number of ranks with NaN, or either infinity

    def start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        """Agree on the exponent with the other ranks, then submit."""
        values = self._target.clone().flatten()
        _premultiply(values, self._reduction)
        finite = torch.isfinite(values)
        cleaned = torch.where(finite, values, 0.0)
        places = torch.zeros(_EXPONENTS + 1, dtype=torch.int32)
        largest = float(cleaned.abs().max()) if cleaned.numel() else 0.0
        if largest > 0:
            places[math.frexp(largest)[1] - _LOWEST_EXPONENT] = 1
        places[_EXPONENTS] = int(not bool(finite.all()))
        network.all_reduce(places, timeout=deadline.seconds_left)
        raised = torch.nonzero(places[:_EXPONENTS])
        exponent = int(raised[-1]) + _LOWEST_EXPONENT if raised.numel() else 0
        self._shift = 62 - (self._world_size - 1).bit_length() - exponent
        integers = _scaled(cleaned, self._shift).round_().to(torch.int64)
        self._integers = _room_for_sums(integers, self._part, self._world_size)
        works = [_start(network, integers, self._integers, "sum", deadline)]
        if int(places[_EXPONENTS]):
            dtype = torch.int32 if self._kind_bits == 8 else torch.int64
            kinds = torch.isnan(values).to(dtype)
            kinds += torch.isposinf(values).to(dtype) << self._kind_bits
            kinds += torch.isneginf(values).to(dtype) << 2 * self._kind_bits
            self._kinds = _room_for_sums(kinds, self._part, self._world_size)
            works.append(_start(network, kinds, self._kinds, "sum", deadline))
        return works

    def finish(self) -> bool:
        """Scale the sums back."""
        if self._reduction.name == "avg":
            total = averages.quotients(self._integers, self._world_size)
        else:
            total = self._integers.to(torch.float64)
        total = _scaled(total, -self._shift)
        if self._kinds is not None:
            one = (1 << self._kind_bits) - 1
            positive, negative = (self._kinds >> self._kind_bits) & one, self._kinds >> 2 * self._kind_bits
            total[positive > 0] = math.inf
            total[negative > 0] = -math.inf
            total[(self._kinds & one > 0) | ((positive > 0) & (negative > 0))] = math.nan
        _deliver(total, self._target, self._part)
        return self._kinds is not None


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


def _scaled(values: Tensor, shift: int) -> Tensor:
    """Multiply by 2^shift, in two steps because float64 may not be able to represent 2^shift itself."""
    return values * math.ldexp(1.0, shift // 2) * math.ldexp(1.0, shift - shift // 2)
