"""An all-reduce of an urgent job, alone and behind a large one of a job of priority 0.

Both jobs have the same ranks, so they share every link. In the last row the ranks share memory with a switch instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.link_rows import OURS, in_network_bound
from switchml.benchmarks.linked_systems import LinkUse, linked_systems, own_run_directory
from switchml.benchmarks.options import size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import own_fabric, work_directory
from switchml.common.progress import Progress
from switchml.launch.run_directory import RunDirectory
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, queue_text, rate_text, require_shaping

__all__ = ["SHARED_MEMORY", "UrgentOptions", "UrgentRow", "UrgentTurn", "run", "summarize"]

SHARED_MEMORY: Final = "shm"
"""The system without links."""
_RANK: Final = "studies.urgent.rank"


@dataclasses.dataclass(frozen=True)
class UrgentOptions:
    """Options of this benchmark: `urgent` bytes behind `bytes`, both of float32."""

    rates: list[int]
    queues: list[float]
    workers: list[int]
    bytes: int
    urgent: int
    repetitions: int
    calls: int


@dataclasses.dataclass(frozen=True)
class UrgentTurn:
    """The seconds of urgent calls of rank 0: `alone`, or behind the other job's call. `rate` 0: without links.

    `ended_first` of the other job's calls ended before the urgent one did, those of the warm-up counted.
    """

    system: str
    rate: int
    queue: float
    workers: int
    alone: bool
    seconds: tuple[float, ...]
    ended_first: int
    packets: int
    drops: int


@dataclasses.dataclass(frozen=True)
class UrgentRow:
    """The urgent all-reduce in one place: medians in seconds, the link's `bound` (0 without links), behind / alone."""

    system: str
    rate: int
    queue: float
    workers: int
    calls: int
    ended_first: int
    alone: float
    behind: float
    ratio: float
    bound: float
    dropped: float


def run(options: UrgentOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure over links, in a separate run directory next to `run_dir`, and then over shared memory.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    record = Record(report)
    measured = _Measurement(options, record, progress)
    places = len(options.rates) * len(options.queues) + 1
    progress.expect(len(options.workers) * places * options.repetitions)
    for workers in options.workers:
        with own_run_directory(run_dir) as (run_directory, directory):
            measured.over_links(run_directory, directory, workers)
        measured.over_shared_memory(workers)
    return BenchmarkResult.of("urgent", options, summarize(record.samples, options.urgent), record)


class _Measurement:
    def __init__(self, options: UrgentOptions, record: Record, progress: Progress) -> None:
        self._options = options
        self._record = record
        self._progress = progress

    def over_links(self, run_directory: RunDirectory, directory: Path, workers: int) -> None:
        """Measure on this many hosts, with all kinds of links."""
        shapes = [Shape(rate, queue) for rate in self._options.rates for queue in self._options.queues]
        self._record.report(f"{workers} workers: starting hosts and ranks")
        with linked_systems(run_directory, workers, shapes[0]) as systems:
            self._record.systems[OURS] = systems.switchml.description
            system = dataclasses.replace(systems.switchml, program=_RANK)
            with system.group(workers, directory) as group:
                for shape in shapes:
                    systems.links.shape(shape)
                    self._repeat(group, OURS, shape.rate, shape.queue, workers, systems.watch)

    def over_shared_memory(self, workers: int) -> None:
        """Measure with ranks that share memory with a switch."""
        with _shared_memory(workers) as group:
            self._repeat(group, SHARED_MEMORY, 0, 0.0, workers, lambda turn: (turn(), LinkUse(0, 0, 0, 0.0)))

    def _repeat(
        self,
        group: RankGroup,
        system: str,
        rate: int,
        queue: float,
        workers: int,
        watch: Callable[[Callable[[], Any]], tuple[Any, LinkUse]],
    ) -> None:
        for repetition in range(self._options.repetitions):
            self._record.states.append(machine_state.now())
            said = []
            for alone in (True, False):
                command = self._command(alone)
                answers, use = watch(lambda command=command: group.command(command))  # type: ignore[misc]
                seconds, ended_first = tuple(answers[0]["seconds"]), answers[0]["ended_first"]
                self._record.samples.append(
                    UrgentTurn(system, rate, queue, workers, alone, seconds, ended_first, use.packets, use.drops)
                )
                said.append(f"{'alone' if alone else 'behind'} {1e3 * statistics.median(seconds):.1f} ms")
            where = f"{rate_text(rate)}, queue {queue_text(queue)}" if rate else "shared memory"
            sizes = f"{size_text(self._options.urgent)} behind {size_text(self._options.bytes)}"
            self._record.report(f"  {where}, {sizes}, repetition {repetition + 1}: {', '.join(said)}")
            self._progress.did(1)

    def _command(self, alone: bool) -> str:
        behind = 0 if alone else self._options.bytes // 4
        return f"urgent {self._options.calls} 1 {self._options.urgent // 4} {behind}"


@contextlib.contextmanager
def _shared_memory(workers: int) -> Iterator[RankGroup]:
    with (
        work_directory() as directory,
        own_fabric(SHARED_MEMORY, directory) as system,
        dataclasses.replace(system, program=_RANK).group(workers, directory) as group,
    ):
        yield group


def summarize(turns: Iterable[UrgentTurn], urgent: int) -> list[UrgentRow]:
    """Return a row for each place. The ratio is that of the medians over all repetitions."""
    found: dict[tuple[str, int, float, int], list[UrgentTurn]] = {}
    for turn in turns:
        found.setdefault((turn.system, turn.rate, turn.queue, turn.workers), []).append(turn)
    return [_row(place, of_place, urgent) for place, of_place in found.items()]


def _row(place: tuple[str, int, float, int], turns: list[UrgentTurn], urgent: int) -> UrgentRow:
    system, rate, queue, workers = place
    alone, behind = (
        [second for turn in turns if turn.alone is which for second in turn.seconds] for which in (True, False)
    )
    ended_first = sum(turn.ended_first for turn in turns)
    packets, drops = sum(turn.packets for turn in turns), sum(turn.drops for turn in turns)
    first, second = statistics.median(alone), statistics.median(behind)
    bound = in_network_bound(urgent, rate / 8) if rate else 0.0
    return UrgentRow(
        *(system, rate, queue, workers, len(behind), ended_first, first, second, second / first, bound),
        dropped=drops / max(1, packets + drops),
    )
