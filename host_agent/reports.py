"""The agent's reports to the controller: events of ranks, their progress, and how they spend their time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from switchml.common.printable import REASON_LENGTH
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.host_agent.local_job import LocalJob, LocalRank
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.profiles import MOST_CALLS, add_profile, rank_counters
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.waiting import WaitingRanks

__all__ = ["Reports"]

_log = logging.getLogger(__name__)


class Reports:
    """The reports about ranks of `jobs`.

    `send` takes messages for the controller, and may drop them while no controller is connected: `summary` repeats
    everything that matters.
    """

    def __init__(
        self, jobs: LocalJobs, ranks: EngineRanks, waiting: WaitingRanks, send: Callable[[pb.AgentMessage], None]
    ) -> None:
        self._jobs = jobs
        self._ranks = ranks
        self._waiting = waiting
        self.send = send

    def record(self, job: LocalJob, rank: LocalRank, event: pb.RankEvent) -> None:
        """Report an event of a rank, now and in each `summary`. Fills in whose it is, and shortens its detail."""
        detail = event.detail
        event.job, event.epoch, event.rank = job.assignment.job, job.assignment.epoch, rank.rank
        event.detail = detail[:REASON_LENGTH]
        rank.events.append(event)
        _log.info("%s: rank %d %s %s", job, rank.rank, enum_word(pb.RankEvent.Kind, event.kind).lower(), detail)
        self.send(pb.AgentMessage(rank_event=event))

    def ready(self, job: LocalJob) -> pb.AssignmentReady:
        """Return the answer to the assignment of a job whose ranks are open: where they listen."""
        address = self._ranks.address
        endpoints = [pb.Endpoint(rank=rank.rank, address=address, udp_port=rank.sender) for rank in job.ranks.values()]
        return pb.AssignmentReady(job=job.assignment.job, epoch=job.assignment.epoch, endpoints=endpoints)

    def summary(self) -> Iterator[pb.AgentMessage]:
        """Yield the messages for a controller that knows nothing of this agent: open ranks and past events."""
        for job in self._jobs.values():
            yield pb.AgentMessage(assignment_ready=self.ready(job))
        for _, rank in self._jobs.ranks():
            for event in rank.events:
                yield pb.AgentMessage(rank_event=event)
        yield from self._waiting.announcements()

    def statuses(self) -> list[pb.RankStatus]:
        """Return the status of every rank, including ended ones."""
        return [self.status(job, rank) for job, rank in self._jobs.ranks()]

    def status(self, job: LocalJob, rank: LocalRank) -> pb.RankStatus:
        """Return the status of a rank, which may have ended."""
        status = self._ranks.read_status(rank)
        return pb.RankStatus(
            job=job.assignment.job,
            epoch=job.assignment.epoch,
            rank=rank.rank,
            position=status["position"],
            counters=rank_counters(status),
            epoch_spent=status["epoch_spent"],
        )

    def profile(self, order: pb.ProfileOrder) -> None:
        """Report how the job's open ranks spend their time."""
        job, answer = self._jobs.in_epoch(order.job, order.epoch), pb.RankProfiles(number=order.number)
        for rank in () if job is None else job.ranks.values():
            if rank.handle is not None:
                counters = rank_counters(self._ranks.read_status(rank))
                found = answer.ranks.add(rank=rank.rank, counters=counters, attached=rank.attached)
                add_profile(self._ranks.profile(rank.handle, min(order.calls, MOST_CALLS)), found)
        self.send(pb.AgentMessage(rank_profiles=answer))

    def stalled(self, job: LocalJob, rank: int, positions: dict[int, int]) -> list[int]:
        """Return the ranks whose missing contributions block `rank`, as far as this agent knows.

        `positions` are the numbers of contributions of each rank, as the controller last reported them. A rank blocks
        `rank` if it has made no more contributions than `rank` has results.
        """
        local = {other.rank: self._ranks.read_status(other)["position"] for other in job.ranks.values()}
        received = self._ranks.read_status(job.ranks[rank])["received"]
        known = {**positions, **local}
        return sorted(other for other, position in known.items() if other != rank and position <= received)
