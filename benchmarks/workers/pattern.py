"""Tensors whose sum over all ranks is known, and the check of a result against it.

Element i of rank r in call c is float32(base[i] * (r + 1)) * 2^-(c mod 3), where base holds 24-bit fractions in
[-1, 1) and repeats after PERIOD elements. PERIOD is a prime, so no two chunks have the same contents; the power of two
makes the result of an earlier call wrong. peers/open_mpi_rank.c computes the same.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["PERIOD", "TYPES", "Pattern", "allowed_error"]

PERIOD: Final = 1_000_003
_FACTORS: Final[tuple[np.float32, ...]] = (np.float32(1), np.float32(0.5), np.float32(0.25))
_BLOCK: Final = 1 << 16  # elements that are compared at a time, so that they stay in the caches

Vector = npt.NDArray[np.float32]
Elements = npt.NDArray[np.float32 | np.uint16]

TYPES: Final[dict[str, type[np.float32 | np.uint16]]] = {"float32": np.float32, "bfloat16": np.uint16}
"""The type of the array that holds elements of a type; numpy has no bfloat16, so that its bits are in integers."""

_BFLOAT16_BITS: Final = 7  # of its fraction


def allowed_error(backend: str, world_size: int, element_type: str = "float32", wire_bits: int = 32) -> float:
    """Return the allowed difference of a result from the sum in float64, for the calls whose factor is 1.

    A sum of bfloat16 may also differ by its rounding to that type: once for SwitchML, at each addition for others.
    """
    allowed = _allowed_error_of_sum(backend, world_size, wire_bits)
    if element_type == "bfloat16":
        exponent = math.floor(math.log2(world_size * (world_size + 1) / 2))
        rounding = math.ldexp(0.5, exponent - _BFLOAT16_BITS)
        allowed += rounding if backend == "switchml" else rounding * (world_size - 1)
    return allowed


def _allowed_error_of_sum(backend: str, world_size: int, wire_bits: int) -> float:
    """Return the allowed difference of a sum before it is rounded to its type.

    For SwitchML: N/2 * M * 2^-(31 - ceil(log2 N)) + half a unit in the last place (the bound in docs/pytorch.md, with M
    for
    the whole tensor). For others, which add float32 in some order: (N - 1) * 2^-24 times the sum of the magnitudes
    (Higham,
    Accuracy and Stability of Numerical Algorithms, 4.2). Both get another half unit, because results are compared with
    the float32 nearest to the sum.
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
        rounded = _to_bfloat16 if element_type == "bfloat16" else _unchanged
        self._contribution: Vector = rounded(base * np.float32(rank + 1))
        expected = np.zeros(length, np.float64)
        for other in range(world_size):
            expected += rounded(base * np.float32(other + 1))
        self._expected: Vector = expected.astype(np.float32)

    def fill(self, tensor: Elements, call: int) -> None:
        """Make `tensor` this rank's contribution to a call."""
        factor = _factor(call)
        for start in range(0, len(tensor), PERIOD):
            part = tensor[start : start + PERIOD]
            if part.dtype == np.float32:
                np.multiply(self._contribution[: len(part)], factor, out=part)
            else:
                part[:] = (self._contribution[: len(part)] * factor).view(np.uint32) >> np.uint32(16)

    def largest_error(self, tensor: Elements, call: int) -> float:
        """Return the largest error of an element of the sum, in units of the call's factor; NaN if any is NaN."""
        factor = _factor(call)
        expected = self._expected * factor
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
