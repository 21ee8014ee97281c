"""What commands return."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from switchml.commands.exit_status import ExitCode

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["Feed", "Rendered", "Result", "message_dict"]


class Result(ABC):
    """What a command has found: `as_dict` is what --json prints; `switchml.commands.text` has what people see."""

    @property
    def exit_status(self) -> int:
        """The exit status of the program; it is read after the result has been shown."""
        return ExitCode.OK

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""


class Feed(Result):
    """A result that goes on: --json prints each of its parts as an object on a line of its own."""

    @abstractmethod
    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the parts, as JSON takes them, as they come."""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A result that another process of this program has found, as it has shown it."""

    output: str
    exit_status: int


def message_dict(message: Message) -> dict[str, Any]:
    """Return a protobuf message as JSON takes it.

    Numbers of any size are numbers, values of enumerations are words, and optional fields that are absent are None.
    """
    content: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            content[field.name] = dict(sorted(value.items()))
        elif field.is_repeated:
            content[field.name] = [_plain(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            content[field.name] = None
        else:
            content[field.name] = _plain(field, value)
    return content


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return message_dict(value)
    if field.enum_type is not None:
        from switchml.controller.proto.words import value_word

        return value_word(field.enum_type, value)
    return value
