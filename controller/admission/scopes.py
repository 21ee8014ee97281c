"""The scopes of jobs: one switch, switches of one tree, or aggregators, which share the slots of a job."""

from __future__ import annotations

import abc
import itertools
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from switchml.common.switch_trees import unequal_values
from switchml.controller.admission.placement import AgentRoom, AgentRooms, Placement, place_ranks, rank_at
from switchml.controller.admission.request import JobRequest
from switchml.controller.admission.slots import SlotPools
from switchml.controller.admission.trees import JobTree, most_below
from switchml.controller.agents import AgentSession
from switchml.controller.errors import InvalidRequest, NoAgent, NoFloats, SwitchUnavailable
from switchml.controller.records import Job, JobSwitch, Rank
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import Format

__all__ = ["Aggregators", "OneSwitch", "Scope", "Scopes", "Tree"]


@dataclass(frozen=True)
class Scope(abc.ABC):
    """The `switches` that can sum a job of a tenant, and the agents that can carry its ranks."""

    all_switches: Switches
    rooms: AgentRooms
    tenant: str
    switches: list[ManagedSwitch]

    @abc.abstractmethod
    def place(self, workers: int, refused: Container[str] = frozenset()) -> Placement:
        """Spread ranks over the agents that carry jobs of the tenant, except those in `refused`.

        Raises:
            NoAgent: there are too few agents, or they have too little room.
            NoRoom: a switch takes fewer ranks.

        """

    def require(self, placement: Placement, adds_floats: bool) -> JobTree:
        """Return the switches that a job needs for a placement, if they can sum it and the agents can carry it.

        Raises:
            InvalidRequest, NoAgent, NoFloats, NoRoom, PermissionDenied, SwitchUnavailable: they cannot.

        """
        tree = self._tree(placement)
        for switch in tree.switches:
            if adds_floats and Format.FLOAT32 not in switch.driver.capabilities.formats:
                raise NoFloats(
                    f"the program of switch {switch.name} ({switch.config.target}) does not add floats; a soft switch"
                    " does, and BMv2 with the program switchml_floats. Choose another switch, or start the job without"
                    " --wire floats"
                )
        self.rooms.require(placement)
        tree.require_one_pipe(placement.sessions)
        tree.require_messages(placement.sessions)
        return tree

    def _tree(self, placement: Placement) -> JobTree:
        """Return the smallest tree that holds the agents."""
        tree = JobTree.holding(self.all_switches, {one.switch: one.name for one in placement.sessions})
        for switch in tree.switches:
            switch.require_tenant(self.tenant)
        tree.require_room(Counter(session.switch for session in placement.sessions))
        return tree

    def records(self, places: Sequence[JobSwitch], ranks: Sequence[Rank]) -> list[JobSwitch]:
        """Return the records of those switches of a job that are needed for these ranks."""
        parents = self.all_switches.trees.smallest(list(dict.fromkeys(rank.switch for rank in ranks)))
        return [replace(place, upstream=parents[place.switch]) for place in places if place.switch in parents]

    def successor(self, rank: Rank, refused: Container[str]) -> Rank:
        """Return a rank for a process that takes the place of a lost one, at the same agent if that is live.

        Raises:
            NoAgent: that agent is not connected or in `refused`, and no other one has room.

        """
        session, used = self.rooms.agents.live_session(rank.agent), self.rooms.ranks_in_use()
        if session is None or session.name in refused:
            others = self._others(rank, refused)
            free = [one for one in others if used[one.name] < one.registration.max_ranks]
            if not free:
                raise NoAgent(f"agent {rank.agent} is gone or refuses, and no other has room for rank {rank.rank}")
            session = min(free, key=lambda one: (used[one.name], one.name))
        return rank_at(session, rank.rank, rank.worker)

    def _others(self, rank: Rank, refused: Container[str]) -> Sequence[AgentSession]:
        """Return the agents that can carry a rank: those of its pipe, which has the registers of the job."""
        switch = self.all_switches.get(rank.switch)
        usable = self.rooms.usable(self.tenant, refused, switch)
        return self.rooms.pipes(usable, switch).get(switch.driver.pipe(rank.switch_port), [])


