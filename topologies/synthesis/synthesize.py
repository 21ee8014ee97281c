"""From a topology and a sketch to a schedule: routes, order, contiguity; an all-reduce also through the switch."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from switchml.common.schedules import Schedule
from switchml.topologies.synthesis import contiguity, ordering, routing, simulate
from switchml.topologies.synthesis.ordering import UntimedSend
from switchml.topologies.synthesis.routing import Demand, Routes
from switchml.topologies.synthesis.sketch import Pair, SketchedNetwork

__all__ = ["Candidate", "Synthesis", "synthesize"]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A schedule, and what is known about it.

    Args:
        schedule: the schedule; the simulator has checked it.
        through_switch: whether the aggregation switch sums its chunks.
        relaxed: the time that its routes need if no chunk waits for another, in microseconds.
        bound: no routes that the sketch allows need less.
        proven: whether the routes, of both halves for an all-reduce, are proven to be the best.
        binaries: the binary variables of the program that found the routes, or of the larger one.
        busiest: for how long the busiest link or port between hosts is in use.
    """

    schedule: Schedule
    through_switch: bool
    relaxed: float
    bound: float
    proven: bool
    binaries: int
    busiest: float

    @property
    def makespan(self) -> float:
        """The time of the schedule, in microseconds."""
        return self.schedule.makespan

    def as_dict(self) -> dict[str, Any]:
        """Return its figures for JSON."""
        figures = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "schedule"
        }
        return {"makespan": self.makespan, **figures}


@dataclasses.dataclass(frozen=True)
class Synthesis:
    """The schedules found, the shortest first, and the time of a ring, if the collective has one."""

    network: SketchedNetwork
    candidates: Sequence[Candidate]
    ring: float | None

    @property
    def best(self) -> Candidate:
        """The shortest schedule."""
        return self.candidates[0]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        found = [candidate.as_dict() for candidate in self.candidates]
        figures = {"topology": self.network.name, "ring": self.ring, "found": found, "verdict": self.verdict}
        return self.best.schedule.as_dict() | figures

    @property
    def verdict(self) -> str:
        """A text about how much the aggregation switch shortens the collective, and why; empty if not tried."""
        if len(self.candidates) == 1:
            return ""
        through, around = sorted(self.candidates, key=lambda candidate: not candidate.through_switch)
        hosts = self.network.hosts
        ratio = around.makespan / through.makespan
        return (
            f"The schedule around the switch takes {ratio:.2f} times as long as that through it. Through the switch, "
            f"each of {hosts} hosts sends and receives every chunk once, which keeps its busiest link in use for "
            f"{through.busiest:g} us. Around it, it does so 2 ({hosts} - 1) / {hosts} times: {around.busiest:g} us. "
            f"Links thus allow a factor of {around.busiest / through.busiest:.2f}."
        )


def synthesize(network: SketchedNetwork, collective: str, seconds: float) -> Synthesis:
    """Return schedules of a collective. Each search for routes may take this many seconds.

    Raises what `routing.find_routes` raises.
    """
    candidates = [_candidate(network, collective, seconds)]
    if collective == "all-reduce" and network.aggregating:
        candidates.append(_through_switch(network, seconds))
    candidates.sort(key=lambda candidate: candidate.makespan)
    return Synthesis(network, candidates, _ring(network, collective))


def _candidate(network: SketchedNetwork, collective: str, seconds: float) -> Candidate:
    """Return the schedule without the aggregation switch."""
    tasks, found = _Tasks(network), []
    if collective == "all-to-all":
        demands = list(_exchanged(network))
        found.append(routing.find_routes(network, demands, seconds))
        tasks.broadcast(demands, found[0].links, {})
        return _finished(network, collective, tasks, found, seconds)
    sums: dict[int, list[int]] = {}
    if collective in ("reduce-scatter", "all-reduce"):
        mirrored = network.reversed()
        demands = list(_gathered(mirrored))
        found.append(routing.find_routes(mirrored, demands, seconds))
        sums = tasks.reduce(demands, found[-1].links)
    if collective in ("all-gather", "all-reduce"):
        demands = list(_gathered(network))
        found.append(routing.find_routes(network, demands, seconds))
        tasks.broadcast(demands, found[-1].links, sums)
    return _finished(network, collective, tasks, found, seconds)


def _through_switch(network: SketchedNetwork, seconds: float) -> Candidate:
    """Return the all-reduce in which hosts sum each chunk, the switch those sums, and hosts distribute the result."""
    mirrored = network.reversed()
    demands = list(_summed_by_switch(network))
    inward = routing.find_routes(mirrored, demands, seconds)
    outward = routing.find_routes(network, demands, seconds)
    tasks = _Tasks(network)
    sums = tasks.reduce(demands, inward.links)
    results = tasks.aggregate(demands, sums)
    tasks.broadcast(demands, outward.links, results)
    return _finished(network, "all-reduce", tasks, [inward, outward], seconds)


def _finished(
    network: SketchedNetwork, collective: str, tasks: _Tasks, found: Sequence[Routes], seconds: float
) -> Candidate:
    starts = ordering.order(tasks.list)
    joined, starts = contiguity.join(network, tasks.list, starts, seconds)
    sends = ordering.sends_of(joined, starts)
    schedule = Schedule(collective, network.ranks, network.chunks_per_rank, sends)
    simulate.check(schedule, network)
    loads = ordering.loads(tasks.list)
    across = [load for resource, load in ordering.loads(joined).items() if _crosses(network, resource)]
    return Candidate(
        schedule=schedule,
        through_switch=any(len(send.sources) > 1 for send in sends),
        relaxed=found[0].time if len(found) == 1 else max(*loads.values(), *(routes.time for routes in found)),
        bound=max(routes.bound for routes in found),
        proven=all(routes.proven for routes in found),
        binaries=max(routes.binaries for routes in found),
        busiest=max(across, default=0.0),
    )


