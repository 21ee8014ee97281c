"""Routes of chunks: a mixed integer program, which HiGHS solves.

As in TACCL's first stage, the program knows how long each chunk travels and how much every link and port carries, but
not in which order: it gives a lower bound of the time, and routes, which `ordering` turns into a schedule.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from switchml.common.errors import NoRouteError, SketchError, SolverError
from switchml.common.installation import install_command
from switchml.topologies.synthesis.sketch import Pair, SketchedNetwork

__all__ = ["Demand", "IntegerProgram", "Routes", "find_routes"]

_SEED: Final = 1
_REFINING: Final = 0.25  # of the time, for the preference among equally fast routes
_SLACK: Final = 1e-6  # relative, for the time when routes of that time are searched


@dataclasses.dataclass(frozen=True)
class Demand:
    """A chunk.

    Args:
        source: the node that has it.
        destinations: the ranks that must get it.
        relays: the ranks at which it may leave the host of its source, or enter others from the aggregation switch;
            None if any may be.
    """

    source: int
    destinations: frozenset[int]
    relays: frozenset[int] | None = None


@dataclasses.dataclass(frozen=True)
class Routes:
    """The links that each chunk takes, and what is known about the time.

    Args:
        links: by chunk; they form a tree.
        time: the time that these routes need if no chunk waits for another, and each link is always busy.
        bound: no routes need less.
        binaries: the size of the program: its binary variables.
    """

    links: tuple[tuple[Pair, ...], ...]
    time: float
    bound: float
    binaries: int

    @property
    def proven(self) -> bool:
        """True if no routes need less time."""
        return self.bound >= self.time * (1 - 1e-4)


class IntegerProgram:
    """A mixed integer program for HiGHS, with one thread and a fixed seed.

    Raises:
        SolverError: highspy is not installed.
    """

    def __init__(self) -> None:
        try:
            import highspy
        except ImportError as error:
            raise SolverError(
                f"synthesis needs the solver HiGHS ({error}); install it with `{install_command('synthesis')}`"
            ) from error
        self._module: Any = highspy
        self._solver: Any = self._module.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("random_seed", _SEED)):
            self._solver.setOptionValue(option, value)
        self._rows: set[tuple[float, tuple[tuple[int, float], ...]]] = set()
        self.columns = 0

    def variable(self, lowest: float, highest: float, *, whole: bool = False) -> int:
        """Add a variable and return its number."""
        self._solver.addVar(lowest, highest)
        if whole:
            self._solver.changeColIntegrality(self.columns, self._module.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def at_least(self, least: float, terms: Mapping[int, float], most: float = math.inf) -> None:
        """Require that the sum of the terms, variables with their factors, is at least `least`."""
        row = (least, tuple(sorted(terms.items())))
        if most == math.inf:
            if row in self._rows:
                return
            self._rows.add(row)
        self._solver.addRow(least, most, len(terms), list(terms), list(terms.values()))

    def minimize(self, costs: Mapping[int, float], seconds: float) -> tuple[float, float] | None:
        """Solve the program; return the objective and its bound, or None if no solution was found in time.

        Raises NoRouteError: no solution exists.
        """
        for column in range(self.columns):
            self._solver.changeColCost(column, costs.get(column, 0.0))
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + seconds)
        self._solver.run()
        status, info = self._solver.getModelStatus(), self._solver.getInfo()
        if status == self._module.HighsModelStatus.kInfeasible:
            raise NoRouteError("no routes meet the sketch: it forbids what some pair of ranks needs; allow more links")
        if info.primal_solution_status != self._module.SolutionStatus.kSolutionStatusFeasible:
            return None
        return info.objective_function_value, info.mip_dual_bound

    def values(self) -> Sequence[float]:
        """Return the values of the variables in the best solution."""
        return list(self._solver.getSolution().col_value)


def find_routes(network: SketchedNetwork, demands: Sequence[Demand], seconds: float) -> Routes:
    """Return routes for all demands that need the least time that the solver finds in this many seconds.

    Raises:
        NoRouteError: a rank cannot be reached, or the sketch forbids what is needed.
        SketchError: the collective is not symmetric under an offset of the sketch.
        SolverError: the solver is not installed, or has found nothing in the time given.
    """
    return _Routing(network, demands).solve(seconds)


class _Routing:
    def __init__(self, network: SketchedNetwork, demands: Sequence[Demand]) -> None:
        self._network, self._demands = network, demands
        self._allowed = _allowed_links(network, demands)
        self._classes = _Classes(network, demands, self._allowed)
        self._program = IntegerProgram()
        self._taken: dict[int, int] = {}  # by class of (chunk, link), the variable that says whether it is taken
        self._arrivals: dict[int, int] = {}  # by class of (chunk, node)
        self._time = self._program.variable(0, math.inf)
        self._add_variables()
        for chunk in range(len(demands)):
            self._add_chunk(chunk)
        self._loads = [self._load([pair]) for pair in network.links]
        self._loads += [self._load(port) for port in network.ports]
        for load in self._loads:
            if load:
                self._program.at_least(0, {self._time: 1.0} | {column: -cost for column, cost in load.items()})

    def solve(self, seconds: float) -> Routes:
        refining = 0.0 if self._network.preference == "none" else seconds * _REFINING
        found = self._program.minimize({self._time: 1.0}, seconds - refining)
        if found is None:
            raise SolverError(
                f"HiGHS has found no routes in {seconds:g} s; allow more time with --seconds, or fewer links in the "
                "sketch, or name symmetry_offsets there"
            )
        (time, bound), values = found, self._program.values()
        if refining:
            self._program.at_least(-time * (1 + _SLACK), {self._time: -1.0})
            preferred = self._program.minimize(self._preference(), refining)
            # The routes of a search that ran out of time would differ from run to run.
            if preferred is not None and preferred[1] >= preferred[0] - 1e-3:
                values = self._program.values()
        links = tuple(
            tuple(pair for pair in allowed if values[self._take(chunk, pair)] > 0.5)
            for chunk, allowed in enumerate(self._allowed)
        )
        return Routes(links, round(time, 6), round(min(bound, time), 6), len(self._taken))

    def _take(self, chunk: int, pair: Pair) -> int:
        return self._taken[self._classes.of_link(chunk, pair)]

    def _arrival(self, chunk: int, node: int) -> int:
        return self._arrivals[self._classes.of_node(chunk, node)]

    def _add_variables(self) -> None:
        network = self._network
        for chunk, (demand, allowed) in enumerate(zip(self._demands, self._allowed, strict=True)):
            for pair in allowed:
                number = self._classes.of_link(chunk, pair)
                if number not in self._taken:
                    self._taken[number] = self._program.variable(0, 1, whole=True)
            earliest = _distances(demand.source, allowed, {pair: network.links[pair].first for pair in allowed})
            for node in demand.destinations - earliest.keys():
                source = "the switch" if demand.source == network.switch else f"rank {demand.source}"
                raise NoRouteError(
                    f"rank {node} cannot be reached from {source} over the links of the topology and the sketch; add a "
                    "link to the topology, or a connection to internode_conn"
                )
            latest = _latest(network, allowed)
            for node in earliest:
                number = self._classes.of_node(chunk, node)
                if number not in self._arrivals:
                    highest = 0.0 if node == demand.source else latest
                    self._arrivals[number] = self._program.variable(earliest[node], highest)

    def _add_chunk(self, chunk: int) -> None:
        """Add the rows of one chunk: where it must arrive, when, and that nothing is sent on that has not arrived."""
        demand, allowed, program = self._demands[chunk], self._allowed[chunk], self._program
        inward: dict[int, list[int]] = defaultdict(list)
        for pair in allowed:
            inward[pair[1]].append(self._take(chunk, pair))
        for node, columns in inward.items():
            least = 1.0 if node in demand.destinations else 0.0
            program.at_least(least, _counted(columns))
            program.at_least(-1.0, _counted(columns, -1.0))
        latest = _latest(self._network, allowed)
        for a, b in allowed:
            cost, take = self._network.links[a, b].first, self._take(chunk, (a, b))
            if a != demand.source and a not in demand.destinations:
                program.at_least(0, _sum(_counted(inward[a]), {take: -1.0}))
            # arrival at b >= arrival at a + cost, if the link is taken
            row = _sum({self._arrival(chunk, b): 1.0}, {self._arrival(chunk, a): -1.0})
            program.at_least(-latest, _sum(row, {take: -(cost + latest)}))
        for node in demand.destinations:
            program.at_least(0, {self._time: 1.0, self._arrival(chunk, node): -1.0})
        self._add_relay_cut(chunk)

    def _add_relay_cut(self, chunk: int) -> None:
        """Require that the chunk leaves its host for each host that needs it, without which proofs take minutes."""
        network, demand = self._network, self._demands[chunk]
        crossing: dict[int, list[int]] = defaultdict(list)
        for pair in self._allowed[chunk]:
            if network.crosses(pair):
                crossing[network.host(pair[1])].append(self._take(chunk, pair))
        for host in {network.host(node) for node in demand.destinations} - {network.host(demand.source)}:
            self._program.at_least(1, _counted(crossing[host]))

    def _load(self, pairs: Collection[Pair]) -> dict[int, float]:
        """Return by variable what it adds to the time for which these links are busy."""
        load: dict[int, float] = defaultdict(float)
        for chunk, allowed in enumerate(self._allowed):
            for pair in pairs:
                if pair in allowed:
                    load[self._take(chunk, pair)] += self._network.links[pair].first
        return load

    def _preference(self) -> dict[int, float]:
        """Add what the sketch prefers, and return it as an objective."""
        program, wanted = self._program, self._network.preference
        local = [pair for pair in self._network.links if not self._network.crosses(pair)]
        if wanted in ("minmax", "maxmin"):
            sign = 1.0 if wanted == "minmax" else -1.0
            extreme = program.variable(0, math.inf)
            for load in (self._load([pair]) for pair in local):
                program.at_least(0, _sum({extreme: sign}, {column: -sign * cost for column, cost in load.items()}))
            return {extreme: sign}
        used = {}
        for pair in local:
            used[pair] = program.variable(0, 1)
            takes = [self._take(chunk, pair) for chunk, allowed in enumerate(self._allowed) if pair in allowed]
            if wanted == "uc-min":
                for take in takes:
                    program.at_least(0, {used[pair]: 1.0, take: -1.0})
            else:
                program.at_least(0, _sum(_counted(takes), {used[pair]: -1.0}))
        return _counted(used.values(), 1.0 if wanted == "uc-min" else -1.0)


def _counted(columns: Collection[int], factor: float = 1.0) -> dict[int, float]:
    counts: dict[int, float] = defaultdict(float)
    for column in columns:
        counts[column] += factor
    return counts


def _sum(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    return {column: first.get(column, 0.0) + second.get(column, 0.0) for column in (*first, *second)}


def _latest(network: SketchedNetwork, allowed: Collection[Pair]) -> float:
    """Return a time by which a chunk that does not wait has arrived everywhere: it takes no node twice."""
    local = max((network.links[pair].first for pair in allowed if not network.crosses(pair)), default=0.0)
    across = max((network.links[pair].first for pair in allowed if network.crosses(pair)), default=0.0)
    return across + local * 2 * (network.gpus - 1)


def _allowed_links(network: SketchedNetwork, demands: Sequence[Demand]) -> list[dict[Pair, None]]:
    """Return by chunk the links on its shortest paths, counted in hops. Only its own host sends it to other hosts."""
    possible: dict[tuple[int, frozenset[int] | None], list[Pair]] = {}
    hops: dict[tuple[int, frozenset[int] | None], list[dict[int, float]]] = {}
    found = []
    for demand in demands:
        key = host, relays = network.host(demand.source), demand.relays
        if key not in possible:
            possible[key] = [
                (a, b)
                for a, b in network.links
                if b != network.switch
                and (
                    not network.crosses((a, b))
                    or (network.host(a) == host and (relays is None or a in relays or b in relays))
                )
            ]
            ones = dict.fromkeys(possible[key], 1.0)
            hops[key] = [_distances(node, ones, ones) for node in range(network.ranks + 1)]
        reached = hops[key][demand.source]
        nodes = {
            node
            for node, away in reached.items()
            if any(away + hops[key][node].get(to, math.inf) == reached.get(to) for to in demand.destinations)
        }
        found.append({(a, b): None for a, b in possible[key] if a in nodes and b in nodes and b != demand.source})
    return found


def _distances(source: int, pairs: Collection[Pair], costs: Mapping[Pair, float]) -> dict[int, float]:
    """Return the nodes that can be reached, and at what cost."""
    outward: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        outward[pair[0]].append(pair)
    reached = {source: 0.0}
    queue = [source]
    while queue:  # of Bellman and Ford; networks are small
        node = queue.pop(0)
        for pair in outward[node]:
            cost = reached[node] + costs[pair]
            if cost < reached.get(pair[1], math.inf) - 1e-9:
                reached[pair[1]] = cost
                queue.append(pair[1])
    return reached


class _Classes:
    """Classes of (chunk, link) and of (chunk, node) that the symmetries of the sketch make equal."""

    def __init__(
        self, network: SketchedNetwork, demands: Sequence[Demand], allowed: Sequence[Collection[Pair]]
    ) -> None:
        nodes = network.ranks + 1
        self._nodes, self._squared = nodes, nodes * nodes
        self._links = list(range(len(demands) * self._squared))
        self._arrivals = list(range(len(demands) * nodes))
        for permutation in network.symmetries:
            for chunk, mapped in enumerate(_mapped_chunks(demands, permutation)):
                for a, b in allowed[chunk]:
                    image = (permutation[a], permutation[b])
                    if image not in allowed[mapped]:
                        raise SketchError(
                            f"the routes from rank {a} to rank {b} are not symmetric under symmetry_offsets"
                        )
                    _join(self._links, self._link(chunk, (a, b)), self._link(mapped, image))
                for node in range(nodes):
                    _join(self._arrivals, chunk * nodes + node, mapped * nodes + permutation[node])

    def _link(self, chunk: int, pair: Pair) -> int:
        return chunk * self._squared + pair[0] * self._nodes + pair[1]

    def of_link(self, chunk: int, pair: Pair) -> int:
        return _root(self._links, self._link(chunk, pair))

    def of_node(self, chunk: int, node: int) -> int:
        return _root(self._arrivals, chunk * self._nodes + node)


def _mapped_chunks(demands: Sequence[Demand], permutation: Sequence[int]) -> list[int]:
    """Return for each chunk the one to which a permutation of the ranks maps it."""
    places: dict[Demand, list[int]] = defaultdict(list)
    for chunk, demand in enumerate(demands):
        places[demand].append(chunk)
    mapped = []
    for chunk, demand in enumerate(demands):
        relays = demand.relays if demand.relays is None else frozenset(permutation[rank] for rank in demand.relays)
        image = Demand(permutation[demand.source], frozenset(permutation[rank] for rank in demand.destinations), relays)
        if len(places[image]) != len(places[demand]):
            raise SketchError("the collective is not symmetric under symmetry_offsets; remove the offset")
        mapped.append(places[image][places[demand].index(chunk)])
    return mapped


def _root(parents: list[int], element: int) -> int:
    while parents[element] != element:
        parents[element] = parents[parents[element]]
        element = parents[element]
    return element


def _join(parents: list[int], first: int, second: int) -> None:
    parents[_root(parents, first)] = _root(parents, second)
