"""The classes of switchml-ctl's commands and groups, and their common parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from switchml.commands.rendering import JsonRenderer, Renderer, TextRenderer
from switchml.commands.result import Rendered, Result

__all__ = ["Command", "Group", "Parsed", "renderer", "setting"]

F = TypeVar("F", bound=Callable[..., Any])

_RENDERER: Final = "switchml.commands.renderer"


class Command(click.Command):
    """A command that returns a result. Its option --json selects the output format."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        help_text = "Print one JSON object on standard output."
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=help_text))

    def invoke(self, context: click.Context) -> int:
        """Run the command, print its result and return the exit status."""
        shown_by: Renderer = JsonRenderer() if context.params.pop("as_json") else TextRenderer()
        context.meta[_RENDERER] = shown_by
        result: Result | Rendered = super().invoke(context)
        shown_by.show(result)
        return result.exit_status


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def renderer() -> Renderer:
    """Return the renderer for the result of the current command."""
    found: Renderer = click.get_current_context().meta[_RENDERER]
    return found


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


def setting(name: str, option: str) -> Callable[[F], F]:
    """Declare an option for a key of the configuration."""
    from switchml.launch.settings import KEYS

    key = KEYS[name]

    def parse(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return key.parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    default = f"; default {key.default}" if key.default not in (None, "") else ""
    return click.option(
        option,
        name.replace(".", "_", 1),
        callback=parse,
        metavar="VALUE",
        help=f"{key.help}  [{key.variable}; {name} in config.toml{default}]",
    )
