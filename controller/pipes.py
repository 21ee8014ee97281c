"""What a switch's chip asks of a job: so many ranks at most, and all of them behind one pipe.

A pipe of a Tofino has registers of its own: what arrives through another pipe is not in its sums. Other targets have
one pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from switchml.controller.admission import AgentRoom
from switchml.controller.agents import AgentSession
from switchml.controller.errors import NoAgent, NoRoom
from switchml.controller.placement import Placement, choose
from switchml.controller.switches import ManagedSwitch

__all__ = ["choose_in_one_pipe", "require_one_pipe", "require_width"]


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
        return choose(workers, next(iter(pipes.values()), []), in_use, switch.name)
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
    return choose(workers, pipes[best], in_use, switch.name)


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
