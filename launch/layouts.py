"""The layouts of a fabric, on loopback or in network namespaces: where its processes run and how they connect."""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ConfigurationError, ProgramNotFoundError, TopologyFileError
from switchml.common.job_numbers import MINIMUM_SLOTS
from switchml.common.processes import find_program
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, PROTOCOL_MAX_WORKERS, PROTOCOL_UDP_PORT
from switchml.launch.settings import (
    BMV2_VALUES,
    DEFAULT_SLOTS,
    DEFAULT_VALUES,
    EMBEDDED_POOL,
    EMBEDDED_VALUES,
    SMALL_POOL,
    FabricOptions,
)
from switchml.topologies.namespaces import SWITCHES, Namespaces, require_privileges, switch_interface
from switchml.topologies.shaped_links import Shape, ShapedLinks
from switchml.topologies.targets import TOFINO
from switchml.topologies.topology import Host, Switch, Topology, load, racks, single_switch

__all__ = [
    "BMV2_PROGRAM",
    "CENTRAL_SERVER",
    "CONTROL_SOCKETS",
    "TOP_SWITCH",
    "AgentPlace",
    "Layout",
    "LayoutMaker",
    "SwitchPlace",
    "layout_of",
    "layout_on_shaped_links",
    "resolve",
    "server_on",
]

BMV2_PROGRAM: Final = "simple_switch_grpc"
BMV2_SOURCE: Final = (
    "copy it from the image p4lang/behavioral-model, or build it (https://github.com/p4lang/behavioral-model)"
)
"""The ways to get BMv2, of which no distribution has a package."""
"""The BMv2 switch that speaks P4Runtime."""

TOP_SWITCH: Final = "top"
"""The switch above those of hosts, in a layout on shaped links with leaves."""

CENTRAL_SERVER: Final = "server"
"""The parameter server on a separate host, in a layout on shaped links with servers."""

_DEFAULT_HOSTS: Final = 8
_BMV2_P4RUNTIME_PORT: Final = 9559  # of the first switch, on 127.0.0.1 of a namespace that other users cannot enter
_LEAF_P4RUNTIME_PORT: Final = 9559  # of a host's own switch, at the host's address
_CONTROLLER_SOCKET: Final = "controller.sock"
_MAX_SWITCHES: Final = 64
_P4RUNTIME_SOCKETS: Final = ("p4runtime.sock", *(f"p4runtime-{number}.sock" for number in range(1, _MAX_SWITCHES)))

CONTROL_SOCKETS: Final = (_CONTROLLER_SOCKET, *_P4RUNTIME_SOCKETS)
"""The Unix sockets of controller and soft switches, accessible to this user and root only."""
_IPV4_UDP_HEADER_BYTES: Final = 28


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

    @abc.abstractmethod
    def controller_command(self, command: Sequence[str]) -> list[str]:
        """Return `command` as it runs where the controller runs."""

    @abc.abstractmethod
    def agents(self) -> list[AgentPlace]:
        """Return the agents."""


def resolve(options: FabricOptions) -> FabricOptions:
    """Return the options with all defaults filled in.

    Raises ConfigurationError for options that contradict each other, and TopologyFileError.
    """
    if options.leaf:
        return _resolve_leaf(options)
    topology = _topology(options)
    return _resolve(options, topology)


def layout_of(options: FabricOptions, run_directory: Path, socket_directory: Path) -> Layout:
    """Return the layout of a fabric with these resolved options.

    Raises ProgramNotFoundError, NamespaceError if privileges are missing, TopologyFileError.
    """
    if options.leaf:
        return _HostLeaf(options, socket_directory)
    topology = _topology(options)
    if topology is None:
        return _Loopback(options, socket_directory)
    return _InNamespaces(options, topology, Namespaces(run_directory), socket_directory)


LayoutMaker = Callable[[FabricOptions, Path, Path], Layout]
"""`layout_of`, or another function that makes a layout from resolved options, run directory and socket directory."""


def server_on(host: str) -> str:
    """Return the name of the parameter server on a worker's host, in a layout on shaped links with servers."""
    return f"{host}-server"


