"""Print results: as JSON for programs or as text for people."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import IO, Any

import click

from switchml.commands.result import Feed, Rendered, Result

__all__ = ["JsonRenderer", "Renderer", "TextRenderer"]


class Renderer(ABC):
    """Write results to a file, by default standard output."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file

    def show(self, result: Result | Rendered) -> None:
        """Write a result."""
        if isinstance(result, Rendered):
            click.echo(result.output, file=self._file, nl=False)
        else:
            self._show(result)

    def rendered(self, result: Result) -> str:
        """Return what `show` writes."""
        file = io.StringIO()
        type(self)(file).show(result)
        return file.getvalue()

    @abstractmethod
    def _show(self, result: Result) -> None: ...


class JsonRenderer(Renderer):
    """Write one JSON object, or for a feed one per line."""

    def _show(self, result: Result) -> None:
        if isinstance(result, Feed):
            for part in result.parts():
                click.echo(json.dumps(part), file=self._file)
        else:
            self.write(result.as_dict())

    def write(self, content: Mapping[str, Any]) -> None:
        """Write an object."""
        click.echo(json.dumps(content, indent=2), file=self._file)


class TextRenderer(Renderer):
    """Write lines and tables; on a terminal, each frame of a display replaces the one before.

    If `wide`, tables have all columns whatever the width of the terminal.
    """

    def __init__(self, file: IO[str] | None = None, *, wide: bool = False) -> None:
        super().__init__(file)
        self._wide = wide

    def _show(self, result: Result) -> None:
        from switchml.commands.text import print_text

        print_text(result, self._file, self._wide)
