"""Text of the doctor's checks."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from switchml.commands.doctor import Diagnosis
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table

__all__: list[str] = []

_STYLES = {"ok": "green", "warning": "yellow", "failure": "red", "not found": "dim"}


@text.register(Diagnosis)
def _(diagnosis: Diagnosis) -> Iterator[Part]:
    checks = table("", "check", "found", wrap=("check", "found"))
    for check in diagnosis.checks:
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n-> {check.remedy}", style=_STYLES[check.status])
        checks.add_row(Text(check.status, style=_STYLES[check.status]), check.name, found)
    yield checks
