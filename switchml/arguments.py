"""Checks of arguments."""

from __future__ import annotations

import math
import operator

from switchml.common.priorities import MAX_PRIORITY

__all__ = ["checked_priority", "positive_seconds", "whole_number"]


def whole_number(value: object, name: str) -> int:
    """Return `value`, which may be of any integer type (Python's, numpy's or another), as an int.

    Raises:
        TypeError: it is not an integer. Booleans and floats are refused, so that True is not taken for rank 1.

    """
    if type(value) is int:  # most often, and faster
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be an integer")
    return operator.index(value)


def checked_priority(priority: int) -> int:
    """Return `priority` as an int.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is not from 0 to 7.

    """
    priority = whole_number(priority, "priority")
    if not 0 <= priority <= MAX_PRIORITY:
        raise ValueError(f"priority is {priority}; it must be from 0 to {MAX_PRIORITY}, the most urgent")
    return priority


def positive_seconds(timeout: float) -> float:
    """Return `timeout`.

    Raises:
        ValueError: it is not a positive number of seconds.

    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is {timeout!r}; it must be a positive number of seconds")
    return timeout
