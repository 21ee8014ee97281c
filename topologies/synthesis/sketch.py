"""Topologies and sketches in TACCL's form, and the network of links and ports that both describe."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import SketchError

__all__ = ["PACKAGED", "LinkCost", "SketchedNetwork", "load"]

PACKAGED: Final = Path(__file__).parent / "files"
"""Topologies and sketches that come with SwitchML; a name without a suffix or a folder is one of them."""

# The NVLinks of a host with eight GPUs in a cube mesh, as in Azure's NDv2: by GPU, those with double bandwidth, and
# those with single bandwidth.
_CUBE_MESH: Final = (
    ((1, 4), (2, 3)), ((0, 3), (2, 5)), ((3, 6), (0, 1)), ((1, 2), (0, 7)),
    ((0, 5), (6, 7)), ((4, 7), (1, 6)), ((2, 7), (4, 5)), ((5, 6), (3, 4)),
)  # fmt: skip

_LARGEST: Final = 1024  # ranks; schedules of more take days to find


@dataclasses.dataclass(frozen=True)
class LinkCost:
    """The cost of a link in microseconds: of the first chunk of a message, and of each further one."""

    first: float
    further: float

    def cost(self, chunks: int) -> float:
        """Return the time that a message of this many chunks takes."""
        return self.first + (chunks - 1) * self.further


Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class SketchedNetwork:
    """The links between the ranks of a job, and what the sketch says about their use.

    Args:
        name: the topology's name.
        hosts: the number of hosts.
        gpus: ranks of each host; rank R is on host R // gpus.
        links: by sender and receiver. The aggregation switch, if there is one, is the node after the last rank.
        ports: groups of links of which one is used at a time.
        senders: by rank, those of its host that send its chunks to other hosts; none if any may.
        own_first: whether a sender sends its own chunks to other hosts before those of others.
        symmetries: permutations of the ranks that map links to links, and routes to routes.
        preference: what to prefer among equally fast routes: "uc-min" or "uc-max", few or many links within a host;
            "minmax" or "maxmin", a small load of the busiest link or a large one of the least busy; "none".
        chunks_per_rank: into how many chunks each rank's data is divided.
        aggregating: the GPUs of each host that are attached to the aggregation switch; empty without one.
    """

    name: str
    hosts: int
    gpus: int
    links: Mapping[Pair, LinkCost]
    ports: tuple[frozenset[Pair], ...] = ()
    senders: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)
    own_first: bool = False
    symmetries: tuple[tuple[int, ...], ...] = ()
    preference: str = "none"
    chunks_per_rank: int = 1
    aggregating: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.hosts * self.gpus

    @property
    def switch(self) -> int:
        """The node of the aggregation switch."""
        return self.ranks

    def host(self, rank: int) -> int:
        """Return the host of a rank; the aggregation switch counts as a separate host."""
        return rank // self.gpus

    def crosses(self, pair: Pair) -> bool:
        """Return whether a link leads to another host."""
        return self.host(pair[0]) != self.host(pair[1])

    def reversed(self) -> SketchedNetwork:
        """Return the network with every link turned around. Chunks leave where they entered."""
        links = {(receiver, sender): link for (sender, receiver), link in self.links.items()}
        ports = tuple(frozenset((receiver, sender) for sender, receiver in port) for port in self.ports)
        senders = {
            rank: frozenset(
                b
                for a, b in self.links
                if self.crosses((a, b)) and self.host(b) == self.host(rank) and a % self.gpus in local
            )
            for rank, those in self.senders.items()
            for local in [{sender % self.gpus for sender in those}]
        }
        return dataclasses.replace(self, links=links, ports=ports, senders=senders, own_first=False)


def load(topology: str, sketch: str) -> SketchedNetwork:
    """Return the network of a topology and a sketch: names of packaged ones, or files. Raises SketchError."""
    try:
        return _Reader(_read(topology), _read(sketch)).network()
    except (TypeError, ValueError, AttributeError) as error:
        raise SketchError(f"{topology} or {sketch} has a value of a wrong type: {error}") from error


def _read(name: str) -> _Fields:
    path = Path(name)
    if path.suffix == "" and path.name == name:
        path = PACKAGED / f"{name}.json"
        if not path.is_file():
            names = ", ".join(sorted(one.stem for one in PACKAGED.glob("*.json")))
            raise SketchError(f"{name}: there is no packaged file of this name; name a .json file, or one of: {names}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SketchError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SketchError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise SketchError(f"{path} is not a JSON object")
    return _Fields(str(path), content)


class _Fields:
    """A JSON object of a file. To read an absent key is a SketchError that names the file."""

    def __init__(self, place: str, content: dict[str, Any]) -> None:
        self.place, self._content = place, content

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def __getitem__(self, key: str) -> Any:
        if key not in self._content:
            raise SketchError(f"{self.place}: the key {key!r} is missing")
        value = self._content[key]
        return _Fields(f"{self.place}: {key}", value) if isinstance(value, dict) else value

    def get(self, key: str, default: Any) -> Any:
        return self[key] if key in self._content else default

    def items(self) -> Iterator[tuple[str, Any]]:
        yield from self._content.items()

    def object(self, key: str) -> _Fields:
        value = self[key]
        if not isinstance(value, _Fields):
            raise SketchError(f"{self.place}: {key} is not an object")
        return value

    def time(self, key: str) -> float:
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise SketchError(f"{self.place}: {key} is {value!r}; it is a time above 0 in microseconds")
        return float(value)

    def whole(self, key: str, largest: int) -> int:
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise SketchError(f"{self.place}: {key} is {value!r}; it is a whole number, 1..{largest}")
        return value


class _Reader:
    def __init__(self, topology: _Fields, sketch: _Fields) -> None:
        self._topology, self._sketch = topology, sketch
        self._gpus = topology.whole("gpus_per_node", _LARGEST)
        self._hosts = sketch.whole("nnodes", _LARGEST // self._gpus)

    def network(self) -> SketchedNetwork:
        topology, sketch = self._topology, self._sketch
        links = self._links_of_a_host()
        intranode = sketch.object("intranode_sketch")
        switches = self._switches(intranode, links)
        network = SketchedNetwork(
            name=str(topology["name"]),
            hosts=self._hosts,
            gpus=self._gpus,
            links={
                (sender + base, receiver + base): link
                for base in range(0, self._hosts * self._gpus, self._gpus)
                for (sender, receiver), link in links.items()
            },
            ports=tuple(_switch_ports(switches, self._hosts, self._gpus)),
            preference=self._preference(intranode),
            chunks_per_rank=sketch.object("hyperparameters").whole("input_chunkup", _LARGEST),
        )
        if self._hosts > 1:
            network = self._with_other_hosts(network, sketch.object("internode_sketch"))
        if self._hosts > 1 and "aggregation_switch" in topology:
            network = self._with_aggregation_switch(network, topology.object("aggregation_switch"))
        return dataclasses.replace(network, symmetries=tuple(self._symmetries(network)))

    def _links_of_a_host(self) -> dict[Pair, LinkCost]:
        """Return the links within a host: of matrices, of a cube mesh, or between all."""
        topology, gpus = self._topology, self._gpus
        if "links" in topology:
            exists, firsts, further = (self._matrix(key) for key in ("links", "invbws", "betas"))
            pairs = [(a, b) for a in range(gpus) for b in range(gpus) if a != b and exists[b][a]]
            return {(a, b): self._link(firsts[b][a], further[b][a]) for a, b in pairs}
        firsts, further = topology["node_invbws_list"], topology["node_betas_list"]
        if len(firsts) != len(further):
            raise SketchError(f"{topology.place}: node_invbws_list and node_betas_list differ in length")
        kinds = [self._link(*costs) for costs in zip(firsts, further, strict=True)]
        if len(kinds) == 1:
            return {(a, b): kinds[0] for a in range(gpus) for b in range(gpus) if a != b}
        if len(kinds) == 2 and gpus == len(_CUBE_MESH):
            return {
                (a, b): kind
                for a, neighbours in enumerate(_CUBE_MESH)
                for kind, those in zip(kinds, neighbours, strict=True)
                for b in those
            }
        raise SketchError(
            f"{topology.place}: two kinds of links are known only for 8 GPUs in a cube mesh; give the matrices "
            "links, invbws and betas instead, [receiver][sender]"
        )

    def _with_other_hosts(self, network: SketchedNetwork, internode: _Fields) -> SketchedNetwork:
        """Add the links between hosts. TACCL's rule: connections share the network cards of their host evenly."""
        if internode["strategy"] != "relay":
            raise SketchError(f"{internode.place}: the strategy {internode['strategy']!r} is unknown; it is 'relay'")
        connections = self._connections(internode)
        cards = self._topology.whole("nics_per_node", _LARGEST)
        sharing = max(1.0, len(connections) / cards)
        further = self._topology.time("remote_beta")
        link = LinkCost(self._topology.time("remote_invbw") + further * (sharing - 1), further * sharing)
        bases = range(0, self._hosts * self._gpus, self._gpus)
        between = [(a + i, b + j) for i in bases for j in bases if i != j for a, b in connections]
        ports = []
        if self._hosts > 2 and cards < len(connections) * (self._hosts - 1):
            for end in (0, 1):  # the links of a rank to, and from, several hosts share its card
                by_rank: dict[int, set[Pair]] = {}
                for pair in between:
                    by_rank.setdefault(pair[end], set()).add(pair)
                ports += [frozenset(pairs) for pairs in by_rank.values()]
        senders = self._senders(internode, {a for a, _ in connections})
        return dataclasses.replace(
            network,
            links={**network.links, **dict.fromkeys(between, link)},
            ports=(*network.ports, *ports),
            senders={
                rank + base: frozenset(s + base for s in those) for base in bases for rank, those in senders.items()
            },
            own_first=bool(internode.get("enforce_ordering", False)),
        )

    def _connections(self, internode: _Fields) -> list[Pair]:
        """Return which GPU of a host sends to which GPU of another."""
        given, gpus = internode["internode_conn"], range(self._gpus)
        if given == "fully-connected":
            return [(a, b) for a in gpus for b in gpus]
        if given == "direct-map":
            return [(a, a) for a in gpus]
        if not isinstance(given, _Fields) or not given:
            raise SketchError(
                f"{internode.place}: internode_conn is neither an object {{sender: [receivers]}} nor 'fully-connected' "
                "or 'direct-map'"
            )
        return [
            (self._gpu(a, given.place), self._gpu(b, given.place)) for a, receivers in given.items() for b in receivers
        ]

    def _senders(self, internode: _Fields, senders: set[int]) -> dict[int, set[int]]:
        """Return, by GPU, the GPUs that send its chunks to other hosts; empty if any may."""
        given = internode.get("gpus_to_sender_rev_map", None)
        found: dict[int, set[int]] = {}
        for name, gpus in (given or {}).items():
            sender = self._gpu(name, given.place)
            if sender not in senders:
                raise SketchError(
                    f"{given.place}: GPU {sender} is not a sender in internode_conn; there is no such link"
                )
            for gpu in gpus:
                found.setdefault(self._gpu(gpu, given.place), set()).add(sender)
        missing = sorted(set(range(self._gpus)) - set(found)) if given else []
        if missing:
            raise SketchError(f"{given.place}: no sender is named for the chunks of GPUs {missing}; name one for each")
        return found

    def _with_aggregation_switch(self, network: SketchedNetwork, given: _Fields) -> SketchedNetwork:
        """Add a node that sums what one GPU of each host sends it, and sends the sum to all of them."""
        gpus = tuple(self._gpu(gpu, given.place) for gpu in given["gpus"])
        if not gpus or len(set(gpus)) != len(gpus):
            raise SketchError(f"{given.place}: gpus names at least one GPU, and each once")
        further = given.time("beta")
        link = LinkCost(given.time("alpha") + further, further)
        attached = [gpu + base for base in range(0, network.ranks, self._gpus) for gpu in gpus]
        both = [pair for rank in attached for pair in ((rank, network.switch), (network.switch, rank))]
        return dataclasses.replace(network, links={**network.links, **dict.fromkeys(both, link)}, aggregating=gpus)

    def _switches(self, intranode: _Fields, links: Mapping[Pair, LinkCost]) -> list[list[int]]:
        """Return the sets of GPUs that are connected by a switch within their host."""
        if intranode["strategy"] != "switch":
            return []
        switches = [[self._gpu(gpu, intranode.place) for gpu in one] for one in intranode["switches"]]
        named = [gpu for one in switches for gpu in one]
        if len(set(named)) != len(named):
            raise SketchError(f"{intranode.place}: a GPU is in more than one switch; give each pair of GPUs one switch")
        for one in switches:
            for pair in ((a, b) for a in one for b in one if a != b):
                if pair not in links:
                    raise SketchError(
                        f"{intranode.place}: the topology has no link {pair[0]} -> {pair[1]} for the switch"
                    )
        return switches

    def _preference(self, intranode: _Fields) -> str:
        strategy = intranode["strategy"]
        if strategy == "switch":
            wanted = set(intranode["switch_hyperedge_strategy"])
            strategy = wanted.pop() if len(wanted) == 1 else f"different strategies {sorted(wanted)}"
        if strategy not in ("none", "minmax", "maxmin", "uc-min", "uc-max"):
            raise SketchError(
                f"{intranode.place}: {strategy!r} is unknown; see docs/guides/synthesis.md for the strategies"
            )
        return str(strategy)

    def _symmetries(self, network: SketchedNetwork) -> Iterator[tuple[int, ...]]:
        """Yield the permutations of symmetry_offsets, each checked."""
        for given in self._sketch.get("symmetry_offsets", []):
            offset, group = (int(number) for number in given)
            place = f"{self._sketch.place}: symmetry_offsets: [{offset}, {group}]"
            if not 0 < offset < group or network.ranks % group:
                raise SketchError(
                    f"{place}: the offset is not below the group, or {network.ranks} ranks are not groups of {group}"
                )
            mapped = (
                *(((r % group + offset) % group + r // group * group) for r in range(network.ranks)),
                network.switch,
            )
            for (a, b), link in network.links.items():
                if network.links.get((mapped[a], mapped[b])) != link:
                    raise SketchError(
                        f"{place}: it maps the link {a} -> {b} to {mapped[a]} -> {mapped[b]}, which does not exist or "
                        "has another cost; remove this offset"
                    )
            for rank, senders in network.senders.items():
                if network.senders[mapped[rank]] != {mapped[sender] for sender in senders}:
                    raise SketchError(f"{place}: it does not map the senders of rank {rank} to those of {mapped[rank]}")
            yield mapped

    def _gpu(self, number: object, place: str) -> int:
        if not str(number).isdecimal() or int(str(number)) >= self._gpus:
            raise SketchError(f"{place}: GPU {number} does not exist; a host has GPUs 0 to {self._gpus - 1}")
        return int(str(number))

    def _matrix(self, key: str) -> Sequence[Sequence[Any]]:
        rows: Any = self._topology[key]
        if not isinstance(rows, list) or [len(row) for row in rows] != [self._gpus] * self._gpus:
            raise SketchError(f"{self._topology.place}: {key} is not a matrix of {self._gpus} x {self._gpus} numbers")
        return rows

    def _link(self, first: Any, further: Any) -> LinkCost:
        costs = _Fields(f"{self._topology.place}: link", {"invbw": first, "beta": further})
        return LinkCost(costs.time("invbw"), costs.time("beta"))


def _switch_ports(switches: list[list[int]], hosts: int, gpus: int) -> Iterator[frozenset[Pair]]:
    """Yield, for every GPU at a switch, its links to the switch and those from it."""
    for base in range(0, hosts * gpus, gpus):
        for switch in switches:
            for gpu in switch:
                others = [other + base for other in switch if other != gpu]
                yield frozenset((gpu + base, other) for other in others)
                yield frozenset((other, gpu + base) for other in others)
