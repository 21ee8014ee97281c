"""The orders of the controller for the jobs that have ranks at this agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.host_agent.assignments import Assignments
from switchml.host_agent.epoch_change import Quiescing, switch_over
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.messages import JobFailure, RanksClosed
from switchml.host_agent.probing import Probing
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports
from switchml.host_agent.waiting import WaitingRanks

__all__ = ["Orders", "failure_of"]

_log = logging.getLogger(__name__)

_ERRORS: Final = {
    pb.REVOCATION_REASON_JOB_COMPLETED: "JobStopped",
    pb.REVOCATION_REASON_JOB_STOPPED: "JobStopped",
    pb.REVOCATION_REASON_WORKER_LOST: "WorkerLost",
    pb.REVOCATION_REASON_CALL_MISMATCH: "CollectiveMismatch",
    pb.REVOCATION_REASON_INTEGRITY: "IntegrityError",
    pb.REVOCATION_REASON_JOB_FAILED: "JobFailed",
    pb.REVOCATION_REASON_SWITCH_LOST: "SwitchLost",
    pb.REVOCATION_REASON_EPOCH_SPENT: "EpochSpent",
}


def failure_of(revocation: pb.Revocation) -> JobFailure:
    """Return the failure that the job's processes are told."""
    reason = enum_word(pb.RevocationReason, revocation.reason)
    return JobFailure(
        _ERRORS.get(revocation.reason, "JobFailed"),
        list(revocation.ranks),
        revocation.message or f"the controller ended the job ({reason.lower().replace('_', ' ')})",
    )


class Orders:
    """The orders for `jobs`. None of them waits: what takes long continues in a task, which reports its end."""

    def __init__(
        self,
        jobs: LocalJobs,
        ranks: EngineRanks,
        waiting: WaitingRanks,
        reports: Reports,
        assignments: Assignments,
        probing: Probing,
    ) -> None:
        self._jobs = jobs
        self._ranks = ranks
        self._waiting = waiting
        self._reports = reports
        self._probing = probing
        self._quiescing = Quiescing(jobs, ranks, reports)
        self._by_kind: Mapping[str, Callable[[Any], None]] = {
            "assignment": assignments.assign,
            "activation": self.activate,
            "pause": self.pause,
            "quiesce": self._quiescing.begin,
            "revocation": self.revoke,
            "ranks_closed": self.ranks_closed,
            "rendezvous_refusal": waiting.refuse,
            "rendezvous_return": self.give_back,
            "profile_order": reports.profile,
            "probe_order": probing.carry_out,
        }

    def carry_out(self, message: pb.ControllerMessage) -> None:
        """Carry out one order."""
        kind = message.WhichOneof("message")
        if kind in self._by_kind:
            self._by_kind[kind](getattr(message, kind))
        else:
            _log.warning("the controller sent a message that this agent does not know (%s)", kind)

    def cancel_begun(self) -> list[asyncio.Task[None]]:
        """Cancel the probe and the changes of epoch that a lost controller has begun, and return the tasks of these."""
        self._probing.close()
        return self._quiescing.cancel()

    def activate(self, activation: pb.Activation) -> None:
        """Let processes attach to a job, or continue in its next epoch."""
        old = self._jobs.get(activation.job)
        if old is not None and old.successor is not None and old.successor.assignment.epoch == activation.epoch:
            self._switch_over(old, old.successor)
        job = self._jobs.in_epoch(activation.job, activation.epoch)
        if job is None:
            _log.warning(
                "activation of job %d epoch %d, which this agent does not have", activation.job, activation.epoch
            )
            return
        job.activated.set()
        _log.info("%s: active", job)

    def _switch_over(self, old: LocalJob, new: LocalJob) -> None:
        self._jobs.replace(new)
        switch_over(old, new, self._reports)
        self._ranks.close(rank for rank in new.ranks.values() if rank.attached and rank.process is None)
        self._ranks.close(old.ranks.values())
        old.replaced.set()

    def pause(self, order: pb.Pause) -> None:
        """Stop the packets of a job's ranks to and from its switches, or let them flow again."""
        job = self._jobs.in_epoch(order.job, order.epoch)
        if job is None:
            return
        self._ranks.pause(job.ranks.values(), order.paused)
        _log.info("%s: %s", job, "paused: the controller cannot reach its switch" if order.paused else "not paused")

    def revoke(self, revocation: pb.Revocation) -> None:
        """End a job, also while its ranks are being opened."""
        if self._jobs.abort_opening(revocation.job, revocation.epoch):
            return
        job = self._jobs.in_epoch(revocation.job, revocation.epoch)
        if job is None:
            _log.info("revocation of job %d epoch %d, which this agent does not have", revocation.job, revocation.epoch)
            return
        self._jobs.end(job, failure_of(revocation))

    def ranks_closed(self, message: pb.RanksClosed) -> None:
        """Tell the processes of a job, also those that attach later, which call is the last that can end."""
        job = self._jobs.in_epoch(message.job, message.epoch)
        if job is None:
            return  # the job has ended here, or has changed its epoch
        job.closed = RanksClosed(list(message.ranks), message.calls)
        for rank in job.ranks.values():
            if rank.process is not None:
                rank.process.ranks_closed(job.closed)

    def give_back(self, answer: pb.RendezvousReturn) -> None:
        """Let a process that announced itself take the place of one that a live job has lost."""
        job = self._jobs.in_epoch(answer.job, answer.epoch)
        rank = None if job is None else job.ranks.get(answer.rank)
        if job is None or rank is None or rank.attached or rank.process is not None:
            _log.warning(
                "rank %d of job %d in epoch %d is not free at this agent", answer.rank, answer.job, answer.epoch
            )
            return
        waiting = self._waiting.returned(answer.announcement, job)
        if waiting is not None:
            rank.process = waiting.process
