"""The attachments of training processes to ranks, from the request for a rank until the rank has ended."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Final, NoReturn

from switchml.common.deadline import first_of, within
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.errors import AttachRefused, BadMessage
from switchml.host_agent.local_job import LocalJob, LocalRank, Process
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.messages import Attach, CheckFailed, JobFailure
from switchml.host_agent.rank_requests import rank_asked_for
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports
from switchml.host_agent.waiting import WaitingRanks

__all__ = ["Attachments"]

_RETURN_SECONDS: Final = 10.0  # how long an attaching process waits for the epoch in which its rank is free again
_CONTROLLER_SECONDS: Final = 2.0  # for the controller to report that the other ranks did not arrive in time


class Attachments:
    """The processes that have, or ask for, ranks of `jobs`."""

    def __init__(self, jobs: LocalJobs, ranks: EngineRanks, waiting: WaitingRanks, reports: Reports) -> None:
        self._jobs = jobs
        self._ranks = ranks
        self._waiting = waiting
        self._reports = reports

    async def attach(self, request: Attach, process: Process) -> tuple[LocalJob, LocalRank, tuple[int, ...]]:
        """Give a rank to a process, once its job is active.

        Returns:
            The job, the rank, and descriptors for the process, which the caller closes: shared memory, doorbell
            and the memory of the job's results.

        Raises:
            AttachRefused: the process cannot have the rank.

        """
        job = self._jobs.find(request.job)
        if await self._wait_for_return(job, request.rank):
            job = self._jobs.find(request.job)
        rank = rank_asked_for(job, request, self._jobs.agent)
        try:
            await within(job.activation_seconds, job.activated.wait())
        except asyncio.TimeoutError:
            raise _not_active(job) from None
        if job.failure is not None:
            raise AttachRefused("JobEnded", job.failure.message)
        if rank.process is not None:
            raise AttachRefused("RankTaken", f"rank {rank.rank} of {job} belongs to process {rank.process.pid}")
        if rank.attached or rank.handle is None:
            raise AttachRefused(
                "RankTaken", f"rank {rank.rank} of {job} has had its process, which has ended; start a new job"
            )
        return job, rank, self._give(job, rank, process)

    async def _wait_for_return(self, job: LocalJob, number: int) -> bool:
        """Wait for the epoch in which a process may replace the one that a rank has had; return whether it came."""
        rank = job.ranks.get(number)
        if rank is None or not rank.attached or job.assignment.on_failure != pb.ON_FAILURE_RESTART:
            return False
        try:
            await within(_RETURN_SECONDS, job.replaced.wait())
        except asyncio.TimeoutError:
            return False
        return True

    async def attach_created(
        self, request: Attach, process: Process, gone: asyncio.Future[bytes]
    ) -> tuple[LocalJob, LocalRank, tuple[int, ...]]:
        """Announce a rank of a job that does not exist yet, and give it to the process once the job is active.

        `gone` completes if the process closes the connection or sends a message before that; then the announcement is
        withdrawn.

        Returns:
            As `attach`.

        Raises:
            AttachRefused: the job did not begin: ranks are missing, the controller has refused it, or it has failed.
            BadMessage: the process sent a message while it waited.
            OSError: the connection is closed.

        """
        job = await self._meet(request, process, gone)
        rank = job.ranks[request.rank]
        try:
            activated = asyncio.ensure_future(job.activated.wait())
            try:
                await first_of(activated, gone, job.activation_seconds)
            finally:
                activated.cancel()
            if job.failure is not None:
                raise AttachRefused("JobEnded", job.failure.message)
            if job.replaced.is_set():
                job = self._jobs[job.assignment.job]
                rank = next(rank for rank in job.ranks.values() if rank.process is process)
            if gone.done():
                _give_up(gone)
            if not job.activated.is_set():
                raise _not_active(job)
            return job, rank, self._give(job, rank, process)
        except BaseException as error:
            refused = isinstance(error, AttachRefused)
            self.detach(job, rank, str(error) if refused else f"process {process.pid} went away while the job started")
            raise

    async def _meet(self, request: Attach, process: Process, gone: asyncio.Future[bytes]) -> LocalJob:
        """Wait for the job that begins when all ranks have announced themselves."""
        waiting = self._waiting.add(request, process)
        self._reports.send(waiting.announcement())
        try:
            await first_of(waiting.outcome, gone, request.timeout + _CONTROLLER_SECONDS)
        finally:
            if not waiting.outcome.done():
                self._waiting.remove(waiting)
                self._reports.send(waiting.withdrawal())
        if waiting.outcome.done():
            outcome = waiting.outcome.result()
            if isinstance(outcome, AttachRefused):
                raise outcome
            return outcome
        if gone.done():
            _give_up(gone)
        raise AttachRefused(
            "ControllerUnavailable",
            f"agent {self._jobs.agent} had no answer from its controller within {request.timeout:g} s; "
            "see the agent's log",
        )

    def _give(self, job: LocalJob, rank: LocalRank, process: Process) -> tuple[int, ...]:
        """Assign the rank to the process, and return the descriptors that it needs."""
        if rank.handle is None:
            raise AttachRefused(
                "JobEnded", f"{job} has changed to another epoch while this process attached; try again"
            )
        rank.process, rank.attached = process, True
        attached = pb.RankEvent(kind=pb.RankEvent.KIND_ATTACHED, detail=f"process {process.pid}")
        self._reports.record(job, rank, attached)
        return rank.take_descriptors()

    def detach(self, job: LocalJob, rank: LocalRank, loss: str, calls: int = 0) -> None:
        """Record that a rank has ended: in order, after this number of `calls`, or lost for a reason."""
        if rank.process is None:
            return
        rank.process = None
        self._ranks.close([rank])
        # Send the last counters first: the controller may take this event for the end of the job.
        self._reports.send(pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[self._reports.status(job, rank)])))
        kind = pb.RankEvent.KIND_LOST if loss else pb.RankEvent.KIND_CLOSED
        self._reports.record(job, rank, pb.RankEvent(kind=kind, detail=loss, calls=calls))

    def lose_all(self, why: str) -> None:
        """Report all ranks that have processes as lost for a reason, and tell the processes."""
        for job, rank in list(self._jobs.ranks()):
            process = rank.process
            self.detach(job, rank, why)
            if process is not None:
                process.fail(JobFailure("WorkerLost", (rank.rank,), f"this rank is lost: {why}"))

    def report_check(self, job: LocalJob, rank: LocalRank, failed: CheckFailed) -> None:
        """Ask the controller for the cause of the first failed check of a rank; its verdict is a revocation."""
        if any(event.kind == pb.RankEvent.KIND_CHECK_FAILED for event in rank.events):
            return
        call = pb.Call(**asdict(failed.call))
        event = pb.RankEvent(kind=pb.RankEvent.KIND_CHECK_FAILED, call=call, position=failed.position)
        self._reports.record(job, rank, event)


def _not_active(job: LocalJob) -> AttachRefused:
    seconds = job.activation_seconds
    return AttachRefused("UnknownJob", f"{job} was not active within {seconds:.0f} s; see the controller's log")


def _give_up(gone: asyncio.Future[bytes]) -> NoReturn:
    if gone.result():
        raise BadMessage("a process that waits for its job may not send messages")
    raise BrokenPipeError("the process closed its connection while it waited for its job")
