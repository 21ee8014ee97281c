"""Statistics of the times of many calls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = ["median_ratio", "percentile"]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` (0 to 1) of the values do not exceed: the nearest rank."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class TimedTurn(Protocol):
    """A system's turn in one repetition, and the seconds of its calls."""

    @property
    def repetition(self) -> int: ...
    @property
    def seconds(self) -> Sequence[float]: ...


def median_ratio(theirs: Iterable[TimedTurn], ours: Iterable[TimedTurn]) -> float | None:
    """Return the median of (their median / our median) over the repetitions that both took part in; None without any.

    The turns of a repetition follow each other, so that a temporary slowdown of the machine affects both.
    """
    own = {turn.repetition: statistics.median(turn.seconds) for turn in ours}
    ratios = [statistics.median(turn.seconds) / own[turn.repetition] for turn in theirs if turn.repetition in own]
    return statistics.median(ratios) if ratios else None
