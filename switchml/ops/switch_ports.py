"""Traffic of each port of a switch: rates from two readings of the switch's and the agents' counters."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.table_names import WORKER_TABLE

__all__ = ["PortActivity", "look_twice"]


@dataclass(frozen=True)
class PortActivity:
    """One port that has agents attached, or that drops packets on purpose.

    `contributions` are those that the switch has admitted from the ranks that are there now; results are counted by the
    agents, whose heartbeats arrive once a second. The losses are fractions of the packets.
    """

    port: int
    agents: tuple[str, ...]
    ranks: int
    contributions: int
    contributions_per_second: float
    results_per_second: float
    ingress_loss: float
    egress_loss: float

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _PortReading:
    """One reading of the counters: results by port and rank, contributions by port and entry."""

    time: float
    detail: pb.SwitchDetail
    agents: Mapping[int, list[pb.Agent]]
    contributions: Mapping[int, Mapping[str, int]]
    results: Mapping[int, Mapping[str, int]]


def look_twice(client: ControllerClient, name: str, interval: float) -> list[PortActivity]:
    """Return the ports of a switch, by number, with rates over `interval` seconds; without a name, of the only switch.

    Raises what ControllerClient.show_switch raises.
    """
    before = _look(client, name)
    time.sleep(interval)
    now = _look(client, before.detail.switch.name)
    passed = now.time - before.time
    losses = {loss.port: loss for loss in now.detail.losses}
    return [
        PortActivity(
            port=port,
            agents=tuple(agent.name for agent in now.agents.get(port, ())),
            ranks=sum(agent.ranks_in_use for agent in now.agents.get(port, ())),
            contributions=sum(now.contributions.get(port, {}).values()),
            contributions_per_second=_added(before.contributions, now.contributions, port) / passed,
            results_per_second=_added(before.results, now.results, port) / passed,
            ingress_loss=losses[port].ingress if port in losses else 0.0,
            egress_loss=losses[port].egress if port in losses else 0.0,
        )
        for port in sorted({*now.agents, *losses, *now.contributions})
    ]


def _look(client: ControllerClient, name: str) -> _PortReading:
    detail = client.show_switch(name)
    agents: dict[int, list[pb.Agent]] = defaultdict(list)
    ports = {}
    for agent in client.list_agents():
        registration = agent.registration
        if agent.live and registration.switch in ("", detail.switch.name):
            agents[registration.switch_port].append(agent)
            ports[agent.name] = registration.switch_port
    contributions: dict[int, dict[str, int]] = defaultdict(dict)
    for entry in detail.entries:
        if entry.table == WORKER_TABLE:
            matched = str(sorted(entry.match.items()))
            contributions[int(entry.match["ingress_port"])][matched] = entry.packets
    results: dict[int, dict[str, int]] = defaultdict(dict)
    for job in client.list_jobs():
        for rank in job.ranks:
            if rank.agent in ports:
                results[ports[rank.agent]][f"{job.key}/{rank.worker}"] = rank.counters.received
    return _PortReading(time.monotonic(), detail, agents, contributions, results)


def _added(before: Mapping[int, Mapping[str, int]], now: Mapping[int, Mapping[str, int]], port: int) -> int:
    """Return the increase of a port's counters; new counters began at 0."""
    then = before.get(port, {})
    return sum(max(0, count - then.get(key, 0)) for key, count in now.get(port, {}).items())