def layout_on_shaped_links(shape: Shape, *, leaves: bool = False, servers: bool = False) -> LayoutMaker:
    """Return the maker of layouts whose hosts reach the soft switch over links of this shape.

    With `leaves` each host has two agents: one for ranks that send packets to that switch, and one for ranks that share
    memory with a switch of the host, which is below another one at the same place as the first. With `servers` each
    host has a parameter server, and the last one, which has no agent, is that of CENTRAL_SERVER.
    """
    return functools.partial(_shaped, shape, leaves, servers)


def _shaped(
    shape: Shape, leaves: bool, servers: bool, options: FabricOptions, run_directory: Path, socket_directory: Path
) -> Layout:
    topology = _topology(options)
    if topology is None or topology.links or topology.switch.target != "soft":
        raise ConfigurationError("links are shaped between hosts in network namespaces and the soft switch")
    return _OnShapedLinks(options, topology, Namespaces(run_directory), socket_directory, shape, leaves, servers)


def _topology(options: FabricOptions) -> Topology | None:
    """Return the topology to lay out; None for the embedded fabric."""
    if options.racks and options.topology:
        raise ConfigurationError("a topology file says itself which switches there are; omit --racks")
    if options.topology:
        topology = load(Path(options.topology))
        if options.workers:
            topology = topology.first_hosts(options.workers)
        tofino = [switch.name for switch in topology.switches if switch.target == TOFINO]
        if tofino and not options.switch:
            raise ConfigurationError(
                f"switch {', '.join(tofino)} of topology {topology.name} is a Tofino, which this command does "
                f"not start: `switchml-ctl topology controller {options.topology}` writes the controller's "
                "configuration for it; docs/tofino.md has the next steps"
            )
        return topology.on(options.switch) if options.switch else topology
    if options.switch and options.racks:
        return racks(options.racks, options.workers or _DEFAULT_HOSTS, options.switch)
    if options.switch:
        return single_switch(options.workers or _DEFAULT_HOSTS, options.switch)
    if options.workers:
        raise ConfigurationError(
            "--workers is the number of hosts in network namespaces and needs a switch (--switch soft or bmv2) or "
            "a topology file; the embedded fabric has agents (--agents)"
        )
    return None


def _resolve(options: FabricOptions, topology: Topology | None) -> FabricOptions:
    targets = {"soft"} if topology is None else {switch.target for switch in topology.switches}
    shared = topology is None and options.transport != "udp"
    if topology is None and 1 < options.agents < options.racks:
        raise ConfigurationError(f"{options.agents} agents for {options.racks} racks: each needs one; raise --agents")
    # All switches of a tree need the same number of values, and BMv2 has few to choose from.
    values = options.values or (EMBEDDED_VALUES if topology is None else min(DEFAULT_VALUES[one] for one in targets))
    slots = options.slots or max(DEFAULT_SLOTS[one] for one in targets)
    if options.threads > 1 and (topology is not None or shared):
        raise ConfigurationError("only an embedded fabric over UDP (--transport udp) can have several data threads")
    if topology is not None:
        if options.transport == "shm":
            raise ConfigurationError("hosts in network namespaces share no memory with a switch; omit --transport")
        if options.agents != FabricOptions.agents:
            raise ConfigurationError("in network namespaces each host has one agent; give --workers, not --agents")
        needed = _IPV4_UDP_HEADER_BYTES + PROTOCOL_HEADER_BYTES + 4 * values
        if needed > topology.mtu:
            raise TopologyFileError(
                f"packets of {values} values have {needed} bytes, but the MTU of topology {topology.name} is "
                f"{topology.mtu}; raise it or give fewer --values"
            )
    if options.program and "bmv2" not in targets:
        raise ConfigurationError("--program is the P4 program of a bmv2 switch; omit it, or give --switch bmv2")
    compiled = BMV2_VALUES[options.program or "switchml"]
    if "bmv2" in targets and values not in compiled:
        raise ConfigurationError(
            f"{values} values per packet: the P4 program for bmv2 is compiled for {' and '.join(map(str, compiled))}"
        )
    if targets == {"bmv2"}:
        if slots != DEFAULT_SLOTS["bmv2"]:
            raise ConfigurationError(f"{slots} slots: the P4 program for bmv2 has {DEFAULT_SLOTS['bmv2']}")
        if options.drop or options.duplicate or options.delay or options.flip:
            raise ConfigurationError("bmv2 injects no faults itself; `switchml-ctl switch loss` sets its loss tables")
    return dataclasses.replace(
        options,
        switch="" if topology is None or len(targets) > 1 else targets.pop(),
        workers=0 if topology is None else len(topology.hosts),
        agents=max(options.agents, options.racks) if topology is None else options.agents,
        transport="shm" if shared else "udp",
        values=values,
        slots=slots,
    )


