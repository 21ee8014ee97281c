"""The number of slots of a job, a power of two, so that a switch matches its aligned range with one ternary key.

Aggregators share the slots of a job: slot s of its pool is at number s modulo their count.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MAXIMUM_AGGREGATORS", "MINIMUM_SLOTS", "is_power_of_two"]

MINIMUM_SLOTS: Final = 2

MAXIMUM_AGGREGATORS: Final = 64
"""The most aggregators that an agent serves for a job: one on the host of each rank of the largest job on a switch."""


def is_power_of_two(number: int) -> bool:
    """Return whether `number` is 1, 2, 4, 8..."""
    return number > 0 and number & (number - 1) == 0
