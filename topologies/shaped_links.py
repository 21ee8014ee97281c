"""Links of a chosen rate: hosts on a kernel bridge, with a token bucket at both ends of every link.

The bridge is in the namespace of the switches. A host's end of its link shapes what the host sends ("up"), the
bridge's end what it receives ("down"). The bridge itself has the switch's address and no shape: a program in that
namespace reaches the hosts only over their links, like a switch whose ports are these links.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import Final

from switchml.common.errors import NamespaceError
from switchml.topologies.namespaces import (
    HOST_INTERFACE,
    SWITCHES,
    Namespaces,
    run_ip,
    run_program,
    switch_interface,
)
from switchml.topologies.topology import Topology

__all__ = ["Shape", "ShapedLinks", "Traffic", "queue_text", "rate_text", "require_shaping"]

_BRIDGE: Final = "br0"
_BURST_BYTES: Final = 128 << 10  # what a link may send at once: more than the largest packet before segmentation


@dataclasses.dataclass(frozen=True)
class Shape:
    """The rate of a link in bits per second, and the longest time that a packet waits in its queue, in seconds."""

    rate: int
    queue: float

    @property
    def bytes_per_second(self) -> float:
        """The rate in bytes."""
        return self.rate / 8

    def token_bucket(self) -> str:
        """Return the queueing discipline as tc(8) takes it."""
        return f"tbf rate {self.rate}bit burst {_BURST_BYTES} latency {max(1, round(1e6 * self.queue))}us"


def rate_text(rate: int) -> str:
    """Return a rate as people write it: 200mbit."""
    for unit, factor in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate >= factor and rate % factor == 0:
            return f"{rate // factor}{unit}"
    return f"{rate}bit"


def queue_text(seconds: float) -> str:
    """Return the length of a queue as people write it: 50ms."""
    return f"{1e3 * seconds:g}ms"


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The counters of a link in one direction since it was shaped; `bytes` include Ethernet headers."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.packets + other.packets, self.drops + other.drops)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes - other.bytes, self.packets - other.packets, self.drops - other.drops)


def require_shaping() -> None:
    """Raise NamespaceError unless the program that shapes links is installed."""
    if shutil.which("tc") is None:
        raise NamespaceError("the program tc is not on PATH; on Debian or Ubuntu: sudo apt-get install iproute2")


class ShapedLinks:
    """The links of a topology with one switch, between its hosts' namespaces and the bridge."""

    def __init__(self, namespaces: Namespaces, topology: Topology) -> None:
        self._namespaces = namespaces
        self._topology = topology
        self._bridge_ends = {host.name: switch_interface(host.switch, host.port) for host in topology.hosts}  # by host

    def create(self, shape: Shape) -> None:
        """Create namespaces, bridge and links. Raises NamespaceError; `Namespaces.remove` removes those created."""
        require_shaping()
        topology, name = self._topology, self._namespaces.name
        nodes = [SWITCHES, *self._bridge_ends]
        run_ip([f"netns add {name(node)}" for node in nodes])
        for node in nodes:
            self._namespaces.silence(node)
        links = [f"link add {_BRIDGE} mtu {topology.mtu} type bridge stp_state 0 mcast_snooping 0"]
        for host in topology.hosts:
            far = f"{HOST_INTERFACE} netns {name(host.name)} mtu {topology.mtu} address {host.mac}"
            near = self._bridge_ends[host.name]
            links.append(f"link add {near} mtu {topology.mtu} type veth peer name {far}")
            links.append(f"link set {near} master {_BRIDGE} up")
        network = topology.hosts[0].ipv4.network
        links.append(f"addr add {topology.switch.ipv4}/{network.prefixlen} dev {_BRIDGE}")
        run_ip([*links, "link set lo up", f"link set {_BRIDGE} up"], name(SWITCHES))
        for host in topology.hosts:
            address = f"addr add {host.ipv4.with_prefixlen} dev {HOST_INTERFACE}"
            run_ip(["link set lo up", address, f"link set {HOST_INTERFACE} up"], name(host.name))
        self.shape(shape)

    def shape(self, shape: Shape) -> None:
        """Give every link this shape. Raises NamespaceError, for example on a kernel without token buckets."""
        for node, interfaces in self._ends().items():
            for interface in interfaces:
                command = f"tc -n {self._namespaces.name(node)} qdisc replace dev {interface} root"
                run_program([*command.split(), *shape.token_bucket().split()])

    def traffic(self) -> dict[str, Traffic]:
        """Return what each link has carried in each direction, by "h1 up" and "h1 down". Raises NamespaceError."""
        hosts = {interface: host for host, interface in self._bridge_ends.items()}
        found = {}
        for node in self._ends():
            for interface, traffic in self._read(node).items():
                found[f"{node} up" if node != SWITCHES else f"{hosts[interface]} down"] = traffic
        return found

    def _ends(self) -> dict[str, list[str]]:
        """Return the shaped interfaces, by node."""
        return {SWITCHES: list(self._bridge_ends.values())} | {host: [HOST_INTERFACE] for host in self._bridge_ends}

    def _read(self, node: str) -> dict[str, Traffic]:
        output = run_program(["tc", "-n", self._namespaces.name(node), "-s", "-j", "qdisc", "show"])
        try:
            return _token_buckets(output)
        except (ValueError, KeyError, TypeError) as error:
            raise NamespaceError(f"tc shows the queues of {self._namespaces.name(node)} in another form") from error


def _token_buckets(output: str) -> dict[str, Traffic]:
    """Return the counters of token buckets in tc's output, by interface. Raises ValueError, KeyError, TypeError."""
    return {
        discipline["dev"]: Traffic(discipline["bytes"], discipline["packets"], discipline["drops"])
        for discipline in json.loads(output)
        if discipline["kind"] == "tbf"
    }
