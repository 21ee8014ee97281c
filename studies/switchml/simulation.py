"""All-reduces through trees of switches over fast links, in a discrete-event simulation.

The README describes the model, where its parameters come from, and what it leaves out.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from studies.switchml.network import SECOND, Network
from studies.switchml.tree import SimulatedAllReduce, all_reduce, ring
from switchml.benchmarks import options as words
from switchml.benchmarks.options import size_text
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS, PROTOCOL_MAX_WORLD

__all__ = [
    "PUBLISHED",
    "SimulationOptions",
    "SimulationRow",
    "Run",
    "network_of",
    "run",
    "summarize",
    "tree_text",
    "trees",
]

_MOST_LEVELS: Final = 4

PUBLISHED: Final = {
    "SwitchML": {4: 2840, 8: 2820, 16: 2810},
    "NCCL": {4: 1380, 8: 1250, 16: 970},
}
"""Million elements per second by ranks, over RDMA and links of 100 Gb/s, with tensors of about 256 MB.

As published with SwitchML (Sapio et al., NSDI 2021) and its artifact; read from figures, so about 1 % exact.
"""


@dataclasses.dataclass(frozen=True)
class SimulationOptions:
    """Options. A tree is the number of children of each switch, from the root down.

    `rate` is in bits per second, `losses` are fractions of the packets on each link in each direction, and times are in
    seconds. `network_of` explains the delays. `seeds` is the number of runs with losses, each with its own.
    """

    trees: list[tuple[int, ...]]
    bytes: int
    values: int
    pool: int
    rate: int
    switch_delay: float
    host_delay: float
    host_packet: float
    losses: list[float]
    late: list[float]
    seeds: int


@dataclasses.dataclass(frozen=True)
class SimulationCase:
    """One tree, the fraction of packets that every link loses, and the seconds by which the last rank is late."""

    tree: tuple[int, ...]
    loss: float
    late: float


@dataclasses.dataclass(frozen=True)
class Run:
    """One simulated all-reduce; `seconds` end when the last rank has its last result."""

    case: SimulationCase
    seed: int
    seconds: float
    outcome: SimulatedAllReduce


@dataclasses.dataclass(frozen=True)
class SimulationRow:
    """Medians over the runs of a case. `seconds` do not include those by which the last rank was late.

    `ratio` is that time / the time without losses. `ring` is the time of a ring all-reduce without losses, at least.
    `packets` are the contributions of a rank; `sent_again` and `timeouts` are those of a rank on average, and
    `forwarded` is the number of contributions at the root from each of its children: `packets`, if nothing is lost.
    """

    tree: str
    levels: int
    ranks: int
    loss: float
    late: float
    seconds: float
    elements_per_second: float
    ratio: float
    ring: float
    packets: int
    sent_again: float
    timeouts: float
    forwarded: float


def network_of(options: SimulationOptions) -> Network:
    """Return the simulated network."""
    return Network(
        bits_per_second=options.rate,
        values=options.values,
        pool=options.pool,
        switch_delay=round(options.switch_delay * SECOND),
        host_delay=round(options.host_delay * SECOND),
        host_packet=round(options.host_packet * SECOND),
    )


def run(options: SimulationOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Simulate. Raises MissingPackage, and BenchmarkError for an error of the simulation itself."""
    network = network_of(options)
    cases = list(_cases(options))
    progress.expect(sum(math.prod(case.tree) for case, _ in cases))
    runs: list[Run] = []
    for case, seed in cases:
        outcome = all_reduce(
            network,
            case.tree,
            _packets(options),
            loss=case.loss,
            late=round(case.late * SECOND),
            seed=seed,
        )
        runs.append(Run(case, seed, outcome.time / SECOND, outcome))
        report(_line(runs[-1], options))
        progress.did(math.prod(case.tree))
    return BenchmarkResult.of("switchml", options, summarize(runs, options), Record(report, runs))


def _packets(options: SimulationOptions) -> int:
    return math.ceil(options.bytes / 4 / options.values)


def _cases(options: SimulationOptions) -> Iterator[tuple[SimulationCase, int]]:
    """Yield the cases with their seeds: each tree without losses and late ranks, then with one of the two."""
    for tree in options.trees:
        yield SimulationCase(tree, 0.0, 0.0), 0
        for loss in options.losses:
            if loss > 0:
                yield from ((SimulationCase(tree, loss, 0.0), seed) for seed in range(options.seeds))
        for late in options.late:
            if late > 0:
                yield SimulationCase(tree, 0.0, late), 0


def _line(found: Run, options: SimulationOptions) -> str:
    case = found.case
    what = (
        f"{tree_text(case.tree)}, {size_text(options.bytes)}, {case.loss:g} lost, last rank {1e3 * case.late:g} ms late"
    )
    return f"  {what}: {1e3 * found.seconds:.4g} ms"


def summarize(runs: list[Run], options: SimulationOptions) -> list[SimulationRow]:
    """Return a row for each case, in the order of the runs."""
    found: dict[SimulationCase, list[Run]] = {}
    for each in runs:
        found.setdefault(each.case, []).append(each)
    base = {case.tree: runs[0].seconds for case, runs in found.items() if case == SimulationCase(case.tree, 0.0, 0.0)}
    return [_row(case, of_case, base[case.tree], options) for case, of_case in found.items()]


def _row(case: SimulationCase, runs: list[Run], base: float, options: SimulationOptions) -> SimulationRow:
    ranks, packets, elements = math.prod(case.tree), _packets(options), options.bytes // 4
    seconds = statistics.median(each.seconds for each in runs) - case.late
    outcomes = [each.outcome for each in runs]
    at_root = [dataclasses.astuple(outcome.counts[0]) for outcome in outcomes]
    return SimulationRow(
        tree=tree_text(case.tree),
        levels=len(case.tree),
        ranks=ranks,
        loss=case.loss,
        late=case.late,
        seconds=seconds,
        elements_per_second=elements / seconds,
        ratio=seconds / base,
        ring=ring(network_of(options), ranks, elements) / SECOND,
        packets=packets,
        sent_again=statistics.median(outcome.sent for outcome in outcomes) / ranks - packets,
        timeouts=statistics.median(outcome.timeouts for outcome in outcomes) / ranks,
        forwarded=statistics.median(sum(counts) for counts in at_root) / case.tree[0],
    )


def trees(text: str) -> list[tuple[int, ...]]:
    """Return the trees of "8,16x64": the children of each switch, from the root down.

    Raises ValueError for a tree that no job can have.
    """

    def tree(word: str) -> tuple[int, ...]:
        children = word.split("x")
        if not all(count.isdecimal() and 1 <= int(count) <= PROTOCOL_MAX_WORKERS for count in children):
            raise ValueError(
                f"{word!r} is not a tree; write 16x64, with 1 to {PROTOCOL_MAX_WORKERS} children of a switch"
            )
        found = tuple(int(count) for count in children)
        if len(found) > _MOST_LEVELS:
            raise ValueError(f"{word} has {len(found)} levels of switches; at most {_MOST_LEVELS} are simulated")
        if not 2 <= math.prod(found) <= PROTOCOL_MAX_WORLD:
            raise ValueError(f"{word} has {math.prod(found)} ranks; a job has 2 to {PROTOCOL_MAX_WORLD}")
        return found

    return words.each(text, tree)


def tree_text(tree: Sequence[int]) -> str:
    """Return a tree as people write it: 16x64."""
    return "x".join(str(children) for children in tree)
