"""Find the rank that the others of a job wait for."""

from __future__ import annotations

import dataclasses

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word

__all__ = ["Straggler", "slowest_rank", "straggler"]


@dataclasses.dataclass(frozen=True)
class Straggler:
    """The rank that lags furthest; figures are as old as the agents' last heartbeats, about a second.

    `behind` counts chunks relative to the furthest rank; `idle_seconds` is the time since this rank last advanced.
    """

    rank: int
    agent: str
    host: str
    state: str
    behind: int
    idle_seconds: float


def straggler(job: pb.Job) -> Straggler | None:
    """Return the slowest rank of a job, or None if no rank lags."""
    last = max((rank.position for rank in job.ranks), default=0)
    slowest = min(job.ranks, key=lambda rank: (rank.position, rank.rank), default=None)
    if slowest is None or slowest.position == last:
        return None
    state = enum_word(pb.RankState, slowest.state)
    behind = last - slowest.position
    return Straggler(slowest.rank, slowest.agent, slowest.host, state, behind, slowest.idle_seconds)


def slowest_rank(job: pb.Job) -> tuple[int, int, int]:
    """Return the lowest position of all ranks, the rank that has it, and how many chunks it is behind the first."""
    positions = {rank.rank: rank.position for rank in job.ranks}
    if not positions:
        return 0, 0, 0
    slowest = min(positions, key=lambda rank: (positions[rank], rank))
    return positions[slowest], slowest, max(positions.values()) - positions[slowest]
