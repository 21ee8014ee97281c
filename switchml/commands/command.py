"""The classes of switchml-ctl's commands and groups, and their common parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["Command", "CommandGroup", "Parsed", "TextCommand", "request_json", "setting", "wants_json", "wants_wide"]

F = TypeVar("F", bound=Callable[..., Any])

_JSON: Final = "switchml.commands.json"
_WIDE: Final = "switchml.commands.wide"


class TextCommand(click.Command):
    """A command with a text for people: its tables have all columns with -o wide, and its help has examples."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        text = "Show all columns of tables, also on a narrow terminal."
        choice = click.Choice(["wide"])
        self.params.append(click.Option(["-o"], type=choice, expose_value=False, callback=_request_wide, help=text))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples; one that is longer than a line is continued on the next one, as a shell reads it."""
        if self.epilog:
            formatter.write_paragraph()
            for line in inspect.cleandoc(self.epilog.replace("\b", "")).splitlines():
                formatter.write("\n".join(_continued(line, formatter.width)) + "\n")


class Command(TextCommand):
    """A command that returns a `Result`, and has the option --json."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        text = "Print one JSON object on standard output."
        self.params.append(
            click.Option(["--json"], is_flag=True, expose_value=False, callback=_request_json, help=text)
        )


def _continued(line: str, width: int) -> list[str]:
    if len(line) <= width or " " not in line[:width].strip():
        return [line]
    end = line[: width - 1].rindex(" ")
    return [f"{line[:end]} \\", *_continued(f"      {line[end + 1 :]}", width)]


class CommandGroup(click.Group):
    """A group of such commands."""

    command_class = Command


def _request_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        request_json(context)


def request_json(context: click.Context) -> None:
    """Have the result of the command shown as JSON."""
    context.meta[_JSON] = True


def _request_wide(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_WIDE] = True


def wants_wide(context: click.Context) -> bool:
    """Return whether the tables of the result are shown with all columns."""
    return _WIDE in context.meta


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
