"""The part of a fabric on several hosts that one host has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ConfigurationError
from switchml.common.processes import find_program
from switchml.dataplane.constants import PROTOCOL_UDP_PORT
from switchml.launch.kinds.kind import FabricKind, shared_fields
from switchml.launch.layouts import AgentPlace, Layout, SwitchPlace
from switchml.launch.settings import FABRIC_OPTIONS

__all__ = ["HostLeaf"]

_P4RUNTIME_PORT: Final = 9559  # of the host's own switch, at the host's address
_OF_OTHER_KINDS: Final = ("switch", "workers", "racks", "topology", "agents", "threads", "program")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLeaf(FabricKind):
    """A soft switch named `leaf` below another one, and an agent whose ranks share memory with it.

    `address` is the host's IPv4 address in the fabric, `controller` the fabric's; `certificates` has the directories
    switch-LEAF and agent-LEAF, unless it is `insecure`.
    """

    leaf: str
    address: str
    controller: str
    certificates: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a necessary option is missing."""
        if not self.controller:
            raise ConfigurationError("--leaf needs the fabric's controller (--controller, or SWITCHML_CONTROLLER)")
        if not self.address:
            raise ConfigurationError("--leaf needs the IPv4 address of this host's data interface (--address)")
        if not self.certificates and not self.insecure:
            raise ConfigurationError(
                f"--leaf needs the certificates of switch and agent {self.leaf} (--certificates), or --insecure on a "
                "trusted network; docs/operate/security.md has the steps"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> HostLeaf:
        """Return the one that options with the names of FABRIC_OPTIONS describe. Raises ConfigurationError."""
        others = [name for name in _OF_OTHER_KINDS if options[name] != FABRIC_OPTIONS[name]]
        if others or options["transport"] == "udp":
            raise ConfigurationError(
                "--leaf starts a switch and an agent of one host; of the options of other fabrics only --values, "
                "--slots and those of injected faults can be given"
            )
        own = {name: options[name] for name in ("leaf", "address", "controller", "certificates", "insecure")}
        return cls(**own, **shared_fields(options))

    def options(self) -> dict[str, Any]:
        """Return the options of all kinds, as fabric.json has them."""
        return super().options() | {"transport": "shm"}

    def layout(self, run_directory: Path, socket_directory: Path) -> Layout:  # noqa: ARG002 (has no namespaces)
        """Return the layout of this host. Its methods raise ProgramNotFoundError."""
        return _OneHost(self, socket_directory)


class _OneHost(Layout):
    """The part of a fabric that one host has: a switch below another one, and an agent that shares memory with it."""

    def __init__(self, kind: HostLeaf, socket_directory: Path) -> None:
        super().__init__(socket_directory)
        self._kind = kind
        self._switch_socket = socket_directory / "switch.sock"
        self.controller = kind.controller

    def switches(self) -> list[SwitchPlace]:
        """Return the host's switch."""
        address = self._kind.address
        command = [find_program("switchml-switch"), "--grpc", f"{address}:{_P4RUNTIME_PORT}"]
        command += ["--udp-port", f"1={address}:{PROTOCOL_UDP_PORT}", "--shm-port", f"2={self._switch_socket}"]
        command += [*self._kind.soft_switch_arguments(), *self._security("switch")]
        return [SwitchPlace(f"switch-{self._kind.leaf}", command)]

    def _security(self, program: str) -> list[str]:
        if self._kind.certificates:
            return ["--tls", str(Path(self._kind.certificates, f"{program}-{self._kind.leaf}"))]
        return ["--insecure"]

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        """Return what the controller's configuration says of the switch, apart from its parent."""
        return {"name": name.removeprefix("switch-"), **self._kind.table_at_udp(ready)}

    def agents(self) -> list[AgentPlace]:
        name, address = self._kind.leaf, self._kind.address
        command = [find_program("switchml-agent"), "--address", address, "--switch", name]
        command += ["--transport", "shm", "--switch-socket", str(self._switch_socket), *self._security("agent")]
        return [AgentPlace(name, command, {"address": address})]
