"""All-reduces by parameter servers, by a ring and by a switch, over links of one rate.

The literature's picture of these ways as a table: the time of each with its formula. A central server has a host and
a separate link; N servers are on the hosts of the workers and share their links, as those of BytePS may.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.figures import percentile
from switchml.benchmarks.linked_systems import LinkedSystems, find_peer, linked_systems, own_run_directory
from switchml.benchmarks.options import size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import SwitchML
from switchml.benchmarks.turns import Task, Turn, turn_of
from switchml.common.progress import Progress
from switchml.launch.kinds.shaped import CENTRAL_SERVER, server_on
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, queue_text, rate_text, require_shaping

__all__ = ["FORMULAS", "MODES", "ModeTurn", "PhubOptions", "PhubRow", "mode_seconds", "run", "summarize"]

MODES: Final = ("ps1", "psN", "ring", "switch", "switch16")
"""Ways to all-reduce: one parameter server, one on each worker's host, Gloo's ring, a switch, 16 bits an element."""

FORMULAS: Final[dict[str, str]] = {
    "ps1": "N S / B",
    "psN": "2 (N - 1) / N S / B",
    "ring": "2 (N - 1) / N S / B",
    "switch": "S / B",
    "switch16": "S / 2B",
}
"""The least time of a mode: N workers, tensors of S bytes of float32, links of B bytes per second in each direction."""

_RING_PEER: Final = "gloo"
_SAME_BITS: Final = ("ps1", "psN", "switch")
"""The modes whose sums have the same bits; a ring adds floats in another order, 16 bits round."""


@dataclasses.dataclass(frozen=True)
class PhubOptions:
    """Options: `calls` all-reduces of `bytes` of float32 in each turn of each of the `modes`."""

    rates: list[int]
    queues: list[float]
    workers: list[int]
    bytes: int
    modes: list[str]
    repetitions: int
    calls: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class ModeTurn:
    """A turn of a mode on links of `rate` bits per second with queues of `queue` seconds.

    `link_bytes` are those of a call on the link and direction that carried most, `dropped` is the fraction of all
    packets that the links' queues dropped, `loads` has the chunks that each server summed; `digest` is that of the last
    result.
    """

    mode: str
    rate: int
    queue: float
    link_bytes: float
    dropped: float
    idle: float
    loads: tuple[int, ...]
    digest: str
    turn: Turn


@dataclasses.dataclass(frozen=True)
class PhubRow:
    """The times of a mode in seconds, with `formula`, the seconds of FORMULAS.

    `load` is the largest share of the servers' chunks over the mean, None without servers; `same_bits` is true if the
    last result of each turn has the bits of every other mode of which that is expected, None for other modes.
    """

    mode: str
    rate: int
    queue: float
    workers: int
    bytes: int
    calls: int
    median: float
    p99: float
    formula: float
    link_bytes: float
    dropped: float
    idle: float
    load: float | None
    same_bits: bool | None
    largest_error: float
    allowed_error: float


def mode_seconds(mode: str, size: float, bytes_per_second: float, workers: int) -> float:
    """Return the seconds of FORMULAS for tensors of `size` bytes."""
    ring = 2 * (workers - 1) / workers
    return {"ps1": workers, "psN": ring, "ring": ring, "switch": 1, "switch16": 0.5}[mode] * size / bytes_per_second


def run(options: PhubOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    record = Record(report)
    measured = _Measurement(options, record, progress)
    progress.expect(len(options.workers) * len(options.rates) * len(options.queues) * options.repetitions)
    with own_run_directory(run_dir) as (run_directory, directory):
        for workers in options.workers:
            shapes = [Shape(rate, queue) for rate in options.rates for queue in options.queues]
            with linked_systems(run_directory, workers, shapes[0], servers=True) as systems:
                measured.run(systems, workers, shapes, directory)
    return BenchmarkResult.of("phub", options, summarize(record.samples), record)


class _Measurement:
    """The turns of all modes."""

    def __init__(self, options: PhubOptions, record: Record, progress: Progress) -> None:
        self._options = options
        self._record = record
        self._progress = progress
        self._ring = find_peer(_RING_PEER, options.torch_python) if "ring" in options.modes else None
        if isinstance(self._ring, MissingPeer):
            record.leave_out("ring", self._ring)

    def run(self, systems: LinkedSystems, workers: int, shapes: Sequence[Shape], directory: Path) -> None:
        """Measure on this many hosts, with all kinds of links."""
        self._record.report(f"{workers} workers: starting groups of ranks")
        with contextlib.ExitStack() as stack:
            groups: dict[str, RankGroup] = {}
            for mode, system in _modes_of(systems).items():
                if mode in self._options.modes or (mode == "switch" and "switch16" in self._options.modes):
                    groups[mode] = stack.enter_context(system.group(workers, directory))
                    self._record.systems[mode] = system.description
            if self._ring is not None and not isinstance(self._ring, MissingPeer):
                groups["ring"] = stack.enter_context(self._ring.group(systems, directory))
                self._record.systems["ring"] = self._ring.description
            if "switch" in groups:
                groups["switch16"] = groups["switch"]
            for shape in shapes:
                systems.links.shape(shape)
                for repetition in range(self._options.repetitions):
                    self._take_turns(systems, groups, shape, repetition)
                    self._progress.did(1)

    def _take_turns(
        self, systems: LinkedSystems, groups: Mapping[str, RankGroup], shape: Shape, repetition: int
    ) -> None:
        self._record.states.append(machine_state.now())
        said = []
        for mode in self._options.modes:
            if mode in groups:
                found = self._turn(systems, groups[mode], shape, mode, repetition)
                self._record.samples.append(found)
                said.append(f"{mode} {statistics.median(found.turn.seconds):.3f} s")
        link = f"{rate_text(shape.rate)}, queue {queue_text(shape.queue)}, {size_text(self._options.bytes)}"
        self._record.report(f"  {link}, repetition {repetition + 1}: {', '.join(said)}")

    def _turn(self, systems: LinkedSystems, group: RankGroup, shape: Shape, mode: str, repetition: int) -> ModeTurn:
        wire_bits = 16 if mode == "switch16" else 32
        task = Task(self._options.bytes, 1, self._options.calls, "float32", wire_bits, collective="all_reduce_digest")
        servers = _modes_of(systems)[mode].aggregators if mode in ("ps1", "psN") else ()
        before = _sums_of(systems.switchml, servers)
        answers, use = systems.watch(lambda: group.command(task.command))
        after = _sums_of(systems.switchml, servers)
        return ModeTurn(
            mode=mode,
            rate=shape.rate,
            queue=shape.queue,
            link_bytes=use.bytes / (task.calls + task.warm_up),
            dropped=use.drops / max(1, use.packets + use.drops),
            idle=use.idle,
            loads=tuple(now - then for now, then in zip(after, before, strict=True)),
            digest=answers[0]["digest"],
            turn=turn_of(answers, mode, task, repetition),
        )


def _modes_of(systems: LinkedSystems) -> dict[str, SwitchML]:
    """Return the modes of SwitchML."""
    switch = systems.switchml
    servers = tuple(server_on(host.name) for host in systems.places)
    return {
        "ps1": dataclasses.replace(switch, name="ps1", aggregators=(CENTRAL_SERVER,)),
        "psN": dataclasses.replace(switch, name="psN", aggregators=servers),
        "switch": dataclasses.replace(switch, name="switch"),
    }


def _sums_of(system: SwitchML, switches: Iterable[str]) -> list[int]:
    """Return the number of sums that each switch has completed."""
    with system.client() as client:
        return [client.show_switch(name).verdicts["completed"] for name in switches]


def summarize(turns: Iterable[ModeTurn]) -> list[PhubRow]:
    """Return a row for each kind of link and mode, in the order of MODES."""
    places: dict[tuple[int, int, float], dict[str, list[ModeTurn]]] = {}
    for one in turns:
        modes = places.setdefault((one.turn.workers, one.rate, one.queue), {})
        modes.setdefault(one.mode, []).append(one)
    rows = []
    for _, modes in sorted(places.items()):
        digests = {one.digest for mode in _SAME_BITS for one in modes.get(mode, [])}
        rows += [_row(modes[mode], len(digests) == 1) for mode in MODES if mode in modes]
    return rows


def _row(turns: Sequence[ModeTurn], same_bits: bool) -> PhubRow:
    first = turns[0]
    seconds = [second for one in turns for second in one.turn.seconds]
    loads = [sum(of_server) for of_server in zip(*(one.loads for one in turns), strict=True)]
    return PhubRow(
        mode=first.mode,
        rate=first.rate,
        queue=first.queue,
        workers=first.turn.workers,
        bytes=first.turn.bytes,
        calls=len(seconds),
        median=statistics.median(seconds),
        p99=percentile(seconds, 0.99),
        formula=mode_seconds(first.mode, first.turn.bytes, first.rate / 8, first.turn.workers),
        link_bytes=statistics.median(one.link_bytes for one in turns),
        dropped=statistics.mean(one.dropped for one in turns),
        idle=statistics.median(one.idle for one in turns),
        load=max(loads) / statistics.mean(loads) if loads else None,
        same_bits=same_bits if first.mode in _SAME_BITS else None,
        largest_error=max(one.turn.largest_error for one in turns),
        allowed_error=first.turn.allowed_error,
    )
