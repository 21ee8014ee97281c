"""Admission of jobs: a job gets an id, an epoch, slots and agents, or is refused with a reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from switchml.controller.admission.placement import Placement
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.request import JobRequest, next_job_id, validate
from switchml.controller.admission.scopes import Scope, Scopes
from switchml.controller.admission.slots import SlotPools
from switchml.controller.admission.trees import JobTree
from switchml.controller.errors import ControllerError, InvalidRequest, JobExists, NoAgent, NoFloats, NoRoom, StoreError
from switchml.controller.records import Job, OnFailure, new_secret
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

    async def wait_for_room(self, seconds: float) -> None:
        """Wait until a job has freed its slots on a switch, at most `seconds`."""


class Admission:
    """Admits jobs one after another, so that the checks are still valid when the job is written to the store."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        jobs: _Jobs,
        quotas: Quotas,
        pools: SlotPools,
        scopes: Scopes,
    ) -> None:
        self._store = store
        self._switches = switches
        self._jobs = jobs
        self._quotas = quotas
        self._pools = pools
        self._scopes = scopes

    async def admit(self, request: JobRequest) -> Admitted:
        """Return a new job, PENDING and in the store.

        The caller must add it to the other jobs before it awaits anything. If there is no room, this waits until the
        ending jobs have freed their slots and ranks. Refusals are recorded in the event log.

        Raises:
            InvalidRequest, JobExists, SwitchNotFound, SwitchUnavailable, NoRoom, NoFloats, NoAgent, QuotaExceeded:
                the job was not admitted.
            StoreError: the job cannot be written.

        """
        try:
            validate(request.options)
            await self._renew_epochs(request)
            return await self._admit_when_free(request)
        except ControllerError as refusal:
            options = request.options
            name = f"job {options.name!r} with " if options.name else ""
            why = f"{name}{options.workers} workers: {refusal.message}"
            self._store.events.record(EventKind.JOB_REFUSED, why, switch=options.switch)
            raise

    async def _renew_epochs(self, request: JobRequest) -> None:
        """Restart the epochs of switches without jobs on which the tenant can have no more."""
        for switch in self._switches.candidates(request.options.switch, request.tenant):
            if not any(place.switch == switch.name for job in self._jobs.held() for place in job.switches):
                await self._switches.renew_epochs(switch, request.tenant)

    async def _admit_when_free(self, request: JobRequest) -> Admitted:
        deadline = time.monotonic() + _ENDING_SECONDS
        while True:
            try:
                return self._admit(request)
            except (NoRoom, NoAgent) as refusal:
                ending = [job.name for job in self._jobs.held() if not job.live]
                left = deadline - time.monotonic()
                if not ending:
                    raise
                if left <= 0:
                    why = f"job {', '.join(ending)} has ended, and had not freed its slots within {_ENDING_SECONDS:g} s"
                    raise type(refusal)(f"{refusal.message}; {why}", **refusal.figures) from None
            await self._jobs.wait_for_room(left)

    def _admit(self, request: JobRequest) -> Admitted:
        options = request.options
        if any(job.live and job.name == options.name for job in self._jobs.held()):
            raise JobExists(f"a live job has the name {options.name!r}; stop it or give another name")
        scopes = self._scopes.candidates(request)
        refusals: list[ControllerError] = []
        for scope in scopes:
            try:
                return self._admit_to(scope, request)
            except (NoRoom, NoAgent, NoFloats) as refusal:  # noqa: PERF203
                refusals.append(refusal)
        raise refusals[-1 if len(scopes[-1].switches) > 1 else 0]  # of the largest tree, or else the emptiest switch

    def _admit_to(self, scope: Scope, request: JobRequest) -> Admitted:
        slots = self._slots(scope, request)
        placement = request.placement or scope.place(request.options.workers).in_order(request.options.agents)
        return self._enter(scope.require(placement, request.options.adds_floats), placement, slots, request)

    def _slots(self, scope: Scope, request: JobRequest) -> int:
        """Return the number of slots of a job, if its tenant may have them.

        Raises:
            InvalidRequest: they are fewer than its aggregators.
            QuotaExceeded: it may not.

        """
        workers, aggregators = request.options.workers, len(request.options.aggregators)
        slots = request.options.slots or min(switch.config.pool(workers) for switch in scope.switches)
        live = (job for job in self._jobs.held() if job.live)
        self._quotas.check(request.tenant, live, workers, slots)
        if slots < aggregators:
            raise InvalidRequest(
                f"{slots} slots cannot be shared by {aggregators} aggregators; ask for more slots, or name fewer"
            )
        return slots

    def _enter(self, tree: JobTree, placement: Placement, slots: int, request: JobRequest) -> Admitted:
        """Write a job whose checks have passed to the store, with slots on all switches of its tree."""
        options = request.options
        held = self._jobs.held()
        number = next_job_id(self._store.last_job_id(), {job.id: job.tenant for job in held}, request.tenant)
        epoch = self._switches.next_epoch(tree.switches, request.tenant)
        places = tree.places(epoch, self._pools.allocate(tree.switches, slots), slots, group=number)
        job = Job(
            key=0,
            id=number,
            name=options.name or self._new_name(held),
            workers=options.workers,
            values_per_packet=tree.switches[0].driver.capabilities.values_per_packet,
            created=time.time(),
            switches=places,
            ranks=placement.ranks(),
            on_failure=OnFailure.asked(options.on_failure),
            priority=options.priority,
            tenant=request.tenant,
            secret=new_secret(),
        )
        try:
            self._store.create_job(job)
        except StoreError:
            self._pools.free(places)
            raise
        self._store.events.record(EventKind.JOB_STARTED, f"{job.workers} ranks, {job.slots} slots", job=job)
        _LOG.info(
            "job %s (id %d, epoch %d): %d ranks on switch %s",
            *(job.name, job.id, job.epoch, job.workers, job.switch_names),
        )
        return Admitted(job, tree.switches, dict(enumerate(placement.announcements)))

    def _new_name(self, held: Sequence[Job]) -> str:
        number = next((job.key for job in self._store.newest_jobs(1)), 0) + 1
        used = {job.name for job in held}
        while f"job-{number}" in used:
            number += 1
        return f"job-{number}"
