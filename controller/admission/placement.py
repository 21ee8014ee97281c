"""The agents of a job's ranks, and the room that agents have for ranks."""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from switchml.controller.agents import Agents, AgentSession
from switchml.controller.errors import NoAgent
from switchml.controller.records import Rank
from switchml.controller.switches import ManagedSwitch

__all__ = ["AgentRoom", "AgentRooms", "Placement", "place_ranks", "rank_at"]


@dataclass(frozen=True)
class Placement:
    """The agent of each rank, by rank; after a rendezvous also the numbers that agents gave the announcements."""

    sessions: Sequence[AgentSession]
    announcements: Sequence[int] = ()

    def ranks(self) -> list[Rank]:
        """Return the ranks, whose addresses are not known yet."""
        return [rank_at(session, number, number) for number, session in enumerate(self.sessions)]

    def in_order(self, agents: Sequence[str]) -> Placement:
        """Return a placement without announcements, its ranks in the order of these names, the others behind them."""
        places = {name: place for place, name in enumerate(agents)}
        return Placement(sorted(self.sessions, key=lambda session: places.get(session.name, len(places))))


class AgentRooms:
    """The room of agents for ranks; `ranks_in_use` returns the number of ranks that each one carries already."""

    def __init__(self, agents: Agents, ranks_in_use: Callable[[], Counter[str]]) -> None:
        self.agents = agents
        self.ranks_in_use = ranks_in_use

    def usable(self, tenant: str, refused: Container[str], switch: ManagedSwitch | None = None) -> list[AgentSession]:
        """Return the live agents, of one switch or of all, that carry jobs of `tenant`, except those in `refused`."""
        sessions = self.agents.sessions() if switch is None else self.agents.live_on(switch.name)
        return [one for one in sessions if one.live and one.serves(tenant) and one.name not in refused]

    def free(self, sessions: Sequence[AgentSession]) -> int:
        """Return the number of further ranks that these agents can carry."""
        return sum(room.free for room in self._of(sessions))

    def pipes(self, sessions: Sequence[AgentSession], switch: ManagedSwitch) -> dict[int, list[AgentSession]]:
        """Return the agents of each pipe of a switch, that with the most room first; other ports do not count."""
        found: dict[int, list[AgentSession]] = {}
        for session in sessions:
            with contextlib.suppress(NoAgent):  # the switch has no such port
                found.setdefault(switch.driver.pipe(session.registration.switch_port), []).append(session)
        return dict(sorted(found.items(), key=lambda pipe: (-self.free(pipe[1]), pipe[0])))

    def in_widest_pipe(self, sessions: Sequence[AgentSession], switch: ManagedSwitch) -> list[AgentSession]:
        """Return the agents of the pipe of a switch whose agents have the most room."""
        return next(iter(self.pipes(sessions, switch).values()), [])

    def spread(self, workers: int, sessions: Sequence[AgentSession], switch: str) -> Placement:
        """Give each of these agents of a switch a contiguous block of ranks.

        Raises:
            NoAgent: they have too little room.

        """
        by_name = {session.name: session for session in sessions}
        placed = place_ranks(workers, self._of(sessions), switch)
        return Placement([by_name[name] for name, numbers in placed.items() for _ in numbers])

    def _of(self, sessions: Sequence[AgentSession]) -> list[AgentRoom]:
        used = self.ranks_in_use()
        return [AgentRoom(one.name, used[one.name], one.registration.max_ranks) for one in sessions]

    def require(self, placement: Placement) -> None:
        """Check that the agents of a placement are live and have room.

        Raises:
            NoAgent: they cannot carry the ranks.

        """
        used = self.ranks_in_use()
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


@dataclass(frozen=True)
class AgentRoom:
    """A live agent, with the number of ranks that it carries and the number that it can carry."""

    name: str
    in_use: int
    maximum: int

    @property
    def free(self) -> int:
        """The number of further ranks that it can carry."""
        return max(self.maximum - self.in_use, 0)


def place_ranks(workers: int, agents: Sequence[AgentRoom], switch: str) -> dict[str, range]:
    """Give each agent a contiguous block of ranks, as evenly as their room allows; idle agents get more if they differ.

    Raises:
        NoAgent: there are too few agents, or they have too little room.

    """
    shares = {agent.name: 0 for agent in agents}
    maximum = {agent.name: agent.maximum for agent in agents}
    with_room = [(0, agent.in_use, agent.name) for agent in agents if agent.free]
    heapq.heapify(with_room)
    for _ in range(workers):
        if not with_room:
            free = sum(agent.free for agent in agents)
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


def rank_at(session: AgentSession, number: int, worker: int) -> Rank:
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
