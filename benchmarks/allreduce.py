"""`bench allreduce`: the time of an all-reduce over sizes and numbers of workers, beside the peers."""

from __future__ import annotations

import dataclasses

from benchmarks.results import Result
from benchmarks.summary import summarize
from benchmarks.systems import work_directory
from benchmarks.turns import Reporter, Task, Turns, calls_of, systems

__all__ = ["Options", "run"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured; `calls` in each turn, 0 for as many as suit a size."""

    workers: list[int]
    sizes: list[int]
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    torch_python: str


def run(options: Options, report: Reporter) -> Result:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    tasks = [Task(size, 1, calls_of(size, options.calls)) for size in options.sizes]
    with (
        work_directory() as directory,
        systems(options.transports, options.peers, options.torch_python, directory, report) as (measured, missing),
    ):
        turns = Turns(measured, directory, report)
        for workers in options.workers:
            turns.run(workers, tasks, options.repetitions)
        descriptions = {system.name: system.description for system in measured}
    rows = summarize(turns.turns, options.transports, options.peers)
    return Result.of("allreduce", options, rows, turns.turns, turns.states, descriptions, missing | turns.failed)
