"""Text of versions."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table
from switchml.commands.versions import Versions

__all__: list[str] = []


@text.register(Versions)
def _(found: Versions) -> Iterator[Part]:
    versions = table("", "name", "version", wrap=("version",))
    for version in found.versions:
        style = "red" if version.same is False else ""
        remark = "" if version.same is not False else " (differs from this program's)"
        versions.add_row(version.kind, version.name, Text(version.version + remark, style=style))
    yield versions
