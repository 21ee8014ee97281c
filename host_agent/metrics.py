"""The agent's metrics: packets, round trips, and how its ranks spend their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from switchml.common.counter_table import DEVICE, LINK, PATH, PROCESS, RANK, THREAD
from switchml.common.metrics_server import Families
from switchml.common.version import VERSION
from switchml.dataplane.devices import DEVICE_TRANSPORTS

if TYPE_CHECKING:
    from switchml.host_agent._engine import Engine
    from switchml.host_agent.local_jobs import LocalJobs

__all__ = ["AgentMetrics"]


class AgentMetrics:
    """Read metrics from the agent's jobs and engine, on their event loop. `registered` returns the registration.

    Only open ranks are counted: their series end with them.
    """

    def __init__(
        self, engine: Engine, jobs: LocalJobs, name: str, transport: str, registered: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._jobs = jobs
        self._name = name
        self._transport = transport
        self._registered = registered

    def __call__(self, families: Families) -> None:
        """Add the current values."""
        families.gauge(
            "switchml_agent_info", "Version and transport.", 1,
            agent=self._name, version=VERSION, transport=self._transport,
        )  # fmt: skip
        families.gauge(
            "switchml_agent_registered", "1 while the agent is registered with a controller.", self._registered()
        )
        open_ranks = list(self._jobs.open_ranks())
        families.gauge("switchml_agent_open_ranks", "Ranks that are open at this agent.", len(open_ranks))
        if self._transport in DEVICE_TRANSPORTS:
            families.counters((*DEVICE, *LINK), self._engine.link_counters())
        for job, rank, handle in open_ranks:
            labels = {"job_name": job.name, "rank": str(rank.rank)}
            status = self._engine.status(handle)
            families.counters(RANK, status, **labels)
            families.gauge(
                "switchml_rank_gso_batch_packets",
                "Measured number of packets sent in one message; 0 before the measurement.",
                status["gso_batch_size"],
                **labels,
            )
            families.gauge(
                "switchml_rank_window_packets",
                "Packets that may be in flight; 0 for a rank that shares memory with the switch.",
                status["window"],
                **labels,
            )
            families.counters((*THREAD, *PROCESS, *PATH), self._engine.profile(handle, 0), **labels)
