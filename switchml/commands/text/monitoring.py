"""Text of files for monitoring."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.monitoring import MonitoringFile
from switchml.commands.text.printing import Part, Verbatim, text

__all__: list[str] = []


@text.register(MonitoringFile)
def _(file: MonitoringFile) -> Iterator[Part]:
    yield Verbatim(file.content)
