"""The stored result of a benchmark: one JSON object, from which tables and plots can be made again."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import ResultFileError
from switchml.benchmarks.record import Record
from switchml.common.version import VERSION

__all__ = ["BenchmarkResult", "load", "save"]


@dataclasses.dataclass
class BenchmarkResult:
    """A benchmark's outcome.

    `options` are those it ran with, `systems` the versions of what was measured, `missing` the reasons why peers were
    not; `states` is the machine over time, `samples` everything that was measured, `rows` the statistics of it.
    """

    benchmark: str
    options: dict[str, Any]
    machine: dict[str, Any]
    rows: list[dict[str, Any]]
    samples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    states: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    systems: dict[str, str] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    version: str = VERSION
    time: float = dataclasses.field(default_factory=time.time)

    @classmethod
    def of(
        cls,
        benchmark: str,
        options: Any,
        rows: Iterable[Any],
        record: Record | None = None,
    ) -> BenchmarkResult:
        """Return a result, given dataclasses."""
        record = record or Record()
        return cls(
            benchmark,
            _plain(options),
            _plain(machine_state.look()),
            [_plain(row) for row in rows],
            [_plain(sample) for sample in record.samples],
            [_plain(state) for state in record.states],
            record.systems,
            record.missing,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return dataclasses.asdict(self)


def _plain(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return found


def save(result: BenchmarkResult, path: Path) -> None:
    """Write it to a file. Raises ResultFileError."""
    try:
        path.write_text(json.dumps(result.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultFileError(f"{path} cannot be written: {error.strerror}") from error


def load(path: Path, known: Collection[str]) -> BenchmarkResult:
    """Read what `save` wrote: a result of a benchmark of these names. Raises ResultFileError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultFileError(f"{path} cannot be read: {error}") from error
    names = {field.name: field for field in dataclasses.fields(BenchmarkResult)}
    if not isinstance(content, dict) or content.get("benchmark") not in known or content.keys() != names.keys():
        raise ResultFileError(f"{path} was not written by `switchml-ctl bench` of this version")
    lists: Sequence[str] = ("rows", "samples", "states")
    if not all(isinstance(content[name], list) for name in lists):
        raise ResultFileError(f"{path}: {', '.join(lists)} must be lists")
    return BenchmarkResult(**content)