def _crosses(network: SketchedNetwork, resource: Hashable) -> bool:
    match resource:
        case ("port", int(number)):
            return any(network.crosses(pair) for pair in network.ports[number])
        case (int(sender), int(receiver)):
            return network.crosses((sender, receiver))
    return False


def _ring(network: SketchedNetwork, collective: str) -> float | None:
    """Return the time of a ring over the slowest links that it must take, or None for an all-to-all."""
    if collective == "all-to-all" or network.ranks == 1:
        return None
    costs = [
        link.first
        for pair, link in network.links.items()
        if network.switch not in pair and (network.hosts == 1 or network.crosses(pair))
    ]
    rounds = (network.ranks - 1) * network.chunks_per_rank * (2 if collective == "all-reduce" else 1)
    return rounds * min(costs)


def _gathered(network: SketchedNetwork) -> Iterator[Demand]:
    for chunk in range(network.ranks * network.chunks_per_rank):
        owner = chunk // network.chunks_per_rank
        yield Demand(owner, frozenset(range(network.ranks)) - {owner}, network.senders.get(owner))


def _exchanged(network: SketchedNetwork) -> Iterator[Demand]:
    for source in range(network.ranks):
        for destination in range(network.ranks):
            wanted = frozenset({destination} - {source})
            yield from [Demand(source, wanted, network.senders.get(source))] * network.chunks_per_rank


def _summed_by_switch(network: SketchedNetwork) -> Iterator[Demand]:
    """Yield the chunks as those of the switch, with which one rank of each host, the same on all, exchanges them."""
    for chunk in range(network.ranks * network.chunks_per_rank):
        gpu = network.aggregating[chunk % len(network.aggregating)]
        attached = frozenset(range(gpu, network.ranks, network.gpus))
        yield Demand(network.switch, frozenset(range(network.ranks)), attached)


class _Tasks:
    """The tasks of a collective. Routes are trees that lead away from the source of a chunk."""

    def __init__(self, network: SketchedNetwork) -> None:
        self._network = network
        self.list: list[UntimedSend] = []

    def broadcast(
        self, demands: Sequence[Demand], routes: Sequence[Sequence[Pair]], after: Mapping[int, Sequence[int]]
    ) -> None:
        """Add the sends from the source of each chunk to its destinations, after other tasks of the chunk."""
        own: dict[Pair, list[int]] = defaultdict(list)  # tasks in which a rank sends its own chunk to another host
        arrived: dict[tuple[int, int], tuple[int, ...]] = {}
        for depth, chunk, (a, b) in _by_depth(demands, routes):
            if a == self._network.switch:  # `aggregate` has sent it
                arrived[chunk, b] = tuple(after[chunk])
                continue
            before = tuple(after.get(chunk, ())) if depth == 0 else arrived[chunk, a]
            if self._network.own_first and self._network.crosses((a, b)):
                if depth == 0:
                    own[a, b].append(len(self.list))
                else:
                    before += tuple(own[a, b])
            arrived[chunk, b] = (self._add(chunk, (a, b), before),)

    def reduce(self, demands: Sequence[Demand], routes: Sequence[Sequence[Pair]]) -> dict[int, list[int]]:
        """Add the sends along the same trees, to the source; return by chunk those that it waits for."""
        into: dict[tuple[int, int], list[int]] = defaultdict(list)
        for _, chunk, (a, b) in sorted(_by_depth(demands, routes), reverse=True):
            if a == self._network.switch:
                into[chunk, a] += into[chunk, b]
            else:
                into[chunk, a].append(self._add(chunk, (b, a), tuple(into[chunk, b]), reduces=True))
        return {chunk: into[chunk, demand.source] for chunk, demand in enumerate(demands)}

    def aggregate(self, demands: Sequence[Demand], after: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """Add a send of each chunk to the switch, whose sum all attached ranks receive in the same message time."""
        network, results = self._network, {}
        for chunk, demand in enumerate(demands):
            ranks = tuple(sorted(demand.relays or ()))
            pairs = [pair for rank in ranks for pair in ((rank, network.switch), (network.switch, rank))]
            resources = frozenset().union(*(ordering.resources_of(network, pair) for pair in pairs))
            seconds = max(network.links[pair].first for pair in pairs)
            results[chunk] = [len(self.list)]
            self.list.append(UntimedSend((chunk,), ranks, ranks, seconds, resources, tuple(after[chunk])))
        return results

    def _add(self, chunk: int, pair: Pair, after: tuple[int, ...], *, reduces: bool = False) -> int:
        resources = ordering.resources_of(self._network, pair)
        if reduces:
            resources |= {("sum", chunk, pair[1])}  # a rank adds one after another
        seconds = self._network.links[pair].first
        self.list.append(UntimedSend((chunk,), (pair[0],), (pair[1],), seconds, resources, after, reduces))
        return len(self.list) - 1


def _by_depth(demands: Sequence[Demand], routes: Sequence[Sequence[Pair]]) -> list[tuple[int, int, Pair]]:
    """Return the links of all routes with their chunk and their distance from its source, the nearest first."""
    found = []
    for chunk, (demand, links) in enumerate(zip(demands, routes, strict=True)):
        depths = {demand.source: 0}
        outward: dict[int, list[Pair]] = defaultdict(list)
        for pair in links:
            outward[pair[0]].append(pair)
        queue = [demand.source]
        while queue:
            node = queue.pop()
            for a, b in outward[node]:
                depths[b] = depths[a] + 1
                queue.append(b)
                found.append((depths[a], chunk, (a, b)))
    return sorted(found)
