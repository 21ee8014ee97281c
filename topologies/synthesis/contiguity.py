"""Contiguous chunks between hosts: which of them are joined into one message, so that the latency is paid once.

As in TACCL's third stage, routes and the order on each link are given, and a mixed integer program decides.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from switchml.topologies.synthesis import ordering
from switchml.topologies.synthesis.ordering import UntimedSend
from switchml.topologies.synthesis.routing import IntegerProgram
from switchml.topologies.synthesis.sketch import LinkCost, Pair, SketchedNetwork

__all__ = ["join"]

_LONGEST: Final = 6  # chunks in a message
_WORTHWHILE: Final = 0.95  # what the longest message may take, relative to one message for each chunk

_Run = tuple[int, ...]


def join(
    network: SketchedNetwork, tasks: Sequence[UntimedSend], starts: Sequence[float], seconds: float
) -> tuple[list[UntimedSend], list[float]]:
    """Return the tasks, some of them joined, and their starts; those given if joining is not worth it."""
    lanes = _lanes(network, tasks, starts)
    if not any(_LONGEST * link.first * _WORTHWHILE > link.cost(_LONGEST) for _, link in lanes):
        return list(tasks), list(starts)
    runs, times = _chosen(tasks, starts, lanes, seconds)
    links = {number: link for lane, link in lanes for number in lane}
    places = {number: position for position, run in enumerate(runs) for number in run}
    joined = [
        _merged(tasks, run, links[run[0]], places) if len(run) > 1 else _renumbered(tasks[run[0]], places)
        for run in runs
    ]
    return joined, ordering.improve(joined, [times[run[0]] for run in runs])


def _lanes(
    network: SketchedNetwork, tasks: Sequence[UntimedSend], starts: Sequence[float]
) -> list[tuple[list[int], LinkCost]]:
    """Return the tasks on each link between hosts, in the order of their starts."""
    lanes: dict[tuple[Pair, bool], list[int]] = defaultdict(list)
    for number in sorted(range(len(tasks)), key=lambda number: starts[number]):
        task = tasks[number]
        pair = (task.sources[0], task.destinations[0] if len(task.sources) == 1 else network.switch)
        if network.crosses(pair):
            lanes[pair, task.reduces].append(number)
    return [(lane, network.links[pair]) for (pair, _), lane in lanes.items()]


def _chosen(
    tasks: Sequence[UntimedSend],
    starts: Sequence[float],
    lanes: Sequence[tuple[Sequence[int], LinkCost]],
    seconds: float,
) -> tuple[list[_Run], list[float]]:
    """Return the runs of tasks that are sent together, single ones included, and the start of each task."""
    program = IntegerProgram()
    longest = max(start + task.seconds for start, task in zip(starts, tasks, strict=True))
    time = program.variable(0, longest)
    begins = [program.variable(0, longest) for _ in tasks]
    ends = [program.variable(0, longest) for _ in tasks]
    neighbours = _neighbours(tasks, starts)
    choices: dict[_Run, int] = {}
    together: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)  # the choices that join two tasks
    for lane, link in lanes:
        for run in _runs(tasks, lane, neighbours):
            choices[run] = program.variable(0, 1, whole=True)
            for pair in itertools.pairwise(run):
                together[pair][choices[run]] = 1.0
        for number in lane:
            mine = {choice: float(len(run)) for run, choice in choices.items() if number in run}
            program.at_least(1, dict.fromkeys(mine, 1.0), 1)
            durations = {choice: -link.cost(int(length)) for choice, length in mine.items()}
            program.at_least(0, {ends[number]: 1.0, begins[number]: -1.0} | durations)
        for first, second in itertools.pairwise(lane):
            joins = together[first, second]
            program.at_least(0, {begins[second]: 1.0, begins[first]: -1.0})
            program.at_least(-longest, {begins[first]: 1.0, begins[second]: -1.0} | _scaled(joins, -longest))
    on_lanes = {number for lane, _ in lanes for number in lane}
    for number, task in enumerate(tasks):
        program.at_least(0, {time: 1.0, ends[number]: -1.0})
        if number not in on_lanes:
            program.at_least(task.seconds, {ends[number]: 1.0, begins[number]: -1.0})
        for earlier in task.after:
            program.at_least(0, {begins[number]: 1.0, ends[earlier]: -1.0})
    for first, second in neighbours:
        program.at_least(0, {begins[second]: 1.0, ends[first]: -1.0} | _scaled(together[first, second], longest))
    if program.minimize({time: 1.0}, seconds) is None:
        return [(number,) for number in range(len(tasks))], list(starts)
    values = program.values()
    runs = [run for run, choice in choices.items() if values[choice] > 0.5]
    runs += [(number,) for number in range(len(tasks)) if number not in on_lanes]
    return runs, [values[begin] for begin in begins]


def _scaled(terms: dict[int, float], factor: float) -> dict[int, float]:
    return dict.fromkeys(terms, factor)


def _neighbours(tasks: Sequence[UntimedSend], starts: Sequence[float]) -> dict[tuple[int, int], frozenset[Hashable]]:
    """Return the pairs of tasks of which one directly follows the other on a resource, and these resources."""
    used: dict[Hashable, list[int]] = defaultdict(list)
    for number in sorted(range(len(tasks)), key=lambda number: starts[number]):
        for resource in tasks[number].resources:
            used[resource].append(number)
    found: dict[tuple[int, int], frozenset[Hashable]] = defaultdict(frozenset)
    for resource, numbers in used.items():
        for pair in itertools.pairwise(numbers):
            found[pair] |= {resource}
    return found


def _runs(
    tasks: Sequence[UntimedSend], lane: Sequence[int], neighbours: Mapping[tuple[int, int], frozenset[Hashable]]
) -> list[_Run]:
    """Return what may be one message: tasks that directly follow one another on all that they share."""
    joinable = [
        neighbours.get((first, second)) == tasks[first].resources & tasks[second].resources
        for first, second in itertools.pairwise(lane)
    ]
    return [
        tuple(lane[first : last + 1])
        for first in range(len(lane))
        for last in range(first, min(first + _LONGEST, len(lane)))
        if all(joinable[first:last])
    ]


def _renumbered(task: UntimedSend, places: Mapping[int, int]) -> UntimedSend:
    return dataclasses.replace(task, after=tuple(sorted({places[number] for number in task.after})))


def _merged(tasks: Sequence[UntimedSend], run: _Run, link: LinkCost, places: Mapping[int, int]) -> UntimedSend:
    """Return the tasks of a run as one."""
    return _renumbered(
        dataclasses.replace(
            tasks[run[0]],
            chunks=tuple(chunk for number in run for chunk in tasks[number].chunks),
            seconds=link.cost(len(run)),
            resources=frozenset().union(*(tasks[number].resources for number in run)),
            after=tuple(earlier for number in run for earlier in tasks[number].after),
        ),
        places,
    )
