"""Which agent carries each rank of a job: as the controller chooses, or where the ranks' processes wait already.

A pipe of a Tofino has registers of its own: what arrives through another pipe is not in its sums, so that the ranks of
a job are behind one pipe. Other targets have one pipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from switchml.controller.agents import AgentSession
from switchml.controller.errors import NoAgent, NoRoom
from switchml.controller.records import Rank
from switchml.controller.switches import ManagedSwitch

__all__ = ["AgentRoom", "Placement", "choose_in_one_pipe", "place_ranks", "rank_at", "require_one_pipe"]
__all__ += ["require_room", "require_width"]


@dataclass(frozen=True)
class Placement:
    """The agent of each rank, by rank; after a rendezvous also the agents' numbers of the ranks' announcements."""

    sessions: Sequence[AgentSession]
    announcements: Sequence[int] = ()

    def ranks(self) -> list[Rank]:
        """Return the ranks; their addresses are still to come."""
        return [rank_at(session, number, number) for number, session in enumerate(self.sessions)]


def _choose(workers: int, sessions: Sequence[AgentSession], in_use: Callable[[str], int], switch: str) -> Placement:
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


@dataclass(frozen=True)
class AgentRoom:
    """A live agent: how many ranks it carries and how many it could."""

    name: str
    in_use: int
    maximum: int


def place_ranks(workers: int, agents: Sequence[AgentRoom], switch: str) -> dict[str, range]:
    """Give each agent a contiguous block of ranks, as evenly as their room allows; the idlest first where they differ.

    Raises:
        NoAgent: there are too few agents, or they have too little room.

    """
    shares = {agent.name: 0 for agent in agents}
    for _ in range(workers):
        open_agents = [a for a in agents if a.in_use + shares[a.name] < a.maximum]
        if not open_agents:
            free = sum(max(a.maximum - a.in_use, 0) for a in agents)
            raise NoAgent(
                f"{workers} ranks asked, and the {len(agents)} live agents of switch {switch} have room for {free};"
                " start more agents or stop a job",
                ranks_asked=workers,
                ranks_free=free,
                agents=len(agents),
            )
        chosen = min(open_agents, key=lambda a: (shares[a.name], a.in_use, a.name))
        shares[chosen.name] += 1
    placed, first = {}, 0
    for name, share in sorted(shares.items()):
        if share:
            placed[name] = range(first, first + share)
            first += share
    return placed


def require_width(workers: int, switch: ManagedSwitch) -> None:
    """Check that the switch can add as many workers.

    Raises:
        NoRoom: it cannot; the figures say how many it can.

    """
    maximum = switch.driver.capabilities.max_workers
    if workers > maximum:
        raise NoRoom(
            f"a job on switch {switch.name} ({switch.config.target}) has at most {maximum} workers, not {workers}",
            workers=workers,
            workers_maximum=maximum,
        )


def choose_in_one_pipe(
    workers: int, sessions: Sequence[AgentSession], in_use: Callable[[str], int], switch: ManagedSwitch
) -> Placement:
    """Spread ranks over the live agents of one pipe of a switch: of the one with the most room that has enough.

    Raises:
        NoAgent: no pipe's agents have room for all; the message says how much each has.

    """
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
        return _choose(workers, next(iter(pipes.values()), []), in_use, switch.name)
    free = {
        pipe: sum(max(room.maximum - room.in_use, 0) for room in _room(members, in_use))
        for pipe, members in pipes.items()
    }
    best = max(free, key=lambda pipe: (free[pipe], -pipe))
    if free[best] < workers:
        each = "; ".join(f"pipe {pipe}: room for {free[pipe]} ({_names(pipes[pipe])})" for pipe in sorted(pipes))
        raise NoAgent(
            f"{workers} ranks asked, and a job's ranks must hang on ports of one pipe of switch {switch.name}: {each}",
            ranks_asked=workers,
            ranks_free=free[best],
        )
    return _choose(workers, pipes[best], in_use, switch.name)


def require_one_pipe(placement: Placement, switch: ManagedSwitch) -> None:
    """Check that ranks which wait at agents already can form a job.

    Raises:
        NoAgent: their agents hang on ports of several pipes, or on a port that the switch has not.

    """
    ranks: dict[int, list[int]] = {}
    for rank, session in enumerate(placement.sessions):
        ranks.setdefault(switch.driver.pipe(session.registration.switch_port), []).append(rank)
    if len(ranks) > 1:
        where = "; ".join(f"pipe {pipe} has ranks {', '.join(map(str, ranks[pipe]))}" for pipe in sorted(ranks))
        raise NoAgent(
            f"a job's ranks must hang on ports of one pipe of switch {switch.name}; pipes share no registers: {where}"
        )


def _room(sessions: Sequence[AgentSession], in_use: Callable[[str], int]) -> list[AgentRoom]:
    return [AgentRoom(one.name, in_use(one.name), one.registration.max_ranks) for one in sessions]


def _names(sessions: Sequence[AgentSession]) -> str:
    return ", ".join(sorted(session.name for session in sessions))
