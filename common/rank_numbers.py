"""Numbers of ranks as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["rank_numbers"]

_MOST: Final = 16  # numbers or ranges in a text


def rank_numbers(ranks: Sequence[int]) -> str:
    """Return "0, 3": each rank, in the given order.

    More than 16 ranks are sorted and become ranges: "0 to 62, 64". Of more than 16 ranges, the last ones are counted:
    "0, 2, ..., 30 and 1009 more".
    """
    if len(ranks) <= _MOST:
        return ", ".join(map(str, ranks))
    ranges: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], rank)
        else:
            ranges.append((rank, rank))
    text = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges[:_MOST])
    more = sum(high - low + 1 for low, high in ranges[_MOST:])
    return f"{text} and {more} more" if more else text
