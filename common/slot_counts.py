"""The number of slots of a job, a power of two, so that a switch matches its aligned range with one ternary key."""

from __future__ import annotations

from typing import Final

__all__ = ["MINIMUM_SLOTS", "is_power_of_two"]

MINIMUM_SLOTS: Final = 2


def is_power_of_two(number: int) -> bool:
    """Return whether `number` is 1, 2, 4, 8..."""
    return number > 0 and number & (number - 1) == 0