class OneSwitch(Scope):
    """One switch with its agents."""

    def place(self, workers: int, refused: Container[str] = frozenset()) -> Placement:
        """Spread ranks over the agents of one pipe: the one with the most room, if that is enough."""
        [switch] = self.switches
        JobTree([switch], {switch.name: ""}).require_room({switch.name: workers})
        usable = self.rooms.usable(self.tenant, refused, switch)
        try:
            pipes = self.rooms.pipes(usable, switch)
            if usable and not pipes:
                switch.driver.pipe(usable[0].registration.switch_port)  # raises NoAgent: the switch has no such port
            widest = next(iter(pipes.values()), [])
            if len(pipes) > 1 and self.rooms.free(widest) < workers:
                each = "; ".join(
                    f"pipe {pipe}: room for {self.rooms.free(members)} ({', '.join(one.name for one in members)})"
                    for pipe, members in sorted(pipes.items())
                )
                raise NoAgent(
                    f"{workers} ranks asked, and a job's ranks must be on ports of one pipe of switch {switch.name}:"
                    f" {each}",
                    ranks_asked=workers,
                    ranks_free=self.rooms.free(widest),
                )
            return self.rooms.spread(workers, widest, switch.name)
        except NoAgent as error:
            live = self.rooms.agents.live_on(switch.name)
            others = sum(not one.serves(self.tenant) and one.name not in refused for one in live)
            if not others:
                raise
            raise NoAgent(
                f"{error.message}. Agents of other tenants do not count, of which there are {others}: an administrator"
                " can share them ([agents] in the controller's configuration)",
                **error.figures,
            ) from None


@dataclass(frozen=True)
class Tree(Scope):
    """Switches of one tree: ranks are below as few of them as possible or, to `spread` them, below all."""

    spread: bool = False

    def place(self, workers: int, refused: Container[str] = frozenset()) -> Placement:
        """Spread ranks over the agents of several switches; ranks of one switch have consecutive numbers."""
        usable = {
            one.name: self.rooms.in_widest_pipe(self.rooms.usable(self.tenant, refused, one), one)
            for one in self.switches
        }
        room = {
            one.name: min(self.rooms.free(usable[one.name]), most_below(one, has_parent=True)) for one in self.switches
        }
        chosen: list[ManagedSwitch] = []
        for switch in sorted(self.switches, key=lambda one: (-room[one.name], one.name)):
            if room[switch.name] and (self.spread or sum(room[one.name] for one in chosen) < workers):
                chosen.append(switch)
        free = sum(room[one.name] for one in chosen)
        if free < workers:
            each = ", ".join(f"{name}: {count}" for name, count in room.items() if count)
            raise NoAgent(
                f"{workers} ranks asked, and the live agents of the switches of the tree have room for {free}"
                f" ({each or 'none'}); start more agents or stop a job",
                ranks_asked=workers,
                ranks_free=free,
            )
        shares = place_ranks(workers, [AgentRoom(one.name, 0, room[one.name]) for one in chosen], "")
        placed = [self.rooms.spread(len(ranks), usable[name], name) for name, ranks in shares.items()]
        return Placement([session for part in placed for session in part.sessions])


