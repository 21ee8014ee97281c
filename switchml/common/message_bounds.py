"""Bounds of the texts, bytes and lists in protobuf messages, written as a table and checked before a message is used.

A table has an entry ("Message.field") for each such field that a caller can set. Messages are taken apart by their
descriptors, so that no handler checks a size itself; numbers need no bound here, because their type has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from switchml.common.printable import printable

__all__ = ["Bound", "BoundExceeded", "Bounds", "octets", "rows", "text", "texts"]

_SHOWN: Final = 40  # characters of a text in an error
_Check: TypeAlias = "Callable[[Any], None]"
_SIZED: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class BoundExceeded(ValueError):
    """A field of a message is larger than its bound."""


@dataclass(frozen=True)
class Bound:
    """The most entries of a list, and the most characters of a text, or bytes of anything else; in a list, of each."""

    entries: int | None = None
    length: int | None = None
    unit: str = "characters"

    def __str__(self) -> str:
        each = f"{self.length:,} {self.unit}" if self.length is not None else ""
        return each if self.entries is None else f"{self.entries:,} entries" + (f" of {each}" if each else "")


def text(length: int) -> Bound:
    """Return the bound of a text."""
    return Bound(None, length)


def texts(entries: int, length: int) -> Bound:
    """Return the bound of a list of texts."""
    return Bound(entries, length)


def octets(length: int) -> Bound:
    """Return the bound of a byte string, or of a whole message, whose fields need no bounds then."""
    return Bound(None, length, "bytes")


def rows(entries: int) -> Bound:
    """Return the bound of a list of numbers or messages."""
    return Bound(entries)


class Bounds:
    """A table of bounds, by "Message.field"."""

    def __init__(self, table: Mapping[str, Bound]) -> None:
        self.table = dict(table)
        self._checks: dict[Any, _Check | None] = {}  # by type of message

    def check(self, message: Message) -> None:
        """Check all fields of a message, and of the messages in it.

        Raises:
            BoundExceeded: a field is larger than its bound; the error names the field, its size and its bound.

        """
        check = self._check_of(message.DESCRIPTOR)
        if check is not None:
            check(message)

    def sized_fields(self, descriptor: Any) -> Iterator[str]:
        """Yield the name of each field that needs a bound, of a type of message and of those in it."""
        seen: set[Any] = set()
        left = [descriptor]
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            for field in one.fields:
                whole = _name(field) in self.table and not field.is_repeated
                if whole or field.is_repeated or field.type in _SIZED:
                    yield _name(field)
                if field.message_type is not None and not whole:
                    left.append(field.message_type)

    def _check_of(self, descriptor: Any) -> _Check | None:
        """Return the check of a type of message; None if nothing in it has a bound."""
        if descriptor not in self._checks:
            self._checks[descriptor] = None  # a message inside one of the same type is not looked into
            steps = [step for field in descriptor.fields for step in self._steps(field)]
            self._checks[descriptor] = _all_of(steps) if steps else None
        return self._checks[descriptor]

    def _steps(self, field: Any) -> Iterator[_Check]:
        name, bound, of_message = field.name, self.table.get(_name(field)), field.message_type is not None
        if bound is not None and of_message and not field.is_repeated:
            yield lambda message: _require(field, bound, getattr(message, name).ByteSize())
            return
        if bound is not None:
            yield _size_check(field, bound)
        inner = self._check_of(field.message_type) if of_message else None
        if inner is not None and field.is_repeated:
            yield lambda message: _each(inner, getattr(message, name))
        elif inner is not None:
            yield lambda message: inner(getattr(message, name)) if message.HasField(name) else None


def _name(field: Any) -> str:
    return f"{field.containing_type.name}.{field.name}"


def _all_of(steps: Sequence[_Check]) -> _Check:
    def check(message: Any) -> None:
        for step in steps:
            step(message)

    return check


def _each(check: _Check, messages: Any) -> None:
    for message in messages:
        check(message)


def _size_check(field: Any, bound: Bound) -> _Check:
    name, most, sized = field.name, bound.entries, field.type in _SIZED

    def check(message: Any) -> None:
        value = getattr(message, name)
        if most is not None and len(value) > most:
            raise BoundExceeded(f"{_name(field)} has {len(value):,} entries, and may have {most:,}")
        if sized:
            for one in (value,) if most is None else value:
                _require(field, bound, len(one), one)

    return check


def _require(field: Any, bound: Bound, length: int, shown: object = None) -> None:
    if bound.length is not None and length > bound.length:
        beginning = f": '{printable(shown, _SHOWN)}'..." if isinstance(shown, str) else ""
        raise BoundExceeded(f"{_name(field)} has {length:,} {bound.unit}, and may have {bound.length:,}{beginning}")
