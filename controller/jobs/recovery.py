"""Recovery after a restart: of the controller, whose jobs continue, or of a switch, whose sums are lost."""

from __future__ import annotations

import logging
import time

from switchml.controller.admission.slots import SlotPools
from switchml.controller.drivers import JobTables
from switchml.controller.errors import ControllerError
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.register import JobRegister
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["Recovery"]

_LOG = logging.getLogger(__name__)


class Recovery:
    """Takes over the jobs in the store, and determines the tables for a switch that has just been connected."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        jobs: JobRegister,
        pools: SlotPools,
        transitions: Transitions,
        endings: JobEndings,
    ) -> None:
        self._store = store
        self._switches = switches
        self._jobs = jobs
        self._pools = pools
        self._transitions = transitions
        self._endings = endings

    def take_over(self) -> None:
        """Continue the live jobs in the store after a restart of the controller."""
        for job in self._store.live_jobs():
            why = self._why_not(job)
            if why is None:
                live = LiveJob(job, [self._switches.get(place.switch) for place in job.switches])
                self._jobs.add(live)
                self._transitions.recover(live)
                self._store.events.record(EventKind.JOB_TAKEN_OVER, job=job)
                _LOG.info("job %s (id %d, epoch %d) is taken over", job.name, job.id, job.epoch)
            else:
                before, job.failure, job.ended = job.state, why, time.time()
                job.enter(JobState.FAILED)
                self._store.events.record(EventKind.JOB_FAILED, why, job=job)
                self._store.save_state(job, before, why)
                _LOG.warning("job %s: FAILED: %s", job.name, why)

    def _why_not(self, job: Job) -> str | None:
        """Reserve the slots of a job; return the reason if it cannot continue."""
        if job.state is JobState.PENDING:
            return "the controller was restarted while the job started"
        if job.in_transition:
            return "the controller was restarted while the job changed to another epoch"
        for place in job.switches:
            parent = self._parent_of(place.switch)
            if place.upstream and place.upstream != parent:
                return f"switch {place.switch} is not below switch {place.upstream} since the controller was restarted"
        try:
            self._pools.reserve(job.switches, job.values_per_packet, self._switches)
        except ControllerError as error:
            return f"{error}, since the controller was restarted"
        return None

    def _parent_of(self, name: str) -> str:
        """Return the switch above one that may not be configured any more."""
        parents = (switch.config.parent for switch in self._switches if switch.name == name)
        return next((parent.switch for parent in parents if parent is not None), "")

    def prepare_switch(self, switch: ManagedSwitch, what: str) -> list[JobTables]:
        """Return the tables for a switch that has just been connected; fail jobs whose sums in it are lost.

        `what` has happened to it, if anything, so that its registers are empty.
        """
        held = [live for live in self._jobs.live_jobs() if switch.name in live.written]
        if what and self._store.last_epoch(switch.name):
            self._store.events.record(EventKind.SWITCH_RESTARTED, f"it {what}", switch=switch.name)
        for live in held:
            if what and live.job.state is JobState.RUNNING:
                why = f"switch {switch.name} {what} and lost the sums in its registers"
                self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_SWITCH_LOST)
        return [live.written[switch.name] for live in held if live.job.live]
