"""Summarise turns as the rows of a table: one for each system, number of workers and size."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from switchml.benchmarks.figures import median_ratio, percentile
from switchml.benchmarks.turns import ELEMENT_BYTES, Turn

__all__ = ["AllreduceRow", "summarize"]


@dataclasses.dataclass(frozen=True)
class AllreduceRow:
    """A system's statistics for tensors of `bytes` on `workers` workers; times in seconds, measured by rank 0."""

    system: str
    workers: int
    bytes: int
    tensors: int
    calls: int
    median: float
    p99: float
    slowest: float
    bytes_per_second: float
    elements_per_second: float
    cpu_seconds_per_gb: float
    wake_ups: float
    switches: float
    ratios: dict[str, float]


Key = tuple[int, int, int]  # workers, bytes, tensors


def summarize(turns: Iterable[Turn], ours: Sequence[str], peers: Sequence[str]) -> list[AllreduceRow]:
    """Return rows in the order of worker counts and sizes, SwitchML's before the peers'; only the first have ratios."""
    found: dict[Key, dict[str, list[Turn]]] = defaultdict(lambda: defaultdict(list))
    for turn in turns:
        found[turn.workers, turn.bytes, turn.tensors][turn.system].append(turn)
    return [
        _row(key, name, found[key], peers if name in ours else ())
        for key in sorted(found)
        for name in (*ours, *peers)
        if name in found[key]
    ]


def _row(key: Key, name: str, turns: Mapping[str, list[Turn]], peers: Iterable[str]) -> AllreduceRow:
    workers, size, tensors = key
    own = turns[name]
    seconds = [second for turn in own for second in turn.seconds]
    median = statistics.median(seconds)
    calls = len(seconds)
    ratios = {peer: median_ratio(turns.get(peer, ()), own) for peer in peers}
    return AllreduceRow(
        system=name,
        workers=workers,
        bytes=size,
        tensors=tensors,
        calls=calls,
        median=median,
        p99=percentile(seconds, 0.99),
        slowest=statistics.median([second for turn in own for second in turn.slowest]),
        bytes_per_second=tensors * size / median,
        elements_per_second=tensors * size / ELEMENT_BYTES[own[0].element_type] / median,
        cpu_seconds_per_gb=sum(turn.cpu_seconds for turn in own) / (calls * tensors * size / 1e9),
        wake_ups=sum(turn.wake_ups for turn in own) / calls,
        switches=sum(turn.wake_ups + turn.preemptions for turn in own) / calls,
        ratios={peer: ratio for peer, ratio in ratios.items() if ratio is not None},
    )
