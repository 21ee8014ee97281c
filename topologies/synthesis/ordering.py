"""The order of sends on each link and port: routes become a schedule.

As in TACCL's second stage, the next send is one that can start soon and has far to go. The schedule is then shifted to
its end and back to its start, as often as that makes it shorter (forward-backward improvement; Li and Willis, 1992).
"""

from __future__ import annotations

import dataclasses
import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from switchml.common.schedules import Send
from switchml.topologies.synthesis.sketch import Pair, SketchedNetwork

__all__ = ["UntimedSend", "improve", "loads", "order", "resources_of", "sends_of"]

_TRIES: Final = 24  # priorities, of which all but the first four differ by chance
_NOISE: Final = 0.25
_EQUAL: Final = 1e-6  # microseconds
_ROUNDED: Final = 6  # decimals of a microsecond


@dataclasses.dataclass(frozen=True)
class UntimedSend:
    """A send without a time.

    Args:
        chunks: the chunks, in one message.
        sources: the ranks that send, several only to the aggregation switch.
        destinations: the ranks that receive.
        seconds: how long it takes, in microseconds like all times.
        resources: what it occupies: links, ports, and the memory into which it reduces.
        after: the tasks that end before it starts, by their number; for `order`, numbers below its own.
        reduces: whether the destination adds what it receives.
    """

    chunks: tuple[int, ...]
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    seconds: float
    resources: frozenset[Hashable]
    after: tuple[int, ...]
    reduces: bool = False


def resources_of(network: SketchedNetwork, pair: Pair) -> frozenset[Hashable]:
    """Return what a send over a link occupies: the link, and the ports that it passes."""
    return frozenset((pair, *(("port", number) for number, port in enumerate(network.ports) if pair in port)))


def order(tasks: Sequence[UntimedSend]) -> list[float]:
    """Return when each task starts, in a schedule that is as short as some tries make it."""
    before = _before(tasks)
    to_go = [0.0] * len(tasks)
    for number in reversed(range(len(tasks))):
        to_go[number] = tasks[number].seconds + max((to_go[later] for later in before[number]), default=0.0)
    least = max((*loads(tasks).values(), *to_go), default=0.0)
    # Among equal sends, ranks begin with different receivers, or the lowest rank begins.
    ranks = 1 + max((rank for task in tasks for rank in task.destinations), default=0)
    turns = [(task.destinations[0] - task.sources[0]) % ranks for task in tasks]
    rng = random.Random(1)  # noqa: S311 (no secret)
    best: list[float] = []
    for attempt in range(_TRIES):
        spread = _NOISE if attempt > 3 else 0.0
        weights = [length * rng.uniform(1 - spread, 1 + spread) for length in to_go]
        key = _key(weights, turns if attempt % 4 < 2 else range(len(tasks)), soonest=attempt % 2 == 0)
        starts = _improved(tasks, before, _by_priority(tasks, before, key))
        if not best or _end(tasks, starts) < _end(tasks, best) - _EQUAL:
            best = starts
        if _end(tasks, best) <= least + _EQUAL:
            break
    return best


def loads(tasks: Sequence[UntimedSend]) -> dict[Hashable, float]:
    """Return by resource for how long tasks occupy it."""
    found: dict[Hashable, float] = defaultdict(float)
    for task in tasks:
        for resource in task.resources:
            found[resource] += task.seconds
    return found


def _key(to_go: Sequence[float], ties: Sequence[int], *, soonest: bool) -> Callable[[int, float], tuple[float, ...]]:
    """Return the key of a task, given its number and possible start: by that, or by how far its chunk has to go."""
    if soonest:
        return lambda number, start: (start, -to_go[number], ties[number])
    return lambda number, start: (-to_go[number], start, ties[number])


def improve(tasks: Sequence[UntimedSend], starts: Sequence[float]) -> list[float]:
    """Return when each task starts if tasks keep their sequence, or change it where that ends them sooner."""
    before, sequence = _before(tasks), sorted(range(len(tasks)), key=lambda number: starts[number])
    return _improved(tasks, before, _shifted(tasks, [task.after for task in tasks], sequence))


def _before(tasks: Sequence[UntimedSend]) -> list[list[int]]:
    """Return by task those that come after it."""
    before: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for earlier in task.after:
            before[earlier].append(number)
    return before


def sends_of(tasks: Sequence[UntimedSend], starts: Sequence[float]) -> tuple[Send, ...]:
    """Return the sends, in the order in which they start."""
    sends = []
    for task, start in zip(tasks, starts, strict=True):
        times = round(start, _ROUNDED), round(start + task.seconds, _ROUNDED)
        sends.append(Send(task.chunks, task.sources, task.destinations, *times, reduces=task.reduces))
    return tuple(sorted(sends, key=lambda send: (send.start, send.end, send.chunks, send.sources)))


def _end(tasks: Sequence[UntimedSend], starts: Sequence[float]) -> float:
    return max((start + task.seconds for task, start in zip(tasks, starts, strict=True)), default=0.0)


def _by_priority(
    tasks: Sequence[UntimedSend], before: Sequence[Sequence[int]], key: Callable[[int, float], tuple[float, ...]]
) -> list[float]:
    """Return starts: of the tasks whose predecessors have a time, the one with the lowest key is next."""
    free: dict[Hashable, float] = defaultdict(float)
    ready = [0.0] * len(tasks)
    missing = [len(task.after) for task in tasks]
    starts = [0.0] * len(tasks)
    eligible = [(key(number, 0.0), number) for number, count in enumerate(missing) if not count]
    heapq.heapify(eligible)
    while eligible:
        known, number = heapq.heappop(eligible)
        start = max(ready[number], *(free[resource] for resource in tasks[number].resources))
        if key(number, start) > known:  # its resources have been taken since
            heapq.heappush(eligible, (key(number, start), number))
            continue
        starts[number] = start
        end = start + tasks[number].seconds
        free.update(dict.fromkeys(tasks[number].resources, end))
        for later in before[number]:
            ready[later] = max(ready[later], end)
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(eligible, (key(later, ready[later]), later))
    return starts


def _improved(tasks: Sequence[UntimedSend], before: Sequence[Sequence[int]], starts: list[float]) -> list[float]:
    after = [task.after for task in tasks]
    while True:
        end = _end(tasks, starts)
        latest = sorted(range(len(tasks)), key=lambda n: -(starts[n] + tasks[n].seconds))
        from_end = _shifted(tasks, before, latest)
        earliest = sorted(range(len(tasks)), key=lambda n: -(from_end[n] + tasks[n].seconds))
        shorter = _shifted(tasks, after, earliest)
        if _end(tasks, shorter) >= end - _EQUAL:
            return starts
        starts = shorter


def _shifted(tasks: Sequence[UntimedSend], after: Sequence[Sequence[int]], sequence: Sequence[int]) -> list[float]:
    """Return the earliest starts in which each resource serves its tasks in this sequence."""
    free: dict[Hashable, float] = defaultdict(float)
    ends = [0.0] * len(tasks)
    for number in sequence:
        task = tasks[number]
        earliest = max((ends[other] for other in after[number]), default=0.0)
        ends[number] = max(earliest, *(free[resource] for resource in task.resources)) + task.seconds
        free.update(dict.fromkeys(task.resources, ends[number]))
    return [end - task.seconds for end, task in zip(ends, tasks, strict=True)]
