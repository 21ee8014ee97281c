"""The results that commands return."""

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
    """The outcome of a command: `as_dict` is what --json prints; `switchml.commands.text` has the text for people."""

    @property
    def exit_status(self) -> int:
        """The exit status of the program; read after the result has been shown."""
        return ExitCode.OK

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""


class Feed(Result):
    """A result that continues: --json prints each of its parts as an object on a separate line."""

    @abstractmethod
    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield the parts as they arrive, as dictionaries for JSON."""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """The output of another process of this program, already rendered."""

    output: str
    exit_status: int


def message_dict(message: Message) -> dict[str, Any]:
    """Return a protobuf message as a dictionary for JSON.

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