def _resolve_leaf(options: FabricOptions) -> FabricOptions:
    allowed = ["values", "slots", "drop", "duplicate", "delay", "flip", "seed"]
    allowed += ["leaf", "address", "certificates", "controller", "insecure"]
    given = {name: getattr(options, name) for name in allowed}
    if options not in (FabricOptions(**given), FabricOptions(transport="shm", **given)):
        raise ConfigurationError(
            "--leaf starts a switch and an agent of one host; of the options of other fabrics only --values, --slots "
            "and those of injected faults can be given"
        )
    if not options.controller:
        raise ConfigurationError("--leaf needs the fabric's controller (--controller, or SWITCHML_CONTROLLER)")
    if not options.address:
        raise ConfigurationError("--leaf needs the IPv4 address of this host's data interface (--address)")
    if not options.certificates and not options.insecure:
        raise ConfigurationError(
            f"--leaf needs the certificates of switch and agent {options.leaf} (--certificates), or --insecure on a "
            "trusted network; docs/security.md has the steps"
        )
    return dataclasses.replace(
        options,
        transport="shm",
        values=options.values or DEFAULT_VALUES["soft"],
        slots=options.slots or DEFAULT_SLOTS["soft"],
    )


def _soft_arguments(options: FabricOptions) -> list[str]:
    arguments = ["--device-id", "1", "--values", str(options.values), "--slots", str(options.slots)]
    if options.drop or options.duplicate or options.delay or options.flip:
        arguments += ["--drop", str(options.drop), "--duplicate", str(options.duplicate)]
        arguments += ["--delay", str(options.delay), "--flip", str(options.flip), "--seed", str(options.seed)]
    return arguments


def _table_at_udp(ready: dict[str, Any], options: FabricOptions) -> dict[str, Any]:
    """Return what the controller's configuration says of any soft switch with a UDP port at number 1."""
    return {
        "target": "soft",
        "p4runtime": ready["grpc"],
        "address": ready["ports"]["1"]["address"],
        "udp_port": ready["ports"]["1"]["udp_port"],
        "values_per_packet": options.values,
        "slots": options.slots,
    }


