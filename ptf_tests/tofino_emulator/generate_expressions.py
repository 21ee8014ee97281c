"""Generate Python source for the short form's expressions (import_expressions.py)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ptf_tests.tofino_emulator.import_expressions import Expression

__all__ = ["ExpressionGenerator", "identifier", "wrapped"]

_SAME_IN_PYTHON = frozenset(("==", "!=", "<", "<=", ">", ">=", "&", "|", "^", ">>", "and", "or"))
_WRAPPING = frozenset(("+", "-", "*", "<<"))
_SATURATING = {"|+|": "+", "|-|": "-"}


def identifier(name: str) -> str:
    """Return the Python variable for a variable of the program."""
    return re.sub(r"\W", "_", name.replace("_", "__").replace(".", "_"))


def wrapped(text: str, width: int) -> str:
    """Return an expression reduced to the range of a type of ``width``."""
    if width >= 0:
        return f"({text} & {(1 << width) - 1})"
    half = 1 << (-width - 1)
    return f"((({text}) + {half} & {2 * half - 1}) - {half})"


class ExpressionGenerator:
    """Write expressions; ``hoist`` writes those with effects before the statement and returns a variable."""

    def __init__(self, hoist: Callable[[list[Any]], str]) -> None:
        self._hoist = hoist
        self._writers: dict[str, Callable[..., str]] = {
            "not": lambda operand: f"(not {self(operand)})",
            "neg": lambda width, operand: wrapped(f"(-{self(operand)})", width),
            "~": lambda width, operand: wrapped(f"(~{self(operand)})", width),
            "cast": self._cast,
            "slice": lambda operand, high, low: f"({self(operand)} >> {low} & {(1 << (high - low + 1)) - 1})",
            "++": lambda left, width, right: f"({self(left)} << {width} | {wrapped(self(right), abs(width))})",
            "mux": lambda condition, yes, no: f"({self(yes)} if {self(condition)} else {self(no)})",
            "valid": lambda header: f"valid_{identifier(header)}",
            "predicate": self._predicate,
            "max": lambda left, right: f"max({self(left)}, {self(right)})",
            "min": lambda left, right: f"min({self(left)}, {self(right)})",
        }

    def __call__(self, expression: Expression) -> str:
        """Return the Python expression."""
        if isinstance(expression, (bool, int)):
            return repr(expression)
        if isinstance(expression, str):
            return identifier(expression)
        operator, *operands = expression
        if operator in _SAME_IN_PYTHON:
            return f"({self(operands[0])} {operator} {self(operands[1])})"
        if operator in _WRAPPING:
            width, left, right = operands
            return wrapped(f"({self(left)} {operator} {self(right)})", width)
        if operator in _SATURATING:
            return self._saturated(_SATURATING[operator], *operands)
        if operator in self._writers:
            return self._writers[operator](*operands)
        return self._hoist(expression)

    def _saturated(self, operator: str, width: int, left: Expression, right: Expression) -> str:
        low, high = (0, (1 << width) - 1) if width > 0 else (-(1 << (-width - 1)), (1 << (-width - 1)) - 1)
        return f"max({low}, min({high}, {self(left)} {operator} {self(right)}))"

    def _cast(self, source: int, target: int, operand: Expression) -> str:
        text = self(operand)
        if source == 0:
            return text if target == 0 else f"(1 if {text} else 0)"
        if target == 0:
            return f"({text} == 1)"
        if 0 < source <= target:
            return text  # not narrower: the same number, defined or not
        return wrapped(text, target)

    def _predicate(self, *conditions: Expression) -> str:
        """Return one of four bits, for the outcome of the stateful ALU's two comparisons."""
        low, high = (*conditions, False)[:2]
        return f"(1 << ((1 if {self(low)} else 0) + (2 if {self(high)} else 0)))"
