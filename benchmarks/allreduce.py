"""`bench allreduce`: the time of an all-reduce over sizes and numbers of workers, compared with the peers."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from switchml.benchmarks.results import Result
from switchml.benchmarks.summary import summarize
from switchml.benchmarks.systems import work_directory
from switchml.benchmarks.turns import Reporter, Task, Turns, calls_of, systems
from switchml.common.progress import Progress

__all__ = ["Options", "run"]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of this benchmark; `calls` per turn, 0 for a number that suits the size."""

    workers: list[int]
    sizes: list[int]
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    torch_python: str


class InTurns(Protocol):
    """Options that the benchmarks which measure systems in turns have in common."""

    @property
    def workers(self) -> list[int]: ...
    @property
    def transports(self) -> list[str]: ...
    @property
    def peers(self) -> list[str]: ...
    @property
    def repetitions(self) -> int: ...
    @property
    def torch_python(self) -> str: ...


def run(options: Options, report: Reporter, progress: Progress) -> Result:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    tasks = [Task(size, 1, calls_of(size, options.calls)) for size in options.sizes]
    return measure_in_turns("allreduce", options, tasks, report, progress)


def measure_in_turns(
    benchmark: str, options: InTurns, tasks: list[Task], report: Reporter, progress: Progress
) -> Result:
    """Run `tasks` on all systems in turns, for each number of workers. Raises as `run`."""
    with (
        work_directory() as directory,
        systems(options.transports, options.peers, options.torch_python, directory, report) as (measured, missing),
    ):
        turns = Turns(measured, directory, report, progress)
        progress.expect(
            sum(turns.work(workers, task) for workers in options.workers for task in tasks) * options.repetitions
        )
        for workers in options.workers:
            turns.run(workers, tasks, options.repetitions)
        descriptions = {system.name: system.description for system in measured}
    rows = summarize(turns.turns, options.transports, options.peers)
    return Result.of(benchmark, options, rows, turns.turns, turns.states, descriptions, missing | turns.failed)
