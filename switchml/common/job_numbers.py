"""Numbers of jobs: priorities, slots, ports and ranks, with their limits and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = [
    "HIGHEST_PORT",
    "MAXIMUM_AGGREGATORS",
    "MAX_PRIORITY",
    "MINIMUM_SLOTS",
    "is_power_of_two",
    "rank_numbers",
    "seconds_to_open",
]

MAX_PRIORITY: Final = 7
"""The most urgent priority of a job; the default is 0."""

MINIMUM_SLOTS: Final = 2
"""The fewest slots of a job, always a power of two: so a switch matches their aligned range with one ternary key."""

MAXIMUM_AGGREGATORS: Final = 64
"""The most aggregators that an agent serves for a job: one on the host of each rank of the largest job on a switch.

They share the slots of the job: slot s of its pool is at number s modulo their count.
"""

HIGHEST_PORT: Final = 511
"""The highest port number of any target: packets carry it through the pipeline in nine bits; ports count from 1."""

_MOST_RANGES: Final = 16  # numbers or ranges in a text

_ANY_JOB_SECONDS: Final = 10.0
_SECONDS_PER_RANK: Final = 0.02
_SECONDS_PER_GIB: Final = 5.0  # to allocate the ranks' memory on a busy machine


def is_power_of_two(number: int) -> bool:
    """Return whether `number` is 1, 2, 4, 8..."""
    return number > 0 and number & (number - 1) == 0


def rank_numbers(ranks: Sequence[int]) -> str:
    """Return "0, 3": each rank, in the given order.

    More than 16 ranks are sorted and become ranges: "0 to 62, 64". Of more than 16 ranges, the last ones are counted:
    "0, 2, ..., 30 and 1009 more".
    """
    if len(ranks) <= _MOST_RANGES:
        return ", ".join(map(str, ranks))
    ranges: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], rank)
        else:
            ranges.append((rank, rank))
    text = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges[:_MOST_RANGES])
    more = sum(high - low + 1 for low, high in ranges[_MOST_RANGES:])
    return f"{text} and {more} more" if more else text


def seconds_to_open(ranks: int, slots: int, values: int) -> float:
    """Return the limit for `ranks` ranks on one host, each of which has a buffer of `values` words for each slot."""
    memory = ranks * slots * values * 4
    return _ANY_JOB_SECONDS + _SECONDS_PER_RANK * ranks + _SECONDS_PER_GIB * memory / 2**30
