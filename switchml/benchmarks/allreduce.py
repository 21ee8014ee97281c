"""`bench allreduce`: the time of a collective over sizes and numbers of workers, compared with the peers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from switchml.benchmarks.options import MAGNITUDE_BITS
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.summary import summarize
from switchml.benchmarks.systems import work_directory
from switchml.benchmarks.turns import Task, Turns, calls_of, systems
from switchml.common.progress import Progress

__all__ = ["AllreduceOptions", "run", "unable_peers"]

_PEERS_FOR_ALL: Final = ("gloo",)  # collectives and types of elements


@dataclasses.dataclass(frozen=True)
class AllreduceOptions:
    """Options of this benchmark; `calls` per turn, 0 for a number that suits the size.

    Elements of int64 have magnitudes below 2^`magnitude_bits`; it has no meaning for float32.
    """

    workers: list[int]
    sizes: list[int]
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    torch_python: str
    element_type: str = "float32"
    magnitude_bits: int = MAGNITUDE_BITS
    collective: str = "all_reduce"


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


def run(options: AllreduceOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    tasks = [
        Task(
            size,
            1,
            calls_of(size, options.calls),
            element_type=options.element_type,
            magnitude_bits=options.magnitude_bits,
            collective=options.collective,
        )
        for size in options.sizes
    ]
    unable = unable_peers(options.peers, options.collective, options.element_type)
    return measure_in_turns("allreduce", options, tasks, report, progress, unable)


def unable_peers(peers: Sequence[str], collective: str, element_type: str = "float32") -> dict[str, str]:
    """Return the peers that cannot be measured, each with the reason."""
    if collective != "all_reduce":
        why = "measured with all-reduces only"
    elif element_type == "int64":
        why = "is measured here with float32 only; the rank of the benchmark does not sum int64"
    else:
        return {}
    return {name: why for name in peers if name not in _PEERS_FOR_ALL}


def measure_in_turns(
    benchmark: str,
    options: InTurns,
    tasks: list[Task],
    report: Reporter,
    progress: Progress,
    unable: Mapping[str, str] | None = None,
) -> BenchmarkResult:
    """Run `tasks` on all systems in turns, for each number of workers. Raises as `run`.

    `unable` has the peers that cannot do these tasks, with the reasons.
    """
    record = Record(report, missing=dict(unable or {}))
    able = [name for name in options.peers if name not in record.missing]
    with (
        work_directory() as directory,
        systems(options.transports, able, options.torch_python, directory, record) as measured,
    ):
        turns = Turns(measured, directory, record, progress)
        progress.expect(
            sum(turns.work(workers, task) for workers in options.workers for task in tasks) * options.repetitions
        )
        for workers in options.workers:
            turns.run(workers, tasks, options.repetitions)
    return BenchmarkResult.of(benchmark, options, summarize(record.samples, options.transports, options.peers), record)
