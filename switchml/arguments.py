"""Checks of what callers pass in."""

from __future__ import annotations

import math
import operator

__all__ = ["positive_seconds", "whole_number"]


def whole_number(value: object, name: str) -> int:
    """Return `value`, of Python's, numpy's or another integer type, as an int.

    Raises:
        TypeError: it is something else: True is not rank 1, nor 0.5 rank 0.

    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}; it must be an integer")
    return operator.index(value)


def positive_seconds(timeout: float) -> float:
    """Return `timeout`.

    Raises:
        ValueError: it is not a positive number of seconds.

    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout is {timeout!r}; it must be a positive number of seconds")
    return timeout
