"""`bench latency`: one small all-reduce at a time, and many that are queued together, compared with the peers."""

from __future__ import annotations

import dataclasses

from switchml.benchmarks.allreduce import measure_in_turns
from switchml.benchmarks.record import Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.turns import Task
from switchml.common.progress import Progress

__all__ = ["LatencyOptions", "run"]


@dataclasses.dataclass(frozen=True)
class LatencyOptions:
    """Options: `calls` all-reduces of `bytes` in each turn, and `queue_calls` times `tensors` of them."""

    workers: list[int]
    bytes: int
    tensors: int
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    queue_calls: int
    torch_python: str


def run(options: LatencyOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    tasks = [Task(options.bytes, 1, options.calls), Task(options.bytes, options.tensors, options.queue_calls)]
    return measure_in_turns("latency", options, tasks, report, progress)
