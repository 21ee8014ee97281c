"""Commands and groups as switchml-ctl declares them, with what their parameters have in common."""

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
    """A command that returns a result. It has the option --json, which decides how the result is shown."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        help_text = "Print one JSON object on standard output."
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help=help_text))

    def invoke(self, context: click.Context) -> int:
        """Run the command, show its result and return the exit status."""
        shown_by: Renderer = JsonRenderer() if context.params.pop("as_json") else TextRenderer()
        context.meta[_RENDERER] = shown_by
        result: Result | Rendered = super().invoke(context)
        shown_by.show(result)
        return result.exit_status


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def renderer() -> Renderer:
    """Return what shows the result of the command that runs."""
    found: Renderer = click.get_current_context().meta[_RENDERER]
    return found


class Parsed(click.ParamType[Any]):
    """A value that a function reads from text; it raises ValueError for what is not allowed."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return what the text stands for; defaults that are not text are taken as they are."""
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
