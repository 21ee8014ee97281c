"""The rows of `bench links`: the bound that a link sets to each algorithm, and whether the link was what limited it."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from switchml.benchmarks.figures import median_ratio, percentile
from switchml.benchmarks.turns import ELEMENT_BYTES, Turn

__all__ = [
    "OURS",
    "ElementKind",
    "LinkTurn",
    "LinkRow",
    "in_network_bound",
    "ring_bound",
    "summarize",
    "why_cpus_limit",
    "why_not_link_bound",
]

OURS: Final = "udp"
"""The name of SwitchML in tables: its transport."""

_SHARE_OF_BOUND: Final = 0.9
_IDLE_SHARE: Final = 0.1
_BUSY_SHARE: Final = 0.85


@dataclasses.dataclass(frozen=True)
class ElementKind:
    """The elements of a tensor: their type, and the bits that SwitchML sends for each."""

    element_type: str
    wire_bits: int = 32

    @property
    def bytes(self) -> int:
        """The size of an element in memory, which is also what the peers send for it."""
        return ELEMENT_BYTES[self.element_type]


@dataclasses.dataclass(frozen=True)
class LinkTurn:
    """A turn on links of `rate` bits per second with queues of `queue` seconds.

    The bytes and drops are those of all calls, warm-up and barriers included, which `calls` counts: `bytes` of the
    link and direction that carried most, `packets` and `drops` of all links. `idle` is the fraction of the CPUs' time
    during the turn in which they did nothing.
    """

    rate: int
    queue: float
    kind: ElementKind
    calls: int
    bytes: int
    packets: int
    drops: int
    idle: float
    turn: Turn


@dataclasses.dataclass(frozen=True)
class LinkRow:
    """A system's statistics on one kind of link; times in seconds.

    `bound` is the least time that its algorithm can take on this link, `link_bytes` what the busiest link carried in a
    call, `busy` the fraction of the median time which that takes at the link's rate, `dropped` the fraction of all
    packets that the links' queues dropped. `why_not` is empty if the link limited the time; only such rows have
    ratios, peer's time / this time, with peers whose rows are such as well.
    """

    system: str
    element_type: str
    wire_bits: int
    rate: int
    queue: float
    workers: int
    elements: int
    calls: int
    median: float
    p99: float
    bound: float
    link_bytes: float
    busy: float
    idle: float
    dropped: float
    largest_error: float
    allowed_error: float
    why_not: str
    ratios: dict[str, float]


def in_network_bound(size: float, bytes_per_second: float, workers: int = 1, collective: str = "all_reduce") -> float:
    """Return the least seconds of a collective in the network: some worker sends `size` bytes, or receives as many.

    In an all-reduce every worker does both. To a reduce-scatter a worker sends all parts but its own, and in an
    all-gather it receives these. Both at once fill both directions: each also takes a part in the other one.
    """
    share = (workers - 1) / workers if collective in ("reduce_scatter", "all_gather") else 1.0
    return share * size / bytes_per_second


def ring_bound(size: float, bytes_per_second: float, workers: int, collective: str = "all_reduce") -> float:
    """Return the least seconds of a collective among workers, which have no help from the network.

    In an all-reduce each worker sends and receives 2 (N - 1) / N of `size` bytes, as in a ring; no algorithm among
    workers takes less (Patarasuk and Yuan, 2009). A reduce-scatter and an all-gather are the halves of that ring. In a
    broadcast every worker but one receives all bytes.
    """
    passes = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "scatter_and_gather": 2.0}
    share = passes[collective] * (workers - 1) / workers if collective in passes else 1.0
    return share * size / bytes_per_second


def why_not_link_bound(dense_share: float | None, idle: float, busy: float) -> str:
    """Return why a row does not tell the speed of its link; empty if it does.

    Two things must hold. On these links SwitchML's float32 row, which has no algorithm but one pass over the link,
    reaches 90 % of its bound (`dense_share`; None if it was not measured). And this row either left the CPUs some
    idle time, 10 %, or kept the link busy for 85 % of its time.
    """
    if dense_share is None:
        return "not link-bound: SwitchML's float32 row is missing"
    if dense_share < _SHARE_OF_BOUND:
        return f"not link-bound: SwitchML's float32 row reaches {dense_share:.0%} of its bound"
    return why_cpus_limit(idle, busy)


def why_cpus_limit(idle: float, busy: float) -> str:
    """Return why the CPUs, not the link, have limited a row; empty if they have not."""
    if idle < _IDLE_SHARE and busy < _BUSY_SHARE:
        return f"not link-bound: CPUs idle {idle:.0%}, link busy {busy:.0%}"
    return ""


Place = tuple[int, int, float]  # workers, rate, queue
Name = tuple[str, ElementKind]


def summarize(turns: Iterable[LinkTurn], peers: Sequence[str], collective: str = "all_reduce") -> list[LinkRow]:
    """Return a row for each kind of link, system and kind of elements, SwitchML's before the peers'."""
    found: dict[Place, dict[Name, list[LinkTurn]]] = defaultdict(lambda: defaultdict(list))
    for turn in turns:
        found[turn.turn.workers, turn.rate, turn.queue][turn.turn.system, turn.kind].append(turn)
    return [row for place in sorted(found) for row in _rows_of_place(found[place], peers, collective)]


def _rows_of_place(found: Mapping[Name, list[LinkTurn]], peers: Sequence[str], collective: str) -> list[LinkRow]:
    rows = {name: _row(turns, name[0] == OURS, collective) for name, turns in found.items()}
    dense = rows.get((OURS, ElementKind("float32")))
    share = dense.bound / dense.median if dense is not None else None
    judged = {
        name: dataclasses.replace(row, why_not=why_not_link_bound(share, row.idle, row.busy))
        for name, row in rows.items()
    }
    order = (OURS, *peers)
    finished = [
        dataclasses.replace(row, ratios=_ratios(name, judged, found, peers) if name[0] == OURS else {})
        for name, row in judged.items()
    ]
    return sorted(finished, key=lambda row: (order.index(row.system), row.element_type != "float32", -row.wire_bits))


def _row(turns: Sequence[LinkTurn], in_network: bool, collective: str) -> LinkRow:
    first = turns[0]
    seconds = [second for turn in turns for second in turn.turn.seconds]
    median = statistics.median(seconds)
    elements = first.turn.bytes // first.kind.bytes
    speed = first.rate / 8
    link_bytes = sum(turn.bytes for turn in turns) / sum(turn.calls for turn in turns)
    if in_network:
        bound = in_network_bound(elements * first.kind.wire_bits / 8, speed, first.turn.workers, collective)
    else:
        bound = ring_bound(first.turn.bytes, speed, first.turn.workers, collective)
    packets, drops = sum(turn.packets for turn in turns), sum(turn.drops for turn in turns)
    return LinkRow(
        system=first.turn.system,
        element_type=first.kind.element_type,
        wire_bits=first.kind.wire_bits if in_network else 8 * first.kind.bytes,
        rate=first.rate,
        queue=first.queue,
        workers=first.turn.workers,
        elements=elements,
        calls=len(seconds),
        median=median,
        p99=percentile(seconds, 0.99),
        bound=bound,
        link_bytes=link_bytes,
        busy=link_bytes / speed / median,
        idle=statistics.median(turn.idle for turn in turns),
        dropped=drops / max(1, packets + drops),
        largest_error=max(turn.turn.largest_error for turn in turns),
        allowed_error=first.turn.allowed_error,
        why_not="",
        ratios={},
    )


def _ratios(
    name: Name, rows: Mapping[Name, LinkRow], turns: Mapping[Name, Sequence[LinkTurn]], peers: Iterable[str]
) -> dict[str, float]:
    """Return peer's time / this time, for rows of one element type, if the link limited both."""
    if rows[name].why_not:
        return {}
    own = [turn.turn for turn in turns[name]]
    ratios = {}
    for peer in peers:
        theirs = (peer, ElementKind(name[1].element_type))
        if theirs in rows and not rows[theirs].why_not:
            ratio = median_ratio([turn.turn for turn in turns[theirs]], own)
            if ratio is not None:
                ratios[peer] = ratio
    return ratios
