"""The fields with which an agent may register."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from switchml.common.version import VERSION
from switchml.controller.agents import Agents
from switchml.controller.errors import InvalidRequest
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_VERSION
from switchml.dataplane.targets import TARGETS


@dataclass
class Switch:
    target: str
    name: str = "s1"
    neighbours: dict[int, str] = field(default_factory=dict)

    @property
    def highest_port(self) -> int:
        return TARGETS[self.target].highest_port

    def require_tenant(self, tenant: str) -> None:
        """Do nothing: it is for all tenants."""


def registration(**values: object) -> pb.Register:
    usual: dict[str, object] = {
        "version": VERSION,
        "protocol_version": PROTOCOL_VERSION,
        "name": "a1",
        "host": "here",
        "address": "127.0.0.1",
        "mac": "00:00:00:00:00:00",
        "socket": "/run/a1.sock",
        "switch_port": 1,
        "max_ranks": 8,
        "instance": "i1",
    }
    return pb.Register(**{**usual, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(("target", "highest"), [("soft", 511), ("bmv2", 510), ("tofino", 511)])
async def test_the_highest_port_of_each_target(target: str, highest: int) -> None:
    """BMv2 drops packets to port 511."""
    agents = Agents(lambda _: Switch(target))
    agents.register(registration(switch_port=highest))
    with pytest.raises(InvalidRequest, match=f"switch_port is {highest + 1} and must be 1 to {highest}"):
        agents.register(registration(switch_port=highest + 1))


async def test_no_agent_is_at_a_port_between_switches() -> None:
    agents = Agents(lambda _: Switch("soft", "leaf1", {5: "spine"}))
    with pytest.raises(InvalidRequest, match="agent a1: port 5 of switch leaf1 leads to switch spine, not to a host"):
        agents.register(registration(switch_port=5))
    agents.register(registration(switch_port=4))
