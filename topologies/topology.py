"""Topology files: switches, hosts and the links between them, as YAML and as dataclasses.

Example::

    name: two-hosts
    mtu: 9000                        # MTU of every link; default 9000
    switches:
      - name: s1
        target: bmv2                 # or soft, the default; `switchml-ctl up --switch` overrides it
        mac: "02:00:00:00:00:fe"
        ipv4: 10.0.0.254             # address of its data plane
    hosts:
      - {name: h1, mac: "02:00:00:00:00:01", ipv4: 10.0.0.1/24, switch: s1, port: 1}
      - {name: h2, mac: "02:00:00:00:00:02", ipv4: 10.0.0.2/24, switch: s1, port: 2}

A host with an RDMA card has two further keys, with which its agent is started::

        transport: rdma              # or udp, the default
        device: mlx5_0               # or one of its ports, mlx5_0/2

Switches can form a tree, in which a job has ranks below several of them. Each switch but the one at the top then names
the switch above it, the port of that switch that leads to it, and its own port that leads there::

      - name: leaf1
        mac: "02:00:00:00:01:01"
        ipv4: 10.0.1.1
        parent: {switch: spine, port: 1, uplink: 9}

A switch whose target is tofino is not started but exists already. It has these further keys::

        bfrt: 10.1.0.1:50052         # address of its bf_switchd
        program: switchml            # default switchml
        ports:
          - {number: 1, name: 1/0, speed: 100G, fec: rs, autonegotiation: "off"}
          - {name: 32/0, speed: 100G, role: recirculation}
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from switchml.common.errors import TopologyFileError
from switchml.common.names import NAME_RULE, is_name
from switchml.common.switch_trees import MAX_TREE_LEVELS, ParentLink, SwitchTrees, ports_used_twice
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS
from switchml.dataplane.targets import SOFT, TARGETS, Target
from switchml.dataplane.tofino_port import TofinoPort

__all__ = ["PACKAGED", "Host", "Switch", "Topology", "load", "racks", "single_switch"]

PACKAGED: Final = Path(__file__).parent / "single-switch.yaml"
"""The topology file that comes with the package: `single_switch(8)`."""

# Short, because an interface is called NAME-ethPORT in 15 characters.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,7}")
_MAC: Final = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_MAX_PORT: Final = min(one.highest_port for one in TARGETS.values())  # a host's port must be valid for every target
_LOWEST_MTU: Final = 576  # RFC 791: the MTU that every link must support
_HIGHEST_MTU: Final = 9216
_DEFAULT_MTU: Final = 9000
_TRANSPORTS: Final = ("udp", "rdma")
_RDMA_DEVICE: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}(/[1-9][0-9]{0,2})?")
_MAX_RACKS: Final = 32

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Switch:
    """A switch and the addresses of its data plane; for a Tofino also the address of its bf_switchd, and its ports.

    `parent` is the link to the switch above it in a tree.
    """

    name: str
    mac: str
    ipv4: IPv4Address
    target: Target = SOFT
    bfrt: str = ""
    program: str = ""
    ports: tuple[TofinoPort, ...] = ()
    parent: ParentLink | None = None


@dataclasses.dataclass(frozen=True)
class Host:
    """A host with one interface, linked to `port` of `switch`; its agent has this `transport`, udp or rdma."""

    name: str
    mac: str
    ipv4: IPv4Interface
    switch: str
    port: int
    transport: str = _TRANSPORTS[0]
    device: str = ""

    def __post_init__(self) -> None:
        """Raise TopologyFileError if transport and device do not go together."""
        if self.transport == "rdma" and not self.device:
            raise TopologyFileError(f"host {self.name}: transport rdma needs a device")
        if self.transport != "rdma" and self.device:
            raise TopologyFileError(f"host {self.name}: device {self.device} is for transport rdma")


@dataclasses.dataclass(frozen=True)
class Topology:
    """A whole topology. `mtu` is the MTU of every link, in bytes."""

    name: str
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    mtu: int = _DEFAULT_MTU

    def __post_init__(self) -> None:
        """Check conditions that concern more than one node. Raises TopologyFileError."""
        if not self.switches:
            raise TopologyFileError("no switches")
        if not self.hosts:
            raise TopologyFileError("no hosts")
        nodes: list[Switch | Host] = [*self.switches, *self.hosts]
        _require_unique("name", (node.name for node in nodes))
        _require_unique("MAC", (node.mac for node in nodes))
        addresses = [switch.ipv4 for switch in self.switches] + [host.ipv4.ip for host in self.hosts]
        _require_unique("IPv4 address", map(str, addresses))
        names = [switch.name for switch in self.switches]
        for host in self.hosts:
            if host.switch not in names:
                raise TopologyFileError(
                    f"host {host.name}: there is no switch {host.switch!r}, only {', '.join(names)}"
                )
        _require_unique("switch port", (f"{host.switch} port {host.port}" for host in self.hosts))
        self._check_trees()
        for switch in self.switches:
            numbers = {port.number for port in switch.ports}
            for host in self.hosts if switch.target.configures_ports else ():
                if host.switch == switch.name and host.port not in numbers:
                    raise TopologyFileError(f"host {host.name}: switch {switch.name} has no port {host.port}")

    def _check_trees(self) -> None:
        try:
            self._trees()
        except ValueError as error:
            raise TopologyFileError(str(error)) from None
        twice = ports_used_twice(self.links)
        if twice:
            raise TopologyFileError(f"{twice}; a port has one link")
        for host in self.hosts:
            for child, link in self.links.items():
                if (host.switch, host.port) in ((link.switch, link.port), (child, link.uplink)):
                    raise TopologyFileError(
                        f"port {host.port} of switch {host.switch} leads to host {host.name} and to switch"
                        f" {child if host.switch == link.switch else link.switch}; a port has one link"
                    )

    def _trees(self) -> SwitchTrees:
        parents = {one.name: one.parent.switch if one.parent else None for one in self.switches}
        return SwitchTrees(parents, MAX_TREE_LEVELS)

    @property
    def levels(self) -> int:
        """The number of levels of switches."""
        return self._trees().levels

    @property
    def links(self) -> dict[str, ParentLink]:
        """The link of each switch that has a parent."""
        return {switch.name: switch.parent for switch in self.switches if switch.parent is not None}

    def ports(self, switch: str) -> list[int]:
        """Return the ports of a switch that have a link, in order."""
        hosts = [host.port for host in self.hosts if host.switch == switch]
        below = [link.port for link in self.links.values() if link.switch == switch]
        above = [link.uplink for name, link in self.links.items() if name == switch]
        return sorted(hosts + below + above)

    @property
    def targets(self) -> set[Target]:
        """The targets of the switches."""
        return {switch.target for switch in self.switches}

    @property
    def switch(self) -> Switch:
        """The only switch. Raises TopologyFileError if there are several."""
        if len(self.switches) != 1:
            raise TopologyFileError(f"topology {self.name} has {len(self.switches)} switches; this needs exactly one")
        return self.switches[0]

    def on(self, target: Target) -> Topology:
        """Return the same topology with switches of another target."""
        return dataclasses.replace(
            self, switches=tuple(dataclasses.replace(switch, target=target) for switch in self.switches)
        )

    def first_hosts(self, count: int) -> Topology:
        """Return the same topology with the first `count` hosts. Raises TopologyFileError if it has fewer."""
        if count > len(self.hosts):
            raise TopologyFileError(f"topology {self.name} has {len(self.hosts)} hosts, not {count}")
        return dataclasses.replace(self, hosts=self.hosts[:count])

    def as_dict(self) -> dict[str, Any]:
        """Return the content of a file that describes this topology."""
        return {
            "name": self.name,
            "mtu": self.mtu,
            "switches": [_switch_as_dict(switch) for switch in self.switches],
            "hosts": [_host_as_dict(host) for host in self.hosts],
        }

    @classmethod
    def from_dict(cls, content: object) -> Topology:
        """Return the topology that a file with this content describes. Raises TopologyFileError."""
        reader = _Reader(content, "the file")
        reader.only("name", "mtu", "switches", "hosts")
        return cls(
            name=reader.take("name", _name),
            mtu=reader.take("mtu", _whole(_LOWEST_MTU, _HIGHEST_MTU), _DEFAULT_MTU),
            switches=tuple(_switch(_Reader(*item)) for item in reader.items("switches")),
            hosts=tuple(_host(_Reader(*item)) for item in reader.items("hosts")),
        )


def load(path: Path) -> Topology:
    """Read a topology file. Raises TopologyFileError, which names the file, the node and the error."""
    try:
        with path.open(encoding="utf-8") as file:
            return Topology.from_dict(yaml.safe_load(file))
    except OSError as error:
        raise TopologyFileError(f"topology file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TopologyFileError(f"topology file {path} is not YAML: {error}") from error
    except TopologyFileError as error:
        raise TopologyFileError(f"topology file {path}: {error}") from error


def single_switch(hosts: int, target: Target = SOFT) -> Topology:
    """Return a topology of one switch with `hosts` (1..64) hosts h1, h2, ... on ports 1, 2, ... in 10.0.0.0/24."""
    if not 1 <= hosts <= PROTOCOL_MAX_WORKERS:
        raise TopologyFileError(f"{hosts} hosts; 1 to {PROTOCOL_MAX_WORKERS} can be laid out")
    return Topology(
        name="single-switch",
        switches=(Switch("s1", "02:00:00:00:00:fe", IPv4Address("10.0.0.254"), target),),
        hosts=tuple(
            Host(f"h{number}", f"02:00:00:00:00:{number:02x}", IPv4Interface(f"10.0.0.{number}/24"), "s1", number)
            for number in range(1, hosts + 1)
        ),
    )


def racks(count: int, hosts: int, target: Target = SOFT) -> Topology:
    """Return a topology of `count` racks with `hosts` hosts h1, h2, ... in 10.0.0.0/24, spread evenly over them.

    Each rack has a switch leaf1, leaf2, ... (10.0.1.1, 10.0.1.2, ...), and all have the switch spine above them.
    """
    if not 2 <= count <= _MAX_RACKS:
        raise TopologyFileError(f"{count} racks; 2 to {_MAX_RACKS} can be laid out")
    if not count <= hosts <= PROTOCOL_MAX_WORKERS:
        raise TopologyFileError(f"{hosts} hosts in {count} racks; {count} to {PROTOCOL_MAX_WORKERS} can be laid out")
    leaves: list[Switch] = []
    made: list[Host] = []
    for rack in range(1, count + 1):
        leaf = f"leaf{rack}"
        members = range(len(made) + 1, hosts * rack // count + 1)
        link = ParentLink("spine", rack, len(members) + 1)
        leaves.append(Switch(leaf, f"02:00:00:00:01:{rack:02x}", IPv4Address(f"10.0.1.{rack}"), target, parent=link))
        made += [
            Host(f"h{number}", f"02:00:00:00:00:{number:02x}", IPv4Interface(f"10.0.0.{number}/24"), leaf, port)
            for port, number in enumerate(members, start=1)
        ]
    spine = Switch("spine", "02:00:00:00:00:fe", IPv4Address("10.0.0.254"), target)
    return Topology(name="racks", switches=(spine, *leaves), hosts=tuple(made))


def _require_unique(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise TopologyFileError(f"{what} {value} is given twice")
        seen.add(value)


class _Reader:
    """Read values from a mapping, and name the place of an error."""

    def __init__(self, content: object, where: str) -> None:
        if not isinstance(content, dict):
            raise TopologyFileError(f"{where} is not a mapping of keys to values")
        self._content = content
        name = content.get("name")
        self._where = f"{where} ({name})" if isinstance(name, str) and where != "the file" else where

    def has(self, key: str) -> bool:
        return key in self._content

    def error(self, message: str) -> TopologyFileError:
        return TopologyFileError(f"{self._where}: {message}")

    def only(self, *keys: str) -> None:
        unknown = [str(key) for key in self._content if key not in keys]
        if unknown:
            raise TopologyFileError(
                f"{self._where}: unknown key {', '.join(unknown)}; known keys are {', '.join(keys)}"
            )

    def take(self, key: str, parse: Callable[[object], _T], default: _T | None = None) -> _T:
        if key not in self._content:
            if default is None:
                raise TopologyFileError(f"{self._where}: {key} is missing")
            return default
        value = self._content[key]
        try:
            return parse(value)
        except ValueError as error:
            raise TopologyFileError(f"{self._where}: {key} is {value!r}: {error}") from None

    def inner(self, key: str) -> _Reader:
        """Return a reader of the mapping at a key."""
        content = self._content[key]
        if isinstance(content, list):
            raise self.error(f"{len(content)} {key}s are given, and at most one is possible")
        return _Reader(content, f"{self._where}: {key}")

    def items(self, key: str) -> list[tuple[object, str]]:
        content = self._content.get(key)
        if not isinstance(content, list):
            raise TopologyFileError(f"{self._where}: {key} is {'not a list' if key in self._content else 'missing'}")
        return [(item, f"{key}[{index}]") for index, item in enumerate(content)]


def _switch(reader: _Reader) -> Switch:
    target = reader.take("target", _target, SOFT)
    more = ("bfrt", "program", "ports") if target.configures_ports else ()
    reader.only("name", "target", "mac", "ipv4", "parent", *more)
    return Switch(
        name=reader.take("name", _node_name),
        target=target,
        mac=reader.take("mac", _mac),
        ipv4=reader.take("ipv4", _address),
        bfrt=reader.take("bfrt", _text) if more else "",
        program=reader.take("program", _name, "switchml") if more else "",
        ports=tuple(_port(_Reader(*item)) for item in reader.items("ports")) if more else (),
        parent=_parent(reader) if reader.has("parent") else None,
    )


def _parent(reader: _Reader) -> ParentLink:
    parent = reader.inner("parent")
    parent.only("switch", "port", "uplink")
    port = _whole(1, _MAX_PORT)
    return ParentLink(parent.take("switch", _node_name), parent.take("port", port), parent.take("uplink", port))


def _switch_as_dict(switch: Switch) -> dict[str, Any]:
    content = dataclasses.asdict(switch) | {"target": switch.target.name, "ipv4": str(switch.ipv4)}
    content["ports"] = list(map(_port_as_dict, switch.ports))
    return {key: value for key, value in content.items() if value}


def _port(reader: _Reader) -> TofinoPort:
    fields = {field.name: field for field in dataclasses.fields(TofinoPort)}
    reader.only(*fields)
    values: dict[str, Any] = {
        name: reader.take(name, _whole(1, _MAX_PORT) if field.type == "int" else _text)
        for name, field in fields.items()
        if reader.has(name) or field.default is dataclasses.MISSING
    }
    try:
        return TofinoPort(**values)
    except ValueError as error:
        raise reader.error(str(error)) from None


def _port_as_dict(port: TofinoPort) -> dict[str, Any]:
    """Return the port's identification and the values that are not defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(TofinoPort)}
    return {name: value for name, value in dataclasses.asdict(port).items() if value != defaults[name]}


