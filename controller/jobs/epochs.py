"""The transitions of a job into an epoch: into its first one, or into another one after a loss.

The steps are the same for both; docs/understand/correctness.md ("Epoch change") explains their order:

1. Plan: the job as it will be, with its ranks, their agents and a new epoch.
2. Quiesce, unless the job starts: its agents stop the ranks (Quiesce) and report the number of phases of each slot that
   every rank holds (Positions). All ranks must hold the largest number for each slot: the agents let them fetch up to
   it.
3. Assign: the agents open the ranks of the new epoch (Assignment) and report their endpoints.
4. Replace the tables: on each switch, from the top of the tree down, every entry of the past is deleted, then those of
   the new epoch are written. A switch below which no rank is left loses its tables and leaves the job.
5. Commit to the store, and activate: only after all of this is acknowledged are the agents told of the epoch
   (Activation).

If a rank is lost during these steps, or an agent refuses new ranks, another attempt begins from 1. After a restart of
the controller the agents still have their ranks and the switches their tables: the job returns to its epoch when the
agents connect again; the ranks of agents that do not are lost.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from switchml.controller.admission.scopes import Scope, Scopes
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.errors import AgentFailed, AgentTimeout, NoAgent
from switchml.controller.jobs.live import Answers, Attempt, LiveJob, Transition
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
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["ANSWER_SECONDS", "RECOVERY_SECONDS", "Change", "Entry", "Parts", "Return", "Start", "target_phases"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

ANSWER_SECONDS = 3.0
"""The time for an agent to stop its ranks, or to let them fetch; an agent that takes longer is lost to the job."""
RECOVERY_SECONDS = 10.0
"""The time for agents, and then for switches, to be connected again after a restart of the controller."""
_MAX_PHASE = 2**31


@dataclass(frozen=True)
class Parts:
    """The parts of the controller that transitions and the messages of agents need."""

    store: Store
    switches: Switches
    agents: Agents
    scopes: Scopes
    pools: SlotPools
    jobs: JobRegister


class _Outdated(Exception):
    """Something has happened that the current attempt does not take into account."""


class Return(Transition):
    """The return of a job to its epoch after a restart of the controller: it waits for the agents to connect again.

    A loss does not end the wait: the agents of the other ranks must be back before these can leave the epoch, and those
    of lost ranks that are replaced before these have a place.
    """

    leaves_epoch = False

    def __init__(self, live: LiveJob, ranks_lost: Callable[[LiveJob, Sequence[Rank], str], None]) -> None:
        super().__init__(live)
        self._ranks_lost = ranks_lost
        self._absent: Answers[None] = Answers(rank.agent for rank in live.job.ranks if not rank.ended)

    async def run(self) -> None:
        """Wait until all agents are back; the ranks of those that take too long are lost."""
        await asyncio.wait({self._absent.complete}, timeout=RECOVERY_SECONDS)
        absent = self._absent.awaited
        silent = [rank for rank in self.live.job.ranks if rank.agent in absent and not rank.ended]
        if silent:
            names = ", ".join(sorted(absent))
            why = f"agent {names} did not come back within {RECOVERY_SECONDS:g} s of the controller's start"
            self._ranks_lost(self.live, silent, why)

    def returned(self, agent: str) -> None:
        """Stop waiting for an agent."""
        self._absent.withdraw(agent)

    def heed(self) -> None:
        """Stop waiting for agents that have only lost ranks, unless these ranks will be replaced there."""
        job = self.live.job
        replaces = job.on_failure is OnFailure.RESTART
        carrying = {one.agent for one in job.ranks if not one.ended or (replaces and one.state is RankState.LOST)}
        self._absent.withdraw(*self._absent.awaited - carrying)


class Entry(Transition):
    """A transition into an epoch that the job is not in yet, in as many attempts as it takes."""

    def __init__(self, live: LiveJob, parts: Parts) -> None:
        super().__init__(live)
        self._parts = parts
        self._refused: dict[str, AgentFailed] = {}  # agents that do not take ranks, and the reasons

    async def run(self) -> None:
        """Make attempts until one of them goes through all steps."""
        while True:
            attempt = self.attempt = await self.plan()
            with contextlib.suppress(_Outdated):
                await self.prepare(attempt)
                break
        self.commit(attempt)

    @abc.abstractmethod
    async def plan(self) -> Attempt:
        """Return an attempt with the job as it will be, in the store with its epoch; its endpoints are not known yet.

        Raises:
            AgentFailed, NoAgent: no rank is left, or no agent takes a rank that waits for a process.
            NoRoom: a switch has no more epochs for the job's tenant.

        """

    @abc.abstractmethod
    def on_refusal(self, attempt: Attempt, agent: str, error: AgentFailed) -> None:
        """Handle the failure of an agent to open its ranks: others take them if no process has any of them."""

    @abc.abstractmethod
    def on_silence(self, agents: Sequence[str], seconds: float) -> None:
        """Handle agents that have not answered in time."""

    @abc.abstractmethod
    def commit(self, attempt: Attempt) -> None:
        """Replace the job by the target, also in the store, and tell its agents."""

    async def prepare(self, attempt: Attempt) -> None:
        """Make agents and switches ready for the target.

        Raises:
            _Outdated: something has happened that needs another plan.

        """
        await self._assign(attempt)
        await self._replace_tables(attempt.target)

    def assignment(self, attempt: Attempt, agent: str) -> pb.Assignment:
        """Return the assignment of ranks of the target to an agent."""
        return attempt.target.assignment(agent)

    async def _assign(self, attempt: Attempt) -> None:
        """Make the agents open the ranks of the target; their answers contain the endpoints."""
        job, agents = attempt.target.job, attempt.target.job.ranks_by_agent()
        for agent in self.asked.keys() - agents.keys() - self.live.job.ranks_by_agent().keys():
            # It has opened ranks for an earlier attempt, which are now assigned to others.
            why = "its ranks went to other agents"
            over = revocation(job.id, self.asked.pop(agent), pb.REVOCATION_REASON_JOB_FAILED, why)
            self._parts.agents.tell([agent], over)
        attempt.endpoints = Answers(agents)
        for agent in agents:
            self.asked[agent] = job.epoch
            message = pb.ControllerMessage(assignment=self.assignment(attempt, agent))
            if not self._parts.agents.tell([agent], message) and self.live.job.state is JobState.PENDING:
                # Later, its loss will be reported: processes may be there.
                self.on_refusal(attempt, agent, AgentFailed(f"agent {agent} is gone"))
        opened = await self._answers(attempt, attempt.endpoints, attempt.target.seconds_to_open())
        if len(opened) < len(agents):
            raise _Outdated  # others must take the ranks of those that do not

    async def _answers(self, attempt: Attempt, answers: Answers[_T], seconds: float) -> dict[str, _T]:
        """Return the answers of all agents.

        Raises:
            _Outdated: something happened during the wait, for example an agent did not answer in time.
            AgentFailed: an agent refused.
            AgentTimeout: an agent did not answer during the start of the job.

        """
        either: set[asyncio.Future[Any]] = {attempt.stopped, answers.complete}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answers.awaited and not attempt.stopped.done():
            self.on_silence(sorted(answers.awaited), seconds)
        if attempt.stopped.done():
            raise attempt.stopped.result()
        return answers.taken

    async def _replace_tables(self, target: PlacedJob) -> None:
        """Make the job's switches hold the tables of the target, and no others of the job.

        While one of them is written, only its own lock is held: a silent switch delays only the jobs on it.
        """
        written, wanted = self.live.written, {switch.name: tables for switch, tables in target.tables()}
        for switch in self.live.switches:
            async with switch.lock:
                before, after = written.get(switch.name), wanted.get(switch.name)
                if after is not None:
                    await self._parts.switches.vouch(switch, after.epoch)
                    written[switch.name] = after
                if before is None and after is not None:
                    await switch.driver.install_job(after)
                elif before is not None and after is not None:
                    await switch.driver.replace_job(before, after)
                elif before is not None:
                    await switch.driver.remove_job(before)
                    del written[switch.name]

    # ---- the switches of the job -----------------------------------------------------------------------------------

    def _next_places(self, scope: Scope, ranks: Sequence[Rank]) -> list[JobSwitch]:
        """Return the switches that are needed for these ranks, in a new epoch."""
        epoch = self._parts.switches.next_epoch(self.live.switches, self.live.job.tenant)
        return [replace(place, epoch=epoch) for place in scope.records(self.live.job.switches, ranks)]

    def _switches_of(self, places: Sequence[JobSwitch]) -> list[ManagedSwitch]:
        return [self._parts.switches.get(place.switch) for place in places]

    def _move_to(self, places: list[JobSwitch]) -> None:
        """Make these the switches of the job, and free its slots on those that leave it."""
        job, names = self.live.job, {place.switch for place in places}
        leaving = [place for place in job.switches if place.switch not in names]
        job.switches, self.live.switches = places, self._switches_of(places)
        self._parts.pools.free(leaving)


class Start(Entry):
    """The start of a job, in its first epoch. It leaves a loss to the change of epoch that follows it."""

    async def plan(self) -> Attempt:
        """Return an attempt with the job itself; agents that refused ranks in the last attempt get none."""
        if self._refused:
            self._place_elsewhere(self._refused[min(self._refused)])
        return Attempt(self.live)

    def _place_elsewhere(self, refusal: AgentFailed) -> None:
        """Choose the agents again, without those that refused."""
        job, scope = self.live.job, self._parts.scopes.of(self.live.job)
        before, job.ranks = job.ranks, []  # so that the choice does not count them as in use
        try:
            job.ranks = scope.place(job.workers, self._refused).ranks()
        except NoAgent:
            job.ranks = before
            raise refusal from None
        self._move_to(self._next_places(scope, job.ranks))
        job.secret, job.check_key = new_secret(), new_check_key()
        self._parts.store.begin_transition(job)
        self._parts.store.commit_transition(job)
        _LOG.warning("job %s: its ranks go to %s: %s", job.name, ", ".join(job.ranks_by_agent()), refusal)

    def heed(self) -> None:
        """Leave the loss to the change that follows."""

    def on_refusal(self, attempt: Attempt, agent: str, error: AgentFailed) -> None:
        """Choose another agent when all have answered, as others may refuse too; fail if processes wait at this one."""
        if self.live.announcements:
            attempt.stop(error)
        else:
            self._refused[agent] = error
            attempt.endpoints.withdraw(agent)

    def on_silence(self, agents: Sequence[str], seconds: float) -> None:
        """Fail, with the first refusal if there was one."""
        if self._refused:
            raise self._refused[min(self._refused)]
        names, name = ", ".join(agents), self.live.job.name
        raise AgentTimeout(f"agent {names} opened no sockets for job {name} within {seconds:.0f} s")

    def commit(self, attempt: Attempt) -> None:
        """Make the job READY, and let its ranks attach."""
        self._parts.jobs.enter(self.live, JobState.READY)
        self._parts.agents.tell(attempt.target.job.ranks_by_agent(), attempt.target.activation())


class Change(Entry):
    """The change of a job to another epoch, for its `reasons`. Each attempt takes all into account that it knows."""

    async def plan(self) -> Attempt:
        """Return an attempt with the job without its lost ranks, or with new processes for them."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        for switch in self.live.switches:  # a controller that has just started may not reach them yet
            await switch.wait_connected(deadline - time.monotonic())
        successor = self._successor()
        self._parts.store.begin_transition(successor)
        self.live.job.in_transition = True
        return Attempt(PlacedJob(successor, self._switches_of(successor.switches)), len(self.live.reasons))

    def _successor(self) -> Job:
        """Return the job in another epoch; the last one of its `epoch_changes` is this change."""
        job, scope = self.live.job, self._parts.scopes.of(self.live.job)
        left = [rank for rank in job.ranks if not rank.ended]
        lost, closed = (self.live.ranks_in(state) for state in (RankState.LOST, RankState.CLOSED))
        if not left:
            raise AgentFailed("no rank is left")
        if job.on_failure is OnFailure.SHRINK:
            joined = []
            members = [replace(rank, rank=number) for number, rank in enumerate(left)]
        elif closed:
            raise AgentFailed(f"{printed_ranks(closed)} had closed already, so not all can continue")
        else:
            joined = lost
            members = [scope.successor(rank, self._refused) if rank.ended else replace(rank) for rank in job.ranks]
        for member in members:
            member.move_to(0)
            member.counters = pb.RankCounters()
        places = self._next_places(scope, members)
        reason = "; ".join(self.live.reasons)
        change = EpochChange(places[0].epoch, len(members), tuple(lost), tuple(joined), reason, time.time())
        return replace(
            job,
            switches=places,
            secret=new_secret(),
            check_key=new_check_key(),
            workers=len(members),
            ranks=members,
            generation=job.generation + 1,
            epoch_changes=[*job.epoch_changes, change],
        )

    async def prepare(self, attempt: Attempt) -> None:
        """Make the ranks of the current epoch stop before the other steps."""
        await self._quiesce(attempt)
        await super().prepare(attempt)

    async def _quiesce(self, attempt: Attempt) -> None:
        """Make the ranks of the current epoch stop, all with the same phases."""
        job = self.live.job
        left = [rank for rank in job.ranks if not rank.ended]
        quiesce = pb.Quiesce(job=job.id, epoch=job.epoch)
        held = _held(await self._positions(attempt, left, quiesce), left, job.slots)
        quiesce.targets[:] = target_phases(list(held.values()))
        if any(list(phases) != list(quiesce.targets) for phases in held.values()):
            attempt.fetching = True
            await self._positions(attempt, left, quiesce)

    async def _positions(self, attempt: Attempt, ranks: Sequence[Rank], quiesce: pb.Quiesce) -> dict[str, pb.Positions]:
        agents = sorted({rank.agent for rank in ranks})
        attempt.positions = Answers(agents)
        self._parts.agents.tell(agents, pb.ControllerMessage(quiesce=quiesce))
        return await self._answers(attempt, attempt.positions, ANSWER_SECONDS)

    def assignment(self, attempt: Attempt, agent: str) -> pb.Assignment:
        """Return the assignment of ranks to an agent, with their relation to those of the current epoch."""
        assignment, change = super().assignment(attempt, agent), attempt.target.job.epoch_changes[-1]
        before, ranks = self.live.job, attempt.target.job.ranks_by_agent()[agent]
        numbers = {rank.worker: rank.rank for rank in before.ranks}
        assignment.succession.previous_epoch = before.epoch
        assignment.succession.previous_ranks[:] = [
            -1 if rank.rank in change.joined else numbers[rank.worker] for rank in ranks
        ]
        assignment.succession.lost[:] = change.lost
        assignment.succession.joined[:] = change.joined
        assignment.succession.message = change.reason
        return assignment

    def heed(self) -> None:
        """Begin another attempt."""
        if self.attempt is not None:
            self.attempt.stop(_Outdated())

    def on_refusal(self, attempt: Attempt, agent: str, error: AgentFailed) -> None:
        """Begin another attempt with other agents; fail if processes of the job are at this one."""
        target = attempt.target.job
        if all(rank.rank in target.epoch_changes[-1].joined for rank in target.ranks_by_agent()[agent]):
            self._refused[agent] = error
            self.live.reasons.append(error.message)
            attempt.stop(_Outdated())
        else:
            attempt.stop(error)

    def on_silence(self, agents: Sequence[str], seconds: float) -> None:
        """Begin another attempt without these agents; the ranks there are lost."""
        silent = [rank for rank in self.live.job.ranks if rank.agent in agents and not rank.ended]
        for rank in silent:
            rank.state = RankState.LOST
        for agent in set(agents) - {rank.agent for rank in silent}:
            self._refused[agent] = AgentFailed(f"agent {agent} is silent")
        why = f"agent {', '.join(agents)} did not answer within {seconds:.0f} s"
        lost = f"{ranks_were_lost([rank.rank for rank in silent])}: " if silent else ""
        self.live.reasons.append(lost + why)
        self.heed()

    def commit(self, attempt: Attempt) -> None:
        """Replace the job by the target, also in the store, and tell its agents."""
        live, job, target = self.live, self.live.job, attempt.target.job
        change = replace(target.epoch_changes[-1], time=time.time())
        old_epoch, old_agents, now = job.epoch, set(job.ranks_by_agent()), {rank.worker: rank for rank in job.ranks}
        for rank in target.ranks:
            if rank.rank not in change.joined:
                rank.state, rank.exit_code = now[rank.worker].state, now[rank.worker].exit_code
        self._move_to(target.switches)
        job.secret, job.check_key = target.secret, target.check_key
        job.workers, job.ranks = target.workers, target.ranks
        job.generation, job.epoch_changes, job.in_transition = target.generation, [*job.epoch_changes, change], False
        self._parts.store.commit_transition(job, change)
        del live.reasons[: attempt.heeded]
        live.calls.clear()
        live.failed_at.clear()
        live.closed_after.clear()
        self._parts.agents.tell(job.ranks_by_agent(), live.activation())
        why = f"job {job.name} continues without this agent: {change.reason}"
        over = revocation(job.id, old_epoch, pb.REVOCATION_REASON_WORKER_LOST, why, change.lost)
        self._parts.agents.tell(old_agents - set(job.ranks_by_agent()), over)


def target_phases(held: Sequence[Sequence[int]]) -> list[int]:
    """Return the phases of each slot that all ranks must hold: the largest number that any of them holds."""
    return [max(phases) for phases in zip(*held, strict=True)]


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
