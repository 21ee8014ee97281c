"""Which rank the others of a job wait for."""

from __future__ import annotations

import dataclasses

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word

__all__ = ["Straggler", "straggler"]


@dataclasses.dataclass(frozen=True)
class Straggler:
    """The rank that is least far; figures are as old as the agents' last heartbeats, a second or so.

    `behind` counts chunks, to the rank that is furthest; `idle_seconds` is how long this one has not moved.
    """

    rank: int
    agent: str
    host: str
    state: str
    behind: int
    idle_seconds: float


def straggler(job: pb.Job) -> Straggler | None:
    """The slowest rank of a job; None where no rank is behind."""
    last = max((rank.position for rank in job.ranks), default=0)
    slowest = min(job.ranks, key=lambda rank: (rank.position, rank.rank), default=None)
    if slowest is None or slowest.position == last:
        return None
    state = enum_word(pb.RankState, slowest.state)
    behind = last - slowest.position
    return Straggler(slowest.rank, slowest.agent, slowest.host, state, behind, slowest.idle_seconds)