class Aggregators(Scope):
    """Switches that share the slots of a job, none above another one, to all of which each rank sends."""

    def require_alike(self) -> None:
        """Check that they can share slots of a job.

        Raises:
            SwitchUnavailable: one is not ready.
            InvalidRequest: one is below another switch, or they differ in slots or values per packet.
            PermissionDenied: one is for another tenant.

        """
        for switch in self.switches:
            if not switch.ready:
                raise SwitchUnavailable(switch.why_not_ready())
            if switch.config.parent is not None:
                raise InvalidRequest(
                    f"aggregator {switch.name} is below switch {switch.config.parent.switch}, to which it sends its"
                    " sums; name aggregators that have no parent"
                )
        abilities = [(one.name, one.driver.capabilities) for one in self.switches]
        unequal = unequal_values((name, able.values_per_packet) for name, able in abilities)
        if unequal:
            raise InvalidRequest(f"{unequal}; all aggregators of a job need the same number")
        first, able = abilities[0]
        for name, other in abilities:
            if other.slots != able.slots:
                raise InvalidRequest(
                    f"switch {first} has {able.slots} slots and switch {name} has {other.slots}; all aggregators of a"
                    " job need the same number"
                )
        for switch in self.switches:
            switch.require_tenant(self.tenant)

    def place(self, workers: int, refused: Container[str] = frozenset()) -> Placement:
        """Spread ranks over the agents of all switches; an aggregator that is not a soft switch has only its own."""
        usable = self.rooms.usable(self.tenant, refused)
        for switch in self.switches:
            if not switch.config.target.udp_ports:
                usable = self.rooms.in_widest_pipe([one for one in usable if one.switch == switch.name], switch)
        free = self.rooms.free(usable)
        if free < workers:
            raise NoAgent(
                f"{workers} ranks asked, and the {len(usable)} live agents that can send to all aggregators have room"
                f" for {free}; start more agents or stop a job",
                ranks_asked=workers,
                ranks_free=free,
            )
        return self.rooms.spread(workers, usable, self.switches[0].name)

    def _tree(self, placement: Placement) -> JobTree:
        """Return the aggregators, if packets of these agents can reach all of them."""
        tree = JobTree(self.switches, {switch.name: "" for switch in self.switches})
        tree.require_room({switch.name: len(placement.sessions) for switch in self.switches})
        hosts = sorted({session.registration.host for session in placement.sessions})
        for switch, session in itertools.product(self.switches, dict.fromkeys(placement.sessions)):
            name, address, theirs = switch.name, switch.config.address, session.registration.address
            local = IPv4Address(address).is_loopback
            if local != IPv4Address(theirs).is_loopback:
                raise InvalidRequest(
                    f"aggregator {name} has the address {address} and agent {session.name} has {theirs}: a loopback"
                    " address is reached from its own host alone; configure both with addresses of the network"
                )
            if local and len(hosts) > 1:
                raise InvalidRequest(
                    f"aggregator {name} has the loopback address {address}, and the agents are on {len(hosts)} hosts"
                    f" ({', '.join(hosts)}); give it the address of its host's data interface in the controller's"
                    " configuration"
                )
            if not switch.config.target.udp_ports and session.switch != name:
                raise InvalidRequest(
                    f"aggregator {name} ({switch.config.target}) has a port for each host, and agent {session.name} is"
                    f" attached to switch {session.switch}; only a soft switch takes packets of all agents at one port"
                )
        return tree

    def records(self, places: Sequence[JobSwitch], ranks: Sequence[Rank]) -> list[JobSwitch]:
        """Return all records: every rank sends to every aggregator."""
        del ranks
        return list(places)

    def _others(self, rank: Rank, refused: Container[str]) -> Sequence[AgentSession]:
        """Return the agents of all switches."""
        del rank
        return self.rooms.usable(self.tenant, refused)


class Scopes:
    """Finds the scopes that a job can have, and the one that it has."""

    def __init__(self, switches: Switches, rooms: AgentRooms, pools: SlotPools) -> None:
        self._switches = switches
        self._rooms = rooms
        self._pools = pools

    def candidates(self, request: JobRequest) -> list[Scope]:
        """Return the scopes that a new job can have, in the order in which to try them.

        Raises:
            InvalidRequest, PermissionDenied, SwitchNotFound, SwitchUnavailable: the job can have none.

        """
        options, tenant = request.options, request.tenant
        if options.aggregators:
            named = [self._switches.get(name) for name in options.aggregators]
            over = Aggregators(self._switches, self._rooms, tenant, named)
            over.require_alike()
            return [over]
        if request.placement is not None:
            names = dict.fromkeys(session.switch for session in request.placement.sessions)
            return [self._within([self._switches.get(name) for name in names], tenant)]
        ready = self._switches.candidates(options.switch, tenant)
        trees = [Tree(self._switches, self._rooms, tenant, switches) for switches in self._subtrees(ready)]
        if options.switch and trees:
            # The named switch with all below it: the job sums there, so the ranks are below as many as possible.
            return [replace(trees[-1], spread=True)]
        emptiest = sorted(ready, key=lambda one: -self._pools.of(one).free_slots)
        return [*(self._within([switch], tenant) for switch in emptiest), *trees]

    def of(self, job: Job) -> Scope:
        """Return the scope of a job that has been admitted."""
        switches = [self._switches.get(place.switch) for place in job.switches]
        if job.over_aggregators:
            return Aggregators(self._switches, self._rooms, job.tenant, switches)
        return self._within(switches, job.tenant)

    def _within(self, switches: list[ManagedSwitch], tenant: str) -> Scope:
        """Return the scope of a job on switches of one tree."""
        if len(switches) == 1:
            return OneSwitch(self._switches, self._rooms, tenant, switches)
        return Tree(self._switches, self._rooms, tenant, switches)

    def _subtrees(self, candidates: Sequence[ManagedSwitch]) -> list[list[ManagedSwitch]]:
        """Return the parts of trees whose switches are all candidates, each with its top, the smallest first."""
        trees, ready = self._switches.trees, {switch.name: switch for switch in candidates}
        found = []
        for top in ready:
            leaves = {name for name, switch in ready.items() if switch.driver.capabilities.leaf}
            below = [one for one in trees.below(top) if leaves | {top} >= set(trees.path(one, top))]
            if len(below) > 1:
                found.append([ready[name] for name in below])
        return sorted(found, key=len)
