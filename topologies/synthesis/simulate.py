"""A simulator that checks a schedule on its network: what each rank has, and what each link and port carries."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator

from switchml.common.errors import ScheduleError
from switchml.common.schedules import Schedule, Send, check_conditions
from switchml.topologies.synthesis.sketch import Pair, SketchedNetwork

__all__ = ["check"]

_ROUNDING = 1e-5  # microseconds


def check(schedule: Schedule, network: SketchedNetwork) -> None:
    """Raise ScheduleError unless the schedule does what its collective promises, and the network can carry it.

    A rank has a whole chunk before it sends a part of it (store and forward). A link carries one message at a time, and
    of the links of a port one does. A rank adds one after another to a chunk.
    """
    if schedule.ranks != network.ranks:
        raise ScheduleError(f"the schedule is for {schedule.ranks} ranks, the network has {network.ranks}")
    check_conditions(schedule)
    used: dict[Hashable, list[Send]] = defaultdict(list)
    for send in schedule.sends:
        pairs = _pairs(send, network)
        for pair in pairs:
            if pair not in network.links:
                raise ScheduleError(f"{send} takes the link {pair[0]} -> {pair[1]}, which does not exist")
            if send.end - send.start < network.links[pair].cost(len(send.chunks)) - _ROUNDING:
                raise ScheduleError(f"{send} takes less time than the link {pair[0]} -> {pair[1]} needs")
            used[pair].append(send)
        for number, port in enumerate(network.ports):
            if port.intersection(pairs):
                used[f"port {number}"].append(send)
        for place in ((chunk, rank) for chunk in send.chunks for rank in send.destinations if send.reduces):
            used["sum", place].append(send)
    for resource, sends in used.items():
        sends.sort(key=lambda send: send.start)
        for first, second in itertools.pairwise(sends):
            if second.start < first.end - _ROUNDING:
                raise ScheduleError(f"{resource} is used twice at once, by {first} and by {second}")


def _pairs(send: Send, network: SketchedNetwork) -> list[Pair]:
    if len(send.sources) == len(send.destinations) == 1:
        return [(send.sources[0], send.destinations[0])]
    return list(_through_the_switch(send, network))


def _through_the_switch(send: Send, network: SketchedNetwork) -> Iterator[Pair]:
    if sorted(send.sources) != sorted(send.destinations) or not network.aggregating:
        raise ScheduleError(f"{send} is between several ranks, but not a sum in the aggregation switch")
    for rank in send.sources:
        yield (rank, network.switch)
        yield (network.switch, rank)
