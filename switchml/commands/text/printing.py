"""Print results: what the function registered for a result's type yields, to a terminal or a file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import sys
from collections.abc import Iterator
from typing import IO, Final, TypeAlias

import click
from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["Frame", "Part", "Verbatim", "console", "print_text", "text"]

_UNLIMITED: Final = 10_000  # columns


class Verbatim(str):
    """Text that is written unchanged, without an added line end."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A frame of a display, which replaces the one before on a terminal; elsewhere `line` is printed, if given."""

    shown: RenderableType
    line: RenderableType | None = None


Part: TypeAlias = RenderableType | Verbatim | Frame
"""A part of a text. On a terminal, lines are wrapped at words, and tables leave out columns that have no room."""


@functools.singledispatch
def text(result: object) -> Iterator[Part]:
    """Yield the parts of a result's text; modules of this package register a function for each type."""
    raise TypeError(f"no text is registered for {type(result).__name__}")


def print_text(result: object, file: IO[str] | None = None, wide: bool = False) -> None:
    """Print the text of a result to a file, by default standard output; if `wide`, as if a terminal had any width."""
    out = console(file, wide)
    display: Live | None = None
    with contextlib.ExitStack() as stack:
        for part in text(result):
            if isinstance(part, Verbatim):
                click.echo(part, file=file, nl=False)
            elif not isinstance(part, Frame):
                out.print(part)
            elif out.file.isatty():
                display = display or stack.enter_context(Live(console=out, auto_refresh=False))
                display.update(part.shown, refresh=True)
            elif part.line is not None:
                out.print(part.line)


def console(file: IO[str] | None = None, wide: bool = False) -> Console:
    """Return the console of a file. It interprets no markup, and only a terminal limits its width."""
    limited = (file or sys.stdout).isatty() and not wide
    width, height = (None, None) if limited else (_UNLIMITED, shutil.get_terminal_size().lines)
    # A width without a height has no effect on a dumb terminal.
    return Console(file=file, highlight=False, markup=False, emoji=False, width=width, height=height)
