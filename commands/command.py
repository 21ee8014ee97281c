"""The classes of switchml-ctl's commands and groups, and their common parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["Command", "Group", "Parsed", "request_json", "setting", "wants_json"]

F = TypeVar("F", bound=Callable[..., Any])

_JSON: Final = "switchml.commands.json"


class Command(click.Command):
    """A command that returns a `Result`, and has the option --json."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        text = "Print one JSON object on standard output."
        self.params.append(
            click.Option(["--json"], is_flag=True, expose_value=False, callback=_request_json, help=text)
        )


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def _request_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        request_json(context)


def request_json(context: click.Context) -> None:
    """Have the result of the command shown as JSON."""
    context.meta[_JSON] = True


def wants_json(context: click.Context) -> bool:
    """Return whether the result of the command is shown as JSON."""
    return _JSON in context.meta


class Parsed(click.ParamType[Any]):
    """A value that a function parses from text; the function raises ValueError for invalid text."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the parsed text; defaults that are not text are returned unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)


def setting(name: str) -> Callable[[F], F]:
    """Declare the option of a key of the configuration; `launch.settings.load` parses its text."""
    from switchml.launch.settings import KEYS

    key = KEYS[name]
    default = f"; default {key.default}" if key.default not in (None, "", ()) else ""
    return click.option(
        key.option,
        name.replace(".", "_", 1),
        metavar="VALUE",
        help=f"{key.help}  [{key.variable}; {name} in config.toml{default}]",
    )
