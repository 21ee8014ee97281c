"""The end of jobs: agents are told, counters are stored, tables are removed and slots are freed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from switchml.common.printable import REASON_LENGTH, shortened
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.drivers import JobTables
from switchml.controller.errors import StoreError, SwitchRefused, SwitchUnavailable
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.placed import revocation
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import JobState, JobSwitch, counters_by_name
from switchml.controller.store.database import Store
from switchml.controller.switches import ManagedSwitch
from switchml.dataplane.constants import Verdict

__all__ = ["JobEndings", "read_counters"]

_LOG = logging.getLogger(__name__)

_REMEMBERED: Final = 256  # ends of jobs, for agents that come back after them


class JobEndings:
    """Ends jobs. ``on_freed`` is called with the name of each job that holds nothing any more."""

    def __init__(self, store: Store, jobs: JobRegister, agents: Agents, pools: SlotPools) -> None:
        self._store = store
        self._jobs = jobs
        self._agents = agents
        self._pools = pools
        self._told: dict[int, pb.ControllerMessage] = {}  # by the job's key, the oldest first
        self.on_freed: Callable[[str], None] = lambda _: None

    def told(self, key: int) -> pb.ControllerMessage | None:
        """Return what agents were told at the recent end of a job, for one that was away; None if it is unknown."""
        return self._told.get(key)

    def end(
        self, live: LiveJob, state: JobState, why: str, reason: pb.RevocationReason, ranks: Sequence[int] = ()
    ) -> asyncio.Task[None]:
        """End a job, tell its agents, and begin to free its resources; only the first call has an effect."""
        if live.ending is not None:
            return live.ending
        job, transition, why = live.job, live.transition, shortened(why, REASON_LENGTH)
        over = self._told[job.key] = revocation(job.id, job.epoch, reason, why, ranks)
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._agents.tell(job.ranks_by_agent(), over)
        if transition is not None:  # agents that have opened ranks for an epoch that the job does not reach
            for agent, epoch in transition.asked.items():
                if agent not in job.ranks_by_agent():
                    self._agents.tell([agent], revocation(job.id, epoch, reason, why, ranks))
        if state is JobState.FAILED:
            job.failure = why
        job.ended = time.time()
        try:
            self._jobs.enter(live, state)
        except StoreError as error:
            _LOG.error("job %s: its end is not in the store: %s", job.name, error)
        for task in (live.judging, transition.task if transition is not None else None):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        live.ending = asyncio.create_task(self._free(live), name=f"end of job {job.name}")
        return live.ending

    async def _free(self, live: LiveJob) -> None:
        """Store the job's counters, and free what it holds on each switch, however long the others take."""
        job = live.job
        freeing = [self._free_on(live, place, switch) for place, switch in live.places()]
        await asyncio.gather(self._read(live), *freeing)
        self._jobs.remove(live)
        try:
            self._store.save_progress(job)
        except StoreError as error:
            _LOG.error("job %s: its counters are not in the store: %s", job.name, error)
        live.updated.notify()
        self.on_freed(job.name)

    async def _read(self, live: LiveJob) -> None:
        if live.written:
            live.job.counters = await read_counters(live)

    async def _free_on(self, live: LiveJob, place: JobSwitch, switch: ManagedSwitch) -> None:
        """Remove a job's tables from one of its switches, and free its slots there."""
        async with switch.lock:
            tables = live.written.pop(switch.name, None)
            try:
                if tables is not None:
                    await self._remove(live, switch, tables)
            except Exception:
                _LOG.exception("job %s: its tables were not removed from switch %s", live.job.name, switch.name)
                switch.driver.prepare_again()
            self._pools.free([place])
        self._jobs.note_room()

    async def _remove(self, live: LiveJob, switch: ManagedSwitch, tables: JobTables) -> None:
        name, driver = live.job.name, switch.driver
        try:
            await driver.remove_job(tables)
        except SwitchUnavailable as error:
            _LOG.warning("job %s: its tables are removed when the switch is back: %s", name, error)
            driver.prepare_again()  # it may be connected and only have answered too late
        except SwitchRefused as error:
            _LOG.error("job %s: its tables were not removed: %s", name, error)
            driver.prepare_again()
        else:
            if live.attempt is not None and live.attempt.target is not live:
                # Tables of its next epoch may have been written, for which not all endpoints are known.
                driver.prepare_again()


async def read_counters(live: LiveJob) -> dict[str, int]:
    """Return a job's counters of the switches that complete its sums, or those read last if one does not answer."""
    tops = [switch for place, switch in live.places() if not place.upstream]
    try:
        found = await asyncio.gather(*(switch.driver.read_verdicts([live.job.id]) for switch in tops))
        return counters_by_name({verdict: sum(one[verdict] for one in found) for verdict in Verdict})
    except (SwitchUnavailable, SwitchRefused) as error:
        _LOG.warning("job %s: its counters are those read last: %s", live.job.name, error)
        return live.job.counters
