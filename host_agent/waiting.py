"""Processes that wait for a job that does not exist yet: it begins when all of its ranks have announced themselves."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.errors import AssignmentRefused, AttachRefused
from switchml.host_agent.messages import Attach

if TYPE_CHECKING:
    from switchml.host_agent.local_job import LocalJob, Process

__all__ = ["Waiting", "WaitingRanks"]


@dataclass(frozen=True)
class Waiting:
    """A process and the rank that it announced; `outcome` is its job, or the reason why it gets none."""

    number: int
    request: Attach
    process: Process
    deadline: float  # on the clock time.monotonic()
    outcome: asyncio.Future[LocalJob | AttachRefused]

    def announcement(self) -> pb.AgentMessage:
        """Return the message that announces the rank to the controller."""
        return pb.AgentMessage(
            rank_announcement=pb.RankAnnouncement(
                announcement=self.number,
                key=self.request.job,
                rank=self.request.rank,
                world_size=self.request.world_size,
                slots=self.request.slots,
                on_failure=self.request.on_failure,
                priority=self.request.priority,
                wait_seconds=self.deadline - time.monotonic(),
            )
        )

    def withdrawal(self) -> pb.AgentMessage:
        """Return the message that withdraws the announcement."""
        return pb.AgentMessage(rank_withdrawal=pb.RankWithdrawal(announcement=self.number))


class WaitingRanks:
    """All processes of this agent that wait for a job to begin."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Waiting] = {}

    def add(self, request: Attach, process: Process) -> Waiting:
        """Register a waiting process."""
        outcome: asyncio.Future[LocalJob | AttachRefused] = asyncio.get_running_loop().create_future()
        deadline = time.monotonic() + request.timeout
        waiting = Waiting(next(self._numbers), request, process, deadline, outcome)
        self._waiting[waiting.number] = waiting
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """Forget a process."""
        self._waiting.pop(waiting.number, None)

    def announcements(self) -> Iterator[pb.AgentMessage]:
        """Yield the announcements for a controller that knows none of them."""
        for waiting in self._waiting.values():
            yield waiting.announcement()

    def named_by(self, assignment: pb.Assignment) -> list[Waiting]:
        """Return the processes that get the ranks of an assignment, in its order.

        Raises:
            AssignmentRefused: one no longer waits, or announced something else.

        """
        if len(assignment.announcements) != len(assignment.ranks):
            raise AssignmentRefused(
                f"{len(assignment.announcements)} announcements for {len(assignment.ranks)} ranks of job"
                f" {assignment.job}"
            )
        found = []
        for rank, number in zip(assignment.ranks, assignment.announcements, strict=True):
            waiting = self._waiting.get(number)
            if waiting is None:
                raise AssignmentRefused(f"the process of rank {rank} of job {assignment.name} no longer waits")
            if (waiting.request.rank, waiting.request.world_size) != (rank, assignment.world_size):
                raise AssignmentRefused(
                    f"announcement {number} is of rank {waiting.request.rank} of {waiting.request.world_size},"
                    f" not of rank {rank} of {assignment.world_size}"
                )
            found.append(waiting)
        return found

    def assigned(self, found: Sequence[Waiting], job: LocalJob) -> None:
        """Tell processes that they have their ranks of `job`."""
        for waiting in found:
            self.remove(waiting)
            waiting.outcome.set_result(job)

    def returned(self, number: int, job: LocalJob) -> Waiting | None:
        """Tell a process that it has its rank of the running `job`; return None if it no longer waits."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.outcome.set_result(job)
        return waiting

    def refuse(self, refusal: pb.RendezvousRefusal) -> None:
        """Tell a process that there is no job for it, unless it no longer waits."""
        waiting = self._waiting.pop(refusal.announcement, None)
        if waiting is not None:
            waiting.outcome.set_result(AttachRefused(refusal.error or "BadRequest", refusal.message))
