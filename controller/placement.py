"""Which agent carries each rank of a job: as the controller chooses, or where the ranks' processes wait already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from switchml.controller.admission import AgentRoom, place_ranks
from switchml.controller.agents import AgentSession
from switchml.controller.errors import NoAgent
from switchml.controller.jobs import Rank

__all__ = ["Placement", "choose", "rank_at", "require_room"]


@dataclass(frozen=True)
class Placement:
    """The agent of each rank, by rank; after a rendezvous also the agents' numbers of the ranks' announcements."""

    sessions: Sequence[AgentSession]
    announcements: Sequence[int] = ()

    def ranks(self) -> list[Rank]:
        """Return the ranks; their addresses are still to come."""
        return [rank_at(session, number, number) for number, session in enumerate(self.sessions)]


def choose(workers: int, sessions: Sequence[AgentSession], in_use: Callable[[str], int], switch: str) -> Placement:
    """Spread ranks over the live agents of a switch, which carry `in_use(name)` ranks already.

    Raises:
        NoAgent: there are too few agents, or they have too little room.

    """
    by_name = {session.name: session for session in sessions}
    room = [AgentRoom(name, in_use(name), session.registration.max_ranks) for name, session in by_name.items()]
    placed = place_ranks(workers, room, switch)
    return Placement([by_name[name] for name, numbers in placed.items() for _ in numbers])


def require_room(placement: Placement, in_use: Callable[[str], int]) -> None:
    """Check that the agents are there and can carry the ranks that wait at them.

    Raises:
        NoAgent: one is gone, or has too little room.

    """
    for session, ranks in Counter(placement.sessions).items():
        if not session.live:
            raise NoAgent(f"agent {session.name} on {session.registration.host} is gone; its processes start again")
        free = session.registration.max_ranks - in_use(session.name)
        if ranks > free:
            raise NoAgent(
                f"{ranks} ranks wait at agent {session.name}, which has room for {max(free, 0)};"
                " start it with a larger --max-ranks, or stop a job",
                ranks_asked=ranks,
                ranks_free=max(free, 0),
            )


def rank_at(session: AgentSession, number: int, worker: int) -> Rank:
    """Return a rank that an agent is to carry; its addresses are still to come."""
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
