"""Admission of jobs: a job gets an id, an epoch, slots and agents, or is refused with a reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from switchml.controller.admission.placement import Placement, Placements
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.request import JobRequest, next_job_id
from switchml.controller.admission.slots import SlotPools
from switchml.controller.errors import ControllerError, JobExists, NoAgent, NoRoom, StoreError
from switchml.controller.records import Job, JobSwitch, OnFailure, new_secret
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["Admission", "Admitted"]

_LOG = logging.getLogger(__name__)

_ENDING_SECONDS = 5.0  # the time that a start waits for jobs which are ending


class Admitted(NamedTuple):
    """A new job, its switches and, after a rendezvous, the announcements that it answers, by rank."""

    job: Job
    switches: list[ManagedSwitch]
    announcements: dict[int, int]


class _Jobs(Protocol):
    """The jobs, as far as admission needs them."""

    def held(self) -> Sequence[Job]:
        """Return the jobs that live or are being freed."""

    async def drain(self, seconds: float) -> bool:
        """Wait at most `seconds` until the ending jobs have freed everything; return whether they have."""


class Admission:
    """Admits jobs one after another, so that the checks are still valid when the job is written to the store."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        jobs: _Jobs,
        quotas: Quotas,
        pools: SlotPools,
        placements: Placements,
    ) -> None:
        self._store = store
        self._switches = switches
        self._jobs = jobs
        self._quotas = quotas
        self._pools = pools
        self._placements = placements

    async def admit(self, request: JobRequest, placement: Placement | None = None) -> Admitted:
        """Return a new job, PENDING and in the store, with its ranks on the agents of `placement` if that is given.

        The caller must add it to the other jobs before it awaits anything. If there is no room, this waits until the
        ending jobs have freed their slots and ranks. Refusals are recorded in the event log.

        Raises:
            InvalidRequest, JobExists, SwitchNotFound, SwitchUnavailable, NoRoom, NoAgent, QuotaExceeded: it is not
                admitted.
            StoreError: the job cannot be written.

        """
        try:
            request.validate()
            await self._renew_epochs(request.switch)
            return await self._admit_when_free(request, placement)
        except ControllerError as refusal:
            name = f"job {request.name!r} with " if request.name else ""
            why = f"{name}{request.workers} workers: {refusal.message}"
            self._store.events.record(EventKind.JOB_REFUSED, why, switch=request.switch)
            raise

    async def _renew_epochs(self, wanted: str) -> None:
        """Restart the epochs of switches without jobs that have used theirs up."""
        for switch in self._switches.candidates(wanted):
            if not any(place.switch == switch.name for job in self._jobs.held() for place in job.switches):
                await self._switches.renew_epochs(switch)

    async def _admit_when_free(self, request: JobRequest, placement: Placement | None) -> Admitted:
        try:
            return self._admit(request, placement)
        except (NoRoom, NoAgent) as refusal:
            ending = [job.name for job in self._jobs.held() if not job.live]
            if not ending:
                raise
            if not await self._jobs.drain(_ENDING_SECONDS):
                why = f"job {', '.join(ending)} has ended, and had not freed its slots within {_ENDING_SECONDS:g} s"
                raise type(refusal)(f"{refusal.message}; {why}", **refusal.figures) from None
        return self._admit(request, placement)

    def _admit(self, request: JobRequest, placement: Placement | None) -> Admitted:
        if any(job.live and job.name == request.name for job in self._jobs.held()):
            raise JobExists(f"a live job has the name {request.name!r}; stop it or give another name")
        refusals: list[ControllerError] = []
        candidates = self._switches.candidates(request.switch)
        for switch in sorted(candidates, key=lambda one: -self._pools.of(one).free_slots):
            try:
                return self._admit_on(switch, request, placement)
            except (NoRoom, NoAgent) as refusal:  # noqa: PERF203
                refusals.append(refusal)
        raise refusals[0]

    def _admit_on(self, switch: ManagedSwitch, request: JobRequest, placement: Placement | None) -> Admitted:
        held, capabilities = self._jobs.held(), switch.driver.capabilities
        slots = request.slots or switch.config.pool(request.workers)
        self._quotas.check(request.tenant, (job for job in held if job.live), request.workers, slots)
        if request.workers > capabilities.max_workers:
            raise NoRoom(
                f"a job on switch {switch.name} ({switch.config.target}) has at most {capabilities.max_workers}"
                f" workers, not {request.workers}",
                workers=request.workers,
                workers_maximum=capabilities.max_workers,
            )
        if placement is None:
            placement = self._placements.choose(switch, request.workers, request.tenant)
        else:
            self._placements.require(placement, switch)
        number = next_job_id(self._store.last_job_id(), {job.id for job in held})
        epoch = self._switches.next_epoch([switch])
        pool = self._pools.of(switch)
        place = JobSwitch(switch.name, epoch, pool.allocate(slots), slots, group=number)
        job = Job(
            key=0,
            id=number,
            name=request.name or self._new_name(held),
            workers=request.workers,
            values_per_packet=capabilities.values_per_packet,
            created=time.time(),
            switches=[place],
            ranks=placement.ranks(),
            on_failure=OnFailure.asked(request.on_failure),
            tenant=request.tenant,
            secret=new_secret(),
        )
        try:
            self._store.create_job(job)
        except StoreError:
            pool.free(place.slot_base)
            raise
        self._store.events.record(EventKind.JOB_STARTED, f"{job.workers} ranks, {job.slots} slots", job=job)
        _LOG.info(
            "job %s (id %d, epoch %d): %d ranks on switch %s",
            *(job.name, job.id, job.epoch, job.workers, job.switch_names),
        )
        return Admitted(job, [switch], dict(enumerate(placement.announcements)))

    def _new_name(self, held: Sequence[Job]) -> str:
        number = next((job.key for job in self._store.newest_jobs(1)), 0) + 1
        used = {job.name for job in held}
        while f"job-{number}" in used:
            number += 1
        return f"job-{number}"
