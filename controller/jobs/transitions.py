"""The transitions of all jobs into epochs: what causes them, and what agents answer during them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from switchml.controller.errors import AgentFailed, ControllerError
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.epochs import Change, Entry, Parts, Return, Start
from switchml.controller.jobs.live import LiveJob, Transition
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import JobState, OnFailure, Rank, RankState, printed_ranks, ranks_were_lost
from switchml.controller.store.events import EventKind

__all__ = ["RETURN_SECONDS", "Transitions"]

_LOG = logging.getLogger(__name__)

RETURN_SECONDS = 60.0
"""The time that the other ranks wait for a process that replaces a lost one."""


class Transitions:
    """Brings jobs into epochs. ``on_new_epoch`` is called for each job that has reached another one."""

    def __init__(self, parts: Parts, endings: JobEndings) -> None:
        self._parts = parts
        self._endings = endings
        self.on_new_epoch: Callable[[LiveJob], None] = lambda _: None

    # ---- causes ----------------------------------------------------------------------------------------------------

    def start(self, live: LiveJob) -> Transition:
        """Bring a new job into its first epoch; the transition's ``task`` ends when it is READY or has failed."""
        return self._begin(Start(live, self._parts), f"start of job {live.job.name}")

    def recover(self, live: LiveJob) -> None:
        """Wait for the agents of a job that was live when the controller ended."""
        live.written = {switch.name: tables for switch, tables in live.tables()}
        lost = live.ranks_in(RankState.LOST)
        if lost:  # the change to an epoch without them had not begun
            live.reasons.append(f"{ranks_were_lost(lost)} before the controller was restarted")
        self._begin(Return(live, self.ranks_lost), f"recovery of job {live.job.name}")

    def renew(self, live: LiveJob, why: str) -> None:
        """Bring a job into another epoch without a loss, unless it is in transition already."""
        if live.transition is None:
            self._leave_epoch(live, why)

    def ranks_lost(self, live: LiveJob, ranks: Sequence[Rank], why: str) -> None:
        """Fail a job whose ranks are lost, or continue it without them, according to its policy."""
        for rank in ranks:
            rank.state = RankState.LOST
            self._parts.store.events.record(EventKind.RANK_LOST, why, job=live.job, rank=rank.rank, agent=rank.agent)
        numbers = [rank.rank for rank in ranks]
        text = f"{ranks_were_lost(numbers)}: {why}"
        if live.job.on_failure is OnFailure.ABORT:
            self._endings.end(live, JobState.FAILED, text, pb.REVOCATION_REASON_WORKER_LOST, numbers)
            return
        _LOG.warning("job %s: %s", live.job.name, text)
        self._parts.store.save_ranks(live.job, ranks)
        self._leave_epoch(live, text)
        live.updated.notify()

    def agent_lost(self, live: LiveJob, agent: str, ranks: Sequence[Rank], why: str) -> None:
        """Handle the loss of an agent, with these `ranks` of the job that have not ended."""
        starts = live.job.state is JobState.PENDING  # so another agent may take them
        declined = (starts or not ranks) and self._decline(live, agent, why)
        if ranks and not declined:
            self.ranks_lost(live, ranks, why)

    def agent_restarted(self, live: LiveJob, agent: str, ranks: Sequence[Rank]) -> None:
        """Handle the return of an agent in another process, with these `ranks` of the job that have not ended."""
        if ranks:
            self.ranks_lost(live, ranks, f"agent {agent} was restarted")
        self._stop_awaiting(live, agent)

    def _stop_awaiting(self, live: LiveJob, agent: str) -> None:
        """Stop waiting for the return of an agent that has returned, or has none of its ranks any more."""
        if isinstance(live.transition, Return):
            live.transition.returned(agent)

    def _leave_epoch(self, live: LiveJob, why: str) -> None:
        live.reasons.append(why)
        if live.transition is None:
            self._change(live)
        else:
            live.transition.heed()

    def _change(self, live: LiveJob) -> None:
        self._begin(Change(live, self._parts), f"new epoch of job {live.job.name}")

    # ---- messages of agents ----------------------------------------------------------------------------------------

    def ready(self, live: LiveJob, agent: str, ready: pb.AssignmentReady) -> None:
        """Store the endpoints of an agent's ranks in the epoch that the job is in transition into."""
        attempt = live.attempt
        if attempt is None or agent not in attempt.endpoints.awaited:
            return
        try:
            endpoints = attempt.target.endpoints(agent, ready)
        except ValueError as error:
            self._decline(live, agent, f"agent {agent} answered the assignment of job {live.job.name} with {error}")
            return
        for rank, endpoint in endpoints:
            rank.address, rank.udp_port = endpoint
        attempt.endpoints.take(agent, ready)

    def refused(self, live: LiveJob, agent: str, reason: str) -> None:
        """Handle an agent's refusal to open its ranks."""
        where = "" if live.job.state is JobState.PENDING else " in the new epoch"
        self._decline(live, agent, f"agent {agent} refused its ranks{where}: {reason}")

    def _decline(self, live: LiveJob, agent: str, why: str) -> bool:
        """Handle the failure of an agent to open ranks, if the current attempt waits for it; return whether it does."""
        entry, attempt = live.transition, live.attempt
        if not isinstance(entry, Entry) or attempt is None or agent not in attempt.endpoints.awaited:
            return False
        entry.on_refusal(attempt, agent, AgentFailed(why))
        return True

    def returned(self, live: LiveJob, agent: str, ready: pb.AssignmentReady) -> None:
        """Continue with an agent that has opened its stream again and reports the ranks of a job that it carries."""
        try:
            endpoints = live.endpoints(agent, ready)
        except ValueError as error:
            why = f"agent {agent} answered the assignment of job {live.job.name} with {error}"
            self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_JOB_FAILED)
            return
        if any((rank.address, rank.udp_port) != endpoint for rank, endpoint in endpoints):
            self.ranks_lost(live, [rank for rank, _ in endpoints], f"agent {agent} has other sockets")
            self._stop_awaiting(live, agent)
            return
        self._stop_awaiting(live, agent)
        self._parts.agents.tell([agent], live.activation())
        closed = live.ranks_closed()
        if closed is not None:
            self._parts.agents.tell([agent], closed)

    def positions(self, live: LiveJob, agent: str, positions: pb.Positions) -> None:
        """Store an agent's answer to Quiesce."""
        if live.attempt is not None and positions.fetched == live.attempt.fetching:
            live.attempt.positions.take(agent, positions)

    # ---- from the beginning of a transition to its end -------------------------------------------------------------

    def _begin(self, transition: Transition, name: str) -> Transition:
        transition.live.transition = transition
        transition.task = asyncio.create_task(self._run(transition), name=name)
        return transition

    async def _run(self, transition: Transition) -> None:
        live, began = transition.live, time.monotonic()
        try:
            await transition.run()
        except ControllerError as error:
            self._fail(transition, error, str(error))
        except Exception as error:
            _LOG.exception("job %s could not reach an epoch", live.job.name)
            self._fail(transition, error, "internal error in the controller; see its log")
        if live.ending is not None:
            return
        live.transition = None
        live.updated.notify()
        if isinstance(transition, Change):
            self._came_into_epoch(live, 1e3 * (time.monotonic() - began))
        if live.reasons:
            self._change(live)

    def _came_into_epoch(self, live: LiveJob, milliseconds: float) -> None:
        job, change = live.job, live.job.epoch_changes[-1]
        _LOG.warning(
            "job %s continues in epoch %d with %d ranks after %.0f ms: %s",
            *(job.name, job.epoch, job.workers, milliseconds, change.reason),
        )
        joined = f", {printed_ranks(list(change.joined))} with new processes" if change.joined else ""
        what = f"{job.workers} ranks continue{joined}: {change.reason}"
        self._parts.store.events.record(EventKind.EPOCH_CHANGED, what, job=job)
        if change.joined:
            asyncio.get_running_loop().call_later(RETURN_SECONDS, self._require_return, live, job.generation)
        self.on_new_epoch(live)

    def _fail(self, transition: Transition, error: Exception, why: str) -> None:
        live, transition.error = transition.live, error
        if live.job.state is JobState.PENDING:
            self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_JOB_FAILED)
            return
        if isinstance(error, ControllerError):
            why = f"the job could not continue: {why}"
        lost = live.ranks_in(RankState.LOST)
        text = f"{'; '.join(live.reasons)}; and {why}" if live.reasons else why
        self._endings.end(live, JobState.FAILED, text, pb.REVOCATION_REASON_WORKER_LOST, lost)

    def _require_return(self, live: LiveJob, generation: int) -> None:
        """Fail a job if lost ranks have not got new processes."""
        job = live.job
        if not job.live or job.generation != generation:
            return
        change = job.epoch_changes[-1]
        absent = [rank for rank in change.joined if job.ranks[rank].state is RankState.ASSIGNED]
        if absent:
            why = f"no process has taken the place of {printed_ranks(absent)} within {RETURN_SECONDS:g} s"
            reason = pb.REVOCATION_REASON_WORKER_LOST
            self._endings.end(live, JobState.FAILED, f"{change.reason}; {why}", reason, absent)
