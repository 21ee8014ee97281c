"""`bench sparse`: sparse all-reduces over the share of blocks with values, compared with dense ones and with Gloo."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.sparse_rows import GLOO, PEER_METHODS, BlockCounts, SparseTurn, summarize
from switchml.benchmarks.systems import Peer, System, own_fabric, work_directory
from switchml.benchmarks.turns import ELEMENT_BYTES, Task, turn_of
from switchml.common.progress import Progress
from switchml.launch.kinds import Embedded

__all__ = ["SparseCase", "SparseOptions", "cases", "run"]


@dataclasses.dataclass(frozen=True)
class SparseOptions:
    """Options: tensors of `bytes`, of whose blocks of `block` elements each rank has values in a share of `densities`.

    Fabrics have packets of `values`.
    """

    workers: list[int]
    bytes: int
    values: list[int]
    densities: list[float]
    overlaps: list[str]
    block: int
    transports: list[str]
    peers: list[str]
    repetitions: int
    calls: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class SparseCase:
    """The share of blocks in which a rank has values, and what the ranks have in common (of OVERLAPS)."""

    density: float
    overlap: str


def cases(workers: int, densities: Sequence[float], overlaps: Sequence[str]) -> list[SparseCase]:
    """Return the cases that differ.

    Ranks with too many blocks to have none in common are left out, and at density 1 everything but the first overlap.
    """
    found: list[SparseCase] = []
    for overlap in overlaps:
        for density in densities:
            possible = overlap != "none" or workers * density <= 1
            measured = density == 1 and any(case.density == 1 for case in found)
            if possible and not measured:
                found.append(SparseCase(density, overlap))
    return found


def run(options: SparseOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    record = Record(report)
    measurement = _Measurement(options, record, progress)
    for values in options.values:
        measurement.run(values)
    rows = summarize(record.samples, options.bytes, options.block)
    return BenchmarkResult.of("sparse", options, rows, record)


class _Measurement:
    """The turns of all systems. A peer that fails takes no further turns; a failure of SwitchML ends the benchmark."""

    def __init__(self, options: SparseOptions, record: Record, progress: Progress) -> None:
        self._options = options
        self._record = record
        self._progress = progress
        self._task = Task(options.bytes, 1, options.calls)
        self._gloo = self._find_gloo()
        progress.expect(
            len(options.values)
            * options.repetitions
            * sum(count * len(self._cases(count)) for count in options.workers)
        )

    def run(self, values: int) -> None:
        """Measure with packets of `values`. Raises as `run`."""
        with work_directory() as directory, contextlib.ExitStack() as stack:
            chosen = Embedded(values=values)
            systems: list[System] = [
                stack.enter_context(own_fabric(name, directory, chosen)) for name in self._options.transports
            ]
            if self._gloo is not None and GLOO not in self._record.missing:
                systems.append(self._gloo)
            self._record.systems |= {system.name: system.description for system in systems}
            for workers in self._options.workers:
                names = ", ".join(system.name for system in systems)
                self._record.report(f"{workers} workers, {values} values per packet: starting {names}")
                with self._groups(systems, workers, directory) as groups:
                    self._take_turns(groups, workers, values)

    def _find_gloo(self) -> Peer | None:
        if not self._options.peers:
            return None
        try:
            return Peer.find(GLOO, self._options.torch_python)
        except MissingPeer as error:
            self._record.leave_out(GLOO, error)
            return None

    def _cases(self, workers: int) -> list[SparseCase]:
        return cases(workers, self._options.densities, self._options.overlaps)

    @contextlib.contextmanager
    def _groups(
        self, systems: Sequence[System], workers: int, directory: Path
    ) -> Iterator[list[tuple[str, RankGroup]]]:
        with contextlib.ExitStack() as stack:
            groups = []
            for system in systems:
                with self._failing(system.name):
                    groups.append((system.name, stack.enter_context(system.group(workers, directory))))
            yield groups

    def _take_turns(self, groups: Sequence[tuple[str, RankGroup]], workers: int, values: int) -> None:
        for repetition in range(self._options.repetitions):
            for number, case in enumerate(self._cases(workers)):
                self._record.states.append(machine_state.now())
                first = (repetition + number) % len(groups)
                said = []
                for name, group in [*groups[first:], *groups[:first]]:
                    said += self._pair(name, group, case, values, repetition)
                what = f"{100 * case.density:.3g} % of blocks, {case.overlap} in common, repetition {repetition + 1}"
                self._record.report(f"  {what}: {', '.join(said)}")
                self._progress.did(workers)

    def _pair(self, name: str, group: RankGroup, case: SparseCase, values: int, repetition: int) -> list[str]:
        """Let a system take its turns with both of its methods, one after the other; return a text for each."""
        methods = [PEER_METHODS[peer] for peer in self._options.peers] if name == GLOO else ["dense", "sparse"]
        said = []
        for method in methods if repetition % 2 == 0 else reversed(methods):
            if name in self._record.missing:
                continue
            with self._failing(name):
                found = self._turn(name, group, method, case, values, repetition)
                self._record.samples.append(found)
                said.append(f"{name} {method} {1e3 * statistics.median(found.turn.seconds):.3g} ms")
        return said

    def _turn(
        self, name: str, group: RankGroup, method: str, case: SparseCase, values: int, repetition: int
    ) -> SparseTurn:
        elements = self._options.bytes // ELEMENT_BYTES["float32"]
        answers = group.command(
            f"sparse {self._task.calls} {self._task.warm_up}"
            f" {method} {elements} {self._options.block} {case.density!r} {case.overlap}"
        )
        blocks = [BlockCounts(**answer["blocks"]) for answer in answers if answer["blocks"]]
        turn = turn_of(answers, name, self._task, repetition)
        return SparseTurn(method, values, case.density, case.overlap, tuple(blocks), turn)

    def _failing(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._record.optional(name) if name == GLOO else contextlib.nullcontext()
