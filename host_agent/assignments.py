"""The controller's assignments: each is checked, and then the ranks that it assigns to this agent are opened."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import IPv4Address
from typing import Final

from switchml.common.job_numbers import MAX_PRIORITY, MAXIMUM_AGGREGATORS, rank_numbers
from switchml.common.printable import REASON_LENGTH
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import (
    PROTOCOL_MAX_JOBS,
    PROTOCOL_MAX_SLOT_INDEX,
    PROTOCOL_MAX_VALUES,
    PROTOCOL_MAX_WORKERS,
    PROTOCOL_MAX_WORLD,
)
from switchml.host_agent.epoch_change import follows
from switchml.host_agent.errors import AssignmentRefused
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports
from switchml.host_agent.waiting import Waiting, WaitingRanks

__all__ = ["Assignments"]

_log = logging.getLogger(__name__)

_CHECK_KEY_BYTES: Final = 16


class Assignments:
    """Open the ranks that are assigned to this agent, which may have `max_ranks`, and add their jobs to `jobs`."""

    def __init__(
        self, jobs: LocalJobs, ranks: EngineRanks, waiting: WaitingRanks, reports: Reports, max_ranks: int
    ) -> None:
        self._jobs = jobs
        self._ranks = ranks
        self._waiting = waiting
        self._reports = reports
        self._max_ranks = max_ranks
        self._tasks: set[asyncio.Task[None]] = set()

    def assign(self, assignment: pb.Assignment) -> None:
        """Open the assignment's ranks, and report when they are open or why they cannot be opened."""
        task = asyncio.create_task(self._answer(assignment), name=f"opening of job {assignment.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until each assignment is answered."""
        await asyncio.gather(*self._tasks)

    async def _answer(self, assignment: pb.Assignment) -> None:
        try:
            answer = pb.AgentMessage(assignment_ready=await self.open(assignment))
        except AssignmentRefused as refused:
            _log.error("%s", refused)
            why = str(refused)[:REASON_LENGTH]
            failed = pb.AssignmentFailed(job=assignment.job, epoch=assignment.epoch, reason=why)
            answer = pb.AgentMessage(assignment_failed=failed)
        self._reports.send(answer)

    async def open(self, assignment: pb.Assignment) -> pb.AssignmentReady:
        """Open the assignment's ranks and return where they listen. Repeating an assignment changes nothing.

        Raises:
            AssignmentRefused: it cannot be carried out, or was revoked; no rank remains open.

        """
        held = self._jobs.get(assignment.job)
        if held is not None and held.assignment == assignment:
            return self._reports.ready(held)
        _check(assignment, self._jobs.agent, self._jobs.ranks_of_others(assignment.job), self._max_ranks)
        self._waiting_for(assignment)
        if held is not None and held.successor is not None:
            self._ranks.close(held.successor.ranks.values())
            held.successor = None
        if held is not None and not follows(held, assignment):
            self._jobs.end(held, JobFailure("JobFailed", (), f"{held} was replaced by epoch {assignment.epoch}"))
        job = LocalJob(assignment, {})
        with self._jobs.opening(job):
            try:
                await self._open_ranks(job)
                self._take_up(job)
            except AssignmentRefused:
                self._ranks.close(job.ranks.values())
                raise
        return self._reports.ready(job)

    def _waiting_for(self, assignment: pb.Assignment) -> list[Waiting]:
        return self._waiting.named_by(assignment) if assignment.announcements else []

    async def _open_ranks(self, job: LocalJob) -> None:
        """Open the ranks of a job, unless it ends first."""
        for rank in job.assignment.ranks:
            try:
                job.ranks[rank] = await self._ranks.open(job.assignment, rank)
            except (OSError, ValueError) as error:
                raise AssignmentRefused(
                    f"agent {self._jobs.agent} cannot open rank {rank} of {job}: {error}"
                ) from error
            if not self._jobs.is_opening(job):
                raise AssignmentRefused(f"{job} ended, or changed its epoch, while its ranks were opened")

    def _take_up(self, job: LocalJob) -> None:
        """Register a job whose ranks are open, or make it the successor of its previous epoch.

        Raises:
            AssignmentRefused: processes that were assigned its ranks have ended.

        """
        waiting = self._waiting_for(job.assignment)
        self._ranks.watch_switch(job.ranks.values(), lambda: self._switch_gone(job.assignment.job))
        held = self._jobs.get(job.assignment.job)
        if held is not None:
            held.successor = job
            return
        self._jobs.add(job)
        for number, one in zip(job.assignment.ranks, waiting, strict=False):
            job.ranks[number].process = one.process  # reserves the rank for this process
        self._waiting.assigned(waiting, job)
        _log.info("%s: opened rank %s", job, rank_numbers(list(job.ranks)))

    def _switch_gone(self, number: int) -> None:
        """End a job whose switch, a process on this machine, has ended: the sums were in its memory."""
        job = self._jobs[number]
        why = "the switch with which its ranks share memory has ended"
        event = pb.RankEvent(kind=pb.RankEvent.KIND_SWITCH_GONE, detail=why)
        self._reports.record(job, next(iter(job.ranks.values())), event)
        self._jobs.end(job, JobFailure("SwitchLost", (), f"agent {self._jobs.agent}: {why}"))


def _check(assignment: pb.Assignment, agent: str, taken: int, max_ranks: int) -> None:
    """Check that `agent`, with `taken` ranks of other jobs and room for `max_ranks`, can carry an assignment out.

    Raises:
        AssignmentRefused: it cannot; the message says why.

    """
    ranks = list(assignment.ranks)
    numbers = list(assignment.wire_workers) or ranks
    last_slot = assignment.slot_base + assignment.slots - 1
    previous = len(assignment.succession.previous_ranks)
    requirements = (
        (0 < assignment.job < PROTOCOL_MAX_JOBS, f"job id {assignment.job}"),
        (0 < assignment.epoch < 2**16, f"epoch {assignment.epoch}"),
        (0 < assignment.world_size <= PROTOCOL_MAX_WORLD, f"world size {assignment.world_size}"),
        (0 < len(ranks) == len(set(ranks)), f"ranks {ranks}"),
        (max(ranks, default=0) < assignment.world_size, f"ranks {ranks} of {assignment.world_size}"),
        (
            max(numbers, default=0) < PROTOCOL_MAX_WORKERS,
            f"rank {max(numbers, default=0)} directly below one switch, which tells at most {PROTOCOL_MAX_WORKERS}"
            " ranks apart",
        ),
        (previous == (len(ranks) if assignment.HasField("succession") else 0), f"{previous} previous ranks"),
        (assignment.slots > 0 and last_slot <= PROTOCOL_MAX_SLOT_INDEX, f"slots up to {last_slot}"),
        (0 < assignment.values_per_packet <= PROTOCOL_MAX_VALUES, f"{assignment.values_per_packet} values a packet"),
        (0 < assignment.switch_udp_port < 2**16, f"UDP port {assignment.switch_udp_port} of the switch"),
        (
            not assignment.multicast_address or _is_multicast(assignment.multicast_address),
            f"multicast address {assignment.multicast_address!r}",
        ),
        (
            len(assignment.workers) == len(ranks) or not assignment.generation,
            f"{len(assignment.workers)} process numbers for {len(ranks)} ranks",
        ),
        (
            len(assignment.wire_workers) in (0, len(ranks)) and len(set(assignment.wire_workers)) in (0, len(ranks)),
            f"numbers {numbers} in the packets of ranks {ranks}",
        ),
        (len(assignment.check_key) == _CHECK_KEY_BYTES, f"a check key of {len(assignment.check_key)} bytes"),
        (assignment.priority <= MAX_PRIORITY, f"priority {assignment.priority}"),
        (_is_ipv4(assignment.switch_address), f"address {assignment.switch_address!r} of the switch"),
        (
            len(assignment.aggregators) <= min(assignment.slots, MAXIMUM_AGGREGATORS),
            f"{len(assignment.aggregators)} aggregators of {assignment.slots} slots; {MAXIMUM_AGGREGATORS} is the most",
        ),
        *(
            (_is_ipv4(one.address) and 0 < one.udp_port < 2**16, f"aggregator {one.address!r}, UDP port {one.udp_port}")
            for one in assignment.aggregators
        ),
        (
            taken + len(ranks) <= max_ranks,
            f"{len(ranks)} ranks in addition to {taken} of other jobs, with {max_ranks} allowed (--max-ranks)",
        ),
    )
    for holds, what in requirements:
        if not holds:
            raise AssignmentRefused(f"agent {agent} cannot take job {assignment.job} with {what}")


def _is_multicast(text: str) -> bool:
    return _is_ipv4(text) and IPv4Address(text).is_multicast


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True
