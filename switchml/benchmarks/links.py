"""`bench links`: collectives over links of a chosen rate, with the bound that the link sets to each algorithm.

Hosts in network namespaces are connected by a kernel bridge; a token bucket limits both ends of every link. SwitchML
and its peers cross the same queues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.allreduce import unable_peers
from switchml.benchmarks.errors import MissingPackage, MissingPeer
from switchml.benchmarks.link_rows import OURS, ElementKind, LinkTurn, summarize
from switchml.benchmarks.linked_systems import (
    LinkedPeer,
    LinkedSystems,
    find_peer,
    linked_systems,
    own_run_directory,
)
from switchml.benchmarks.options import size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.turns import Task, turn_of
from switchml.common.installation import install_command
from switchml.common.progress import Progress
from switchml.launch.run_directory import RunDirectory
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, queue_text, rate_text, require_shaping

__all__ = ["LinksOptions", "run"]

_KINDS: Final = (
    ElementKind("float32"),
    ElementKind("float32", 16),
    ElementKind("float32", 8),
    ElementKind("bfloat16", 16),
)
"""Kinds of tensors that SwitchML sums; those that are only moved are float32.

16 bits are what the PyTorch backend chooses for bfloat16, up to 8 ranks.
"""

_PEER_KINDS: Final = {"gloo": (ElementKind("float32"), ElementKind("bfloat16")), "mpi-tcp": (ElementKind("float32"),)}
"""Kinds that each peer can sum."""


@dataclasses.dataclass(frozen=True)
class LinksOptions:
    """Options of this benchmark: tensors of as many elements as `bytes` hold of float32."""

    rates: list[int]
    queues: list[float]
    workers: list[int]
    bytes: int
    peers: list[str]
    repetitions: int
    calls: int
    torch_python: str
    collective: str = "all_reduce"

    @property
    def sums(self) -> bool:
        """True if the collective adds, so that SwitchML can send its elements in fewer bits."""
        return self.collective in ("all_reduce", "reduce_scatter")


def run(options: LinksOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    if importlib.util.find_spec("ml_dtypes") is None:
        raise MissingPackage(
            f"sums of bfloat16 need ml_dtypes, which is not installed; install it with `{install_command('bench')}`"
        )
    record = Record(report, missing=unable_peers(options.peers, options.collective))
    peers: list[LinkedPeer] = []
    for name in options.peers:
        if name in record.missing:
            continue
        peer = find_peer(name, options.torch_python)
        if isinstance(peer, MissingPeer):
            record.leave_out(name, peer)
        else:
            peers.append(peer)
            record.systems[name] = peer.description
    measured = _Measurement(options, peers, record, progress)
    places = len(options.workers) * len(options.rates) * len(options.queues)
    progress.expect(places * options.repetitions)
    with own_run_directory(run_dir) as (run_directory, directory):
        for workers in options.workers:
            measured.run(run_directory, directory, workers)
    rows = summarize(record.samples, options.peers, options.collective)
    return BenchmarkResult.of("links", options, rows, record)


class _Measurement:
    """The turns so far. A peer that fails takes no further turns; a failure of SwitchML ends the benchmark."""

    def __init__(self, options: LinksOptions, peers: Sequence[LinkedPeer], record: Record, progress: Progress) -> None:
        self._options = options
        self._peers = peers
        self._record = record
        self._progress = progress

    def run(self, run_directory: RunDirectory, directory: Path, workers: int) -> None:
        """Measure on this many hosts, with all kinds of links."""
        shapes = [Shape(rate, queue) for rate in self._options.rates for queue in self._options.queues]
        self._record.report(f"{workers} workers: starting hosts and groups of ranks")
        with contextlib.ExitStack() as stack:
            systems = stack.enter_context(linked_systems(run_directory, workers, shapes[0]))
            self._record.systems[OURS] = systems.switchml.description
            groups = {OURS: stack.enter_context(systems.switchml.group(workers, directory))}
            for peer in self._peers:
                with self._record.optional(peer.name):
                    groups[peer.name] = stack.enter_context(peer.group(systems, directory))
            for shape in shapes:
                systems.links.shape(shape)
                for repetition in range(self._options.repetitions):
                    self._take_turns(systems, groups, shape, repetition)
                    self._progress.did(1)

    def _take_turns(self, systems: LinkedSystems, groups: dict[str, RankGroup], shape: Shape, repetition: int) -> None:
        self._record.states.append(machine_state.now())
        kinds = [(OURS, kind) for kind in _KINDS]
        kinds += [(name, kind) for name in groups if name != OURS for kind in _PEER_KINDS[name]]
        if not self._options.sums:
            kinds = [(name, kind) for name, kind in kinds if kind == ElementKind("float32")]
        first = repetition % len(kinds)
        said = []
        for name, kind in kinds[first:] + kinds[:first]:
            if name in self._record.missing:
                continue
            with contextlib.nullcontext() if name == OURS else self._record.optional(name):
                found = self._turn(systems, groups[name], shape, kind, name, repetition)
                self._record.samples.append(found)
                lanes = f" in {kind.wire_bits} bits" if name == OURS else ""
                seconds = statistics.median(found.turn.seconds)
                said.append(f"{name} {kind.element_type}{lanes} {seconds:.3f} s")
        link = f"{rate_text(shape.rate)}, queue {queue_text(shape.queue)}, {size_text(self._options.bytes)}"
        self._record.report(f"  {link}, repetition {repetition + 1}: {', '.join(said)}")

    def _turn(
        self, systems: LinkedSystems, group: RankGroup, shape: Shape, kind: ElementKind, name: str, repetition: int
    ) -> LinkTurn:
        size = self._options.bytes // 4 * kind.bytes
        collective = self._options.collective
        task = Task(size, 1, self._options.calls, kind.element_type, kind.wire_bits, collective=collective)
        answers, use = systems.watch(lambda: group.command(task.command))
        return LinkTurn(
            rate=shape.rate,
            queue=shape.queue,
            kind=kind,
            calls=task.calls + task.warm_up,
            bytes=use.bytes,
            packets=use.packets,
            drops=use.drops,
            idle=use.idle,
            turn=turn_of(answers, name, task, repetition),
        )
