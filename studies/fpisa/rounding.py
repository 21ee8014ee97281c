"""The errors of sums of floats, as switches and CPUs add them up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from switchml._native import kernels
from switchml.benchmarks.record import Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress
from switchml.dataplane.floats import HEADROOM, sum_digits, sum_fpisa, sum_fpisa_a

__all__ = ["WAYS", "FpisaOptions", "FpisaRow", "row_of", "run", "values_of"]

_Floats = npt.NDArray[np.float32]

_BLOCK: Final = 256  # values with a common exponent


@dataclasses.dataclass(frozen=True)
class FpisaOptions:
    """Options: sums of `lanes` numbers by each number of workers; `orders` in which their numbers arrive.

    A number is a Gaussian times 2^u, where u is an integer with equal chances from -spread / 2 to spread / 2.
    """

    workers: list[int]
    spreads: list[int]
    lanes: int
    orders: int
    seed: int


@dataclasses.dataclass(frozen=True)
class FpisaRow:
    """One way to add.

    The errors are those of finite sums, relative to the sum of the magnitudes in the lane. The other numbers are
    shares of the lanes: `inexact` whose sum is not the nearest float, `reordered` whose sum has other bits in another
    order, `overflowed` without a sum.
    """

    way: str
    spread: int
    workers: int
    mean: float
    largest: float
    inexact: float
    reordered: float
    overflowed: float


def _in_float32(values: _Floats) -> _Floats:
    total: _Floats = values[0].copy()
    for row in values[1:]:
        np.add(total, row, out=total)
    return total


def _in_blocks(values: _Floats) -> _Floats:
    """Return the sums as a switch computes them that adds integers: those of a block are scaled alike."""
    ranks, lanes = values.shape
    sums = np.empty(lanes, np.float32)
    words = np.empty(4 * _BLOCK, np.uint8)
    for first in range(0, lanes, _BLOCK):
        rows = [np.ascontiguousarray(row[first : first + _BLOCK]).view(np.uint8) for row in values]
        exponent = max(kernels.block_exponent(kernels.Type.FLOAT32, row) for row in rows)
        shift = 31 - (ranks - 1).bit_length() - (exponent - 126)
        total = np.zeros(len(rows[0]) // 4, np.uint32)
        for row in rows:
            kernels.quantize(kernels.Type.FLOAT32, row, shift, words[: len(row)])
            total += words[: len(row)].view(">u4")
        result = sums[first : first + _BLOCK].view(np.uint8)
        kernels.dequantize(kernels.Type.FLOAT32, total.astype(">u4").view(np.uint8), shift, 1.0, result)
    return sums


def _fpisa_a(values: _Floats) -> _Floats:
    return sum_fpisa_a(values).sums


def _fpisa_a_without_overflow(values: _Floats) -> _Floats:
    return sum_fpisa_a(values, max(0, HEADROOM - (len(values) - 1).bit_length())).sums


WAYS: Final[Mapping[str, Callable[[_Floats], _Floats]]] = {
    "float32": _in_float32,
    "blocks": _in_blocks,
    "fpisa": sum_fpisa,
    "fpisa-a": _fpisa_a,
    "fpisa-a-safe": _fpisa_a_without_overflow,
    "digits": sum_digits,
}
"""The ways to add values of shape (ranks, lanes) in the order of the ranks."""


def run(options: FpisaOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Compute all rows."""
    progress.expect(len(options.spreads) * len(options.workers) * len(WAYS))
    rows = []
    for spread in options.spreads:
        for workers in options.workers:
            report(f"{workers} workers, magnitudes up to 2^{spread} apart")
            values = values_of(options, spread, workers)
            for way in WAYS:
                rows.append(row_of(way, options, spread, values))
                progress.did()
    return BenchmarkResult.of("fpisa", options, rows)


def values_of(options: FpisaOptions, spread: int, workers: int) -> _Floats:
    """Return the numbers of all workers, of shape (workers, lanes)."""
    generator = np.random.default_rng((options.seed, spread, workers))
    shape = (workers, options.lanes)
    exponents = generator.integers(-(spread // 2), spread // 2 + 1, shape)
    values: _Floats = np.ldexp(generator.standard_normal(shape), exponents).astype(np.float32)
    return values


def row_of(way: str, options: FpisaOptions, spread: int, values: _Floats) -> FpisaRow:
    """Return the row of a way for the numbers of `values_of`."""
    add = WAYS[way]
    sums = add(values)
    wide = values.astype(np.float64)
    exact = np.array([math.fsum(lane) for lane in wide.T])
    finite = np.isfinite(sums)
    errors = np.abs(sums[finite] - exact[finite]) / np.abs(wide).sum(axis=0)[finite]
    return FpisaRow(
        way,
        spread,
        len(values),
        float(errors.mean()),
        float(errors.max()),
        float(np.mean(sums != exact.astype(np.float32))),
        float(np.mean(_reordered(add, options, values, sums))),
        float(np.mean(~finite)),
    )


def _reordered(
    add: Callable[[_Floats], _Floats], options: FpisaOptions, values: _Floats, sums: _Floats
) -> npt.NDArray[np.bool_]:
    """Return which lanes have a sum with other bits in one of the other orders."""
    generator = np.random.default_rng(options.seed)
    changed = np.zeros(len(sums), np.bool_)
    for _ in range(options.orders - 1):
        again = add(values[generator.permutation(len(values))])
        changed |= again.view(np.uint32) != sums.view(np.uint32)
    return changed
