"""The jobs that have ranks at this agent, from the controller's assignment until its revocation."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from switchml.common.deadline import first_of, within
from switchml.common.job_numbers import rank_numbers
from switchml.common.names import parse_job_reference
from switchml.common.printable import REASON_LENGTH
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.host_agent.assignments import check_assignment
from switchml.host_agent.epoch_change import follows, switch_over
from switchml.host_agent.errors import AssignmentRefused, AttachRefused, BadMessage
from switchml.host_agent.local_job import LocalJob, LocalRank, Process
from switchml.host_agent.messages import Attach, CheckFailed, Closed, Failure
from switchml.host_agent.profiles import rank_counters, rank_profile
from switchml.host_agent.rank_requests import rank_asked_for
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.switch_watch import SwitchWatch
from switchml.host_agent.waiting import Waiting, WaitingRanks

if TYPE_CHECKING:
    from switchml.host_agent._engine import Engine, RankStatus

__all__ = ["Jobs"]

_log = logging.getLogger(__name__)

_REMEMBERED_JOBS: Final = 64  # ended jobs, so that late processes are told why
_RETURN_SECONDS: Final = 10.0  # how long an attaching process waits for the epoch in which its rank is free again
_CONTROLLER_SECONDS: Final = 2.0  # for the controller to report that the other ranks did not arrive in time


class Jobs:
    """All jobs of this agent. It belongs to one event loop; only `attach` waits for the network.

    With a `switch_socket`, a shm port of the switch, ranks share memory with the switch; otherwise packets use UDP,
    with DSCP `dscp[priority]` of their job, by default 0.
    `report` takes messages for the controller, and may drop them while no controller is connected: `summary` repeats
    everything that matters. `delivered` waits until the connected controller has acted on the reported messages.
    """

    def __init__(
        self,
        engine: Engine,
        address: str,
        max_ranks: int,
        agent: str,
        switch_socket: Path | None = None,
        dscp: Mapping[int, int] | None = None,
    ) -> None:
        self._engine = engine
        self._address = address
        self._ranks = EngineRanks(engine, address, switch_socket, dscp or {})
        self._max_ranks = max_ranks
        self._agent = agent
        self._jobs: dict[int, LocalJob] = {}  # by id, which is unique among live jobs
        self._opening: dict[int, LocalJob] = {}  # by id: jobs whose ranks are being opened
        self._tasks: set[asyncio.Task[None]] = set()  # the tasks that open them
        self._ended: OrderedDict[int | str, str] = OrderedDict()  # why jobs ended, by name and by id
        self._waiting = WaitingRanks()
        self._switches = SwitchWatch(engine)
        self.report: Callable[[pb.AgentMessage], None] = lambda _: None
        self.delivered: Callable[[], Awaitable[None]] = _nothing_to_deliver

    # ---- orders of the controller ----

    def assign(self, assignment: pb.Assignment) -> None:
        """Open the assignment's ranks, and report when they are open or why they cannot be opened."""
        task = asyncio.create_task(self._answer(assignment), name=f"opening of job {assignment.job}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, assignment: pb.Assignment) -> None:
        try:
            answer = pb.AgentMessage(assignment_ready=await self.open(assignment))
        except AssignmentRefused as refused:
            _log.error("%s", refused)
            why = str(refused)[:REASON_LENGTH]
            failed = pb.AssignmentFailed(job=assignment.job, epoch=assignment.epoch, reason=why)
            answer = pb.AgentMessage(assignment_failed=failed)
        self.report(answer)

    async def open(self, assignment: pb.Assignment) -> pb.AssignmentReady:
        """Open the assignment's ranks and return where they listen. Repeating an assignment changes nothing.

        Raises:
            AssignmentRefused: it cannot be carried out, or was revoked; no rank remains open.

        """
        held = self._jobs.get(assignment.job)
        if held is not None and held.assignment == assignment:
            return self._ready(held)
        check_assignment(assignment, self._agent, self._ranks_of_others(assignment.job), self._max_ranks)
        self._waiting_for(assignment)
        if held is not None and held.successor is not None:
            self._close_ranks(held.successor)
            held.successor = None
        if held is not None and not follows(held, assignment):
            self._end(held, Failure("JobFailed", (), f"{held} was replaced by epoch {assignment.epoch}"))
        job = self._opening[assignment.job] = LocalJob(assignment, {})
        try:
            await self._open_ranks(job)
            self._take_up(job)
        except AssignmentRefused:
            self._close_ranks(job)
            raise
        finally:
            if self._opening.get(assignment.job) is job:
                del self._opening[assignment.job]
        return self._ready(job)

    def _ranks_of_others(self, number: int) -> int:
        """Return the number of ranks of other jobs that are open or being opened."""
        jobs = {**self._jobs, **self._opening}
        return sum(len(job.assignment.ranks) for other, job in jobs.items() if other != number)

    def _waiting_for(self, assignment: pb.Assignment) -> list[Waiting]:
        return self._waiting.named_by(assignment) if assignment.announcements else []

    async def _open_ranks(self, job: LocalJob) -> None:
        """Open the ranks of a job, unless it ends first."""
        for rank in job.assignment.ranks:
            try:
                job.ranks[rank] = await self._ranks.open(job.assignment, rank)
            except (OSError, ValueError) as error:
                raise AssignmentRefused(f"agent {self._agent} cannot open rank {rank} of {job}: {error}") from error
            if self._opening.get(job.assignment.job) is not job:
                raise AssignmentRefused(f"{job} ended, or changed its epoch, while its ranks were opened")

    def _take_up(self, job: LocalJob) -> None:
        """Register a job whose ranks are open, or make it the successor of its previous epoch.

        Raises:
            AssignmentRefused: processes that were assigned its ranks have ended.

        """
        waiting = self._waiting_for(job.assignment)
        for rank in job.ranks.values():
            if rank.handle is not None:
                self._switches.begin(rank.handle, lambda: self._switch_gone(job.assignment.job))
        held = self._jobs.get(job.assignment.job)
        if held is not None:
            held.successor = job
            return
        self._jobs[job.assignment.job] = job
        for reference in (job.name, job.assignment.job):
            self._ended.pop(reference, None)
        for number, one in zip(job.assignment.ranks, waiting, strict=False):
            job.ranks[number].process = one.process  # reserves the rank for this process
        self._waiting.assigned(waiting, job)
        _log.info("%s: opened rank %s", job, rank_numbers(list(job.ranks)))

    def activate(self, activation: pb.Activation) -> None:
        """Let processes attach to a job."""
        job = self._jobs.get(activation.job)
        if job is not None and job.successor is not None and job.successor.assignment.epoch == activation.epoch:
            job = self._switch_over(job, job.successor)
        if job is None or job.assignment.epoch != activation.epoch:
            _log.warning(
                "activation of job %d epoch %d, which this agent does not have", activation.job, activation.epoch
            )
            return
        job.activated.set()
        _log.info("%s: active", job)

    def pause(self, order: pb.Pause) -> None:
        """Stop the packets of a job's ranks to and from its switches, or let them flow again."""
        job = self._jobs.get(order.job)
        if job is None or job.assignment.epoch != order.epoch:
            return
        for rank in job.ranks.values():
            if rank.handle is not None:
                self._engine.pause(rank.handle, order.paused)
        _log.info("%s: %s", job, "paused: the controller cannot reach its switch" if order.paused else "not paused")

    async def freeze(self, quiesce: pb.Quiesce) -> pb.Positions | None:
        """Stop a job's ranks, so that they begin nothing and accept no result, and return their positions.

        Returns None for a job that this agent does not have. A rank whose switch does not answer is left out.
        """
        job = self._to_quiesce(quiesce)
        return None if job is None else _positions(quiesce, await self._ranks.freeze(job.ranks.values()))

    async def fetch(self, quiesce: pb.Quiesce) -> pb.Positions | None:
        """Let a frozen job's ranks fetch what others hold, and return their positions. Returns as `freeze` does."""
        job = self._to_quiesce(quiesce)
        if job is None:
            return None
        return _positions(quiesce, await self._ranks.fetch(job.ranks.values(), list(quiesce.targets)))

    def _to_quiesce(self, quiesce: pb.Quiesce) -> LocalJob | None:
        job = self._jobs.get(quiesce.job)
        if job is None or job.assignment.epoch != quiesce.epoch:
            _log.warning("no job %d in epoch %d to quiesce at this agent", quiesce.job, quiesce.epoch)
            return None
        return job

    def _switch_over(self, old: LocalJob, new: LocalJob) -> LocalJob:
        self._jobs[new.assignment.job] = new
        switch_over(old, new, lambda rank, kind, why: self._record(new, rank, kind, why))
        for rank in new.ranks.values():
            if rank.attached and rank.process is None:
                self._close_rank(rank)
        self._close_ranks(old)
        old.replaced.set()
        return new

    def revoke(self, revocation: pb.Revocation, failure: Failure) -> None:
        """End a job: its processes get `failure`, and its ranks are closed."""
        opening = self._opening.get(revocation.job)
        if opening is not None and opening.assignment.epoch == revocation.epoch:
            del self._opening[revocation.job]
            return
        job = self._jobs.get(revocation.job)
        if job is None or job.assignment.epoch != revocation.epoch:
            _log.info("revocation of job %d epoch %d, which this agent does not have", revocation.job, revocation.epoch)
            return
        self._end(job, failure)

    def ranks_closed(self, message: pb.RanksClosed) -> None:
        """Tell the processes of a job, also those that attach later, after which call no other one can end."""
        job = self._jobs.get(message.job)
        if job is None or job.assignment.epoch != message.epoch:
            return  # the job has ended here, or has changed its epoch
        job.closed = Closed(list(message.ranks), message.calls)
        for rank in job.ranks.values():
            if rank.process is not None:
                rank.process.ranks_closed(job.closed)

    def give_back(self, answer: pb.RendezvousReturn) -> None:
        """Let a process that announced itself take the place of one that a live job has lost."""
        job = self._jobs.get(answer.job)
        rank = job.ranks.get(answer.rank) if job is not None and job.assignment.epoch == answer.epoch else None
        if job is None or rank is None or rank.attached or rank.process is not None:
            _log.warning(
                "rank %d of job %d in epoch %d is not free at this agent", answer.rank, answer.job, answer.epoch
            )
            return
        waiting = self._waiting.returned(answer.announcement, job)
        if waiting is not None:
            rank.process = waiting.process

    def refuse(self, refusal: pb.RendezvousRefusal) -> None:
        """Tell a process that waits for a job to begin that it will not."""
        self._waiting.refuse(refusal)

    async def end_all(self, failure: Failure) -> None:
        """End every job because the agent ends; return when all ranks are closed."""
        self._opening.clear()
        for job in list(self._jobs.values()):
            self._end(job, failure)
        await asyncio.gather(*self._tasks)
        await self._ranks.shut_down()

    # ---- reports to the controller ----

    def statuses(self) -> list[pb.RankStatus]:
        """Return the status of every rank, including ended ones."""
        return [self._status(job, rank) for job, rank in self._all_ranks()]

    def summary(self) -> Iterator[pb.AgentMessage]:
        """Yield the messages that a controller needs which knows nothing of this agent: open ranks and past events."""
        for job in self._jobs.values():
            yield pb.AgentMessage(assignment_ready=self._ready(job))
        for _, rank in self._all_ranks():
            for event in rank.events:
                yield pb.AgentMessage(rank_event=event)
        yield from self._waiting.announcements()

    def profiles(self, order: pb.ProfileOrder) -> pb.RankProfiles:
        """Return how the job's open ranks spend their time."""
        job, answer = self._jobs.get(order.job), pb.RankProfiles(number=order.number)
        if job is not None and job.assignment.epoch == order.epoch:
            for rank in job.ranks.values():
                if rank.handle is not None:
                    counters = rank_counters(self._read_status(rank))
                    found = answer.ranks.add(rank=rank.rank, counters=counters, attached=rank.attached)
                    rank_profile(self._engine, rank.handle, order.calls, found)
        return answer

    def open_ranks(self) -> Iterator[tuple[LocalJob, LocalRank, int]]:
        """Yield the open ranks of the engine, with their handles."""
        for job, rank in self._all_ranks():
            if rank.handle is not None:
                yield job, rank, rank.handle

    def stalled(self, job: LocalJob, rank: int, positions: dict[int, int]) -> list[int]:
        """Return the ranks whose missing contributions block `rank`, as far as this agent knows.

        `positions` are the numbers of contributions of each rank, as the controller last reported them. A rank blocks
        `rank` if it has made no more contributions than `rank` has results.
        """
        local = {other.rank: self._read_status(other)["position"] for other in job.ranks.values()}
        received = self._read_status(job.ranks[rank])["received"]
        known = {**positions, **local}
        return sorted(other for other, position in known.items() if other != rank and position <= received)

    # ---- requests of processes ----

    async def attach(self, request: Attach, process: Process) -> tuple[LocalJob, LocalRank, tuple[int, ...]]:
        """Give a rank to a process, once its job is active.

        Returns:
            The job, the rank, and descriptors for the process, which the caller closes: shared memory, doorbell
            and the memory of the job's results.

        Raises:
            AttachRefused: the process cannot have the rank.

        """
        job = self._find(request.job)
        if await self._wait_for_return(job, request.rank):
            job = self._find(request.job)
        rank = rank_asked_for(job, request, self._agent)
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
        self.report(waiting.announcement())
        try:
            await first_of(waiting.outcome, gone, request.timeout + _CONTROLLER_SECONDS)
        finally:
            if not waiting.outcome.done():
                self._waiting.remove(waiting)
                self.report(waiting.withdrawal())
        if waiting.outcome.done():
            outcome = waiting.outcome.result()
            if isinstance(outcome, AttachRefused):
                raise outcome
            return outcome
        if gone.done():
            _give_up(gone)
        raise AttachRefused(
            "ControllerUnavailable",
            f"agent {self._agent} had no answer from its controller within {request.timeout:g} s; see the agent's log",
        )

    def _give(self, job: LocalJob, rank: LocalRank, process: Process) -> tuple[int, ...]:
        """Assign the rank to the process, and return the descriptors that it needs."""
        if rank.handle is None:
            raise AttachRefused(
                "JobEnded", f"{job} has changed to another epoch while this process attached; try again"
            )
        rank.process, rank.attached = process, True
        self._record(job, rank, pb.RankEvent.KIND_ATTACHED, f"process {process.pid}")
        return rank.take_descriptors()

    def detach(self, job: LocalJob, rank: LocalRank, loss: str, calls: int = 0) -> None:
        """Record that a rank has ended: in order, after this number of `calls`, or lost for a reason."""
        if rank.process is None:
            return
        rank.process = None
        self._close_rank(rank)
        # Send the last counters first: the controller may take this event for the end of the job.
        self.report(pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[self._status(job, rank)])))
        self._record(job, rank, pb.RankEvent.KIND_LOST if loss else pb.RankEvent.KIND_CLOSED, loss, calls=calls)

    def report_check(self, job: LocalJob, rank: LocalRank, failed: CheckFailed) -> None:
        """Ask the controller for the cause of the first failed check of a rank; its verdict is a revocation."""
        if any(event.kind == pb.RankEvent.KIND_CHECK_FAILED for event in rank.events):
            return
        call = failed.call
        self._record(
            job,
            rank,
            pb.RankEvent.KIND_CHECK_FAILED,
            call=pb.Call(
                sequence=call.sequence,
                operation=call.operation,
                op=call.op,
                dtype=call.dtype,
                elements=call.elements,
                root=call.root,
            ),
            position=failed.position,
        )

    # ---- internals ----

    def _ready(self, job: LocalJob) -> pb.AssignmentReady:
        endpoints = [
            pb.Endpoint(rank=rank.rank, address=self._address, udp_port=rank.udp_port) for rank in job.ranks.values()
        ]
        return pb.AssignmentReady(job=job.assignment.job, epoch=job.assignment.epoch, endpoints=endpoints)

    def _find(self, reference: str) -> LocalJob:
        wanted = parse_job_reference(reference)
        for job in self._jobs.values():
            if wanted in (job.assignment.job, job.name):
                return job
        if wanted in self._ended:
            raise AttachRefused("JobEnded", self._ended[wanted])
        here = ", ".join(str(job) for job in self._jobs.values()) or "none"
        raise AttachRefused(
            "UnknownJob",
            f"agent {self._agent} has no ranks of a job {reference!r}; its jobs: {here}. Start one with "
            "`switchml-ctl job start`, or correct SWITCHML_JOB",
        )

    def _end(self, job: LocalJob, failure: Failure) -> None:
        _log.info("%s: over: %s", job, failure.message)
        job.failure = failure
        job.replaced.set()
        job.activated.set()  # wake waiting processes, which then see why it never becomes active
        for rank in job.ranks.values():
            process, rank.process = rank.process, None
            if process is not None:
                process.fail(failure)
        self._close_ranks(job)
        if job.successor is not None:
            self._close_ranks(job.successor)
        self._opening.pop(job.assignment.job, None)
        del self._jobs[job.assignment.job]
        for reference in (job.name, job.assignment.job):
            self._ended[reference] = f"{job} has ended: {failure.message}"
        while len(self._ended) > _REMEMBERED_JOBS:
            self._ended.popitem(last=False)

    def _switch_gone(self, number: int) -> None:
        """End a job whose switch, a process on this machine, has ended: the sums were in its memory."""
        job = self._jobs[number]
        why = "the switch with which its ranks share memory has ended"
        self._record(job, next(iter(job.ranks.values())), pb.RankEvent.KIND_SWITCH_GONE, why)
        self._end(job, Failure("SwitchLost", (), f"agent {self._agent}: {why}"))

    def _close_ranks(self, job: LocalJob) -> None:
        for rank in job.ranks.values():
            self._close_rank(rank)

    def _close_rank(self, rank: LocalRank) -> None:
        if rank.handle is not None:
            self._read_status(rank)
            self._switches.end(rank.handle)
            self._ranks.close(rank)

    def _read_status(self, rank: LocalRank) -> RankStatus:
        if rank.handle is not None:
            rank.status = self._engine.status(rank.handle)
        return rank.status

    def _status(self, job: LocalJob, rank: LocalRank) -> pb.RankStatus:
        status = self._read_status(rank)
        return pb.RankStatus(
            job=job.assignment.job,
            epoch=job.assignment.epoch,
            rank=rank.rank,
            position=status["position"],
            counters=rank_counters(status),
            epoch_spent=status["epoch_spent"],
        )

    def _all_ranks(self) -> Iterator[tuple[LocalJob, LocalRank]]:
        for job in self._jobs.values():
            for rank in job.ranks.values():
                yield job, rank

    def _record(
        self,
        job: LocalJob,
        rank: LocalRank,
        kind: pb.RankEvent.Kind,
        detail: str = "",
        call: pb.Call | None = None,
        position: int = 0,
        calls: int = 0,
    ) -> None:
        event = pb.RankEvent(
            job=job.assignment.job,
            epoch=job.assignment.epoch,
            rank=rank.rank,
            kind=kind,
            detail=detail[:REASON_LENGTH],
            call=call,
            position=position,
            calls=calls,
        )
        rank.events.append(event)
        _log.info("%s: rank %d %s %s", job, rank.rank, enum_word(pb.RankEvent.Kind, kind).lower(), detail)
        self.report(pb.AgentMessage(rank_event=event))


async def _nothing_to_deliver() -> None:
    """Return at once: without a controller nothing is delivered."""


def _not_active(job: LocalJob) -> AttachRefused:
    seconds = job.activation_seconds
    return AttachRefused("UnknownJob", f"{job} was not active within {seconds:.0f} s; see the controller's log")


def _positions(quiesce: pb.Quiesce, phases: Mapping[int, Sequence[int]]) -> pb.Positions:
    """Return the answer to one step of an epoch change."""
    positions = pb.Positions(job=quiesce.job, epoch=quiesce.epoch, fetched=bool(quiesce.targets))
    for rank, held in phases.items():
        positions.ranks.add(rank=rank, phases=held)
    return positions


def _give_up(gone: asyncio.Future[bytes]) -> NoReturn:
    if gone.result():
        raise BadMessage("a process that waits for its job may not send messages")
    raise BrokenPipeError("the process closed its connection while it waited for its job")
