"""The controller's metrics: jobs, the positions of their ranks, agents, switches, events."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from switchml.common.metrics_server import Families
from switchml.common.version import VERSION
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.jobs.register import JobRegister
from switchml.controller.records import JobState
from switchml.controller.store.events import EventKind, EventLog
from switchml.controller.switches import Switches

__all__ = ["ControllerMetrics"]

_FAILURE_SECONDS: Final = 600.0
_MOST_FAILURES: Final = 100  # as each is a series


class ControllerMetrics:
    """Reads the controller's objects; call it on their event loop."""

    def __init__(
        self, jobs: JobRegister, agents: Agents, switches: Switches, pools: SlotPools, events: EventLog
    ) -> None:
        self._jobs = jobs
        self._agents = agents
        self._switches = switches
        self._pools = pools
        self._events = events

    def __call__(self, families: Families) -> None:
        """Add the current values."""
        families.gauge("switchml_controller_info", "Version of the controller.", 1, version=VERSION)
        self._fill_jobs(families)
        self._fill_agents(families)
        self._fill_switches(families)
        for kind in EventKind:
            count = self._events.counts.get(kind.word, 0)
            families.counter("switchml_events_total", "Events since the controller started.", count, kind=kind.word)
        for event in self._events.recent(EventKind.JOB_FAILED, _FAILURE_SECONDS, _MOST_FAILURES):
            families.gauge(
                "switchml_job_failed_timestamp_seconds", "When a job failed, for ten minutes.", event.time,
                job_name=event.job_name, job_key=str(event.job_key), switch=event.switch, cause=event.detail,
            )  # fmt: skip

    def _fill_jobs(self, families: Families) -> None:
        jobs = [live.job for live in self._jobs.live_jobs()]
        states = Counter(job.state for job in jobs)
        for state in (state for state in JobState if state.live):
            families.gauge("switchml_jobs", "Live jobs.", states[state], state=state.name.lower())
        for job in jobs:
            for place in job.switches:
                labels = {"job_name": job.name, "switch": place.switch}
                families.gauge("switchml_job_workers", "Ranks of a job.", len(job.ranks_on(place.switch)), **labels)
                families.gauge("switchml_job_slots", "Slots that a job holds.", place.slots, **labels)
                families.gauge(
                    "switchml_job_switch_info", "The switch above one in a job's tree; empty: none.", 1,
                    **labels, upstream=place.upstream,
                )  # fmt: skip
            families.gauge(
                "switchml_job_age_seconds", "Time since its start.", time.time() - job.created, job_name=job.name
            )
            first = max((rank.position for rank in job.ranks), default=0)
            for rank in job.ranks:
                labels = {"job_name": job.name, "rank": str(rank.rank), "agent": rank.agent}
                families.gauge(
                    "switchml_rank_position_chunks", "Chunks that a rank has contributed.", rank.position, **labels
                )
                families.gauge(
                    "switchml_rank_behind_chunks",
                    "Chunks behind the first rank.",
                    first - rank.position,
                    **labels,
                )

    def _fill_agents(self, families: Families) -> None:
        sessions = self._agents.sessions()
        for state, live in (("live", True), ("gone", False)):
            count = sum(session.live is live for session in sessions)
            families.gauge("switchml_agents", "Agents that have registered.", count, state=state)
        used = self._jobs.ranks_in_use()
        for session in sessions:
            name, carried = session.name, used[session.name]
            age = time.time() - session.last_heartbeat
            families.gauge("switchml_agent_up", "Whether an agent is connected.", session.live, agent=name)
            families.gauge("switchml_agent_heartbeat_age_seconds", "Since its last heartbeat.", age, agent=name)
            families.gauge("switchml_agent_assigned_ranks", "Ranks it carries.", carried, agent=name)

    def _fill_switches(self, families: Families) -> None:
        for switch in self._switches:
            name, pool = switch.name, self._pools.of(switch)
            families.gauge("switchml_switch_up", "Whether it is connected.", switch.driver.connected, switch=name)
            families.gauge("switchml_switch_primary", "Whether we are its primary.", switch.driver.primary, switch=name)
            families.gauge("switchml_switch_slots", "Slots that it has.", pool.size, switch=name)
            families.gauge("switchml_switch_free_slots", "Slots no job holds.", pool.free_slots, switch=name)
            families.gauge(
                "switchml_switch_largest_free_slots", "The longest free range.", pool.largest_free_range,
                switch=name,
            )  # fmt: skip
