"""All jobs: those that hold slots and tables are in memory, the others in the store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator

from switchml.controller.errors import JobNotFound
from switchml.controller.jobs.live import LiveJob, Signal
from switchml.controller.records import Job, JobState, Rank
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind

__all__ = ["JobRegister"]

_LOG = logging.getLogger(__name__)

_LIST_LIMIT = 200
_EVENTS = {
    JobState.READY: EventKind.JOB_READY,
    JobState.RUNNING: EventKind.JOB_RUNNING,
    JobState.COMPLETED: EventKind.JOB_COMPLETED,
    JobState.FAILED: EventKind.JOB_FAILED,
    JobState.STOPPED: EventKind.JOB_STOPPED,
}


class JobRegister:
    """The jobs by their keys. Iterates over those that are live or being freed, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[int, LiveJob] = {}
        self._room = Signal()
        self._by_id: dict[int, LiveJob] = {}  # the same ones: an id is given again only after its job is removed

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._held.values()))

    def add(self, live: LiveJob) -> None:
        """Add a job; it must be in the store."""
        self._held[live.job.key] = self._by_id[live.job.id] = live

    def remove(self, live: LiveJob) -> None:
        """Forget a job that holds nothing any more."""
        del self._held[live.job.key], self._by_id[live.job.id]
        self.note_room()

    # ---- queries ---------------------------------------------------------------------------------------------------

    def live_jobs(self) -> list[LiveJob]:
        """Return the jobs that have not ended, oldest first."""
        return [held for held in self._held.values() if held.job.live]

    def held(self) -> list[Job]:
        """Return the jobs that are live or being freed, oldest first."""
        return [held.job for held in self._held.values()]

    def get(self, job: Job) -> LiveJob | None:
        """Return a job that is live or being freed; None if it holds nothing any more."""
        return self._held.get(job.key)

    def holder(self, name: str) -> Job | None:
        """Return the job of this name that is live or being freed."""
        return next((job for job in self.held() if job.name == name), None)

    def _live_of_id(self, job_id: int) -> LiveJob | None:
        held = self._by_id.get(job_id)
        return held if held is not None and held.job.live else None

    def in_epoch(self, job_id: int, epoch: int) -> LiveJob | None:
        """Return the live job of this id if it is in this epoch."""
        live = self._live_of_id(job_id)
        return live if live is not None and live.job.epoch == epoch else None

    def entering(self, job_id: int, epoch: int) -> LiveJob | None:
        """Return the live job of this id if it is in transition into this epoch."""
        live = self._live_of_id(job_id)
        attempt = live.attempt if live is not None else None
        return live if attempt is not None and attempt.target.job.epoch == epoch else None

    def after(self, job_id: int, switch: str, epoch: int) -> Job | None:
        """Return the live job of this id that was in this epoch, with this switch or agents of it, and no longer is."""
        live = self._live_of_id(job_id)
        if live is None or not live.job.epoch_changes or not live.first_epoch <= epoch < live.job.epoch:
            return None
        there = live.is_on(switch) or any(rank.switch == switch for rank in live.job.ranks)
        return live.job if there else None

    def carried_by(self, agent: str) -> list[tuple[Job, list[Rank]]]:
        """Return the live jobs that have ranks at an agent, with these ranks."""
        both = ((live.job, live.job.ranks_by_agent().get(agent)) for live in self.live_jobs())
        return [(job, ranks) for job, ranks in both if ranks]

    def ranks_in_use(self) -> Counter[str]:
        """Return the number of ranks of live jobs that each agent carries."""
        used: Counter[str] = Counter()
        for live in self.live_jobs():
            for agent, ranks in live.job.ranks_by_agent().items():
                used[agent] += len(ranks)
        return used

    def find(self, reference: int | str) -> Job:
        """Return the newest job that has the id or name.

        Raises:
            JobNotFound: no job has it.

        """
        key = self._store.newest_key(reference)
        held = self._held.get(key) if key is not None else None
        if held is not None:
            return held.job
        by_id = isinstance(reference, int)
        found = self._store.job_of_id(reference) if isinstance(reference, int) else self._store.job_of_name(reference)
        if found is None:
            raise JobNotFound(f"no job has the {'id' if by_id else 'name'} {reference!r}")
        return found

    def listed(self, include_ended: bool) -> list[Job]:
        """Return the live jobs, or the newest of all, oldest first; stored ones without their ranks and counters."""
        if not include_ended:
            return [live.job for live in self.live_jobs()]
        return [self._present(job) for job in self._store.newest_jobs(_LIST_LIMIT)[::-1]]

    def _present(self, stored: Job) -> Job:
        held = self._held.get(stored.key)
        return held.job if held is not None else stored

    # ---- changes ---------------------------------------------------------------------------------------------------

    def enter(self, live: LiveJob, state: JobState) -> None:
        """Change the state of a job to one that may follow the current one, and write it to the store.

        Raises:
            StoreError: it is not in the store.

        """
        before = live.job.state
        live.job.enter(state)
        why = f": {live.job.failure}" if live.job.failure else ""
        _LOG.info("job %s: %s -> %s%s", live.job.name, before.name, state.name, why)
        self._store.events.record(_EVENTS[state], live.job.failure, job=live.job)
        live.updated.notify()
        self._store.save_state(live.job, before, live.job.failure)

    def note_room(self) -> None:
        """Wake the tasks that wait for room: a job has freed its slots on a switch."""
        self._room.notify()

    async def wait_for_room(self, seconds: float) -> None:
        """Wait until a job has freed its slots on a switch, at most `seconds`."""
        await self._room.wait(seconds)

    async def drain(self, seconds: float | None = None, tenant: str | None = None) -> bool:
        """Wait at most `seconds` until the ending jobs, of this tenant or of all, have freed everything.

        Return whether they have.
        """
        ending = {
            held.ending for held in self._held.values() if held.ending is not None and tenant in (None, held.job.tenant)
        }
        if not ending:
            return True
        _, pending = await asyncio.wait(ending, timeout=seconds)
        return not pending
