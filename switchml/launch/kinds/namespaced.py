"""A topology in network namespaces: one for the switches and the controller, and one for each host."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ConfigurationError, ProgramNotFoundError, TopologyFileError
from switchml.common.processes import find_program
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, PROTOCOL_UDP_PORT
from switchml.dataplane.targets import BMV2, SOFT, TARGETS
from switchml.launch.kinds.kind import NEEDS_BMV2, THREADS_NEED_UDP, FabricKind, shared_fields
from switchml.launch.layouts import AgentPlace, Layout, SwitchPlace
from switchml.topologies.namespaces import SWITCHES, Namespaces, require_privileges, switch_interface
from switchml.topologies.topology import Host, Switch, Topology, load, racks, single_switch

__all__ = ["BMV2_PROGRAM", "BMV2_SOURCE", "Namespaced", "require_mtu"]

BMV2_PROGRAM: Final = "simple_switch_grpc"
"""The BMv2 switch that speaks P4Runtime."""
BMV2_SOURCE: Final = (
    "copy it from the image p4lang/behavioral-model, or build it (https://github.com/p4lang/behavioral-model)"
)
"""The ways to get BMv2, of which no distribution has a package."""

_DEFAULT_HOSTS: Final = 8
_BMV2_P4RUNTIME_PORT: Final = 9559  # of the first switch, on 127.0.0.1 of a namespace that other users cannot enter
_IPV4_UDP_HEADER_BYTES: Final = 28


@dataclasses.dataclass(frozen=True, kw_only=True)
class Namespaced(FabricKind):
    """A topology from a `file`, or made for a number of hosts and `racks`; each host has an agent.

    BMv2 switches load the P4 program `program`, by default switchml.
    """

    topology: Topology
    file: str = ""
    racks: int = 0
    program: str = ""

    def __post_init__(self) -> None:
        """Raise ConfigurationError or TopologyFileError for options that contradict each other."""
        targets = self.topology.targets
        require_mtu(self.topology, self.values)
        loading = [target for target in targets if target.programs]
        if self.program and not loading:
            raise ConfigurationError(NEEDS_BMV2)
        alone = len(loading) == len(targets)  # otherwise slots and faults are those of the soft switches
        for target in loading:
            compiled = target.programs[self.program or "switchml"]
            if self.values not in compiled:
                raise ConfigurationError(
                    f"{self.values} values per packet: the P4 program for {target} is compiled for "
                    f"{' and '.join(map(str, compiled))}"
                )
            if alone and self.slots != target.default_slots:
                raise ConfigurationError(f"{self.slots} slots: the P4 program for {target} has {target.default_slots}")
            if alone and self.faults.any():
                raise ConfigurationError(
                    f"{target} injects no faults itself; `switchml-ctl switch loss` sets its loss tables"
                )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Namespaced:
        """Return the one that options with the names of FABRIC_OPTIONS describe.

        Raises ConfigurationError, TopologyFileError.
        """
        topology = _topology(options)
        if options["threads"] > 1:
            raise ConfigurationError(THREADS_NEED_UDP)
        if options["transport"] == "shm":
            raise ConfigurationError("hosts in network namespaces share no memory with a switch; omit --transport")
        if options["agents"] != 1:
            raise ConfigurationError("in network namespaces each host has one agent; give --workers, not --agents")
        # All switches of a tree need the same number of values, and BMv2 has few to choose from.
        values = min(target.default_values for target in topology.targets)
        slots = max(target.default_slots for target in topology.targets)
        return cls(
            topology=topology,
            file=options["topology"],
            racks=options["racks"],
            program=options["program"],
            **shared_fields(options, values=values, slots=slots),
        )

    def options(self) -> dict[str, Any]:
        """Return the options of all kinds, as fabric.json has them."""
        targets = self.topology.targets
        return super().options() | {
            "switch": "" if len(targets) > 1 else targets.pop().name,
            "workers": len(self.topology.hosts),
            "topology": self.file,
            "transport": "udp",
        }

    def layout(self, run_directory: Path, socket_directory: Path) -> Layout:
        """Return the layout in namespaces. Raises ProgramNotFoundError, and NamespaceError without privileges."""
        return _InNamespaces(self, Namespaces(run_directory), socket_directory)


def require_mtu(topology: Topology, values: int) -> None:
    """Raise TopologyFileError if the links of a topology are too small for packets with this many values."""
    needed = _IPV4_UDP_HEADER_BYTES + PROTOCOL_HEADER_BYTES + 4 * values
    if needed > topology.mtu:
        raise TopologyFileError(
            f"packets of {values} values have {needed} bytes, but the MTU of topology {topology.name} is "
            f"{topology.mtu}; raise it or give fewer --values"
        )


def _topology(options: Mapping[str, Any]) -> Topology:
    """Return the topology that the options describe, with the switches' target."""
    file, target, workers = options["topology"], options["switch"], options["workers"]
    if not file:
        hosts = workers or _DEFAULT_HOSTS
        started = TARGETS[target]
        return racks(options["racks"], hosts, started) if options["racks"] else single_switch(hosts, started)
    if options["racks"]:
        raise ConfigurationError("a topology file says itself which switches there are; omit --racks")
    topology = load(Path(file))
    if workers:
        topology = topology.first_hosts(workers)
    if target:
        return topology.on(TARGETS[target])
    tofino = [switch.name for switch in topology.switches if not switch.target.default_slots]
    if tofino:
        raise ConfigurationError(
            f"switch {', '.join(tofino)} of topology {topology.name} is a Tofino, which this command does "
            f"not start: `switchml-ctl topology controller {file}` writes the controller's "
            "configuration for it; docs/operate/tofino.md has the next steps"
        )
    return topology


