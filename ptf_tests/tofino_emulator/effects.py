"""The effects of statements of the short form: which variables they set, and whether they do anything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ptf_tests.tofino_emulator.import_expressions import Expression

__all__ = ["mentions", "targets"]

_WITH_EFFECTS = frozenset(("hit", "execute", "get", "update", "lookahead"))


def targets(statements: Iterable[list[Any]]) -> list[str] | None:
    """Return the variables that statements set, or None if they do anything else."""
    found: list[str] = []
    for kind, *operands in statements:
        inner: list[str] | None = None
        if kind == "=" and operands[0] is not None and not _calls(operands[1]):
            inner = [operands[0] if isinstance(operands[0], str) else operands[0][1]]
        elif kind == "if" and not _calls(operands[0]):
            inner = targets([*operands[1], *operands[2]])
        if inner is None:
            return None
        found += (one for one in inner if one not in found)
    return found


def _calls(expression: Expression) -> bool:
    """Return whether an expression looks up a table or uses an extern."""
    if not isinstance(expression, list):
        return False
    return expression[0] in _WITH_EFFECTS or any(map(_calls, expression[1:]))


def mentions(*nodes: Any, name: str) -> bool:
    """Return whether a name occurs anywhere in statements."""
    stack: list[Any] = list(nodes)
    while stack:
        node = stack.pop()
        if node == name:
            return True
        if isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return False
