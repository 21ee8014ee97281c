"""How a job goes on in a new epoch after ranks of it were lost: the steps of docs/protocol.md, "A change of epoch".

1. The agents stop their ranks (Quiesce) and say how many phases of each slot every one holds (Positions).
2. The furthest of each slot is what all shall hold: the agents let their ranks fetch up to there.
3. Agents open the ranks of the new epoch (Assignment) and say where they listen.
4. Every table entry of the old epoch is deleted; then those of the new one are written.
5. Only when all of that is acknowledged the agents hear Activation, and move the processes to their new ranks.

A rank that is lost meanwhile, or whose agent does not answer, makes it begin again from 1.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from switchml.controller.admission.placement import rank_at
from switchml.controller.agents import Agents, AgentSession
from switchml.controller.errors import AgentFailed, ControllerError, NoAgent
from switchml.controller.jobs.live import LiveJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import EpochChange, Job, OnFailure, Rank, RankState, new_secret, printed_ranks
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind
from switchml.controller.switches import Switches

__all__ = ["ANSWER_SECONDS", "RETURN_SECONDS", "Change", "EpochChanges", "target_phases"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

ANSWER_SECONDS = 3.0
"""How long an agent may take to stop its ranks, or to let them fetch; one that takes longer is lost to the job."""
RETURN_SECONDS = 60.0
"""How long the other ranks wait for a process that takes the place of a lost one."""
_MAX_PHASE = 2**31


class _Interrupted(Exception):
    """More ranks were lost: what was asked is out of date."""


class _Answers(Generic[_T]):
    """One question to several agents."""

    def __init__(self, names: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        self.futures: dict[str, asyncio.Future[_T]] = {name: loop.create_future() for name in names}

    def set(self, name: str, answer: _T) -> None:
        future = self.futures.get(name)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self, name: str, error: ControllerError) -> None:
        future = self.futures.get(name)
        if future is not None and not future.done():
            future.set_exception(error)


class Change:
    """A change that is under way; `successor` is the job as it will be."""

    def __init__(self) -> None:
        self.why: list[str] = []  # the losses, in words
        self.lost: list[int] = []  # ranks of the epoch that is left
        self.refused: set[str] = set()  # agents that take no ranks
        self.successor: Job | None = None
        self.positions: _Answers[pb.Positions] | None = None
        self.fetching = False
        self.ready: _Answers[pb.AssignmentReady] | None = None
        self.interrupted = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    def add(self, ranks: Sequence[int], why: str) -> None:
        """Take note of a loss, or of ranks that need another agent, and begin again."""
        self.why.append(why)
        self.lost += [rank for rank in ranks if rank not in self.lost]
        if not self.interrupted.done():
            self.interrupted.set_result(None)

    @property
    def reason(self) -> str:
        """All losses, in words."""
        return "; ".join(self.why)


class EpochChanges:
    """Changes the epochs of jobs. `fail` ends a job for a reason and with the ranks at fault."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        agents: Agents,
        ranks_in_use: Callable[[str], int],
        fail: Callable[[LiveJob, str, Sequence[int]], None],
    ) -> None:
        self._store = store
        self._switches = switches
        self._agents = agents
        self._ranks_in_use = ranks_in_use
        self._fail = fail
        self.on_changed: Callable[[LiveJob], None] = lambda _: None

    def begin(self, live: LiveJob, ranks: Sequence[int], why: str) -> None:
        """Let a job go on without ranks that it has just lost, or with others in their place."""
        if live.change is not None:
            live.change.add(ranks, why)
            return
        live.change = Change()
        live.change.add(ranks, why)
        live.change.task = asyncio.create_task(self._run(live, live.change), name=f"new epoch of job {live.job.name}")

    # ---- what agents say -------------------------------------------------------------------------------------------

    def positions(self, live: LiveJob, agent: str, positions: pb.Positions) -> None:
        """Take an agent's answer to Quiesce."""
        change = live.change
        if change is not None and change.positions is not None and positions.fetched == change.fetching:
            change.positions.set(agent, positions)

    def ready(self, live: LiveJob, agent: str, ready: pb.AssignmentReady) -> None:
        """Take an agent's answer to the assignment in the new epoch."""
        if live.change is not None and live.change.ready is not None:
            live.change.ready.set(agent, ready)

    def refused(self, live: LiveJob, agent: str, reason: str) -> None:
        """Take an agent's refusal in the new epoch: another agent can have its ranks if none has a process yet."""
        change = live.change
        carried = change.successor.ranks_by_agent().get(agent) if change is not None and change.successor else None
        if change is None or change.ready is None or carried is None:
            return
        why = f"agent {agent} refused its ranks in the new epoch: {reason}"
        if all(rank.worker in _lost_workers(live) for rank in carried):
            change.refused.add(agent)
            change.add([], why)
        else:
            change.ready.fail(agent, AgentFailed(why))

    # ---- the steps -------------------------------------------------------------------------------------------------

    async def _run(self, live: LiveJob, change: Change) -> None:
        began = time.monotonic()
        try:
            while not await self._attempt(live, change):
                pass
            _LOG.warning(
                "job %s goes on in epoch %d with %d ranks after %.0f ms: %s",
                *(live.job.name, live.job.epoch, live.job.workers, 1e3 * (time.monotonic() - began), change.reason),
            )
            joined = live.job.changes[-1].joined
            anew = f", {printed_ranks(list(joined))} anew" if joined else ""
            what = f"{live.job.workers} ranks go on{anew}: {change.reason}"
            self._store.events.record(EventKind.EPOCH_CHANGED, what, job=live.job)
            live.change = None
            live.changes.notify()
            self.on_changed(live)
        except ControllerError as error:
            self._fail(live, f"{change.reason}; and the job could not go on: {error}", change.lost)
        except Exception:
            _LOG.exception("the change of epoch of job %s failed", live.job.name)
            self._fail(live, f"{change.reason}; a defect of the controller, its log has the traceback", change.lost)

    async def _attempt(self, live: LiveJob, change: Change) -> bool:
        """Go through all steps. False when more was lost meanwhile."""
        change.interrupted = asyncio.get_running_loop().create_future()
        try:
            successor = change.successor = self._succeed(live, change)
            next_live = LiveJob(successor, live.switches)
            self._store.begin_change(successor)
            live.job.changing = True
            await self._quiesce(live, change)
            await self._assign(live, change, next_live)
            async with live.locked():
                for (switch, old), (_, new) in zip(live.tables(), next_live.tables(), strict=True):
                    await switch.driver.replace_job(old, new)
                lost_meanwhile = self._commit(live, change, successor)
        except _Interrupted:
            return False
        if lost_meanwhile:
            change.lost = [rank.rank for rank in lost_meanwhile]
            change.add(change.lost, "their loss came while the epoch changed")
            return False
        return True

    def _succeed(self, live: LiveJob, change: Change) -> Job:
        """Return the job as it will be, with an epoch of its own; endpoints are still to come.

        Raises:
            AgentFailed, NoAgent: no rank is left, or there is no place for one that is to come again.
            NoRoom: the switch's epochs are used up.

        """
        job = live.job
        left = [rank for rank in job.ranks if not rank.ended]
        if not left:
            raise AgentFailed("no rank is left")
        if job.on_failure is OnFailure.SHRINK:
            members = [replace(rank, rank=number) for number, rank in enumerate(left)]
        else:
            closed = [rank.rank for rank in job.ranks if rank.state is RankState.CLOSED]
            if closed:
                raise AgentFailed(f"{printed_ranks(closed)} had closed already, so that not all can go on")
            members = [replace(rank) if rank in left else self._replacement(live, change, rank) for rank in job.ranks]
        for member in members:
            member.move_to(0)
            member.counters = pb.RankCounters()
        epoch = self._switches.next_epoch(live.switches)
        return replace(
            job,
            switches=[replace(place, epoch=epoch) for place in job.switches],
            secret=new_secret(),
            workers=len(members),
            ranks=members,
            generation=job.generation + 1,
            changes=list(job.changes),
        )

    def _replacement(self, live: LiveJob, change: Change, rank: Rank) -> Rank:
        """Return a rank for a process that is to come, at the same agent where that lives and takes it."""
        session = self._agents.live_session(rank.agent)
        if session is None or session.name in change.refused:
            session = self._other_agent(live, change, rank)
        return rank_at(session, rank.rank, rank.worker)

    def _other_agent(self, live: LiveJob, change: Change, rank: Rank) -> AgentSession:
        driver = next(switch.driver for switch in live.switches if switch.name == rank.switch)
        pipe = driver.pipe(rank.switch_port)
        room = [
            session
            for session in self._agents.live_on(rank.switch)
            if session.serves(live.job.tenant)
            and session.name not in change.refused
            and driver.pipe(session.registration.switch_port) == pipe
            and self._ranks_in_use(session.name) < session.registration.max_ranks
        ]
        if not room:
            raise NoAgent(f"agent {rank.agent} is gone or refuses, and no other has room for rank {rank.rank}")
        return min(room, key=lambda session: (self._ranks_in_use(session.name), session.name))

    async def _quiesce(self, live: LiveJob, change: Change) -> None:
        job = live.job
        left = [rank for rank in job.ranks if not rank.ended]
        names = sorted({rank.agent for rank in left})
        quiesce = pb.Quiesce(job=job.id, epoch=job.epoch)
        reports = await self._positions(live, change, names, quiesce, fetching=False)
        held = _held(reports, left, job.slots)
        quiesce.targets[:] = target_phases(list(held.values()))
        if any(list(phases) != list(quiesce.targets) for phases in held.values()):
            await self._positions(live, change, names, quiesce, fetching=True)

    async def _positions(
        self, live: LiveJob, change: Change, names: Sequence[str], quiesce: pb.Quiesce, fetching: bool
    ) -> dict[str, pb.Positions]:
        change.positions, change.fetching = _Answers(names), fetching
        messages = {name: pb.ControllerMessage(quiesce=quiesce) for name in names}
        return await self._ask(live, change, change.positions, messages)

    async def _assign(self, live: LiveJob, change: Change, next_live: LiveJob) -> None:
        """Let the agents open the new ranks; their answers fill in the addresses."""
        successor = next_live.job
        joined = [r.rank for r in successor.ranks if r.state is RankState.ASSIGNED and r.worker in _lost_workers(live)]
        before = {rank.worker: rank.rank for rank in live.job.ranks}
        messages = {}
        for name, ranks in successor.ranks_by_agent().items():
            assignment = next_live.assignment(name)
            assignment.succession.CopyFrom(
                pb.Succession(
                    previous_epoch=live.job.epoch,
                    previous_ranks=[-1 if rank.rank in joined else before[rank.worker] for rank in ranks],
                    lost=change.lost,
                    joined=joined,
                    message=change.reason,
                )
            )
            messages[name] = pb.ControllerMessage(assignment=assignment)
        change.ready = _Answers(list(messages))
        answers = await self._ask(live, change, change.ready, messages, next_live.seconds_to_open())
        try:
            for name, ready in answers.items():
                next_live.take_endpoints(name, ready)
        except ValueError as error:
            raise AgentFailed(f"agent {name} answered its assignment in the new epoch with {error}") from None
        change_record = EpochChange(
            successor.epoch, successor.workers, tuple(change.lost), tuple(joined), change.reason, time.time()
        )
        successor.changes.append(change_record)

    async def _ask(
        self,
        live: LiveJob,
        change: Change,
        answers: _Answers[_T],
        messages: Mapping[str, pb.ControllerMessage],
        seconds: float = ANSWER_SECONDS,
    ) -> dict[str, _T]:
        """Send each agent its message and return what they answer.

        Raises:
            _Interrupted: more was lost, also because an agent did not answer in time.
            AgentFailed: one refused.

        """
        for name, message in messages.items():
            session = self._agents.live_session(name)
            if session is not None:
                session.send(message)
        waiting: set[asyncio.Future[object]] = {change.interrupted}
        pending = dict(answers.futures)
        deadline = time.monotonic() + seconds
        while pending:
            waiting = {change.interrupted, *pending.values()}  # type: ignore[arg-type]
            await asyncio.wait(
                waiting, timeout=max(0.0, deadline - time.monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
            if change.interrupted.done():
                raise _Interrupted
            pending = {name: future for name, future in pending.items() if not future.done()}
            if pending and time.monotonic() >= deadline:
                self._give_up(live, change, list(pending), seconds)
                raise _Interrupted
            for future in answers.futures.values():
                if future.done():
                    future.result()  # a refusal is raised here
        return {name: future.result() for name, future in answers.futures.items()}

    def _give_up(self, live: LiveJob, change: Change, names: Sequence[str], seconds: float) -> None:
        silent = [rank for rank in live.job.ranks if rank.agent in names and not rank.ended]
        for rank in silent:
            rank.state = RankState.LOST
        why = f"agent {', '.join(names)} did not answer within {seconds:.0f} s"
        numbers = [rank.rank for rank in silent]
        change.add(numbers, f"{printed_ranks(numbers)} {'was' if len(numbers) == 1 else 'were'} lost: {why}")

    def _commit(self, live: LiveJob, change: Change, successor: Job) -> list[Rank]:
        """Make the successor the job, tell the agents, and return the ranks that were lost since it was made."""
        job, old_epoch, old_agents = live.job, live.job.epoch, set(live.job.ranks_by_agent())
        now = {rank.worker: rank for rank in job.ranks}
        joined = successor.changes[-1].joined
        lost_meanwhile = []
        for rank in successor.ranks:
            if rank.rank not in joined:
                rank.state, rank.exit_code = now[rank.worker].state, now[rank.worker].exit_code
                if rank.state is RankState.LOST:
                    lost_meanwhile.append(rank)
        job.switches, job.secret = successor.switches, successor.secret
        job.workers, job.ranks = successor.workers, successor.ranks
        job.generation, job.changes, job.changing = successor.generation, successor.changes, False
        change.successor = None
        self._store.end_change(job)
        live.calls.clear()
        live.failed_at.clear()
        live.tell_agents(self._agents, live.activation())
        over = pb.Revocation(job=job.id, epoch=old_epoch, reason=pb.REVOCATION_REASON_WORKER_LOST, ranks=change.lost)
        over.message = f"job {job.name} goes on without this agent: {change.reason}"
        for name in old_agents - set(job.ranks_by_agent()):
            session = self._agents.live_session(name)
            if session is not None:
                session.send(pb.ControllerMessage(revocation=over))
        if joined:
            generation = job.generation
            asyncio.get_running_loop().call_later(RETURN_SECONDS, self._require_return, live, generation)
        return lost_meanwhile

    def _require_return(self, live: LiveJob, generation: int) -> None:
        """Fail a job to which the processes of lost ranks have not come back."""
        if not live.job.live or live.job.generation != generation:
            return
        absent = [rank for rank in live.job.changes[-1].joined if live.job.ranks[rank].state is RankState.ASSIGNED]
        if absent:
            why = f"no process has taken the place of {printed_ranks(absent)} within {RETURN_SECONDS:g} s"
            self._fail(live, f"{live.job.changes[-1].reason}; {why}", absent)


def target_phases(held: Sequence[Sequence[int]]) -> list[int]:
    """Return what all ranks shall hold of each slot, from what each of them holds: the furthest."""
    return [max(phases) for phases in zip(*held, strict=True)]


def _lost_workers(live: LiveJob) -> set[int]:
    return {rank.worker for rank in live.job.ranks if rank.state is RankState.LOST}


def _held(reports: Mapping[str, pb.Positions], left: Sequence[Rank], slots: int) -> dict[int, Sequence[int]]:
    """Return the phases that each rank holds.

    Raises:
        AgentFailed: an agent did not say them.

    """
    held: dict[int, Sequence[int]] = {}
    for rank in left:
        said = [report.phases for report in reports[rank.agent].ranks if report.rank == rank.rank]
        if len(said) != 1 or len(said[0]) != slots or max(said[0], default=0) >= _MAX_PHASE:
            raise AgentFailed(f"agent {rank.agent} did not say how far rank {rank.rank} is")
        held[rank.rank] = said[0]
    return held