def _pool(options: FabricOptions, slots: int) -> int:
    # The same number of bytes for any packet size, and at most a quarter of the switch.
    most = max(MINIMUM_SLOTS, min(slots * EMBEDDED_VALUES // options.values, options.slots // 4))
    return int(1 << (most.bit_length() - 1))


class _Loopback(Layout):
    """The embedded fabric: one soft switch with a UDP port on 127.0.0.0/8, and one for shared memory.

    With racks there is such a switch for each, and one with a UDP port only above them.
    """

    def __init__(self, options: FabricOptions, socket_directory: Path) -> None:
        super().__init__(socket_directory)
        self._options = options
        self._socket_directory = socket_directory
        leaves = [f"leaf{rack}" for rack in range(1, options.racks + 1)]
        self._names = ["spine", *leaves] if leaves else ["switch-0"]

    def switches(self) -> list[SwitchPlace]:
        """Return the only switch, or the one above all racks and those of the racks."""
        return [SwitchPlace(name, self._command(number)) for number, name in enumerate(self._names)]

    def _command(self, number: int) -> list[str]:
        ports = ["--grpc", self._p4runtime[number], "--udp-port", "1=127.0.0.1:0"]
        if self._options.transport == "udp":
            ports += ["--shards", str(self._options.threads)]
        elif number > 0 or not self._options.racks:
            ports += ["--shm-port", f"2={self._switch_socket(number)}", "--shm-threads", str(self._options.threads)]
        return [find_program("switchml-switch"), *ports, *_soft_arguments(self._options)]

    def _switch_socket(self, number: int) -> Path:
        return self._socket_directory / (f"switch-{number}.sock" if self._options.racks else "switch.sock")

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            **_table_at_udp(ready, self._options),
            **self._pools(),
            **({"parent": {"switch": self._names[0], "port": 1, "uplink": 1}} if name != self._names[0] else {}),
        }

    def _pools(self) -> dict[str, int]:
        if self._options.transport != "shm":
            return {"default_pool": _pool(self._options, EMBEDDED_POOL["udp"])}
        return {
            "default_pool": _pool(self._options, EMBEDDED_POOL["shm"]),
            "small_pool": _pool(self._options, SMALL_POOL),
            "small_job": min(len(os.sched_getaffinity(0)), PROTOCOL_MAX_WORKERS),
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def agents(self) -> list[AgentPlace]:
        program = find_program("switchml-agent")
        found = []
        for number in range(self._options.agents):
            address = f"127.0.0.{number + 1}"
            command = [program, "--address", address, "--transport", self._options.transport]
            command += ["--threads", str(self._options.threads)]
            switch = 0
            if self._options.racks:
                switch = 1 + number * self._options.racks // self._options.agents
                command += ["--switch", self._names[switch]]
            if self._options.transport == "shm":
                command += ["--switch-socket", str(self._switch_socket(switch))]
            found.append(AgentPlace(f"agent-{number}", command, {"address": address}))
        return found


class _HostLeaf(Layout):
    """The part of a fabric that one host has: a switch below another one, and an agent that shares memory with it."""

    def __init__(self, options: FabricOptions, socket_directory: Path) -> None:
        super().__init__(socket_directory)
        self._options = options
        self._switch_socket = socket_directory / "switch.sock"
        self.controller = options.controller

    def switches(self) -> list[SwitchPlace]:
        """Return the host's switch."""
        address = self._options.address
        command = [find_program("switchml-switch"), "--grpc", f"{address}:{_LEAF_P4RUNTIME_PORT}"]
        command += ["--udp-port", f"1={address}:{PROTOCOL_UDP_PORT}", "--shm-port", f"2={self._switch_socket}"]
        command += [*_soft_arguments(self._options), *self._security("switch")]
        return [SwitchPlace(f"switch-{self._options.leaf}", command)]

    def _security(self, kind: str) -> list[str]:
        if self._options.certificates:
            return ["--tls", str(Path(self._options.certificates, f"{kind}-{self._options.leaf}"))]
        return ["--insecure"]

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        """Return what the controller's configuration says of the switch, apart from its parent."""
        return {
            "name": name.removeprefix("switch-"),
            **_table_at_udp(ready, self._options),
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def agents(self) -> list[AgentPlace]:
        name, address = self._options.leaf, self._options.address
        command = [find_program("switchml-agent"), "--address", address, "--switch", name]
        command += ["--transport", "shm", "--switch-socket", str(self._switch_socket), *self._security("agent")]
        return [AgentPlace(name, command, {"address": address})]


class _InNamespaces(Layout):
    """A topology in network namespaces, which do not isolate Unix sockets."""

    def __init__(
        self, options: FabricOptions, topology: Topology, namespaces: Namespaces, socket_directory: Path
    ) -> None:
        require_privileges()
        super().__init__(socket_directory)
        self._options = options
        self._namespaces = namespaces
        self.topology = self._topology = topology
        if any(switch.target == "bmv2" for switch in topology.switches):
            _require_bmv2()

    def prepare(self) -> None:
        self._namespaces.create(self._topology)

    def switches(self) -> list[SwitchPlace]:
        """Return the switches, the number of each of which selects its control interface."""
        return [self._place(number, switch) for number, switch in enumerate(self._topology.switches)]

    def _place(self, number: int, switch: Switch) -> SwitchPlace:
        soft = switch.target == "soft"
        links = [(port, switch_interface(switch.name, port)) for port in self._topology.ports(switch.name)]
        if soft:
            command = [find_program("switchml-switch"), "--grpc", self._p4runtime[number]]
            command += _soft_arguments(self._options)
            command += [part for port, interface in links for part in ("--packet-port", f"{port}={interface}")]
        else:
            command = [_require_bmv2(), "--no-p4", "--device-id", "1"]
            command += [part for port, interface in links for part in ("--interface", f"{port}@{interface}")]
            command += ["--", "--grpc-server-addr", _bmv2_address(number)]
        return SwitchPlace(switch.name, self._namespaces.command(SWITCHES, command), has_ready_file=soft)

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        [(number, switch)] = (both for both in enumerate(self._topology.switches) if both[1].name == name)
        parent = {"parent": dataclasses.asdict(switch.parent)} if switch.parent is not None else {}
        program = {"program": self._options.program} if switch.target == "bmv2" and self._options.program else {}
        return {
            "name": name,
            "target": switch.target,
            **program,
            "p4runtime": ready.get("grpc", _bmv2_address(number)),
            "address": str(switch.ipv4),
            "udp_port": PROTOCOL_UDP_PORT,
            "mac": switch.mac,
            "values_per_packet": self._options.values,
            "slots": self._options.slots,
            **parent,
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return self._namespaces.command(SWITCHES, command)

    def agents(self) -> list[AgentPlace]:
        program = find_program("switchml-agent")
        return [self._agent(program, host) for host in self._topology.hosts]

    def _agent(self, program: str, host: Host) -> AgentPlace:
        address = str(host.ipv4.ip)
        command = [program, "--address", address, "--mac", host.mac]
        command += ["--switch", host.switch, "--switch-port", str(host.port)]
        description = {"address": address, "mac": host.mac, "switch_port": host.port}
        description["namespace"] = self._namespaces.name(host.name)
        return AgentPlace(host.name, self._namespaces.command(host.name, command), description)


class _OnShapedLinks(Layout):
    """A soft switch with a UDP port on the bridge, and hosts that reach it over shaped links, through UDP as well.

    With `leaves` there is a tree in addition: a second such switch, TOP_SWITCH, and one of each host below it. With
    `servers` there is a soft switch on each host: CENTRAL_SERVER on the last, where no ranks are, and one with the
    ranks of each other host.
    """

    def __init__(
        self,
        options: FabricOptions,
        topology: Topology,
        namespaces: Namespaces,
        socket_directory: Path,
        shape: Shape,
        leaves: bool,
        servers: bool,
    ) -> None:
        require_privileges()
        super().__init__(socket_directory)
        self._options = options
        self._namespaces = namespaces
        self._shape = shape
        self._socket_directory = socket_directory
        self._leaves = {f"{host.name}-leaf": host for host in topology.hosts} if leaves else {}  # by switch and agent
        self._servers = {server_on(host.name): host for host in topology.hosts[:-1]} if servers else {}
        self._servers |= {CENTRAL_SERVER: topology.hosts[-1]} if servers else {}
        self._links = ShapedLinks(namespaces, topology)
        self.topology = self._topology = topology

    def prepare(self) -> None:
        self._links.create(self._shape)

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
        return SwitchPlace(name, self._namespaces.command(node, [*command, *ports, *_soft_arguments(self._options)]))

    def _switch_socket(self, leaf: str) -> Path:
        return self._socket_directory / f"{leaf}-switch.sock"

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            **_table_at_udp(ready, self._options),
            "default_pool": _pool(self._options, EMBEDDED_POOL["udp"]),
            **({"parent": {"switch": TOP_SWITCH, "port": 1, "uplink": 1}} if name in self._leaves else {}),
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return self._namespaces.command(SWITCHES, command)

    def agents(self) -> list[AgentPlace]:
        over_udp = ["--switch", self._topology.switch.name, "--transport", "udp"]
        hosts = [host for host in self._topology.hosts if self._servers.get(CENTRAL_SERVER) is not host]
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


def _bmv2_address(number: int) -> str:
    """Return the address of a BMv2 switch's P4Runtime server."""
    return f"127.0.0.1:{_BMV2_P4RUNTIME_PORT + number}"


def _require_bmv2() -> str:
    found = shutil.which(BMV2_PROGRAM)
    if found is None:
        raise ProgramNotFoundError(
            f"{BMV2_PROGRAM}, the BMv2 switch with P4Runtime, is not on PATH; {BMV2_SOURCE}, or "
            "use `--switch soft`, which needs neither"
        )
    return found
