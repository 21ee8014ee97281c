"""Jobs from their start to their end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

from switchml.controller.admission.placement import Placement, require_one_pipe, require_room, require_width
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.request import next_job_id, validate_job
from switchml.controller.agents import Agents
from switchml.controller.drivers import JobTables
from switchml.controller.errors import (
    ControllerError,
    InvalidRequest,
    JobEnded,
    JobExists,
    JobNotFound,
    NoAgent,
    NoRoom,
    StoreError,
    SwitchRefused,
    SwitchUnavailable,
)
from switchml.controller.jobs.assignments import Assignments
from switchml.controller.jobs.epoch_change import EpochChanges
from switchml.controller.jobs.live import LiveJob, revocation, why_not_taken_over
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import (
    Job,
    JobState,
    JobSwitch,
    OnFailure,
    Rank,
    RankState,
    counters_by_name,
    new_secret,
    printed_ranks,
    referred_to,
)
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["RECOVERY_SECONDS", "Lifecycle"]

_LOG = logging.getLogger(__name__)

RECOVERY_SECONDS = 10.0
_WATCH_SECONDS = 1.0
_ENDING_SECONDS = 5.0  # that a start waits for jobs which are ending
_LIST_LIMIT = 200
_JOB_EVENTS = {
    JobState.READY: EventKind.JOB_READY,
    JobState.RUNNING: EventKind.JOB_RUNNING,
    JobState.COMPLETED: EventKind.JOB_COMPLETED,
    JobState.FAILED: EventKind.JOB_FAILED,
    JobState.STOPPED: EventKind.JOB_STOPPED,
}
_RANK_EVENTS = {
    RankState.ATTACHED: EventKind.RANK_ATTACHED,
    RankState.CLOSED: EventKind.RANK_CLOSED,
}


class Lifecycle:
    """All jobs, and every change of a job's state.

    Methods that are not async run without interruption, so what they check still holds when they act.
    """

    def __init__(self, store: Store, switches: Switches, agents: Agents, quotas: Quotas) -> None:
        self._store = store
        self._quotas = quotas
        self.events = store.events
        self._switches = switches
        self._agents = agents
        self._assignments = Assignments(agents, self.ranks_in_use)
        self._live: dict[int, LiveJob] = {}  # by key
        self._tasks: set[asyncio.Task[None]] = set()  # that free what ended jobs held
        self.epoch_changes = EpochChanges(store, switches, agents, self.ranks_in_use, self._fail_after_loss)
        self.on_freed: Callable[[str], None] = lambda _: None  # told the name of a job that holds nothing any more

    # ---- what there is ---------------------------------------------------------------------------------------------

    def live_jobs(self) -> list[LiveJob]:
        """Return the jobs that have not ended, oldest first."""
        return [live for live in self._live.values() if live.job.live]

    def live_job(self, job_id: int, epoch: int) -> LiveJob | None:
        """Return the live job of this id, if it is in this epoch."""
        return next((live for live in self.live_jobs() if (live.job.id, live.job.epoch) == (job_id, epoch)), None)

    def job_after(self, job_id: int, switch: str, epoch: int) -> Job | None:
        """Return the live job of this id that has been in this epoch, and is in another one now."""
        for live in self.live_jobs():
            job, was_in_it = live.job, live.first_epoch <= epoch < live.job.epoch
            if job.id == job_id and live.is_on(switch) and job.changes and was_in_it:
                return job
        return None

    def holder(self, name: str) -> Job | None:
        """Return the job of this name that still holds something: it lives, or is being freed."""
        return next((live.job for live in self._live.values() if live.job.name == name), None)

    def ranks_in_use(self, agent: str) -> int:
        """Return how many ranks of live jobs an agent carries."""
        return sum(rank.agent == agent for live in self.live_jobs() for rank in live.job.ranks)

    def find(self, reference: pb.JobReference) -> Job:
        """Return a job, the newest that has the id or name.

        Raises:
            InvalidRequest: the reference is empty.
            JobNotFound: there is none.

        """
        wanted = referred_to(reference)
        if wanted is None:
            raise InvalidRequest("say which job, by id or by name")
        found = self._store.job_of_id(wanted) if isinstance(wanted, int) else self._store.job_of_name(wanted)
        if found is None:
            raise JobNotFound(f"no job has the {'id' if isinstance(wanted, int) else 'name'} {wanted!r}")
        return self._live[found.key].job if found.key in self._live else found

    def list_jobs(self, include_ended: bool) -> list[Job]:
        """Return the live jobs, or the newest of all, oldest first."""
        if not include_ended:
            return [live.job for live in self.live_jobs()]
        stored = self._store.newest_jobs(_LIST_LIMIT)[::-1]
        return [self._live[job.key].job if job.key in self._live else job for job in stored]

    async def view(self, job: Job) -> pb.Job:
        """Return a job as it is now; one that is just ending, when it has ended."""
        live = self._live.get(job.key)
        if live is not None and live.installed and live.ending is None:
            counters = await self._read_counters(live)
            if live.ending is None:  # else the last reading is under way, and this one is older
                job.counters = counters
        if live is not None and live.ending is not None:
            await asyncio.wait({live.ending})
        return job.message()

    async def watch(self, job: Job) -> AsyncIterator[pb.Job]:
        """Yield a job now, after each change and each second, until it has ended."""
        while True:
            yield await self.view(job)
            live = self._live.get(job.key)
            if live is None:
                return
            if live.job.live:
                await live.changes.wait(_WATCH_SECONDS)

    # ---- start -----------------------------------------------------------------------------------------------------

    async def start(self, request: pb.StartJobRequest, placement: Placement | None = None, tenant: str = "") -> Job:
        """Bring a job of a tenant up to READY, with its ranks on the agents of `placement` where that is given.

        Raises:
            InvalidRequest, JobExists, SwitchNotFound, SwitchUnavailable, NoRoom, NoAgent, QuotaExceeded: it was not
                admitted.
            AgentFailed, AgentTimeout, SwitchRefused, JobEnded: it was, and has ended now.

        """
        try:
            validate_job(request.workers, request.name, request.slots, request.on_failure)
            for switch in self._switches.candidates(request.switch):
                if not any(live.is_on(switch.name) for live in self._live.values()):
                    await self._switches.renew_epochs(switch)
            live = await self._admit_when_free(request, placement, tenant)
        except ControllerError as refusal:
            name = f"job {request.name!r} with " if request.name else ""
            why = f"{name}{request.workers} workers: {refusal.message}"
            self.events.record(EventKind.JOB_REFUSED, why, switch=request.switch)
            raise
        live.bring_up = asyncio.create_task(self._bring_up(live), name=f"start of job {live.job.name}")
        try:
            await asyncio.wait({live.bring_up})
        except asyncio.CancelledError:
            self.end(live, JobState.FAILED, "its start was cancelled by the client", pb.REVOCATION_REASON_JOB_FAILED)
            raise
        if live.ending is not None:
            await asyncio.wait({live.ending})
        if live.bring_up.cancelled():
            why = f": {live.job.failure}" if live.job.failure else ""
            raise JobEnded(f"job {live.job.name} was {live.job.state.name} before it was ready{why}")
        live.bring_up.result()
        return live.job

    async def _admit_when_free(self, request: pb.StartJobRequest, placement: Placement | None, tenant: str) -> LiveJob:
        """Admit a job; where there is no room, wait until the jobs that are ending have freed what they hold."""
        try:
            return self._admit(request, placement, tenant)
        except (NoRoom, NoAgent) as refusal:
            ending = [live.job.name for live in self._live.values() if live.ending is not None]
            if not ending:
                raise
            if not await self.drain(_ENDING_SECONDS):
                why = f"job {', '.join(ending)} has ended, and had not freed its slots within {_ENDING_SECONDS:g} s"
                raise type(refusal)(f"{refusal.message}; {why}", **refusal.figures) from None
        return self._admit(request, placement, tenant)

    def _admit(self, request: pb.StartJobRequest, placement: Placement | None, tenant: str) -> LiveJob:
        live_jobs = self.live_jobs()
        if any(live.job.name == request.name for live in live_jobs):
            raise JobExists(f"a live job has the name {request.name!r}; stop it or give another name")
        refusals: list[ControllerError] = []
        for switch in self._switches.candidates(request.switch):
            try:
                return self._admit_on(switch, request, placement, tenant)
            except (NoRoom, NoAgent) as refusal:  # noqa: PERF203
                refusals.append(refusal)
        raise refusals[0]

    def _admit_on(
        self, switch: ManagedSwitch, request: pb.StartJobRequest, placement: Placement | None, tenant: str
    ) -> LiveJob:
        slots = request.slots or switch.config.pool(request.workers)
        self._quotas.check(tenant, (live.job for live in self.live_jobs()), request.workers, slots)
        require_width(request.workers, switch)
        if placement is None:
            placement = self._assignments.choose(switch, request.workers, tenant)
        else:
            require_room(placement, self.ranks_in_use)
            require_one_pipe(placement, switch)
        number = next_job_id(self._store.last_job_id(), {live.job.id for live in self._live.values()})
        epoch = self._switches.next_epoch([switch])
        job = Job(
            key=0,
            id=number,
            name=request.name or self._new_name(),
            workers=request.workers,
            values_per_packet=switch.driver.capabilities.values_per_packet,
            created=time.time(),
            ranks=placement.ranks(),
            on_failure=OnFailure.asked(request.on_failure),
            tenant=tenant,
            secret=new_secret(),
        )
        place = JobSwitch(switch.name, epoch, switch.slots.allocate(slots), slots, group=number)
        job.switches = [place]
        try:
            self._store.create_job(job)
        except StoreError:
            switch.slots.free(place.slot_base)
            raise
        live = self._live[job.key] = LiveJob(job, [switch])
        live.announcements = dict(enumerate(placement.announcements))
        self.events.record(EventKind.JOB_STARTED, f"{job.workers} ranks, {job.slots} slots", job=job)
        _LOG.info(
            "job %s (id %d, epoch %d): %d ranks on switch %s",
            *(job.name, job.id, job.epoch, job.workers, job.switch_names),
        )
        return live

    def _new_name(self) -> str:
        number = next((job.key for job in self._store.newest_jobs(1)), 0) + 1
        used = {live.job.name for live in self._live.values()}
        while f"job-{number}" in used:
            number += 1
        return f"job-{number}"

    async def _bring_up(self, live: LiveJob) -> None:
        try:
            await self._assignments.collect_endpoints(live)
            async with live.locked():
                live.installed = True
                for switch, tables in live.tables():
                    await switch.driver.install_job(tables)
                live.tell_agents(self._agents, live.activation())
                self._enter(live, JobState.READY)
            for numbers, text in live.lost_early:
                self.epoch_changes.begin(live, numbers, text)
        except ControllerError as error:
            self.end(live, JobState.FAILED, str(error), pb.REVOCATION_REASON_JOB_FAILED)
            raise
        except Exception:
            self.end(
                live,
                JobState.FAILED,
                "a defect of the controller; its log has the traceback",
                pb.REVOCATION_REASON_JOB_FAILED,
            )
            raise

    # ---- while it lives --------------------------------------------------------------------------------------------

    def rank_changed(self, live: LiveJob, rank: Rank, state: RankState, detail: str = "") -> None:
        """Note that a rank attached, closed or was lost, and what follows for its job."""
        if rank.ended or rank.state is state:
            return
        rank.state = state
        job = live.job
        if state in _RANK_EVENTS:
            self.events.record(_RANK_EVENTS[state], detail, job=job, rank=rank.rank, agent=rank.agent)
        if state is RankState.LOST:
            self.ranks_lost(live, [rank], f"agent {rank.agent} on {rank.host} says: {detail}")
        elif all(r.state is RankState.CLOSED for r in job.ranks):
            self.end(live, JobState.COMPLETED, "", pb.REVOCATION_REASON_JOB_COMPLETED)
        elif state is RankState.ATTACHED and job.state is JobState.READY:
            self._enter(live, JobState.RUNNING)
        else:
            self._store.save_progress(job)
            live.changes.notify()

    def ranks_lost(self, live: LiveJob, ranks: Sequence[Rank], why: str) -> None:
        """Fail a job whose ranks went away, or let it go on without them, as it was started to."""
        for rank in ranks:
            rank.state = RankState.LOST
            self.events.record(EventKind.RANK_LOST, why, job=live.job, rank=rank.rank, agent=rank.agent)
        numbers = [rank.rank for rank in ranks]
        verb = "was" if len(numbers) == 1 else "were"
        text = f"{printed_ranks(numbers)} {verb} lost: {why}"
        job = live.job
        if job.on_failure is OnFailure.ABORT:
            self._fail_after_loss(live, text, numbers)
            return
        _LOG.warning("job %s: %s", job.name, text)
        self._store.save_progress(job)
        if job.state is JobState.PENDING:
            live.lost_early.append((numbers, text))  # its epoch changes once it has begun
        else:
            self.epoch_changes.begin(live, numbers, text)
        live.changes.notify()

    def epoch_spent(self, live: LiveJob, rank: Rank) -> None:
        """End an epoch before a slot is used more often than phases can tell: those of a new one begin at 0."""
        why = f"rank {rank.rank} at agent {rank.agent} has used a slot nearly as often as an epoch allows"
        if live.job.on_failure is OnFailure.ABORT:
            self.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_EPOCH_SPENT)
        elif live.change is None:
            _LOG.warning("job %s: %s", live.job.name, why)
            self.epoch_changes.begin(live, [], why)

    def _fail_after_loss(self, live: LiveJob, why: str, ranks: Sequence[int]) -> None:
        self.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_WORKER_LOST, ranks)

    def report_exit(self, job: Job, number: int, exit_code: int, final: bool = False) -> None:
        """Note how the process of a worker ended; a status other than 0 is a loss to a live job.

        Raises:
            InvalidRequest: the job has no such worker.

        """
        rank = next((rank for rank in job.ranks if rank.worker == number), None)
        if rank is None:
            if job.on_failure is OnFailure.SHRINK:
                return  # the job has gone on without it
            raise InvalidRequest(f"job {job.name} has workers 0 to {job.workers - 1}, not {number}")
        first_report = rank.exit_code is None
        rank.exit_code = exit_code
        self.events.record(EventKind.RANK_EXITED, f"status {exit_code}", job=job, rank=number, agent=rank.agent)
        live = self._live.get(job.key)
        if live is not None and job.live:
            restarts = job.on_failure is OnFailure.RESTART and not final
            if exit_code != 0 and (restarts or job.on_failure is OnFailure.SHRINK):
                self._worker_exited(live, rank, exit_code)
            elif exit_code != 0:
                # The launcher may be quicker than the agent: what the other ranks hear must not depend on it.
                attached = rank.state is RankState.ATTACHED
                reason = pb.REVOCATION_REASON_WORKER_LOST if attached else pb.REVOCATION_REASON_JOB_FAILED
                why = f"rank {number} exited with status {exit_code}"
                self.end(live, JobState.FAILED, why, reason, [number])
            elif rank.state is RankState.ASSIGNED:
                self.rank_changed(live, rank, RankState.CLOSED)  # it ended well and never attached
            return
        if exit_code != 0 and first_report and rank.state is RankState.LOST:
            job.failure += f"; the process of rank {number} exited with status {exit_code}"
        self._store.save_progress(job)

    def _worker_exited(self, live: LiveJob, rank: Rank, exit_code: int) -> None:
        """Let a job go on without a process; of one whose place is to be taken, the agent may have said it before."""
        why = f"its process on {rank.host} exited with status {exit_code}"
        if rank.state is RankState.ATTACHED or (
            rank.state is RankState.ASSIGNED and live.job.on_failure is OnFailure.SHRINK
        ):
            self.ranks_lost(live, [rank], why)
        else:
            self._store.save_progress(live.job)

    # ---- end -------------------------------------------------------------------------------------------------------

    async def stop(self, job: Job) -> None:
        """End a live job as STOPPED; return when it holds nothing any more."""
        live = self._live.get(job.key)
        if live is not None:
            await asyncio.wait({self.end(live, JobState.STOPPED, "", pb.REVOCATION_REASON_JOB_STOPPED)})

    def end(
        self, live: LiveJob, state: JobState, why: str, reason: pb.RevocationReason, ranks: Sequence[int] = ()
    ) -> asyncio.Task[None]:
        """End a job, tell its agents, and begin to free what it holds; the first end of a job counts."""
        if live.ending is not None:
            return live.ending
        job = live.job
        live.tell_agents(self._agents, revocation(job.id, job.epoch, reason, why, ranks))
        if state is JobState.FAILED:
            job.failure = why
        job.ended = time.time()
        try:
            self._enter(live, state)
        except StoreError as error:
            _LOG.error("job %s: its end is not in the store: %s", job.name, error)
        for task in (live.bring_up, live.judging, live.change.task if live.change is not None else None):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        live.ending = self._background(self._free(live), f"end of job {job.name}")
        return live.ending

    async def _free(self, live: LiveJob) -> None:
        """Keep the job's counters, then free its tables and slots."""
        job = live.job
        async with live.locked():
            if live.installed:
                job.counters = await self._read_counters(live)
                for switch, tables in reversed(live.tables()):
                    await self._remove(live, switch, tables)
            for place, switch in live.places():
                switch.slots.free(place.slot_base)
            del self._live[job.key]
        try:
            self._store.save_progress(job)
        except StoreError as error:
            _LOG.error("job %s: its counters are not in the store: %s", job.name, error)
        live.changes.notify()
        self.on_freed(job.name)

    async def _remove(self, live: LiveJob, switch: ManagedSwitch, tables: JobTables) -> None:
        name, driver = live.job.name, switch.driver
        try:
            await driver.remove_job(tables)
            if live.change is not None and live.change.successor is not None:
                # Its tables may have been written; their endpoints may not all be known.
                driver.prepare_again()
        except SwitchUnavailable as error:
            _LOG.warning("job %s: its tables are removed when the switch is back: %s", name, error)
        except SwitchRefused as error:
            _LOG.error("job %s: its tables were not removed: %s", name, error)
            driver.prepare_again()
        except Exception:
            _LOG.exception("job %s: its tables were not removed", name)
            driver.prepare_again()

    async def _read_counters(self, live: LiveJob) -> dict[str, int]:
        try:
            read = [await switch.driver.read_verdicts([live.job.id]) for switch in live.switches]
        except (SwitchUnavailable, SwitchRefused) as error:
            _LOG.warning("job %s: its counters are those read last: %s", live.job.name, error)
            return live.job.counters
        return counters_by_name({verdict: sum(one[verdict] for one in read) for verdict in read[0]})

    def _enter(self, live: LiveJob, state: JobState) -> None:
        before = live.job.state
        live.job.enter(state)
        _LOG.info(
            "job %s: %s -> %s%s",
            live.job.name,
            before.name,
            state.name,
            f": {live.job.failure}" * bool(live.job.failure),
        )
        self.events.record(_JOB_EVENTS[state], live.job.failure, job=live.job)
        live.changes.notify()
        self._store.change_state(live.job, before, live.job.failure)

    def _background(self, coroutine: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- restarts --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take over the live jobs of the store, after a restart of the controller."""
        for job in self._store.live_jobs():
            why = why_not_taken_over(job, self._switches)
            if why is None:
                switches = [self._switches.get(place.switch) for place in job.switches]
                live = self._live[job.key] = LiveJob(job, switches)
                live.installed = True
                live.unconfirmed = {rank.agent for rank in job.ranks if not rank.ended}
                self.events.record(EventKind.JOB_TAKEN_OVER, job=job)
                _LOG.info("job %s (id %d, epoch %d) is taken over", job.name, job.id, job.epoch)
            else:
                before, job.failure, job.ended = job.state, why, time.time()
                job.enter(JobState.FAILED)
                self.events.record(EventKind.JOB_FAILED, why, job=job)
                self._store.change_state(job, before, why)
                _LOG.warning("job %s: FAILED: %s", job.name, why)

    async def run(self) -> None:
        """Fail the jobs that were taken over and whose agents do not come back in time; then wait to be cancelled."""
        await asyncio.sleep(RECOVERY_SECONDS)
        for live in self.live_jobs():
            if live.unconfirmed:
                lost = [rank for rank in live.job.ranks if rank.agent in live.unconfirmed and not rank.ended]
                agents = ", ".join(sorted(live.unconfirmed))
                why = f"agent {agents} did not come back within {RECOVERY_SECONDS:g} s of the controller's start"
                self.ranks_lost(live, lost, why)
        await asyncio.Event().wait()

    def prepare_switch(self, switch: ManagedSwitch, registers_lost: bool) -> list[JobTables]:
        """Say what a switch must hold that has just been connected; fail the jobs whose sums were in its registers."""
        held = [live for live in self.live_jobs() if live.is_on(switch.name) and live.job.state is not JobState.PENDING]
        if registers_lost and self._store.last_epoch(switch.name):
            self.events.record(EventKind.SWITCH_RESTARTED, "its registers are empty", switch=switch.name)
        for live in held:
            if registers_lost and live.job.state is JobState.RUNNING:
                why = f"switch {switch.name} was restarted and lost the sums in its registers"
                self.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_SWITCH_LOST)
        return [tables for live in held if live.job.live for one, tables in live.tables() if one is switch]

    async def drain(self, seconds: float | None = None) -> bool:
        """Wait until the jobs that are ending have ended, at most `seconds`; tell whether they have."""
        if self._tasks:
            _, pending = await asyncio.wait(self._tasks, timeout=seconds)
            return not pending
        return True