def _host(reader: _Reader) -> Host:
    reader.only("name", "mac", "ipv4", "switch", "port", "transport", "device")
    return Host(
        name=reader.take("name", _node_name),
        mac=reader.take("mac", _mac),
        ipv4=reader.take("ipv4", _interface),
        switch=reader.take("switch", _node_name),
        port=reader.take("port", _whole(1, _MAX_PORT)),
        transport=reader.take("transport", _transport, _TRANSPORTS[0]),
        device=reader.take("device", _device) if reader.has("device") else "",
    )


def _host_as_dict(host: Host) -> dict[str, Any]:
    content = dataclasses.asdict(host) | {"ipv4": str(host.ipv4)}
    return content if host.device else {key: content[key] for key in content if key not in ("transport", "device")}


def _transport(value: object) -> str:
    if _text(value) not in _TRANSPORTS:
        raise ValueError(f"must be one of {', '.join(_TRANSPORTS)}")
    return _text(value)


def _device(value: object) -> str:
    if not _RDMA_DEVICE.fullmatch(_text(value)):
        raise ValueError("must be the name of an RDMA device, such as mlx5_0, or of one of its ports, mlx5_0/2")
    return _text(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text; put it in quotes")
    return value


def _name(value: object) -> str:
    if not is_name(_text(value)):
        raise ValueError(f"must be {NAME_RULE}")
    return _text(value)


def _node_name(value: object) -> str:
    if not _NAME.fullmatch(_text(value)):
        raise ValueError("must be 1 to 8 of A-Z a-z 0-9 -, beginning with a letter")
    return _text(value)


def _target(value: object) -> Target:
    if _text(value) not in TARGETS:
        raise ValueError(f"must be one of {', '.join(TARGETS)}")
    return TARGETS[_text(value)]


def _mac(value: object) -> str:
    text = _text(value)  # without quotes, YAML reads 12:00:00:00:00:01 as a number to base 60
    if not _MAC.fullmatch(text):
        raise ValueError("not a MAC address like 02:00:00:00:00:01")
    if int(text[:2], 16) & 1 or not int(text.replace(":", ""), 16):
        raise ValueError("not the address of one interface: it is a group address, or zero")
    return text.lower()


def _address(value: object) -> IPv4Address:
    address = IPv4Address(_text(value))
    _require_unicast(address)
    return address


def _interface(value: object) -> IPv4Interface:
    interface = IPv4Interface(_text(value))
    _require_unicast(interface.ip)
    return interface


def _require_unicast(address: IPv4Address) -> None:
    if address.is_unspecified or address.is_multicast or address.is_loopback or address.is_reserved:
        raise ValueError("not an address that a host can have on a network")


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return parse
