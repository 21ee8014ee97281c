"""Jobs from their start to their end: the requests of clients, and the events of ranks."""

from __future__ import annotations

import asyncio
import logging

from switchml.controller.admission.admission import Admission
from switchml.controller.admission.request import JobRequest
from switchml.controller.errors import InvalidRequest, JobEnded
from switchml.controller.jobs.closings import Closings
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.register import JobRegister
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, OnFailure, Rank, RankState
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind

__all__ = ["Lifecycle"]

_LOG = logging.getLogger(__name__)

_RANK_EVENTS = {
    RankState.ATTACHED: EventKind.RANK_ATTACHED,
    RankState.CLOSED: EventKind.RANK_CLOSED,
}


class Lifecycle:
    """Starts and stops jobs, and follows their ranks.

    Methods that are not async run without interruption, so what they check still holds when they act.
    """

    def __init__(
        self,
        store: Store,
        jobs: JobRegister,
        admission: Admission,
        transitions: Transitions,
        endings: JobEndings,
        closings: Closings,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._admission = admission
        self._transitions = transitions
        self._endings = endings
        self._closings = closings

    async def start(self, request: JobRequest) -> Job:
        """Bring a job up to READY.

        Raises:
            InvalidRequest, JobExists, SwitchNotFound, SwitchUnavailable, NoRoom, NoAgent, QuotaExceeded: it was not
                admitted.
            AgentFailed, AgentTimeout, SwitchRefused, JobEnded: it was admitted, but has ended.

        """
        job, switches, announcements = await self._admission.admit(request)
        live = LiveJob(job, switches)
        live.announcements = announcements
        self._jobs.add(live)
        transition = self._transitions.start(live)
        try:
            await asyncio.wait({transition.task})
        except asyncio.CancelledError:
            why = "its start was cancelled by the client"
            self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_JOB_FAILED)
            raise
        if live.ending is not None:
            await asyncio.wait({live.ending})
        if transition.error is not None:
            raise transition.error
        if transition.task.cancelled():
            why = f": {job.failure}" if job.failure else ""
            raise JobEnded(f"job {job.name} was {job.state.name} before it was ready{why}")
        return job

    async def stop(self, job: Job) -> None:
        """End a live job as STOPPED; return when it holds nothing any more."""
        live = self._jobs.get(job)
        if live is not None:
            reason = pb.REVOCATION_REASON_JOB_STOPPED
            await asyncio.wait({self._endings.end(live, JobState.STOPPED, "", reason)})

    def rank_reached(self, live: LiveJob, rank: Rank, state: RankState, detail: str = "", calls: int = 0) -> None:
        """Record that a rank attached, closed after this number of `calls` or was lost, and update its job."""
        if state is RankState.CLOSED and rank.state is not RankState.LOST:
            self._closings.closed(live, rank.rank, calls)
        if rank.ended or rank.state is state:
            return
        job = live.job
        if state is RankState.LOST:
            self._transitions.ranks_lost(live, [rank], f"agent {rank.agent} on {rank.host} says: {detail}")
            return
        rank.state = state
        self._store.events.record(_RANK_EVENTS[state], detail, job=job, rank=rank.rank, agent=rank.agent)
        if all(one.state is RankState.CLOSED for one in job.ranks):
            self._endings.end(live, JobState.COMPLETED, "", pb.REVOCATION_REASON_JOB_COMPLETED)
        elif state is RankState.ATTACHED and job.state is JobState.READY:
            self._jobs.enter(live, JobState.RUNNING)
        else:
            self._store.save_ranks(job, [rank])
            live.updated.notify()

    def epoch_spent(self, live: LiveJob, rank: Rank) -> None:
        """End an epoch before the phases of a slot overflow; in a new epoch they begin at 0."""
        why = f"rank {rank.rank} at agent {rank.agent} has used a slot nearly as often as an epoch allows"
        if live.job.on_failure is OnFailure.ABORT:
            self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_EPOCH_SPENT)
        elif live.transition is None:
            _LOG.warning("job %s: %s", live.job.name, why)
            self._transitions.renew(live, why)

    def report_exit(self, job: Job, number: int, exit_code: int, final: bool = False) -> None:
        """Record the exit status of a worker's process; a live job loses the rank if it is not 0.

        Raises:
            InvalidRequest: the job has no such worker.

        """
        rank = next((rank for rank in job.ranks if rank.worker == number), None)
        if rank is None:
            if job.on_failure is OnFailure.SHRINK:
                return  # the job has continued without it
            raise InvalidRequest(f"job {job.name} has workers 0 to {job.workers - 1}, not {number}")
        first_report = rank.exit_code is None
        rank.exit_code = exit_code
        self._store.events.record(EventKind.RANK_EXITED, f"status {exit_code}", job=job, rank=number, agent=rank.agent)
        live = self._jobs.get(job)
        if live is not None and job.live:
            restarts = job.on_failure is OnFailure.RESTART and not final
            if exit_code != 0 and (restarts or job.on_failure is OnFailure.SHRINK):
                self._worker_exited(live, rank, exit_code)
            elif exit_code != 0:
                # The launcher's report may come before the agent's; the other ranks must be told the same either way.
                attached = rank.state is RankState.ATTACHED
                reason = pb.REVOCATION_REASON_WORKER_LOST if attached else pb.REVOCATION_REASON_JOB_FAILED
                why = f"rank {number} exited with status {exit_code}"
                self._endings.end(live, JobState.FAILED, why, reason, [number])
            elif rank.state is RankState.ASSIGNED:
                self.rank_reached(live, rank, RankState.CLOSED)  # it ended well and never attached
            return
        if exit_code != 0 and first_report and rank.state is RankState.LOST:
            job.failure += f"; the process of rank {number} exited with status {exit_code}"
        self._store.save_ranks(job, [rank])

    def _worker_exited(self, live: LiveJob, rank: Rank, exit_code: int) -> None:
        """Continue a job without a process; if it will be replaced, the agent may have reported the loss before."""
        why = f"its process on {rank.host} exited with status {exit_code}"
        if rank.state is RankState.ATTACHED or (
            rank.state is RankState.ASSIGNED and live.job.on_failure is OnFailure.SHRINK
        ):
            self._transitions.ranks_lost(live, [rank], why)
        else:
            self._store.save_ranks(live.job, [rank])
