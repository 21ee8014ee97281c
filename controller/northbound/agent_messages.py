"""Handling of the messages of agents."""

from __future__ import annotations

import asyncio
import logging
import time

from switchml.common.printable import REASON_LENGTH, WORD_LENGTH, printable
from switchml.controller.agents import AgentSession
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.epochs import Parts
from switchml.controller.jobs.lifecycle import Lifecycle
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.placed import revocation
from switchml.controller.jobs.rendezvous import Rendezvous
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.jobs.verdict import judge
from switchml.controller.northbound.probes import Probes
from switchml.controller.northbound.profiles import Profiles
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, Rank, RankState
from switchml.controller.store.events import EventKind

__all__ = ["CHECK_SECONDS", "AgentMessages"]

_LOG = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""The time that the controller waits for another rank's report of a failed check, after each report."""
_MOST_CHECK_SECONDS = 7.0  # in all; the ranks wait 10 s for the verdict

_EVENTS = {
    pb.RankEvent.KIND_ATTACHED: RankState.ATTACHED,
    pb.RankEvent.KIND_CLOSED: RankState.CLOSED,
    pb.RankEvent.KIND_LOST: RankState.LOST,
}
_MAX_CHUNKS = 2**63 - 1  # the store's integers are signed; no rank reaches this position
_MESSAGE_BYTES = 64 * 1024
_RANK_BYTES = 256  # for each rank that an agent may carry: its status, its endpoint
_CARRIED_BYTES = 16 * 1024  # for each rank that it carries: its profile
_PHASE_BYTES = 5  # for each slot of such a rank: its position
_REASONS = {JobState.COMPLETED: pb.REVOCATION_REASON_JOB_COMPLETED, JobState.STOPPED: pb.REVOCATION_REASON_JOB_STOPPED}


