"""The transition of a job into an epoch: into its first one, or into another one after a loss.

The steps are the same for both; docs/protocol.md ("A change of epoch") explains their order:

1. Plan: the job as it will be, with its ranks, their agents and a new epoch.
2. Quiesce, unless the job starts: its agents stop the ranks (Quiesce) and report the number of phases of each slot that
   every rank holds (Positions). All ranks must hold the largest number for each slot: the agents let them fetch up to
   it.
3. Assign: the agents open the ranks of the new epoch (Assignment) and report their endpoints.
4. Replace the tables: on each switch, from the top of the tree down, every entry of the past is deleted, then those of
   the new epoch are written. A switch below which no rank is left loses its tables and leaves the job.
5. Commit to the store, and activate: only after all of this is acknowledged are the agents told of the epoch
   (Activation).

If a rank is lost during these steps, or an agent refuses new ranks, they begin again from 1. After a restart of the
controller the agents still have their ranks and the switches their tables: only the endpoints are collected, when the
agents connect again; the ranks of agents that do not are lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from switchml.controller.admission.placement import Placements
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.errors import AgentFailed, AgentTimeout, ControllerError, NoAgent
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.live import Answers, LiveJob, Transition
from switchml.controller.jobs.placed import PlacedJob, revocation
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import (
    EpochChange,
    Job,
    JobState,
    JobSwitch,
    OnFailure,
    Rank,
    RankState,
    new_check_key,
    new_secret,
    printed_ranks,
    ranks_were_lost,
)
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["ANSWER_SECONDS", "RECOVERY_SECONDS", "RETURN_SECONDS", "Transitions", "target_phases"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

ANSWER_SECONDS = 3.0
"""The time for an agent to stop its ranks, or to let them fetch; an agent that takes longer is lost to the job."""
RETURN_SECONDS = 60.0
"""The time that the other ranks wait for a process that replaces a lost one."""
RECOVERY_SECONDS = 10.0
"""The time for agents, and then for switches, to be connected again after a restart of the controller."""
_MAX_PHASE = 2**31


class _Interrupted(Exception):
    """Something has happened that the current attempt does not take into account."""


class Transitions:
    """Brings jobs into epochs. ``on_new_epoch`` is called for each job that has reached another one."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        agents: Agents,
        placements: Placements,
        jobs: JobRegister,
        endings: JobEndings,
        pools: SlotPools,
    ) -> None:
        self._store = store
        self._switches = switches
        self._agents = agents
        self._placements = placements
        self._pools = pools
        self._jobs = jobs
        self._endings = endings
        self.on_new_epoch: Callable[[LiveJob], None] = lambda _: None

    # ---- causes ----------------------------------------------------------------------------------------------------

    def start(self, live: LiveJob) -> Transition:
        """Bring a new job into its first epoch; the transition's ``task`` ends when it is READY or has failed."""
        return self._begin(live, Transition(past=False), f"start of job {live.job.name}")

    def recover(self, live: LiveJob) -> None:
        """Wait for the agents of a job that was live when the controller ended."""
        live.written = {switch.name: tables for switch, tables in live.tables()}
        self._begin(live, Transition(past=True, returning=True), f"recovery of job {live.job.name}")

    def renew(self, live: LiveJob, why: str) -> None:
        """Bring a job into another epoch without a loss, unless it is in transition already."""
        if live.transition is None:
            self._leave_epoch(live, [], why)

    def ranks_lost(self, live: LiveJob, ranks: Sequence[Rank], why: str) -> None:
        """Fail a job whose ranks are lost, or continue it without them, according to its policy."""
        for rank in ranks:
            rank.state = RankState.LOST
            self._store.events.record(EventKind.RANK_LOST, why, job=live.job, rank=rank.rank, agent=rank.agent)
        numbers = [rank.rank for rank in ranks]
        text = f"{ranks_were_lost(numbers)}: {why}"
        if live.job.on_failure is OnFailure.ABORT:
            self._endings.end(live, JobState.FAILED, text, pb.REVOCATION_REASON_WORKER_LOST, numbers)
            return
        _LOG.warning("job %s: %s", live.job.name, text)
        self._store.save_ranks(live.job, ranks)
        self._leave_epoch(live, numbers, text)
        live.updated.notify()

    def agent_lost(self, live: LiveJob, agent: str, ranks: Sequence[Rank], why: str) -> None:
        """Handle the loss of an agent, with these `ranks` of the job that have not ended."""
        transition = live.transition
        if transition is not None and transition.awaits_endpoints(agent) and not (transition.past and ranks):
            self._declined(live, transition, agent, AgentFailed(why))
        elif ranks:
            self.ranks_lost(live, ranks, why)

    def agent_restarted(self, live: LiveJob, agent: str, ranks: Sequence[Rank]) -> None:
        """Handle the return of an agent in another process, with these `ranks` of the job that have not ended."""
        if ranks:
            self.ranks_lost(live, ranks, f"agent {agent} was restarted")
        self._stop_awaiting(live, agent)

    def _stop_awaiting(self, live: LiveJob, agent: str) -> None:
        """Stop waiting for the return of an agent that has none of its ranks any more."""
        transition = live.transition
        if transition is not None and transition.returning and transition.endpoints is not None:
            transition.endpoints.withdraw(agent)

    def _leave_epoch(self, live: LiveJob, lost: Sequence[int], why: str) -> None:
        if live.transition is None:
            self._begin(live, Transition(past=True), f"new epoch of job {live.job.name}")
        assert live.transition is not None, "it has just begun"
        live.transition.add(lost, why)

    def _begin(self, live: LiveJob, transition: Transition, name: str) -> Transition:
        live.transition = transition
        transition.task = asyncio.create_task(self._run(live, transition), name=name)
        return transition

    # ---- messages of agents ----------------------------------------------------------------------------------------

    def ready(self, live: LiveJob, agent: str, ready: pb.AssignmentReady) -> None:
        """Store the endpoints of an agent's ranks in the epoch that the job is in transition into or returning to."""
        transition = live.transition
        if transition is None or transition.target is None or transition.endpoints is None:
            return
        if transition.returning:
            self.returned(live, agent, ready)
            return
        try:
            endpoints = transition.target.endpoints(agent, ready)
        except ValueError as error:
            what = f"the assignment of job {live.job.name}"
            self._declined(live, transition, agent, AgentFailed(f"agent {agent} answered {what} with {error}"))
            return
        if transition.awaits_endpoints(agent):
            for rank, endpoint in endpoints:
                rank.address, rank.udp_port = endpoint
            transition.endpoints.take(agent, ready)

    def refused(self, live: LiveJob, agent: str, reason: str) -> None:
        """Handle an agent's refusal to open its ranks."""
        transition = live.transition
        if transition is not None:
            where = " in the new epoch" if transition.past else ""
            self._declined(live, transition, agent, AgentFailed(f"agent {agent} refused its ranks{where}: {reason}"))

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
        transition = live.transition
        if transition is not None and transition.returning and transition.endpoints is not None:
            transition.endpoints.take(agent, ready)
        self._agents.tell([agent], live.activation())
        closed = live.ranks_closed()
        if closed is not None:
            self._agents.tell([agent], closed)

    def positions(self, live: LiveJob, agent: str, positions: pb.Positions) -> None:
        """Store an agent's answer to Quiesce."""
        transition = live.transition
        if transition is not None and transition.positions is not None and positions.fetched == transition.fetching:
            transition.positions.take(agent, positions)

    def _declined(self, live: LiveJob, transition: Transition, agent: str, error: AgentFailed) -> None:
        """Give an agent's ranks to other agents if no process has any of them; otherwise fail the transition."""
        if transition.returning or transition.target is None or not transition.awaits_endpoints(agent):
            return
        carried = transition.target.job.ranks_by_agent()[agent]
        if transition.past:
            movable = all(rank.worker in live.lost_workers() for rank in carried)
        else:
            movable = not live.announcements  # otherwise processes wait at the agents
        assert transition.endpoints is not None, "it awaits the agent's"
        if not movable:
            transition.endpoints.fail(agent, error)
            return
        transition.refused[agent] = error
        if transition.past:
            transition.add([], error.message)
        else:
            transition.endpoints.withdraw(agent)  # other agents may refuse as well

    # ---- the steps -------------------------------------------------------------------------------------------------

    async def _run(self, live: LiveJob, transition: Transition) -> None:
        began = time.monotonic()
        try:
            while not await self._attempt(live, transition):
                if live.ending is not None:
                    return
        except ControllerError as error:
            self._fail(live, transition, error, f"the job could not continue: {error}")
            return
        except Exception as error:
            _LOG.exception("job %s could not reach an epoch", live.job.name)
            self._fail(live, transition, error, "internal error in the controller; see its log")
            return
        live.transition = None
        live.updated.notify()
        if transition.past and not transition.returning:
            self._note_new_epoch(live, 1e3 * (time.monotonic() - began))
        if transition.unheeded:
            lost = [rank.rank for rank in live.job.ranks if rank.state is RankState.LOST]
            self._leave_epoch(live, lost, transition.unheeded)

    def _note_new_epoch(self, live: LiveJob, milliseconds: float) -> None:
        job, change = live.job, live.job.epoch_changes[-1]
        _LOG.warning(
            "job %s continues in epoch %d with %d ranks after %.0f ms: %s",
            *(job.name, job.epoch, job.workers, milliseconds, change.reason),
        )
        joined = f", {printed_ranks(list(change.joined))} with new processes" if change.joined else ""
        what = f"{job.workers} ranks continue{joined}: {change.reason}"
        self._store.events.record(EventKind.EPOCH_CHANGED, what, job=job)
        self.on_new_epoch(live)

    def _fail(self, live: LiveJob, transition: Transition, error: Exception, why: str) -> None:
        transition.error = error
        if transition.past:
            reason = f"{transition.all_reasons}; and {why}" if transition.all_reasons else why
            lost = transition.all_losses
            self._endings.end(live, JobState.FAILED, reason, pb.REVOCATION_REASON_WORKER_LOST, lost)
        else:
            start = str(error) if isinstance(error, ControllerError) else why
            self._endings.end(live, JobState.FAILED, start, pb.REVOCATION_REASON_JOB_FAILED)

    async def _attempt(self, live: LiveJob, transition: Transition) -> bool:
        """Go through all steps; return False if they must be repeated."""
        transition.begin_attempt()
        try:
            if transition.returning:
                await self._await_return(live, transition)
                return True
            if transition.past:
                await self._await_switches(live)
            target = transition.target = self._plan(live, transition)
            if transition.past:
                await self._quiesce(live, transition)
            await self._assign(live, transition, target)
            await self._replace_tables(live, target)
            self._commit(live, transition, target.job)
        except _Interrupted:
            transition.returning = False
            return False
        return True

    async def _await_switches(self, live: LiveJob) -> None:
        """Wait for switches that a controller which has just been started, or has lost them, does not reach yet."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        for switch in live.switches:
            await switch.wait_connected(deadline - time.monotonic())

    # ---- 1: plan ---------------------------------------------------------------------------------------------------

    def _plan(self, live: LiveJob, transition: Transition) -> PlacedJob:
        """Return the job as it will be, in the store with a new epoch; its endpoints are not known yet.

        Raises:
            AgentFailed, NoAgent: no rank is left, or no agent takes a rank that waits for a process.
            NoRoom: a switch has no more epochs for the job's tenant.

        """
        if transition.past:
            successor = self._successor(live, transition)
            target = PlacedJob(successor, self._switches_of(successor))
            lost = live.lost_workers()
            transition.joined = [rank.rank for rank in target.job.ranks if rank.worker in lost]
            self._store.begin_transition(target.job)
            live.job.in_transition = True
            return target
        if transition.refused:
            self._place_elsewhere(live, transition)
        return live

    def _place_elsewhere(self, live: LiveJob, transition: Transition) -> None:
        """Choose the agents of a new job again, without those that refused its ranks."""
        job = live.job
        first = _first_refusal(transition)
        over_aggregators = job.over_aggregators
        before, job.ranks = job.ranks, []  # so that the choice does not count them as in use
        try:
            if over_aggregators:
                choice = self._placements.choose_anywhere(live.switches, job.workers, job.tenant, transition.refused)
            elif len(live.switches) == 1:
                choice = self._placements.choose(live.switches[0], job.workers, job.tenant, transition.refused)
            else:
                choice = self._placements.choose_below(live.switches, job.workers, job.tenant, transition.refused)
        except NoAgent:
            job.ranks = before
            raise first from None
        job.ranks = choice.ranks()
        leaving = self._enter_tree(live, self._next_places(live, job.ranks))
        self._pools.free(leaving)
        job.secret, job.check_key = new_secret(), new_check_key()
        self._store.begin_transition(job)
        self._store.commit_transition(job)
        _LOG.warning("job %s: its ranks go to %s: %s", job.name, ", ".join(job.ranks_by_agent()), first)

    def _successor(self, live: LiveJob, transition: Transition) -> Job:
        job = live.job
        left = [rank for rank in job.ranks if not rank.ended]
        if not left:
            raise AgentFailed("no rank is left")
        if job.on_failure is OnFailure.SHRINK:
            members = [replace(rank, rank=number) for number, rank in enumerate(left)]
        else:
            closed = [rank.rank for rank in job.ranks if rank.state is RankState.CLOSED]
            if closed:
                raise AgentFailed(f"{printed_ranks(closed)} had closed already, so not all can continue")
            members = [
                replace(rank) if rank in left else self._replacement(live, transition, rank) for rank in job.ranks
            ]
        for member in members:
            member.move_to(0)
            member.counters = pb.RankCounters()
        return replace(
            job,
            switches=self._next_places(live, members),
            secret=new_secret(),
            check_key=new_check_key(),
            workers=len(members),
            ranks=members,
            generation=job.generation + 1,
            epoch_changes=list(job.epoch_changes),
        )

    def _replacement(self, live: LiveJob, transition: Transition, rank: Rank) -> Rank:
        switch, anywhere = self._switches.get(rank.switch), live.job.over_aggregators
        return self._placements.replace(rank, switch, live.job.tenant, transition.refused, anywhere=anywhere)

    def _next_places(self, live: LiveJob, ranks: Sequence[Rank]) -> list[JobSwitch]:
        """Return the switches that are needed for these ranks, in a new epoch."""
        epoch = self._switches.next_epoch(live.switches, live.job.tenant)
        if not live.job.in_tree:
            return [replace(place, epoch=epoch) for place in live.job.switches]
        parents = self._switches.trees.smallest(list(dict.fromkeys(rank.switch for rank in ranks)))
        return [
            replace(place, epoch=epoch, upstream=parents[place.switch])
            for place in live.job.switches
            if place.switch in parents
        ]

    def _switches_of(self, job: Job) -> list[ManagedSwitch]:
        return [self._switches.get(place.switch) for place in job.switches]

    def _enter_tree(self, live: LiveJob, places: list[JobSwitch]) -> list[JobSwitch]:
        """Make these the switches of a job; return the records of those that leave it."""
        leaving = [place for place in live.job.switches if not any(place.switch == one.switch for one in places)]
        live.job.switches = places
        live.switches = self._switches_of(live.job)
        return leaving

    # ---- 2: quiesce ------------------------------------------------------------------------------------------------

    async def _quiesce(self, live: LiveJob, transition: Transition) -> None:
        job = live.job
        left = [rank for rank in job.ranks if not rank.ended]
        agents = sorted({rank.agent for rank in left})
        quiesce = pb.Quiesce(job=job.id, epoch=job.epoch)
        reports = await self._positions(live, transition, agents, quiesce, fetching=False)
        held = _held(reports, left, job.slots)
        quiesce.targets[:] = target_phases(list(held.values()))
        if any(list(phases) != list(quiesce.targets) for phases in held.values()):
            await self._positions(live, transition, agents, quiesce, fetching=True)

    async def _positions(
        self, live: LiveJob, transition: Transition, agents: Sequence[str], quiesce: pb.Quiesce, fetching: bool
    ) -> dict[str, pb.Positions]:
        transition.positions, transition.fetching = Answers(agents), fetching
        messages = {agent: pb.ControllerMessage(quiesce=quiesce) for agent in agents}
        return await self._ask(live, transition, transition.positions, messages, ANSWER_SECONDS)

    # ---- 3: assign -------------------------------------------------------------------------------------------------

    async def _assign(self, live: LiveJob, transition: Transition, target: PlacedJob) -> None:
        """Make the agents open the ranks of the target; their answers contain the endpoints."""
        self._release(live, transition, target.job)
        messages = {}
        for agent, ranks in target.job.ranks_by_agent().items():
            assignment = target.assignment(agent)
            if transition.past:
                assignment.succession.CopyFrom(_succession(live, transition, ranks))
            messages[agent] = pb.ControllerMessage(assignment=assignment)
            transition.asked[agent] = target.job.epoch
        transition.endpoints = Answers(messages)
        await self._ask(live, transition, transition.endpoints, messages, target.seconds_to_open())

    def _release(self, live: LiveJob, transition: Transition, target: Job) -> None:
        """Make agents close ranks that they opened for an earlier attempt, and that are now assigned to others."""
        kept = target.ranks_by_agent().keys() | (live.job.ranks_by_agent().keys() if transition.past else set())
        for agent in transition.asked.keys() - kept:
            epoch, why = transition.asked.pop(agent), "its ranks went to other agents"
            self._agents.tell([agent], revocation(target.id, epoch, pb.REVOCATION_REASON_JOB_FAILED, why))

    async def _await_return(self, live: LiveJob, transition: Transition) -> None:
        """Wait for the agents to return to the epoch that the job was in when the controller ended.

        A loss does not end the wait: the agents of the other ranks must be back before these can leave the epoch, and
        those of lost ranks that are replaced before these have a place.
        """
        transition.target = live
        answers = transition.endpoints = Answers({rank.agent for rank in live.job.ranks if not rank.ended})
        deadline = time.monotonic() + RECOVERY_SECONDS
        while True:
            try:
                await self._ask(live, transition, answers, {}, max(0.0, deadline - time.monotonic()))
                return
            except _Interrupted:  # noqa: PERF203
                replaces = live.job.on_failure is OnFailure.RESTART and time.monotonic() < deadline
                carrying = {
                    rank.agent
                    for rank in live.job.ranks
                    if not rank.ended or (replaces and rank.state is RankState.LOST)
                }
                for agent in answers.futures.keys() - carrying:
                    answers.withdraw(agent)
                if not any(answers.awaits(agent) for agent in carrying):
                    raise
                transition.interrupted = asyncio.get_running_loop().create_future()

    # ---- asking agents ---------------------------------------------------------------------------------------------

    async def _ask(
        self,
        live: LiveJob,
        transition: Transition,
        answers: Answers[_T],
        messages: Mapping[str, pb.ControllerMessage],
        seconds: float,
    ) -> dict[str, _T]:
        """Send each agent its message, if it has one, and return their answers.

        Raises:
            _Interrupted: something happened during the wait, for example an agent did not answer in time.
            AgentFailed: an agent refused.
            AgentTimeout: an agent did not answer during the start of the job.

        """
        for agent, message in messages.items():
            if not self._agents.tell([agent], message) and not transition.past:
                self._declined(live, transition, agent, AgentFailed(f"agent {agent} is gone"))
        deadline = time.monotonic() + seconds
        pending = set(answers.futures.values())
        while pending:
            waiting: set[asyncio.Future[Any]] = {transition.interrupted, *pending}
            left = max(0.0, deadline - time.monotonic())
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if transition.interrupted.done():
                raise _Interrupted
            pending = {answer for answer in pending if not answer.done()}
            for answer in answers.futures.values():
                if answer.done() and not answer.cancelled():
                    answer.result()  # a refusal is raised here
            if pending and time.monotonic() >= deadline:
                self._give_up(live, transition, [agent for agent in answers.futures if answers.awaits(agent)], seconds)
                raise _Interrupted
        if any(answer.cancelled() for answer in answers.futures.values()):
            raise _Interrupted
        return {agent: answer.result() for agent, answer in answers.futures.items()}

    def _give_up(self, live: LiveJob, transition: Transition, agents: Sequence[str], seconds: float) -> None:
        """Treat the ranks of agents that did not answer as lost."""
        names = ", ".join(sorted(agents))
        if transition.refused and not transition.past:
            raise _first_refusal(transition)
        if not transition.past:
            raise AgentTimeout(f"agent {names} opened no sockets for job {live.job.name} within {seconds:.0f} s")
        silent = [rank for rank in live.job.ranks if rank.agent in agents and not rank.ended]
        if transition.returning and not silent:
            return  # only ranks that are lost already were there
        if transition.returning:
            why = f"agent {names} did not come back within {RECOVERY_SECONDS:g} s of the controller's start"
            self.ranks_lost(live, silent, why)
            return
        for rank in silent:
            rank.state = RankState.LOST
        with_ranks = {rank.agent for rank in silent}
        transition.refused |= {
            agent: AgentFailed(f"agent {agent} is silent") for agent in agents if agent not in with_ranks
        }
        numbers, why = [rank.rank for rank in silent], f"agent {names} did not answer within {seconds:.0f} s"
        transition.add(numbers, f"{ranks_were_lost(numbers)}: {why}" if numbers else why)

    # ---- 4 and 5: replace the tables, commit, activate -------------------------------------------------------------

    async def _replace_tables(self, live: LiveJob, target: PlacedJob) -> None:
        """Make the job's switches hold the tables of the target, and no others of the job.

        While one of them is written, only its own lock is held: a silent switch delays only the jobs on it.
        """
        wanted = {switch.name: tables for switch, tables in target.tables()}
        for switch in live.switches:
            async with switch.lock:
                before, after = live.written.get(switch.name), wanted.get(switch.name)
                if after is not None:
                    await self._switches.vouch(switch, after.epoch)
                    live.written[switch.name] = after
                if before is None and after is not None:
                    await switch.driver.install_job(after)
                elif before is not None and after is not None:
                    await switch.driver.replace_job(before, after)
                elif before is not None:
                    await switch.driver.remove_job(before)
                    del live.written[switch.name]

    def _commit(self, live: LiveJob, transition: Transition, target: Job) -> None:
        """Replace the job by the target, also in the store, and tell its agents."""
        if not transition.past:
            self._jobs.enter(live, JobState.READY)
            self._agents.tell(live.job.ranks_by_agent(), live.activation())
            return
        job, old_epoch, old_agents = live.job, live.job.epoch, set(live.job.ranks_by_agent())
        joined, now = transition.joined, {rank.worker: rank for rank in job.ranks}
        for rank in target.ranks:
            if rank.rank not in joined:
                rank.state, rank.exit_code = now[rank.worker].state, now[rank.worker].exit_code
        change = EpochChange(
            target.epoch, target.workers, tuple(transition.lost), tuple(joined), transition.reason, time.time()
        )
        self._pools.free(self._enter_tree(live, target.switches))
        job.secret, job.check_key = target.secret, target.check_key
        job.workers, job.ranks = target.workers, target.ranks
        job.generation, job.epoch_changes, job.in_transition = target.generation, [*job.epoch_changes, change], False
        self._store.commit_transition(job, change)
        live.calls.clear()
        live.failed_at.clear()
        live.closed_after.clear()
        self._agents.tell(job.ranks_by_agent(), live.activation())
        why = f"job {job.name} continues without this agent: {transition.reason}"
        over = revocation(job.id, old_epoch, pb.REVOCATION_REASON_WORKER_LOST, why, transition.lost)
        self._agents.tell(old_agents - set(job.ranks_by_agent()), over)
        if joined:
            asyncio.get_running_loop().call_later(RETURN_SECONDS, self._require_return, live, job.generation)

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


def target_phases(held: Sequence[Sequence[int]]) -> list[int]:
    """Return the phases of each slot that all ranks must hold: the largest number that any of them holds."""
    return [max(phases) for phases in zip(*held, strict=True)]


def _first_refusal(transition: Transition) -> ControllerError:
    return transition.refused[min(transition.refused)]


def _succession(live: LiveJob, transition: Transition, ranks: Sequence[Rank]) -> pb.Succession:
    """Return the relation between ranks of the target and those of the current epoch."""
    joined, before = transition.joined, {rank.worker: rank.rank for rank in live.job.ranks}
    return pb.Succession(
        previous_epoch=live.job.epoch,
        previous_ranks=[-1 if rank.rank in joined else before[rank.worker] for rank in ranks],
        lost=transition.lost,
        joined=joined,
        message=transition.reason,
    )


def _held(reports: Mapping[str, pb.Positions], left: Sequence[Rank], slots: int) -> dict[int, Sequence[int]]:
    """Return the phases that each rank holds.

    Raises:
        AgentFailed: an agent did not report them.

    """
    said = {(agent, one.rank): one.phases for agent, report in reports.items() for one in report.ranks}
    held: dict[int, Sequence[int]] = {}
    for rank in left:
        phases = said.get((rank.agent, rank.rank), ())
        if len(phases) != slots or max(phases, default=0) >= _MAX_PHASE:
            raise AgentFailed(f"agent {rank.agent} did not report the position of rank {rank.rank}")
        held[rank.rank] = phases
    return held
