"""Whether a job can be had, and where its ranks go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from switchml.common.job_reference import is_job_name
from switchml.controller.errors import InvalidRequest, NoAgent, NoRoom
from switchml.controller.jobs import OnFailure
from switchml.controller.slots import MINIMUM_SLOTS, is_power_of_two
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_WORKERS

__all__ = ["NAME", "AgentRoom", "next_job_id", "place_ranks", "validate_job"]

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def validate_job(workers: int, name: str, slots: int, on_failure: int = 0) -> None:
    """Check what a client asks for; an empty name and 0 slots ask for the controller's choice.

    Raises:
        InvalidRequest: a value is not allowed.

    """
    if not 1 <= workers <= PROTOCOL_MAX_WORKERS:
        raise InvalidRequest(
            f"a job has 1 to {PROTOCOL_MAX_WORKERS} workers, not {workers}",
            workers=workers,
            workers_maximum=PROTOCOL_MAX_WORKERS,
        )
    if name and not is_job_name(name):
        raise InvalidRequest(f"job name {name[:80]!r} must be 1 to 64 of A-Z a-z 0-9 _ . - and more than a number")
    highest = PROTOCOL_MAX_SLOT_INDEX + 1
    if slots and not (is_power_of_two(slots) and MINIMUM_SLOTS <= slots <= highest):
        raise InvalidRequest(
            f"slots must be a power of two from {MINIMUM_SLOTS} to {highest}, not {slots}",
            slots_asked=slots,
            slots_minimum=MINIMUM_SLOTS,
            slots_maximum=highest,
        )
    if on_failure not in {0, *OnFailure}:
        raise InvalidRequest(f"on_failure is {on_failure}; it must be 1 (abort), 2 (shrink) or 3 (restart)")


def next_job_id(last: int, used: set[int]) -> int:
    """Return the first id after `last`, going round, that no live job has: an id rests as long as possible.

    Raises:
        NoRoom: all are in use.

    """
    highest = PROTOCOL_MAX_JOBS - 1
    for step in range(1, highest + 1):
        candidate = (last + step - 1) % highest + 1
        if candidate not in used:
            return candidate
    raise NoRoom(f"all {highest} job ids are in use; stop a job", job_ids=highest)


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
