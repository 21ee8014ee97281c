"""Tables and cells that several results have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from switchml.common.counter_table import RANK
from switchml.common.counters import by_heading, headings, read_counters
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["FittedTable", "age", "packet_columns", "packet_counts", "ranges", "state_text", "table"]

_WRAPPED: Final = 24  # columns that a cell of several lines has at least
_UNLIMITED: Final = 10_000
_STATE_STYLES = {"RUNNING": "green", "COMPLETED": "green", "READY": "cyan", "FAILED": "red", "STOPPED": "yellow"}


class FittedTable:
    """A table that leaves out columns if the console is too narrow for all of them.

    Columns without any content go first, then those in `drop`, then the others from the right; never the first one.
    Cells of the columns in `wrap` may take several lines.
    """

    def __init__(
        self, columns: Sequence[str], title: str | None, right: Iterable[str], drop: Iterable[str], wrap: Iterable[str]
    ) -> None:
        self._columns = list(columns)
        self._title = title
        self._right, self._drop, self._wrap = set(right), list(drop), set(wrap)
        self.rows: list[tuple[str | Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with a cell for each column."""
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, and below it the names of the columns that are left out."""
        shown, left_out = list(range(len(self._columns))), []
        for number in self._order():
            if self._width(console, options, shown) <= options.max_width:
                break
            shown.remove(number)
            if any(map(self._plain(number), self.rows)):
                left_out.append(self._columns[number])
        yield self._made(shown)
        if left_out:
            yield Text(f"left out: {', '.join(left_out)} (-o wide shows all)", "dim")

    def _order(self) -> list[int]:
        """Return the numbers of the columns in the order in which they are left out."""
        named = [self._columns.index(name) for name in self._drop]
        others = [number for number in range(len(self._columns) - 1, 0, -1) if number not in named]
        order = [*named, *others]
        return sorted(order, key=lambda number: any(map(self._plain(number), self.rows)))  # stable: the order remains

    def _plain(self, number: int) -> Callable[[tuple[str | Text, ...]], str]:
        return lambda row: str(row[number])

    def _width(self, console: Console, options: ConsoleOptions, shown: Sequence[int]) -> int:
        table = self._made(shown)
        for column, number in zip(table.columns, shown, strict=True):
            if self._columns[number] in self._wrap:
                column.max_width = _WRAPPED
        return Measurement.get(console, options.update(width=_UNLIMITED), table).maximum

    def _made(self, shown: Sequence[int]) -> Table:
        made = Table(box=box.SIMPLE_HEAD, title=self._title, title_justify="left", title_style="bold", pad_edge=False)
        for number in shown:
            name = self._columns[number]
            justify: Literal["left", "right"] = "right" if name in self._right else "left"
            made.add_column(name, justify=justify, overflow="fold", no_wrap=name not in self._wrap)
        for row in self.rows:
            made.add_row(*(row[number] for number in shown))
        return made


def table(
    *columns: str,
    title: str | None = None,
    right: Iterable[str] = (),
    drop: Iterable[str] = (),
    wrap: Iterable[str] = (),
) -> FittedTable:
    """Return a table without rows; the columns named by `right` are right-aligned. For the others see FittedTable."""
    return FittedTable(columns, title, right, drop, wrap)


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
