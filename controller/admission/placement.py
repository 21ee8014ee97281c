"""Placement: the choice of the agent for each rank of a job, or the check of the agents at which processes wait.

Each pipe of a Tofino has separate registers, so its sums do not include packets that arrive through another pipe.
Therefore all ranks of a job must be behind one pipe, and so must the switches right below. Other targets have one
pipe.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from switchml.controller.admission.trees import JobTree, most_below
from switchml.controller.agents import Agents, AgentSession
from switchml.controller.errors import NoAgent
from switchml.controller.records import Rank
from switchml.controller.switches import ManagedSwitch

__all__ = ["AgentRoom", "Placement", "Placements", "place_ranks"]


@dataclass(frozen=True)
class Placement:
    """The agent of each rank, by rank; after a rendezvous also the numbers that agents gave the announcements."""

    sessions: Sequence[AgentSession]
    announcements: Sequence[int] = ()

    def ranks(self) -> list[Rank]:
        """Return the ranks, whose addresses are not known yet."""
        return [_rank_at(session, number, number) for number, session in enumerate(self.sessions)]


class Placements:
    """Places ranks at agents; `ranks_in_use` returns the number of ranks that each agent carries already."""

    def __init__(self, agents: Agents, ranks_in_use: Callable[[], Counter[str]]) -> None:
        self._agents = agents
        self._in_use = ranks_in_use

    def choose(
        self, switch: ManagedSwitch, workers: int, tenant: str, refused: Container[str] = frozenset()
    ) -> Placement:
        """Spread ranks over the agents of a switch that carry jobs of `tenant`, except those in `refused`.

        Raises:
            NoAgent: there are too few agents, or they have too little room.

        """
        live = [session for session in self._agents.live_on(switch.name) if session.name not in refused]
        usable = [session for session in live if session.serves(tenant)]
        try:
            return self._choose_in_one_pipe(workers, usable, switch)
        except NoAgent as error:
            others = len(live) - len(usable)
            if not others:
                raise
            raise NoAgent(
                f"{error.message}. Agents of other tenants do not count, of which there are {others}: an administrator"
                " can share them ([agents] in the controller's configuration)",
                **error.figures,
            ) from None

    def choose_anywhere(
        self, aggregators: Sequence[ManagedSwitch], workers: int, tenant: str, refused: Container[str] = frozenset()
    ) -> Placement:
        """Spread ranks over all agents that carry jobs of `tenant`, for a job whose ranks send to `aggregators`.

        An aggregator that is not a soft switch has its own agents only.

        Raises:
            NoAgent: there are too few agents, or they have too little room.

        """
        usable = [one for one in self._agents.sessions() if one.live and one.serves(tenant) and one.name not in refused]
        for switch in aggregators:
            if not switch.config.target.udp_ports:
                usable = self._in_widest_pipe([one for one in usable if one.switch == switch.name], switch)
        room = self._room(usable)
        free = sum(max(agent.maximum - agent.in_use, 0) for agent in room)
        if free < workers:
            raise NoAgent(
                f"{workers} ranks asked, and the {len(room)} live agents that can send to all aggregators have room for"
                f" {free}; start more agents or stop a job",
                ranks_asked=workers,
                ranks_free=free,
            )
        return self._spread(workers, usable, aggregators[0])

    def choose_below(
        self,
        switches: Sequence[ManagedSwitch],
        workers: int,
        tenant: str,
        refused: Container[str] = frozenset(),
        *,
        spread: bool = False,
    ) -> Placement:
        """Spread ranks over the agents of switches that are in one tree: of as few as possible, or of all.

        Ranks of one switch have consecutive numbers.

        Raises:
            NoAgent: there are too few agents, or they have too little room.

        """
        usable = {
            switch.name: self._in_widest_pipe(
                [one for one in self._agents.live_on(switch.name) if one.serves(tenant) and one.name not in refused],
                switch,
            )
            for switch in switches
        }
        room = {
            switch.name: min(
                sum(max(agent.maximum - agent.in_use, 0) for agent in self._room(usable[switch.name])),
                most_below(switch, has_parent=True),
            )
            for switch in switches
        }
        chosen: list[ManagedSwitch] = []
        for switch in sorted(switches, key=lambda one: (-room[one.name], one.name)):
            if room[switch.name] and (spread or sum(room[one.name] for one in chosen) < workers):
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
        by_name = {switch.name: switch for switch in chosen}
        placed = [self._spread(len(ranks), usable[name], by_name[name]) for name, ranks in shares.items()]
        return Placement([session for part in placed for session in part.sessions])

    def _in_widest_pipe(self, sessions: Sequence[AgentSession], switch: ManagedSwitch) -> list[AgentSession]:
        """Return the agents of the pipe of a switch whose agents have the most room."""
        pipes: dict[int, list[AgentSession]] = {}
        for session in sessions:
            with contextlib.suppress(NoAgent):  # the switch has no such port
                pipes.setdefault(switch.driver.pipe(session.registration.switch_port), []).append(session)
        return max(
            pipes.values(),
            key=lambda members: sum(max(one.maximum - one.in_use, 0) for one in self._room(members)),
            default=[],
        )

    def require(self, placement: Placement, tree: JobTree) -> None:
        """Check that the agents of a placement are live, have room, and are attached to one pipe of each switch.

        Raises:
            NoAgent: they cannot carry the ranks.

        """
        used = self._in_use()
        for session, ranks in Counter(placement.sessions).items():
            if not session.live:
                raise NoAgent(f"agent {session.name} on {session.registration.host} is gone; start its processes again")
            free = session.registration.max_ranks - used[session.name]
            if ranks > free:
                raise NoAgent(
                    f"{ranks} ranks wait at agent {session.name}, which has room for {max(free, 0)};"
                    " start it with a larger --max-ranks, or stop a job",
                    ranks_asked=ranks,
                    ranks_free=max(free, 0),
                )
        for switch in tree.switches:
            self._require_one_pipe(placement, tree, switch)

    def _require_one_pipe(self, placement: Placement, tree: JobTree, switch: ManagedSwitch) -> None:
        ranks: dict[int, list[int]] = {}
        for rank, session in enumerate(placement.sessions):
            if session.switch == switch.name:
                ranks.setdefault(switch.driver.pipe(session.registration.switch_port), []).append(rank)
        below: dict[int, list[str]] = {}
        for child in tree.children(switch.name):
            assert child.config.parent is not None, "it is below another switch"
            below.setdefault(switch.driver.pipe(child.config.parent.port), []).append(child.name)
        pipes = sorted(ranks.keys() | below.keys())
        if len(pipes) > 1:
            where = "; ".join(f"pipe {pipe} has {_attached(ranks.get(pipe), below.get(pipe))}" for pipe in pipes)
            raise NoAgent(
                f"a job's ranks must be on ports of one pipe of switch {switch.name}; pipes share no registers: {where}"
            )

    def replace(
        self, rank: Rank, switch: ManagedSwitch, tenant: str, refused: Container[str], *, anywhere: bool = False
    ) -> Rank:
        """Return a rank for a process that takes the place of a lost one, at the same agent if that is live.

        Otherwise it is at another agent of this switch or, if the job is over aggregators, `anywhere`.

        Raises:
            NoAgent: that agent is not connected or in `refused`, and no other one has room.

        """
        session = self._agents.live_session(rank.agent)
        if session is None or session.name in refused:
            session = self._other_agent(rank, switch, tenant, refused, anywhere)
        return _rank_at(session, rank.rank, rank.worker)

    def _other_agent(
        self, rank: Rank, switch: ManagedSwitch, tenant: str, refused: Container[str], anywhere: bool
    ) -> AgentSession:
        pipe, used = switch.driver.pipe(rank.switch_port), self._in_use()
        room = [
            session
            for session in (self._agents.sessions() if anywhere else self._agents.live_on(switch.name))
            if session.live
            and session.serves(tenant)
            and session.name not in refused
            and (anywhere or switch.driver.pipe(session.registration.switch_port) == pipe)
            and used[session.name] < session.registration.max_ranks
        ]
        if not room:
            raise NoAgent(f"agent {rank.agent} is gone or refuses, and no other has room for rank {rank.rank}")
        return min(room, key=lambda session: (used[session.name], session.name))

    def _choose_in_one_pipe(self, workers: int, sessions: Sequence[AgentSession], switch: ManagedSwitch) -> Placement:
        """Spread ranks over the agents of one pipe of a switch: the pipe with the most room, if that is enough."""
        pipes: dict[int, list[AgentSession]] = {}
        elsewhere: list[NoAgent] = []
        for session in sessions:
            try:
                pipes.setdefault(switch.driver.pipe(session.registration.switch_port), []).append(session)
            except NoAgent as error:  # noqa: PERF203
                elsewhere.append(error)
        if not pipes and elsewhere:
            raise elsewhere[0]
        if len(pipes) <= 1:
            return self._spread(workers, next(iter(pipes.values()), []), switch)
        free = {
            pipe: sum(max(room.maximum - room.in_use, 0) for room in self._room(members))
            for pipe, members in pipes.items()
        }
        best = max(free, key=lambda pipe: (free[pipe], -pipe))
        if free[best] < workers:
            each = "; ".join(f"pipe {pipe}: room for {free[pipe]} ({_names(pipes[pipe])})" for pipe in sorted(pipes))
            raise NoAgent(
                f"{workers} ranks asked, and a job's ranks must be on ports of one pipe of switch {switch.name}:"
                f" {each}",
                ranks_asked=workers,
                ranks_free=free[best],
            )
        return self._spread(workers, pipes[best], switch)

    def _spread(self, workers: int, sessions: Sequence[AgentSession], switch: ManagedSwitch) -> Placement:
        by_name = {session.name: session for session in sessions}
        placed = place_ranks(workers, self._room(sessions), switch.name)
        return Placement([by_name[name] for name, numbers in placed.items() for _ in numbers])

    def _room(self, sessions: Sequence[AgentSession]) -> list[AgentRoom]:
        used = self._in_use()
        return [AgentRoom(one.name, used[one.name], one.registration.max_ranks) for one in sessions]


@dataclass(frozen=True)
class AgentRoom:
    """A live agent, with the number of ranks that it carries and the number that it can carry."""

    name: str
    in_use: int
    maximum: int


def place_ranks(workers: int, agents: Sequence[AgentRoom], switch: str) -> dict[str, range]:
    """Give each agent a contiguous block of ranks, as evenly as their room allows; idle agents get more if they differ.

    Raises:
        NoAgent: there are too few agents, or they have too little room.

    """
    shares = {agent.name: 0 for agent in agents}
    maximum = {agent.name: agent.maximum for agent in agents}
    with_room = [(0, agent.in_use, agent.name) for agent in agents if agent.in_use < agent.maximum]
    heapq.heapify(with_room)
    for _ in range(workers):
        if not with_room:
            free = sum(max(a.maximum - a.in_use, 0) for a in agents)
            raise NoAgent(
                f"{workers} ranks asked, and the {len(agents)} live agents of switch {switch} have room for {free};"
                " start more agents or stop a job",
                ranks_asked=workers,
                ranks_free=free,
                agents=len(agents),
            )
        _, in_use, name = heapq.heappop(with_room)
        shares[name] += 1
        if in_use + shares[name] < maximum[name]:
            heapq.heappush(with_room, (shares[name], in_use, name))
    placed, first = {}, 0
    for name, share in sorted(shares.items()):
        if share:
            placed[name] = range(first, first + share)
            first += share
    return placed


def _rank_at(session: AgentSession, number: int, worker: int) -> Rank:
    """Return a rank for an agent to carry, whose address is not known yet."""
    registration = session.registration
    return Rank(
        rank=number,
        agent=session.name,
        instance=registration.instance,
        host=registration.host,
        socket=registration.socket,
        switch_port=registration.switch_port,
        mac=registration.mac,
        switch=session.switch,
        worker=worker,
    )


def _attached(ranks: Sequence[int] | None, switches: Sequence[str] | None) -> str:
    """Return the ranks and switches at the ports of a pipe, in words."""
    parts = [f"ranks {', '.join(map(str, ranks))}"] if ranks else []
    parts += [f"switches {', '.join(switches)}"] if switches else []
    return " and ".join(parts)


def _names(sessions: Sequence[AgentSession]) -> str:
    return ", ".join(sorted(session.name for session in sessions))
