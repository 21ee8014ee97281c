"""Admission of jobs: a job gets an id, an epoch, slots and agents, or is refused with a reason."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from switchml.controller.admission.placement import Placement, Placements
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.request import JobRequest, next_job_id, validate
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
        placements: Placements,
    ) -> None:
        self._store = store
        self._switches = switches
        self._jobs = jobs
        self._quotas = quotas
        self._pools = pools
        self._placements = placements

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
        if options.aggregators:
            return self._admit_over(request)
        if request.placement is not None:
            names = dict.fromkeys(session.switch for session in request.placement.sessions)
            return self._admit_on([self._switches.get(name) for name in names], request)
        candidates = self._switches.candidates(options.switch, request.tenant)
        trees = self._trees(candidates)
        if options.switch and trees:
            return self._admit_on(trees[-1], request)  # the named switch with all below it
        scopes = [[switch] for switch in sorted(candidates, key=lambda one: -self._pools.of(one).free_slots)]
        refusals: list[ControllerError] = []
        for scope in (*scopes, *trees):
            try:
                return self._admit_on(scope, request)
            except (NoRoom, NoAgent, NoFloats) as refusal:  # noqa: PERF203
                refusals.append(refusal)
        raise refusals[-1 if trees else 0]

    def _trees(self, candidates: Sequence[ManagedSwitch]) -> list[list[ManagedSwitch]]:
        """Return the parts of trees whose switches are all candidates, each with its top, the smallest first."""
        trees, ready = self._switches.trees, {switch.name: switch for switch in candidates}
        found = []
        for top in ready:
            leaves = {name for name, switch in ready.items() if switch.driver.capabilities.leaf}
            below = [one for one in trees.below(top) if leaves | {top} >= set(trees.path(one, top))]
            if len(below) > 1:
                found.append([ready[name] for name in below])
        return sorted(found, key=len)

    def _choose(self, scope: Sequence[ManagedSwitch], request: JobRequest) -> Placement:
        workers = request.options.workers
        if len(scope) > 1:
            # A job for which a switch above others is named sums there: its ranks are below as many as possible.
            spread = bool(request.options.switch)
            return self._placements.choose_below(scope, workers, request.tenant, spread=spread)
        JobTree.alone(scope[0]).require_room({scope[0].name: workers})
        return self._placements.choose(scope[0], workers, request.tenant)

    def _admit_on(self, scope: Sequence[ManagedSwitch], request: JobRequest) -> Admitted:
        """Admit a job to switches of `scope`, or to those of its agents if the request names them."""
        slots = self._slots(scope, request)
        placement = request.placement or self._choose(scope, request)
        ranks = Counter(session.switch for session in placement.sessions)
        tree = JobTree.holding(self._switches, {session.switch: session.name for session in placement.sessions})
        tree.require_tenant(request.tenant)
        tree.require_room(ranks)
        if request.options.adds_floats:
            tree.require_floats()
        self._placements.require(placement, tree)
        return self._enter(tree, placement, slots, request)

    def _admit_over(self, request: JobRequest) -> Admitted:
        """Admit a job to the aggregators that it names, with its ranks at any agents."""
        options = request.options
        tree = JobTree.over(self._switches, options.aggregators)
        tree.require_tenant(request.tenant)
        slots = self._slots(tree.switches, request)
        if slots < len(tree.switches):
            raise InvalidRequest(
                f"{slots} slots cannot be shared by {len(tree.switches)} aggregators; ask for more slots, or name fewer"
            )
        placement = request.placement or self._placements.choose_anywhere(
            tree.switches, options.workers, request.tenant
        )
        tree.require_room(dict.fromkeys(options.aggregators, options.workers))
        tree.require_reach(placement.sessions)
        if options.adds_floats:
            tree.require_floats()
        self._placements.require(placement, tree)
        return self._enter(tree, placement, slots, request)

    def _slots(self, switches: Sequence[ManagedSwitch], request: JobRequest) -> int:
        """Return the number of slots of a job, if its tenant may have them.

        Raises:
            QuotaExceeded: it may not.

        """
        workers = request.options.workers
        slots = request.options.slots or min(switch.config.pool(workers) for switch in switches)
        live = (job for job in self._jobs.held() if job.live)
        self._quotas.check(request.tenant, live, workers, slots)
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
            values_per_packet=tree.top.driver.capabilities.values_per_packet,
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