class AgentMessages:
    """Handles the messages of all agents' sessions.

    After Register, an agent that carries ranks from an earlier session sends, for each job, AssignmentReady with its
    endpoints and then one RankEvent for each rank that has attached: ATTACHED, or CLOSED or LOST when it has ended.
    The answer is Activation (again) if the job continues, and Revocation if it does not.
    """

    def __init__(
        self,
        parts: Parts,
        lifecycle: Lifecycle,
        transitions: Transitions,
        endings: JobEndings,
        rendezvous: Rendezvous,
        profiles: Profiles,
        probes: Probes,
    ) -> None:
        self._store = parts.store
        self._jobs = parts.jobs
        self._lifecycle = lifecycle
        self._transitions = transitions
        self._endings = endings
        self._rendezvous = rendezvous
        self._profiles = profiles
        self._probes = probes

    def registered(self, session: AgentSession) -> None:
        """Fail the jobs that an earlier process of this agent carried."""
        for live in self._jobs.live_jobs():
            carried = live.job.ranks_by_agent().get(session.name, ())
            if carried and carried[0].instance != session.registration.instance:
                self._transitions.agent_restarted(live, session.name, [r for r in carried if not r.ended])

    def lost(self, session: AgentSession, why: str) -> None:
        """Fail the jobs that an agent carried, and forget the ranks that wait at it."""
        self._rendezvous.lost(session)
        text = f"agent {session.name} on {session.registration.host} was lost: {why}"
        for live in self._jobs.live_jobs():
            held = _carried(session, live.job)
            if held or (live.attempt is not None and _carried(session, live.attempt.target.job)):
                lost = [rank for rank in held if not rank.ended]
                self._transitions.agent_lost(live, session.name, lost, text)

    def most_bytes(self, session: AgentSession) -> int:
        """Return the most bytes of a message of an agent: enough for the largest one about the ranks that it has."""
        most = _MESSAGE_BYTES + _RANK_BYTES * session.registration.max_ranks
        for job, ranks in self._jobs.carried_by(session.name):
            most += len(ranks) * (_CARRIED_BYTES + _PHASE_BYTES * job.slots)
        return most

    def take(self, session: AgentSession, message: pb.AgentMessage) -> None:
        """Handle one message; an invalid one is logged and ignored."""
        match message.WhichOneof("message"):
            case "heartbeat":
                self._heartbeat(session, message.heartbeat)
            case "assignment_ready":
                self._assignment_ready(session, message.assignment_ready)
            case "positions":
                positions = message.positions
                live = self._job_of(session, positions.job, positions.epoch)
                if live is not None:
                    self._transitions.positions(live, session.name, positions)
            case "assignment_failed":
                failed = message.assignment_failed
                entering = self._jobs.entering(failed.job, failed.epoch)
                if entering is not None:
                    self._transitions.refused(entering, session.name, printable(failed.reason, REASON_LENGTH))
                else:
                    self._job_of(session, failed.job, failed.epoch)
            case "rank_event":
                self._rank_event(session, message.rank_event)
            case "rank_announcement":
                self._rendezvous.announce(session, message.rank_announcement)
            case "rank_withdrawal":
                self._rendezvous.withdraw(session, message.rank_withdrawal.announcement)
            case "rank_profiles":
                self._profiles.take(session, message.rank_profiles)
            case "probe_answer":
                self._probes.take(session, message.probe_answer)
            case other:
                _LOG.warning("agent %s sent an unexpected message: %s", session.name, other)

    def _heartbeat(self, session: AgentSession, heartbeat: pb.Heartbeat) -> None:
        session.heartbeat()
        session.send(pb.ControllerMessage(alive=pb.Alive()))
        for status in heartbeat.ranks:
            live = self._jobs.in_epoch(status.job, status.epoch)
            rank = _rank_of(live, session, status.rank) if live is not None else None
            if live is None or rank is None:
                continue
            if status.position > _MAX_CHUNKS:
                _LOG.warning("agent %s says that rank %d is at chunk %d", session.name, status.rank, status.position)
            else:
                rank.move_to(status.position)
                rank.counters.CopyFrom(status.counters)
            if status.epoch_spent and not rank.ended:
                self._lifecycle.epoch_spent(live, rank)

    def _assignment_ready(self, session: AgentSession, ready: pb.AssignmentReady) -> None:
        entering = self._jobs.entering(ready.job, ready.epoch)
        if entering is not None:
            self._transitions.ready(entering, session.name, ready)
            return
        live = self._job_of(session, ready.job, ready.epoch)
        if live is not None:
            self._transitions.returned(live, session.name, ready)

    def _rank_event(self, session: AgentSession, event: pb.RankEvent) -> None:
        live = self._job_of(session, event.job, event.epoch)
        rank = _rank_of(live, session, event.rank) if live is not None else None
        if live is None or rank is None:
            return
        if live.job.state is JobState.PENDING and event.kind != pb.RankEvent.KIND_LOST:
            return  # only a process that has waited since the rendezvous can have caused an event, by ending
        detail = printable(event.detail, REASON_LENGTH)
        if event.kind == pb.RankEvent.KIND_CHECK_FAILED:
            self._check_failed(live, rank, event)
        elif event.kind == pb.RankEvent.KIND_SWITCH_GONE:
            why = f"switch {session.switch} is lost: agent {session.name} on {rank.host} says: {detail}"
            self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_SWITCH_LOST)
        elif event.kind in _EVENTS:
            self._lifecycle.rank_reached(live, rank, _EVENTS[event.kind], detail, event.calls)
        else:
            _LOG.warning("agent %s sent rank event %d, which this controller does not know", session.name, event.kind)

    def _check_failed(self, live: LiveJob, rank: Rank, event: pb.RankEvent) -> None:
        """Collect the calls of all ranks, then decide; later reports of the same rank are ignored."""
        if rank.rank in live.calls:
            return
        for name in ("operation", "op", "dtype"):  # these strings are sent to every rank
            setattr(event.call, name, printable(getattr(event.call, name), WORD_LENGTH))
        live.calls[rank.rank] = event.call
        live.failed_at[rank.rank] = event.position
        call = str(event.call).replace("\n", " ")
        _LOG.error("job %s: check failed on rank %d at chunk %d: %s", live.job.name, rank.rank, event.position, call)
        self._store.events.record(
            EventKind.CHECK_FAILED, f"at chunk {event.position}: {call}", job=live.job, rank=rank.rank, agent=rank.agent
        )
        silent = [r.rank for r in live.job.ranks if r.rank not in live.calls and not r.ended]
        if not silent:
            self._decide(live)
        elif live.judging is None:
            live.judging = asyncio.create_task(self._decide_later(live), name=f"check of job {live.job.name}")

    async def _decide_later(self, live: LiveJob) -> None:
        """Decide when no more reports come; those of a thousand ranks may take seconds, also that of the one at fault.

        Without its report, equal calls would be taken for changed bits.
        """
        deadline, seen = time.monotonic() + _MOST_CHECK_SECONDS, 0
        while seen < len(live.calls) and time.monotonic() < deadline:
            seen = len(live.calls)
            await asyncio.sleep(CHECK_SECONDS)
        self._decide(live)

    def _decide(self, live: LiveJob) -> None:
        silent = [r.rank for r in live.job.ranks if r.rank not in live.calls and not r.ended]
        judgement = judge(live.calls, silent, live.failed_at, live.job.slot_range)
        self._endings.end(live, JobState.FAILED, judgement.message, judgement.reason, judgement.ranks)

    def _job_of(self, session: AgentSession, job_id: int, epoch: int) -> LiveJob | None:
        """Return a live job that this agent carries; tell the agent if the job is over."""
        live = self._jobs.in_epoch(job_id, epoch)
        if live is not None and _carried(session, live.job):
            return live
        ended = self._store.end_of_job(job_id, session.switch, epoch)
        later = self._jobs.after(job_id, session.switch, epoch)
        if later is not None:
            change = later.epoch_changes[-1]
            why = f"job {later.name} continues in epoch {later.epoch}: {change.reason}"
            session.send(revocation(job_id, epoch, pb.REVOCATION_REASON_WORKER_LOST, why, change.lost))
        elif ended is None:
            why = "this controller knows no such job"
            session.send(revocation(job_id, epoch, pb.REVOCATION_REASON_JOB_FAILED, why))
        else:
            key, state, failure = ended
            reason = _REASONS.get(state, pb.REVOCATION_REASON_JOB_FAILED)
            known = revocation(job_id, epoch, reason, failure or f"the job is {state.name}")
            session.send(self._endings.told(key) or known)
        return None


def _carried(session: AgentSession, job: Job) -> list[Rank]:
    """Return the ranks of a job that this process of the agent carries."""
    instance = session.registration.instance
    return [rank for rank in job.ranks_by_agent().get(session.name, ()) if rank.instance == instance]


def _rank_of(live: LiveJob, session: AgentSession, number: int) -> Rank | None:
    if number < live.job.workers and live.job.ranks[number].agent == session.name:
        return live.job.ranks[number]
    _LOG.warning("agent %s reported on rank %d of job %s, which it does not carry", session.name, number, live.job.name)
    return None
