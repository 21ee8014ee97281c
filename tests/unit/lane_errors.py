"""The error of sums in narrow lanes, computed with the kernels of a rank and a sum of words as a switch makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from switchml._native import kernels

__all__ = ["BLOCK", "DISTRIBUTIONS", "relative_error", "ring_error", "table"]

BLOCK: Final = 512  # elements with a common exponent
ELEMENTS: Final = 1 << 16
Floats = npt.NDArray[np.float32]


def _gauss(generator: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return generator.standard_normal(size)


def _laplace(generator: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return generator.laplace(size=size)


def _student(generator: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    return generator.standard_t(3, size)


DISTRIBUTIONS: Final[dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.float64]]]] = {
    "Gauss": _gauss,
    "Laplace": _laplace,
    "Student-3": _student,
}


def contributions(distribution: str, ranks: int) -> list[Floats]:
    """Return the values of all ranks."""
    draw = DISTRIBUTIONS[distribution]
    return [draw(np.random.default_rng((rank, ranks)), ELEMENTS).astype(np.float32) for rank in range(ranks)]


def _of_block(parts: list[Floats], bits: int, stochastic: bool, first: int) -> Floats:
    exponent = max(kernels.block_exponent(kernels.Type.FLOAT32, part.view(np.uint8)) for part in parts)
    levels = kernels.levels_for(bits, len(parts))
    sums = np.zeros(BLOCK * bits // 32, np.uint32)
    words = np.empty(BLOCK * bits // 8, np.uint8)
    for rank, part in enumerate(parts):
        counter = (1, 0, rank, first) if stochastic else None
        values = part.view(np.uint8)
        kernels.quantize_lanes(kernels.Type.FLOAT32, values, bits, 126 - exponent, levels, words, counter)
        sums += words.view(">u4")
    result = np.empty(BLOCK, np.float32)
    total = np.frombuffer(sums.astype(">u4").tobytes(), np.uint8)
    kernels.dequantize_lanes(kernels.Type.FLOAT32, total, bits, 126 - exponent, levels, result.view(np.uint8))
    return result


def _relative(result: npt.NDArray[np.generic], exact: npt.NDArray[np.float64]) -> float:
    return float(np.linalg.norm(result.astype(np.float64) - exact) / np.linalg.norm(exact))


def relative_error(distribution: str, ranks: int, bits: int, stochastic: bool = False) -> float:
    """Return the L2 norm of the error of the sum over all ranks, relative to that of the exact sum."""
    parts = contributions(distribution, ranks)
    exact = np.sum(np.array(parts, np.float64), axis=0)
    blocks = [
        _of_block([part[first : first + BLOCK] for part in parts], bits, stochastic, first)
        for first in range(0, ELEMENTS, BLOCK)
    ]
    return _relative(np.concatenate(blocks), exact)


def _bfloat16(values: Floats) -> Floats:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def ring_error(distribution: str, ranks: int) -> float:
    """Return the error of a ring that rounds to bfloat16 after each addition, for bfloat16 contributions."""
    parts = [_bfloat16(part) for part in contributions(distribution, ranks)]
    total = parts[0]
    for part in parts[1:]:
        total = _bfloat16(total + part)
    return _relative(total, np.sum(np.array(parts, np.float64), axis=0))


def table(ranks: tuple[int, ...] = (2, 4, 8, 16, 32, 64)) -> str:
    """Return the table in docs/understand/protocol.md."""
    lines = [
        "| values | N | 16 bits | 16 bits, stochastic | 8 bits | 8 bits, stochastic | ring of bfloat16 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in DISTRIBUTIONS:
        for count in ranks:
            errors = [relative_error(name, count, bits, stochastic) for bits in (16, 8) for stochastic in (False, True)]
            cells = [f"{error:.1e}" for error in (*errors, ring_error(name, count))]
            lines.append(f"| {name} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)
