"""Find the rank that the others of a job wait for."""

from __future__ import annotations

import dataclasses

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word

__all__ = ["Straggler", "lag", "straggler"]


@dataclasses.dataclass(frozen=True)
class Straggler:
    """The rank that lags furthest; figures are as old as the agents' last heartbeats, about a second.

    `switch` is the one that its agent is attached to; `behind` counts chunks relative to the furthest rank;
    `idle_seconds` is the time since this rank last advanced.
    """

    rank: int
    agent: str
    host: str
    switch: str
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
    return Straggler(slowest.rank, slowest.agent, slowest.host, slowest.switch, state, behind, slowest.idle_seconds)


def lag(job: pb.Job) -> str:
    """Return which rank lags furthest, and below which leaf if the job is on a tree, in words; "" if none lags."""
    slowest = straggler(job)
    if slowest is None:
        return ""
    leaf = f" below {slowest.switch}" if any(place.upstream for place in job.switches) else ""
    return f"rank {slowest.rank}{leaf} is {slowest.behind:,} behind"
