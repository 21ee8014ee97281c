"""Checks of arguments."""

from __future__ import annotations

import math
import numbers
import operator

from switchml.common.job_numbers import MAX_PRIORITY

__all__ = ["checked_priority", "positive_seconds", "real_number", "whole_number"]


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


def real_number(value: object, name: str) -> float:
    """Return `value`, which may be of any type of real numbers (Python's, numpy's or another), as a float.

    Raises:
        TypeError: it is not a number. Booleans are refused, so that True is not taken for 1.

    """
    if type(value) is float:  # most often, and faster
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be a number")
    return float(value)


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
    """Return `timeout` as a float.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not a positive number of seconds.

    """
    seconds = real_number(timeout, "timeout")
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"timeout is {timeout!r}; it must be a positive number of seconds")
    return seconds
