"""Whether a quantity stays level: how much of a series of samples is growth, and how much of that is allowed.

The first part of a run is left out: caches fill, and what is made once is made. Of the rest the Theil-Sen slope is
taken (Theil 1950, Sen 1968: the median of the slopes between all pairs of samples), which single peaks and a single
step do not move, while a leak does, however it comes. Slope times duration is the growth that the run saw.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["WARM_UP", "Allowance", "Verdict", "judge"]

WARM_UP = 1 / 3
"""Share of the run's time that is left out."""
_LEAST_SAMPLES = 8


@dataclass(frozen=True)
class Allowance:
    """Growth that may be seen over the judged part of a run: `absolute`, or `share` of the median if that is more."""

    absolute: float
    share: float = 0.0

    def of(self, median: float) -> float:
        """Return it for a quantity of this size."""
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
        """Whether it grew no more than it may."""
        return self.growth <= self.allowed


def judge(times: Sequence[float], values: Sequence[float], allowance: Allowance, warm_up: float = WARM_UP) -> Verdict:
    """Judge a series of samples, whose times ascend.

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
