"""Tables and cells that several results have."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from switchml.common.counter_table import RANK
from switchml.common.counters import by_heading, headings, read_counters
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["age", "packet_columns", "packet_counts", "ranges", "state_text", "table"]

_STATE_STYLES = {"RUNNING": "green", "COMPLETED": "green", "READY": "cyan", "FAILED": "red", "STOPPED": "yellow"}


def table(*columns: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """Return a table without rows; the columns named by `right` are right-aligned."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def packet_columns() -> list[str]:
    """Return the headings of a rank's packets."""
    return headings("ranks", RANK)


def packet_counts(rank: pb.Rank) -> list[str]:
    """Return the cells of a rank's packets."""
    return [f"{count:,}" for count in by_heading("ranks", RANK, read_counters(RANK, rank.counters)).values()]


def state_text(name: str) -> Text:
    """Return the state of a job in its colour."""
    return Text(name, style=_STATE_STYLES.get(name, ""))


def age(moment: float) -> str:
    """Return the time since a moment (seconds since 1970) as people write it: "3 min"."""
    seconds = max(0, int(time.time() - moment))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as people list them: "0-3, 5, 7-8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
