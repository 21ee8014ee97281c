"""The interface of a fabric's layout: where its processes run and how they connect."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from switchml.topologies.topology import Topology

__all__ = ["CONTROL_SOCKETS", "AgentPlace", "Layout", "SwitchPlace"]

_CONTROLLER_SOCKET: Final = "controller.sock"
_MAX_SWITCHES: Final = 64
_P4RUNTIME_SOCKETS: Final = ("p4runtime.sock", *(f"p4runtime-{number}.sock" for number in range(1, _MAX_SWITCHES)))

CONTROL_SOCKETS: Final = (_CONTROLLER_SOCKET, *_P4RUNTIME_SOCKETS)
"""The Unix sockets of controller and soft switches, accessible to this user and root only."""


@dataclasses.dataclass(frozen=True)
class SwitchPlace:
    """A switch: its name and its command line."""

    name: str
    command: list[str]
    has_ready_file: bool = True


@dataclasses.dataclass(frozen=True)
class AgentPlace:
    """An agent: its name, its command line without controller and socket, and its description for users."""

    name: str
    command: list[str]
    description: dict[str, Any]


class Layout(abc.ABC):
    """The layout of one fabric; its processes are controlled over Unix sockets in `socket_directory`."""

    topology: Topology | None = None
    controller: str = ""
    """The address of a controller that runs already; without one the fabric starts its own."""

    def __init__(self, socket_directory: Path) -> None:
        self.listen = f"unix:{socket_directory / _CONTROLLER_SOCKET}"
        self._p4runtime = [f"unix:{socket_directory / name}" for name in _P4RUNTIME_SOCKETS]

    def prepare(self) -> None:  # noqa: B027 (not every layout needs anything)
        """Create what the processes need before they start. Raises NamespaceError."""

    @abc.abstractmethod
    def switches(self) -> list[SwitchPlace]:
        """Return the switches."""

    @abc.abstractmethod
    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        """Return the controller's [[switches]] table of a switch, given its ready file. Raises KeyError, TypeError."""

    def controller_command(self, command: Sequence[str]) -> list[str]:
        """Return `command` as it runs where the controller runs."""
        return list(command)

    @abc.abstractmethod
    def agents(self) -> list[AgentPlace]:
        """Return the agents."""
