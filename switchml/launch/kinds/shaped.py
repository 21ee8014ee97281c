"""A fabric whose hosts, in network namespaces, reach their soft switch over links of a chosen rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.processes import find_program
from switchml.dataplane.targets import SOFT
from switchml.launch.kinds.kind import FabricKind
from switchml.launch.kinds.namespaced import require_mtu
from switchml.launch.layouts import AgentPlace, Layout, SwitchPlace
from switchml.launch.settings import EMBEDDED_POOL
from switchml.topologies.namespaces import SWITCHES, Namespaces, require_privileges
from switchml.topologies.shaped_links import Shape, ShapedLinks
from switchml.topologies.topology import Host, Topology, single_switch

__all__ = ["CENTRAL_SERVER", "TOP_SWITCH", "Shaped", "server_on"]

TOP_SWITCH: Final = "top"
"""The switch above those of hosts, if the hosts have leaves."""

CENTRAL_SERVER: Final = "server"
"""The parameter server on a separate host, if there are servers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shaped(FabricKind):
    """Hosts behind links of one `shape`; a benchmark or a test starts it, `up` does not.

    With `leaves` each host has two agents: one for ranks that send packets to the switch, and one for ranks that share
    memory with a switch of the host, which is below another one at the same place as the first. With `servers` each
    host has a parameter server, and the last one, which has no agent, is that of CENTRAL_SERVER.
    """

    workers: int
    shape: Shape
    leaves: bool = False
    servers: bool = False

    def __post_init__(self) -> None:
        """Raise TopologyFileError if the packets are too large for the links."""
        require_mtu(self.topology, self.values)

    @property
    def topology(self) -> Topology:
        """One soft switch and the hosts."""
        return single_switch(self.workers)

    def options(self) -> dict[str, Any]:
        """Return the options of all kinds, as fabric.json has them."""
        return super().options() | {"switch": SOFT.name, "transport": "udp"}

    def layout(self, run_directory: Path, socket_directory: Path) -> Layout:
        """Return the layout over links. Raises NamespaceError without privileges."""
        return _OnShapedLinks(self, Namespaces(run_directory), socket_directory)


def server_on(host: str) -> str:
    """Return the name of the parameter server on a worker's host."""
    return f"{host}-server"


class _OnShapedLinks(Layout):
    """A soft switch with a UDP port on the bridge, and hosts that reach it over shaped links, through UDP as well.

    With `leaves` there is a tree in addition: a second such switch, TOP_SWITCH, and one of each host below it. With
    `servers` there is a soft switch on each host: CENTRAL_SERVER on the last, where no ranks are, and one with the
    ranks of each other host.
    """

    def __init__(self, kind: Shaped, namespaces: Namespaces, socket_directory: Path) -> None:
        require_privileges()
        super().__init__(socket_directory)
        self._kind = kind
        self._namespaces = namespaces
        self._socket_directory = socket_directory
        self.topology = self._topology = kind.topology
        hosts = self._topology.hosts
        self._leaves = {f"{host.name}-leaf": host for host in hosts} if kind.leaves else {}  # by switch and agent
        self._servers = {server_on(host.name): host for host in hosts[:-1]} if kind.servers else {}
        self._servers |= {CENTRAL_SERVER: hosts[-1]} if kind.servers else {}
        self._links = ShapedLinks(namespaces, self._topology)

    def prepare(self) -> None:
        self._links.create(self._kind.shape)

    def switches(self) -> list[SwitchPlace]:
        """Return the switch, those of the tree, and the servers."""
        name, address = self._topology.switch.name, str(self._topology.switch.ipv4)
        found = [self._place(0, name, SWITCHES, address)]
        if self._leaves:
            found.append(self._place(1, TOP_SWITCH, SWITCHES, address))
        for number, (leaf, host) in enumerate(self._leaves.items(), start=2):
            shared = ["--shm-port", f"2={self._switch_socket(leaf)}"]
            found.append(self._place(number, leaf, host.name, str(host.ipv4.ip), *shared))
        for number, (server, host) in enumerate(self._servers.items(), start=len(found)):
            found.append(self._place(number, server, host.name, str(host.ipv4.ip)))
        return found

    def _place(self, number: int, name: str, node: str, address: str, *ports: str) -> SwitchPlace:
        command = [find_program("switchml-switch"), "--grpc", self._p4runtime[number], "--udp-port", f"1={address}:0"]
        command += [*ports, *self._kind.soft_switch_arguments()]
        return SwitchPlace(name, self._namespaces.command(node, command))

    def _switch_socket(self, leaf: str) -> Path:
        return self._socket_directory / f"{leaf}-switch.sock"

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            **self._kind.table_at_udp(ready),
            "default_pool": self._kind.pool(EMBEDDED_POOL["udp"]),
            **({"parent": {"switch": TOP_SWITCH, "port": 1, "uplink": 1}} if name in self._leaves else {}),
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return self._namespaces.command(SWITCHES, command)

    def agents(self) -> list[AgentPlace]:
        over_udp = ["--switch", self._topology.switch.name, "--transport", "udp"]
        hosts = [host for host in self._topology.hosts if host != self._servers.get(CENTRAL_SERVER)]
        found = [self._agent(host.name, host, over_udp) for host in hosts]
        for leaf, host in self._leaves.items():
            shared = ["--switch", leaf, "--transport", "shm", "--switch-socket", str(self._switch_socket(leaf))]
            found.append(self._agent(leaf, host, shared))
        return found

    def _agent(self, name: str, host: Host, options: Sequence[str]) -> AgentPlace:
        address = str(host.ipv4.ip)
        command = [find_program("switchml-agent"), "--address", address, *options]
        description = {"address": address, "namespace": self._namespaces.name(host.name)}
        return AgentPlace(name, self._namespaces.command(host.name, command), description)
