"""Print results: what the function registered for a result's type yields, to a terminal or a file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import IO, Final, TypeAlias

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

__all__ = ["Frame", "Part", "Verbatim", "console", "print_text", "text"]

_FILE_WIDTH: Final = 200


class Verbatim(str):
    """Text that is written unchanged, without an added line end."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame of a display, which replaces the one before on a terminal; elsewhere `line` is printed, if given."""

    shown: RenderableType
    line: RenderableType | None = None


Part: TypeAlias = RenderableType | Verbatim | Frame
"""A part of a text. Strings are lines, which the terminal wraps; tables and groups are fitted to its width."""


@functools.singledispatch
def text(result: object) -> Iterator[Part]:
    """Yield the parts of a result's text; modules of this package register a function for each type."""
    raise TypeError(f"no text is registered for {type(result).__name__}")


def print_text(result: object, file: IO[str] | None = None) -> None:
    """Print the text of a result to a file, by default standard output."""
    out = console(file)
    display: Live | None = None
    with contextlib.ExitStack() as stack:
        for part in text(result):
            if isinstance(part, Verbatim):
                click.echo(part, file=file, nl=False)
            elif not isinstance(part, Frame):
                _print(out, part)
            elif out.file.isatty():
                display = display or stack.enter_context(Live(console=out, auto_refresh=False))
                display.update(part.shown, refresh=True)
            elif part.line is not None:
                _print(out, part.line)


def console(file: IO[str] | None = None) -> Console:
    """Return the console of a file. It interprets no markup, and wraps lines only on a terminal."""
    width = None if (file or sys.stdout).isatty() else _FILE_WIDTH
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width)


def _print(out: Console, part: RenderableType) -> None:
    out.print(part, soft_wrap=isinstance(part, (str, Text)))
