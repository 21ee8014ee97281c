"""The test whether a quantity is flat: the growth in a series of samples, and the growth that is allowed.

The first part of a run is omitted, in which caches fill and objects are created that then remain. The slope of the rest
is the Theil-Sen estimate (Theil 1950, Sen 1968: the median of the slopes between all pairs of samples). Single peaks or
a single step do not change it, but a leak of any form does. The growth is the slope times the duration.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["WARM_UP", "Allowance", "Verdict", "judge"]

WARM_UP = 1 / 3
"""Fraction of the run's time that is omitted."""
_LEAST_SAMPLES = 8


@dataclass(frozen=True)
class Allowance:
    """Allowed growth over the judged part of a run: `absolute`, or `share` of the median if that is more."""

    absolute: float
    share: float = 0.0

    def of(self, median: float) -> float:
        """Return the allowed growth of a quantity with this median."""
        return max(self.absolute, self.share * median)


@dataclass(frozen=True)
class Verdict:
    """The judged part of a series: `first` and `last` are medians of its first and last quarter."""

    first: float
    last: float
    growth: float
    allowed: float

    @property
    def flat(self) -> bool:
        """Return whether the growth is allowed."""
        return self.growth <= self.allowed


def judge(times: Sequence[float], values: Sequence[float], allowance: Allowance, warm_up: float = WARM_UP) -> Verdict:
    """Judge a series of samples with ascending times.

    Raises:
        ValueError: too few samples are left for a judgement.

    """
    begin = times[0] + warm_up * (times[-1] - times[0]) if times else 0.0
    judged = [(t, v) for t, v in zip(times, values, strict=True) if t >= begin]
    if len(judged) < _LEAST_SAMPLES:
        raise ValueError(f"{len(judged)} samples after the warm-up are too few; {_LEAST_SAMPLES} are needed")
    slope = statistics.median((v - u) / (t - s) for (s, u), (t, v) in combinations(judged, 2))
    seen = [value for _, value in judged]
    quarter = max(1, len(seen) // 4)
    return Verdict(
        first=statistics.median(seen[:quarter]),
        last=statistics.median(seen[-quarter:]),
        growth=slope * (judged[-1][0] - judged[0][0]),
        allowed=allowance.of(statistics.median(seen)),
    )
