"""Undefined values: fields that were never set, and fields of headers that are not valid.

Such a value may be copied, computed with and compared, as the hardware does with whatever a container holds; the
outcome is undefined as well. If a decision, a register or an emitted packet depends on it, that is an error of the
program, which names the field.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["ModelError", "Undefined"]


class ModelError(Exception):
    """The program did something that the hardware cannot do, or that P4 leaves undefined; the text says where."""


class Undefined:
    """An undefined field, or a value computed from one; all other operations raise ModelError."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}: undefined>"

    # Identity suffices: there is one object for each field.
    __hash__ = object.__hash__

    def _stay(self, *_: Any) -> Undefined:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __invert__ = _stay
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _stay
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _stay
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _stay  # type: ignore[assignment]

    def fail(self, *_: Any) -> NoReturn:
        """Raise ModelError."""
        raise ModelError(f"{self.name} is read, but it was never set or its header is not valid")

    __bool__ = __index__ = __int__ = to_bytes = fail
