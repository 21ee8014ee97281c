"""Hosts in two racks: network namespaces on two kernel bridges, with a link of a chosen rate between these."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from switchml.topologies.namespaces import HOST_INTERFACE, Namespaces, run_ip, run_program
from switchml.topologies.shaped_links import Shape, require_shaping

__all__ = ["Racks", "racks"]

_BRIDGE, _TRUNK = "br0", "trunk"


@dataclass(frozen=True)
class Racks:
    """The rack of each host, by the host's name, and the namespaces of hosts ("h1") and racks ("rack-0")."""

    rack_of: dict[str, int]
    namespaces: Namespaces

    def address(self, node: str) -> str:
        """Return the address of a host or of a rack's bridge."""
        number = (
            int(node.removeprefix("rack-")) + 1 if node.startswith("rack-") else 10 + list(self.rack_of).index(node)
        )
        return f"10.77.0.{number}"

    def start(self, node: str, command: Sequence[str], log: Path | None = None) -> subprocess.Popen[str]:
        """Start a program in a namespace; `log` takes its output."""
        line = self.namespaces.command(node, command)
        if log is None:
            return subprocess.Popen(line, text=True, stdout=subprocess.PIPE)
        with log.open("a", encoding="utf-8") as output:
            return subprocess.Popen(line, text=True, stdout=output, stderr=output)

    def trunk_bytes(self) -> int:
        """Return the bytes that the racks have sent to each other."""
        found = (
            run_program([*self._ip(rack), "cat", f"/sys/class/net/{_TRUNK}/statistics/tx_bytes"]) for rack in (0, 1)
        )
        return sum(map(int, found))

    def _ip(self, rack: int) -> list[str]:
        return ["ip", "netns", "exec", self.namespaces.name(f"rack-{rack}")]


@contextlib.contextmanager
def racks(run_directory: Path, rack_of: dict[str, int], trunk: Shape) -> Iterator[Racks]:
    """Provide hosts in racks; only the trunk between the racks has a shape. Raises NamespaceError."""
    require_shaping()
    made = Racks(rack_of, Namespaces(run_directory))
    name = made.namespaces.name
    nodes = ["rack-0", "rack-1", *rack_of]
    try:
        run_ip([f"netns add {name(node)}" for node in nodes])
        for node in nodes:
            made.namespaces.silence(node)
        run_ip([f"link add {_TRUNK} netns {name('rack-0')} type veth peer name {_TRUNK} netns {name('rack-1')}"])
        for rack in (0, 1):
            lines = [
                f"link add {_BRIDGE} type bridge stp_state 0 mcast_snooping 0",
                f"link set {_TRUNK} master {_BRIDGE}",
            ]
            for host in (host for host, its in rack_of.items() if its == rack):
                lines.append(f"link add {host} type veth peer name {HOST_INTERFACE} netns {name(host)}")
                lines.append(f"link set {host} master {_BRIDGE} up")
            lines.append(f"addr add {made.address(f'rack-{rack}')}/24 dev {_BRIDGE}")
            run_ip([*lines, *(f"link set {one} up" for one in ("lo", _BRIDGE, _TRUNK))], name(f"rack-{rack}"))
            shape = f"tc -n {name(f'rack-{rack}')} qdisc replace dev {_TRUNK} root {trunk.token_bucket()}"
            run_program(shape.split())
        for host in rack_of:
            address = f"addr add {made.address(host)}/24 dev {HOST_INTERFACE}"
            run_ip([address, "link set lo up", f"link set {HOST_INTERFACE} up"], name(host))
        yield made
    finally:
        made.namespaces.remove()
