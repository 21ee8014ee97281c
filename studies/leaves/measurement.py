"""Hosts with several ranks behind links of a chosen rate, with and without a switch on each host.

A host's switch sends one contribution for all of its ranks. Without it each rank sends its own over the host's link.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.figures import median_ratio, percentile
from switchml.benchmarks.link_rows import OURS
from switchml.benchmarks.linked_systems import (
    CYCLIC,
    LEAVES,
    LinkedSystems,
    find_peer,
    linked_systems,
    own_run_directory,
)
from switchml.benchmarks.options import size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.turns import Task, Turn, turn_of
from switchml.common.progress import Progress
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, require_shaping

__all__ = ["LeafTurn", "LeavesOptions", "LeavesRow", "name_of", "run", "summarize"]

_PEER: Final = "gloo"


@dataclasses.dataclass(frozen=True)
class LeavesOptions:
    """Options: `calls` all-reduces of `bytes` and `small_calls` of `small_bytes` in each turn."""

    rate: int
    queue: float
    hosts: int
    ranks: int
    bytes: int
    small_bytes: int
    repetitions: int
    calls: int
    small_calls: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class LeafTurn:
    """A turn; `link_bytes` of a call are those of the link and direction that carried most, barriers included."""

    link_bytes: float
    turn: Turn


@dataclasses.dataclass(frozen=True)
class LeavesRow:
    """The times of one system and size, in seconds; `ratio` is its time / that with a switch on each host."""

    system: str
    bytes: int
    calls: int
    median: float
    p99: float
    link_bytes: float
    ratio: float | None


def run(options: LeavesOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    record = Record(report)
    peer = find_peer(_PEER, options.torch_python)
    if isinstance(peer, MissingPeer):
        record.leave_out(_PEER, peer)
    tasks = [Task(options.bytes, 1, options.calls), Task(options.small_bytes, 1, options.small_calls)]
    progress.expect(options.repetitions)
    workers = options.hosts * options.ranks
    with own_run_directory(run_dir) as (run_directory, directory), contextlib.ExitStack() as stack:
        shape = Shape(options.rate, options.queue)
        systems = stack.enter_context(linked_systems(run_directory, options.hosts, shape, options.ranks))
        assert systems.leaves is not None
        groups = {
            system.name: stack.enter_context(system.group(workers, directory))
            for system in (systems.leaves, systems.switchml)
        }
        record.systems |= dict.fromkeys(groups, systems.switchml.description)
        if not isinstance(peer, MissingPeer):
            for one in (peer, peer.dealt_out()):
                groups[one.name] = stack.enter_context(one.group(systems, directory))
                record.systems[one.name] = one.description
        for repetition in range(options.repetitions):
            record.states.append(machine_state.now())
            for task in tasks:
                record.samples += [_turn(systems, groups[name], name, task, repetition) for name in groups]
            _report_turns(record.samples[-len(tasks) * len(groups) :], repetition, report)
            progress.did(1)
    return BenchmarkResult.of("leaves", options, summarize(record.samples), record)


def _turn(systems: LinkedSystems, group: RankGroup, name: str, task: Task, repetition: int) -> LeafTurn:
    answers, use = systems.watch(lambda: group.command(task.command))
    return LeafTurn(use.bytes / (task.calls + task.warm_up), turn_of(answers, name, task, repetition))


def _report_turns(turns: Iterable[LeafTurn], repetition: int, report: Reporter) -> None:
    said = (
        f"{each.turn.system} {size_text(each.turn.bytes)} {1e3 * statistics.median(each.turn.seconds):.3g} ms"
        for each in turns
    )
    report(f"  repetition {repetition + 1}: {', '.join(said)}")


def summarize(turns: Iterable[LeafTurn]) -> list[LeavesRow]:
    """Return a row for each size and system, in the order in which they were first measured."""
    found: dict[tuple[int, str], list[LeafTurn]] = {}
    for each in turns:
        found.setdefault((each.turn.bytes, each.turn.system), []).append(each)
    return [_row(size, system, of_system, found[size, LEAVES]) for (size, system), of_system in found.items()]


def _row(size: int, system: str, turns: list[LeafTurn], leaves: list[LeafTurn]) -> LeavesRow:
    seconds = [second for each in turns for second in each.turn.seconds]
    return LeavesRow(
        system=system,
        bytes=size,
        calls=len(seconds),
        median=statistics.median(seconds),
        p99=percentile(seconds, 0.99),
        link_bytes=statistics.median(each.link_bytes for each in turns),
        ratio=median_ratio([each.turn for each in turns], [each.turn for each in leaves]),
    )


def name_of(system: str) -> str:
    """Return the name of a system for people."""
    if system.endswith(CYCLIC):
        return f"{system.removesuffix(CYCLIC)}, ranks dealt out"
    return {LEAVES: "a switch on each host", OURS: "one switch"}.get(system, system)
