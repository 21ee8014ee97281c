"""Statistics of the times of many calls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

__all__ = ["median_ratio", "percentile"]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0 to 1) of the values do not exceed: the nearest rank."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median_ratio(pairs: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Return the median over the repetitions of (median of the first / median of the second); None for no pairs.

    A pair is of one repetition, whose turns follow each other, so that a temporary slowdown of the machine affects
    both.
    """
    ratios = [statistics.median(first) / statistics.median(second) for first, second in pairs if first and second]
    return statistics.median(ratios) if ratios else None
