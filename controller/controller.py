"""The controller without its daemon: the objects for jobs, agents and switches, connected with each other."""

from __future__ import annotations

import time
from collections.abc import Container

from switchml.common.clock import Clock
from switchml.controller.admission.admission import Admission
from switchml.controller.admission.placement import AgentRooms
from switchml.controller.admission.quotas import Quotas
from switchml.controller.admission.scopes import Scopes
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.jobs.closings import Closings
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.epochs import Parts
from switchml.controller.jobs.lifecycle import Lifecycle
from switchml.controller.jobs.lost_links import LostLinks
from switchml.controller.jobs.lost_switches import LostSwitches
from switchml.controller.jobs.recovery import Recovery
from switchml.controller.jobs.register import JobRegister
from switchml.controller.jobs.rendezvous import Rendezvous
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.northbound.agent_messages import AgentMessages
from switchml.controller.northbound.probes import Probes
from switchml.controller.northbound.profiles import Profiles
from switchml.controller.store.database import Store
from switchml.controller.switches import Switches

__all__ = ["Controller"]


class Controller:
    """One controller, which leads with a store; ``clock`` measures silence."""

    def __init__(
        self,
        store: Store,
        switches: Switches,
        quotas: Quotas,
        clock: Clock = time.monotonic,
        shared_agents: Container[str] = frozenset(),
    ) -> None:
        self.store = store
        self.switches = switches
        self.agents = Agents(switches.get, clock, shared_agents)
        self.jobs = JobRegister(store)
        self.pools = SlotPools()
        scopes = Scopes(switches, AgentRooms(self.agents, self.jobs.ranks_in_use), self.pools)
        admission = Admission(store, switches, self.jobs, quotas, self.pools, scopes)
        endings = JobEndings(store, self.jobs, self.agents, self.pools)
        parts = Parts(store, switches, self.agents, scopes, self.pools, self.jobs)
        transitions = Transitions(parts, endings)
        closings = Closings(self.agents)
        self.lifecycle = Lifecycle(store, self.jobs, admission, transitions, endings, closings)
        self.recovery = Recovery(store, switches, self.jobs, self.pools, transitions, endings)
        self.rendezvous = Rendezvous(self.jobs, self.lifecycle, transitions, endings, store.events)
        self.lost_switches = LostSwitches(self.jobs, endings, self.agents, clock)
        switches.on_change = self.lost_switches.connection_changed
        self.lost_links = LostLinks(self.jobs, endings, clock)
        self.profiles = Profiles(self.agents)
        self.probes = Probes(self.agents, self.jobs)
        self.messages = AgentMessages(
            parts, self.lifecycle, transitions, endings, self.rendezvous, self.profiles, self.probes
        )
