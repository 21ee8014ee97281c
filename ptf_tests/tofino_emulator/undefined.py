"""What a P4 program must not depend on: fields that were never set, and fields of headers that are not valid.

Such a value may be copied, computed with and compared, as the hardware does with whatever a container holds, and what
comes of that is undefined as well. When a decision, a register or what leaves the switch depends on it, that is an
error of the program, said with the name of the field.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["ModelError", "Undefined"]


class ModelError(Exception):
    """The program did what the hardware cannot do, or what P4 leaves undefined. The text says what, and where."""


class Undefined:
    """The value of a field that has none, and of what is computed from it; all else raises ModelError."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}: undefined>"

    # Identity is enough: there is one object for each field.
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
