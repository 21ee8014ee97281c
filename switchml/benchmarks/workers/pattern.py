"""Tensors whose sum over all ranks is known, and the check of a result against it.

Element i of rank r in call c is float32(base[i] * (r + 1)) * 2^-(c mod 3), where base holds 24-bit fractions in
[-1, 1) and repeats after PERIOD elements. PERIOD is a prime, so no two chunks have the same contents; the power of two
makes the result of an earlier call wrong. peers/open_mpi_rank.c computes the same.

Integers of 64 bits are odd numbers below a chosen power of two in magnitude, evenly distributed; they also repeat after
PERIOD elements. Call c begins with element c mod 3, so that the result of an earlier call is wrong.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["PERIOD", "TYPES", "IntegerPattern", "Pattern", "allowed_error", "pattern_of"]

PERIOD: Final = 1_000_003
_FACTORS: Final[tuple[np.float32, ...]] = (np.float32(1), np.float32(0.5), np.float32(0.25))
_BLOCK: Final = 1 << 16  # elements that are compared at a time, so that they stay in the caches

Vector = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Element = np.float32 | np.uint16 | np.int64
Elements = npt.NDArray[Element]

TYPES: Final[dict[str, type[Element]]] = {"float32": np.float32, "bfloat16": np.uint16, "int64": np.int64}
"""The type of the array that holds elements of a type; numpy has no bfloat16, so that its bits are in integers."""

_BFLOAT16_BITS: Final = 7  # of its fraction


def allowed_error(backend: str, world_size: int, element_type: str = "float32", wire_bits: int = 32) -> float:
    """Return the allowed difference of a result from the sum in float64, for the calls whose factor is 1.

    A sum of bfloat16 may also differ by its rounding to that type: once for SwitchML, at each addition for others. Sums
    of int64 must be exact.
    """
    if element_type == "int64":
        return 0.0
    allowed = _allowed_error_of_sum(backend, world_size, wire_bits)
    if element_type == "bfloat16":
        exponent = math.floor(math.log2(world_size * (world_size + 1) / 2))
        rounding = math.ldexp(0.5, exponent - _BFLOAT16_BITS)
        allowed += rounding if backend == "switchml" else rounding * (world_size - 1)
    return allowed


def _allowed_error_of_sum(backend: str, world_size: int, wire_bits: int) -> float:
    """Return the allowed difference of a sum before it is rounded to its type.

    For SwitchML: N/2 * M * 2^-(31 - ceil(log2 N)) + half a unit in the last place (docs/guides/formats.md, with M
    for the whole tensor). For others, which add float32 in some order: (N - 1) * 2^-24 times the sum of the magnitudes
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Both get another half unit, because results are
    compared with the float32 nearest to the sum.
    """
    magnitudes = world_size * (world_size + 1) / 2
    units = float(np.spacing(np.float32(magnitudes)))
    if backend == "switchml":
        largest = 2.0 ** (math.floor(math.log2(world_size)) + 1)
        if wire_bits < 32:
            return world_size / 2 * largest / (((1 << (wire_bits - 1)) - 1) // world_size) + units
        return world_size / 2 * largest * 2.0 ** -(31 - math.ceil(math.log2(world_size))) + units
    return (world_size - 1) * 2.0**-24 * magnitudes + units


class Pattern:
    """The contributions of one rank and their sums, for up to `elements` elements."""

    def __init__(self, rank: int, world_size: int, elements: int, element_type: str = "float32") -> None:
        length = min(elements, PERIOD)
        fractions = (np.arange(length, dtype=np.uint32) * np.uint32(2654435761)) >> np.uint32(8)
        base = (fractions.astype(np.float32) - np.float32(2**23)) / np.float32(2**23)
        self._base: Vector = base
        self._rounded = _to_bfloat16 if element_type == "bfloat16" else _unchanged
        self._contribution = self._contribution_of(rank)
        expected = np.zeros(length, np.float64)
        for other in range(world_size):
            expected += self._contribution_of(other)
        self._expected: Vector = expected.astype(np.float32)

    def _contribution_of(self, rank: int) -> Vector:
        return self._rounded(self._base * np.float32(rank + 1))

    def fill(self, tensor: Elements, call: int) -> None:
        """Make `tensor` this rank's contribution to a call."""
        factor = _factor(call)
        for start in range(0, len(tensor), PERIOD):
            part = tensor[start : start + PERIOD]
            if part.dtype == np.float32:
                np.multiply(self._contribution[: len(part)], factor, out=part)
            else:
                part[:] = (self._contribution[: len(part)] * factor).view(np.uint32) >> np.uint32(16)

    def largest_error(self, tensor: Elements, call: int, first: int = 0, of_rank: int | None = None) -> float:
        """Return the largest error of an element of the sum, in units of the call's factor; NaN if any is NaN.

        Args:
            tensor: the elements from number `first` of the whole tensor on.
            call: the number of the call.
            first: see `tensor`.
            of_rank: the rank whose contribution the elements should be; None for the sum of all.

        """
        factor = _factor(call)
        expected = np.roll(self._expected if of_rank is None else self._contribution_of(of_rank), -first) * factor
        difference = np.empty(min(_BLOCK, len(tensor)), np.float32)
        largest = np.float32(0)
        for start in range(0, len(tensor), PERIOD):
            period = tensor[start : start + PERIOD]
            for at in range(0, len(period), _BLOCK):
                part = period[at : at + _BLOCK]
                rest = difference[: len(part)]
                values = (
                    part if part.dtype == np.float32 else (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
                )
                np.subtract(values, expected[at : at + len(part)], out=rest)
                np.abs(rest, out=rest)
                largest = np.maximum(largest, rest.max())  # NaN is the maximum
        return float(largest) / float(factor)


class IntegerPattern:
    """The same for int64 with magnitudes below 2^`magnitude_bits` (1 to 63); sums are modulo 2^64."""

    def __init__(self, rank: int, world_size: int, elements: int, magnitude_bits: int) -> None:
        length = min(elements, PERIOD) + len(_FACTORS)
        self._contribution = _integers(rank, length, magnitude_bits)
        self._expected = np.zeros(length, np.int64)
        for other in range(world_size):
            self._expected += _integers(other, length, magnitude_bits)

    def fill(self, tensor: Elements, call: int) -> None:
        """Make `tensor`, of int64, this rank's contribution to a call."""
        values, first = tensor.view(np.int64), call % len(_FACTORS)
        for start in range(0, len(values), PERIOD):
            part = values[start : start + PERIOD]
            part[:] = self._contribution[first : first + len(part)]

    def largest_error(self, tensor: Elements, call: int) -> float:
        """Return the largest difference, modulo 2^64, of an element from its sum."""
        values, first = tensor.view(np.int64), call % len(_FACTORS)
        largest = 0.0
        for start in range(0, len(values), PERIOD):
            period = values[start : start + PERIOD]
            for at in range(0, len(period), _BLOCK):
                part = period[at : at + _BLOCK]
                difference = part - self._expected[first + at : first + at + len(part)]
                largest = max(largest, float(np.abs(difference.astype(np.float64)).max()))
        return largest


def pattern_of(
    rank: int, world_size: int, elements: int, element_type: str, magnitude_bits: int
) -> Pattern | IntegerPattern:
    """Return the pattern of a type; `magnitude_bits` is for int64."""
    if element_type == "int64":
        return IntegerPattern(rank, world_size, elements, magnitude_bits)
    return Pattern(rank, world_size, elements, element_type)


def _integers(rank: int, length: int, magnitude_bits: int) -> Integers:
    """Return numbers of a Weyl sequence that begins at a place of this rank's."""
    places = np.arange(length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places += np.uint64(rank * 0xD1B54A32D192ED03 % 2**64)
    numbers: Integers = places.view(np.int64) >> np.int64(63 - magnitude_bits) | np.int64(1)
    return numbers


def _unchanged(values: Vector) -> Vector:
    return values


def _to_bfloat16(values: Vector) -> Vector:
    """Return the nearest values that bfloat16 has, ties to even."""
    bits = values.view(np.uint32)
    rounded: Vector = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(
        np.float32
    )
    return rounded


def _factor(call: int) -> np.float32:
    return _FACTORS[call % len(_FACTORS)]
