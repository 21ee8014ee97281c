"""The running versions of SwitchML: this program's, and those of the servers that the controller knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from switchml.common.version import VERSION
from switchml.controller.client import ControllerClient

__all__ = ["Version", "client_version", "server_versions"]


@dataclass(frozen=True)
class Version:
    """One program: `kind` is client, controller, agent or switch.

    `same` tells whether its version equals this program's; None for a switch, which reports only an interface version.
    """

    kind: str
    name: str
    version: str
    same: bool | None


def client_version() -> Version:
    """Return this program's version."""
    return Version("client", "switchml-ctl", VERSION, True)


def server_versions(client: ControllerClient) -> Iterable[Version]:
    """Yield the versions of the controller, its live agents and its switches.

    Raises what ControllerClient raises.
    """
    controller = client.info().version
    yield Version("controller", client.address, controller, controller == VERSION)
    for agent in client.list_agents():
        if agent.live:
            registration = agent.registration
            yield Version("agent", agent.name, registration.version, registration.version == VERSION)
    for switch in client.list_switches():
        interface = f"{switch.target}, control interface {switch.control_version or 'unknown'}"
        yield Version("switch", switch.name, interface, None)
