"""The measurements of a benchmark, on the way to its result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import RankFailed

__all__ = ["Record", "Reporter"]

Reporter = Callable[[str], None]
"""Called with one line at a time about the progress, for people who wait."""


@dataclass
class Record:
    """All samples (dataclasses), the machine's states at their times, and the versions of the systems.

    `missing` has the reasons why other systems were not measured, or not to the end.
    """

    report: Reporter = field(default=lambda _line: None, repr=False)
    samples: list[Any] = field(default_factory=list)
    states: list[machine_state.State] = field(default_factory=list)
    systems: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, why: object) -> None:
        """Do without a system from the beginning."""
        self.missing[name] = str(why)
        self.report(f"{name} is left out: {why}")

    @contextlib.contextmanager
    def optional(self, name: str) -> Iterator[None]:
        """Do without a system from here on if its ranks fail in this context."""
        try:
            yield
        except RankFailed as error:
            self.missing[name] = f"failed: {str(error).splitlines()[0]}"
            self.report(f"{name} takes no further turns: {error}")
