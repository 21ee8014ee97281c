"""The part of an all-reduce that is spent in Python, outside of the native calls."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.options import size_text
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import own_fabric, work_directory
from switchml.benchmarks.turns import Task, calls_of
from switchml.common.progress import Progress

__all__ = ["PythonCostOptions", "PythonCostRow", "run"]

_RANK: Final = "studies.python_cost.rank"


@dataclasses.dataclass(frozen=True)
class PythonCostOptions:
    """Options; `calls` of each size, 0 for a number that suits it."""

    workers: int
    sizes: list[int]
    transports: list[str]
    calls: int


@dataclasses.dataclass(frozen=True)
class PythonCostRow:
    """Medians over all ranks and calls, in seconds: `median` of a call, `python` of its part outside of native calls.

    `python` includes time in which another process had the CPU, `python_cpu` does not.
    """

    transport: str
    bytes: int
    workers: int
    calls: int
    median: float
    python: float
    python_cpu: float
    share: float


def run(options: PythonCostOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    rows: list[PythonCostRow] = []
    record = Record(report, states=[machine_state.now()])
    progress.expect(len(options.transports) * len(options.sizes))
    with work_directory() as directory:
        for transport in options.transports:
            with (
                own_fabric(transport, directory) as system,
                dataclasses.replace(system, program=_RANK).group(options.workers, directory) as group,
            ):
                for size in options.sizes:
                    report(f"{transport}: {size_text(size)} on {options.workers} workers")
                    task = Task(size, 1, calls_of(size, options.calls))
                    answers = group.command(f"python_cost {task.calls} {task.warm_up} {size // 4}")
                    record.samples.append(_Sample(transport, size, answers))
                    rows.append(_row(record.samples[-1]))
                    progress.did()
    return BenchmarkResult.of("python_cost", options, rows, record)


@dataclasses.dataclass(frozen=True)
class _Sample:
    transport: str
    bytes: int
    answers: list[dict[str, Any]]


def _row(sample: _Sample) -> PythonCostRow:
    seconds = [second for answer in sample.answers for second in answer["seconds"]]
    python = [second for answer in sample.answers for second in _timed(answer, "python_seconds")]
    return PythonCostRow(
        transport=sample.transport,
        bytes=sample.bytes,
        workers=len(sample.answers),
        calls=len(sample.answers[0]["seconds"]),
        median=statistics.median(seconds),
        python=statistics.median(python),
        python_cpu=statistics.median(
            [second for answer in sample.answers for second in _timed(answer, "python_cpu_seconds")]
        ),
        share=statistics.median(python) / statistics.median(seconds),
    )


def _timed(answer: dict[str, Any], name: str) -> list[float]:
    """Return the seconds of the timed calls, which are the last ones."""
    seconds: list[float] = answer[name][-len(answer["seconds"]) :]
    return seconds
