"""Methods of compression and values of optimizers, as the options of this study name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from switchml.benchmarks.options import each

__all__ = ["GRACE_METHODS", "factors", "method_arguments", "methods", "momenta"]

GRACE_METHODS: Final = (
    *("onebit", "signsgd", "signum", "efsign", "qsgd", "terngrad", "natural", "dynamic8", "inceptionn"),
    *("randomk", "topk", "threshold", "dgc", "adaq", "sketchml", "powersgd:rank=1"),
)
"""The 16 methods of GRACE, with the defaults of this project."""

_ARGUMENT: Final = re.compile(r"(\w+)=([\w.+-]+)")


def methods(text: str) -> list[str]:
    """Return the methods of compression of "lanes:bits=8,topk", or all of GRACE of "all". Raises ValueError."""
    if text == "all":
        return list(GRACE_METHODS)

    def method(word: str) -> str:
        method_arguments(word)
        return word

    return each(text, method)


def method_arguments(word: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a method such as "qsgd:levels=15:norm=max". Raises ValueError for other text."""
    name, *given = word.split(":")
    arguments: dict[str, Any] = {}
    for argument in given:
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            raise ValueError(f"{argument!r} in {word!r} is not an argument of a method; write NAME=VALUE")
        arguments[match[1]] = _value(match[2])
    if not name.isidentifier():
        raise ValueError(f"{word!r} is not a method; write a name, and its arguments as in qsgd:levels=15:norm=max")
    return name, arguments


def _value(text: str) -> int | float | str:
    if text.isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def factors(text: str) -> list[float]:
    """Return the factors of "0.5,1,3". Raises ValueError for one that is not a positive number."""
    wanted = "a factor of the learning rate; write a positive number, such as 0.5 or 3"
    return each(text, lambda word: _number(word, lambda value: 0 < value < math.inf, wanted))


def momenta(text: str) -> list[float]:
    """Return the momenta of "0.9,0". Raises ValueError for one that is not at least 0 and below 1."""
    wanted = "a momentum; write a number from 0 to below 1, such as 0.9"
    return each(text, lambda word: _number(word, lambda value: 0 <= value < 1, wanted))


def _number(word: str, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise ValueError(f"{word!r} is not {wanted}")
    return value
