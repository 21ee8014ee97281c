"""A counter of the native code, as the programs show it; counter_table.py describes them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

__all__ = ["Counter", "by_heading", "headings", "read_counters"]

T = TypeVar("T", int, float)
_NANOSECONDS: Final = "_ns"


@dataclass(frozen=True)
class Counter:
    """One counter, under the `name` that it has in the native code and in the protocol."""

    name: str
    unit: str
    help: str
    metric: str = ""  # empty if it is not exported under its own name
    metric_help: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # which tell the counters of one metric apart
    total: str = ""  # of durations: the counter that has their sum
    headings: Mapping[str, str] = field(default_factory=dict)  # by what the command line shows: ranks, top, profile

    @property
    def is_histogram(self) -> bool:
        """True if its value is a list of numbers, one for each bucket of durations."""
        return self.unit == "durations"

    @property
    def quantity(self) -> str:
        """The name that users see: that of `in_units`."""
        return self.name.removesuffix(_NANOSECONDS)

    def in_units(self, value: float) -> float:
        """Return a value as users see it: durations in seconds."""
        return value / 1e9 if self.name.endswith(_NANOSECONDS) else value


def read_counters(counters: Iterable[Counter], message: object) -> dict[str, Any]:
    """Return the counters in a message of the protocol, by their names."""
    return {counter.name: getattr(message, counter.name) for counter in counters}


def headings(view: str, counters: Iterable[Counter]) -> list[str]:
    """Return the headings of the columns that a view of the command line has for these counters."""
    return list(dict.fromkeys(counter.headings[view] for counter in counters if view in counter.headings))


def by_heading(view: str, counters: Iterable[Counter], values: Mapping[str, T]) -> dict[str, T]:
    """Return what these columns show, by their headings; `values` are by the counters' names."""
    columns: dict[str, T] = {}
    for counter in counters:
        heading, value = counter.headings.get(view), values[counter.name]
        if heading is not None:
            columns[heading] = columns[heading] + value if heading in columns else value
    return columns
