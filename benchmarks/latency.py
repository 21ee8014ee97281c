"""`bench latency`: one small all-reduce at a time, and many that are queued together, beside the peers."""

from __future__ import annotations

import dataclasses

from benchmarks.results import Result
from benchmarks.summary import summarize
from benchmarks.systems import work_directory
from benchmarks.turns import Reporter, Task, Turns, systems

__all__ = ["Options", "run"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured: `calls` all-reduces of `bytes` in each turn, and `queue_calls` times `tensors` of them."""

    workers: list[int]
    bytes: int
    tensors: int
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    queue_calls: int
    torch_python: str


def run(options: Options, report: Reporter) -> Result:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    tasks = [Task(options.bytes, 1, options.calls), Task(options.bytes, options.tensors, options.queue_calls)]
    with (
        work_directory() as directory,
        systems(options.transports, options.peers, options.torch_python, directory, report) as (measured, missing),
    ):
        turns = Turns(measured, directory, report)
        for workers in options.workers:
            turns.run(workers, tasks, options.repetitions)
        descriptions = {system.name: system.description for system in measured}
    rows = summarize(turns.turns, options.transports, options.peers)
    return Result.of("latency", options, rows, turns.turns, turns.states, descriptions, missing | turns.failed)