class _InNamespaces(Layout):
    """A topology in network namespaces, which do not isolate Unix sockets."""

    def __init__(self, kind: Namespaced, namespaces: Namespaces, socket_directory: Path) -> None:
        require_privileges()
        super().__init__(socket_directory)
        self._kind = kind
        self._namespaces = namespaces
        self.topology = kind.topology
        if BMV2 in kind.topology.targets:
            _require_bmv2()

    def prepare(self) -> None:
        self._namespaces.create(self._kind.topology)

    def switches(self) -> list[SwitchPlace]:
        """Return the switches, the number of each of which selects its control interface."""
        return [self._place(number, switch) for number, switch in enumerate(self._kind.topology.switches)]

    def _place(self, number: int, switch: Switch) -> SwitchPlace:
        soft = switch.target is SOFT
        links = [(port, switch_interface(switch.name, port)) for port in self._kind.topology.ports(switch.name)]
        if soft:
            command = [find_program("switchml-switch"), "--grpc", self._p4runtime[number]]
            command += self._kind.soft_switch_arguments()
            command += [part for port, interface in links for part in ("--packet-port", f"{port}={interface}")]
        else:
            command = [_require_bmv2(), "--no-p4", "--device-id", "1"]
            command += [part for port, interface in links for part in ("--interface", f"{port}@{interface}")]
            command += ["--", "--grpc-server-addr", _bmv2_address(number)]
        return SwitchPlace(switch.name, self._namespaces.command(SWITCHES, command), has_ready_file=soft)

    def switch_table(self, name: str, ready: dict[str, Any]) -> dict[str, Any]:
        [(number, switch)] = (both for both in enumerate(self._kind.topology.switches) if both[1].name == name)
        parent = {"parent": dataclasses.asdict(switch.parent)} if switch.parent is not None else {}
        program = {"program": self._kind.program} if switch.target.programs and self._kind.program else {}
        return {
            "name": name,
            "target": switch.target.name,
            **program,
            "p4runtime": ready.get("grpc", _bmv2_address(number)),
            "address": str(switch.ipv4),
            "udp_port": PROTOCOL_UDP_PORT,
            "mac": switch.mac,
            "values_per_packet": self._kind.values,
            "slots": self._kind.slots,
            **parent,
        }

    def controller_command(self, command: Sequence[str]) -> list[str]:
        return self._namespaces.command(SWITCHES, command)

    def agents(self) -> list[AgentPlace]:
        program = find_program("switchml-agent")
        return [self._agent(program, host) for host in self._kind.topology.hosts]

    def _agent(self, program: str, host: Host) -> AgentPlace:
        address = str(host.ipv4.ip)
        command = [program, "--address", address, "--mac", host.mac]
        command += ["--switch", host.switch, "--switch-port", str(host.port)]
        if host.device:
            command += ["--transport", host.transport, "--device", host.device]
        description = {"address": address, "mac": host.mac, "switch_port": host.port}
        description["namespace"] = self._namespaces.name(host.name)
        return AgentPlace(host.name, self._namespaces.command(host.name, command), description)


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
