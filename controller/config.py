"""The controller's configuration file (TOML) as dataclasses.

Example::

    [controller]
    listen = "127.0.0.1:7600"        # HOST:PORT to listen on, or "unix:/path/of/a/socket"
    store = "/var/lib/switchml/controller.sqlite"  # SQLite file with jobs and events
    tls = "/etc/switchml/tls"        # certificates; needed where `listen` is not on loopback
    # insecure = true                # instead: every client that reaches `listen` is an administrator
    tree_levels = 3                  # the most switches from a host up to the top of its tree

    [[tenants]]                      # quotas; "*" is the default for each tenant without a table
    name = "vision"                  # organization (O) of the certificates
    jobs = 4                         # jobs at once; 0 or missing: no limit
    workers = 64                     # ranks of all of them; 0 or missing: no limit
    slots = 4096                     # slots of all of them; 0 or missing: no limit
    members = ["alice", "guests/bob"]  # certificates that also belong to it: CN, or O/CN if they have an organization

    [agents]
    shared = ["host-1", "ops/host-2"]  # agents for ranks of every tenant, by CN or O/CN as members; "*": all

    [[switches]]
    name = "s1"                      # by which jobs, agents and certificates name it
    target = "soft"                  # its kind: soft, bmv2 or tofino
    p4runtime = "127.0.0.1:9559"     # P4Runtime server of soft and bmv2: HOST:PORT or "unix:/path/of/a/socket"
    device_id = 1                    # device id of P4Runtime or BfRt; missing: the target's default
    address = "10.0.0.1"             # IPv4 address of its data plane
    udp_port = 48864                 # UDP port at which it takes contributions
    mac = "02:00:00:00:00:01"        # MAC address of its data plane; missing: it sees no MAC addresses
    udp_ports = false                # for soft: its ports are UDP sockets, which see no MAC; `mac` is its host's
    values_per_packet = 256          # values per packet; for bmv2, 64 or 256, those of a compiled program;
                                     # missing: the target's default
    program = "switchml"             # P4 program; switchml_floats of bmv2 adds floats; its name at bf_switchd
    slots = 4096                     # slots of soft; for bmv2 the p4info defines them
    default_pool = 512               # slots of a job that does not request a number
    small_pool = 32                  # the same for a job of at most small_job workers
    small_job = 2                    # the most workers of a small job
    multicast = "239.192.0.0/22"     # for soft, if all agents are on one IP segment with it: a group for each job
    multicast_port = 1               # the switch port of that segment
    aggregator_port = 1              # for soft: the port at which the ranks of jobs over aggregators reach it
    tls = "auto"                     # TLS; auto: not on loopback; on: always; off: never, if the path is trusted
    tenant = "vision"                # only agents and jobs of this tenant use it, as on its own host; missing: all do
    # parent = {switch = "t1", port = 9, uplink = 2}  # in a tree: port 9 of t1, above this switch, leads to port 2 here

    [[switches]]
    name = "t1"
    target = "tofino"
    bfrt = "10.1.0.1:50052"          # control interface of tofino: HOST:PORT of bf_switchd
    program = "switchml"
    address = "10.0.0.254"
    mac = "02:00:00:00:00:fe"

    [[switches.ports]]
    number = 1                       # the switch port that the agent at the other end is configured with
    name = "1/0"                     # place on the front panel, CONNECTOR/CHANNEL
    speed = "100G"                   # rate: 1G, 10G, 25G, 40G, 50G or 100G
    fec = "rs"                       # error correction: none, firecode or rs
    autonegotiation = "off"          # autonegotiation: default, on or off

    [[switches.ports]]
    name = "32/0"
    speed = "100G"
    role = "recirculation"           # host; or recirculation: in loopback, for packets that pass the pipe twice
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final

from switchml.common.grpc_address import parse_grpc_address
from switchml.common.job_numbers import MINIMUM_SLOTS, is_power_of_two
from switchml.common.names import NAME_RULE, is_full_name, is_name
from switchml.common.switch_trees import MAX_TREE_LEVELS, ParentLink, SwitchTrees, ports_used_twice, unequal_values
from switchml.common.tls import Security
from switchml.controller.drivers import NO_MAC, SwitchSettings
from switchml.controller.errors import ConfigError
from switchml.controller.records import parse_mac
from switchml.dataplane.constants import (
    PROTOCOL_MAX_JOBS,
    PROTOCOL_MAX_SLOT_INDEX,
    PROTOCOL_MAX_VALUES,
    PROTOCOL_MAX_WORKERS,
    PROTOCOL_UDP_PORT,
)
from switchml.dataplane.targets import TARGETS
from switchml.dataplane.tofino_port import TofinoPort

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "EVERYBODY",
    "EVERY_AGENT",
    "ControllerConfig",
    "SwitchConfig",
    "TenantConfig",
    "load_config",
    "switch_trees",
]

EVERYBODY: Final = "*"
"""The name of the default quota, which applies to each tenant without a quota."""
EVERY_AGENT: Final = "*"
"""The name for all agents in the list of shared agents."""


_TYPES: dict[str, type] = {"int": int, "bool": bool, "ParentLink | None": dict}
_TYPES |= dict.fromkeys(("tuple[TofinoPort, ...]", "tuple[str, ...]"), list)
_TLS = ("auto", "on", "off")


@dataclass(frozen=True)
class SwitchConfig(SwitchSettings):
    """One [[switches]] table.

    A `default_pool` of 0 means the target's default; with a `small_pool` of 0, small jobs get `default_pool`, too.
    `multicast` is a range of IPv4 multicast groups, one for each job id, which every agent at switch port
    `multicast_port` must be able to join; if it is empty, each agent gets a separate copy of results. Ranks of jobs
    over aggregators are at `aggregator_port`, whatever switch their agents are attached to.
    `tenant` is the only one whose agents and jobs may use it; if it is empty, all may.
    `parent` is the link to the switch above it in a tree; a job with ranks below several switches sums there.
    With `udp_ports`, or without a `mac`, it does not see the MAC addresses of its neighbours.
    """

    udp_port: int = PROTOCOL_UDP_PORT
    udp_ports: bool = False
    default_pool: int = 0
    small_pool: int = 0
    small_job: int = 0
    multicast: str = ""
    multicast_port: int = 1
    aggregator_port: int = 1
    tenant: str = ""
    parent: ParentLink | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: one is not allowed.

        """
        where = f"switch {self.name!r}"
        _require(is_name(self.name), f"{where}: name must be {NAME_RULE}")
        self._check_interface(where)
        _require(self.tls in _TLS, f"{where}: tls is {self.tls!r} and must be {', '.join(_TLS)}")
        try:
            unusable = IPv4Address(self.address).is_unspecified
        except AddressValueError:
            unusable = True
        _require(not unusable, f"{where}: address {self.address!r} is not an IPv4 address that packets can be sent to")
        try:
            parse_mac(self.mac)
        except ValueError as error:
            raise ConfigError(f"{where}: mac: {error}") from None
        for name, low, high in (
            ("device_id", -1, 2**64 - 1),
            ("udp_port", 1, 65535),
            ("multicast_port", 1, self.target.highest_port),
            ("aggregator_port", 1, self.target.highest_port),
            ("values_per_packet", 0, PROTOCOL_MAX_VALUES),
            ("slots", MINIMUM_SLOTS, PROTOCOL_MAX_SLOT_INDEX + 1),
            ("default_pool", 0, PROTOCOL_MAX_SLOT_INDEX + 1),
            ("small_pool", 0, PROTOCOL_MAX_SLOT_INDEX + 1),
            ("small_job", 0, PROTOCOL_MAX_WORKERS),
        ):
            value = getattr(self, name)
            _require(low <= value <= high, f"{where}: {name} is {value} and must be {low} to {high}")
        self._check_program(where)
        for name, pool in (("default_pool", self.default_pool), ("small_pool", self.small_pool)):
            _require(
                pool == 0 or (is_power_of_two(pool) and pool >= MINIMUM_SLOTS),
                f"{where}: {name} is {pool} and must be a power of two from {MINIMUM_SLOTS}",
            )
        self._check_multicast(where)

    def multicast_address(self, job: int) -> str:
        """Return the IPv4 multicast group of a job id; empty if the switch has no groups."""
        return str(IPv4Network(self.multicast)[job]) if self.multicast else ""

    def _check_multicast(self, where: str) -> None:
        if not self.multicast:
            return
        _require(self.target.udp_ports, f"{where}: multicast is for target soft; a P4 switch copies results itself")
        try:
            groups = IPv4Network(self.multicast)
        except ValueError as error:
            raise ConfigError(f"{where}: multicast: {error}") from None
        _require(
            groups.is_multicast and groups.num_addresses >= PROTOCOL_MAX_JOBS,
            f"{where}: multicast is {self.multicast} and must be {PROTOCOL_MAX_JOBS} multicast addresses or more, such"
            " as 239.192.0.0/22",
        )

    def _check_program(self, where: str) -> None:
        if not (programs := self.target.programs):
            return
        _require(
            self.program in programs,
            f"{where}: program is {self.program!r}; those for {self.target} are {' and '.join(programs)}",
        )
        compiled = programs[self.program]
        _require(
            self.values in compiled,
            f"{where}: values_per_packet is {self.values}; the P4 program {self.program} for {self.target} is compiled"
            f" for {' and '.join(map(str, compiled))}",
        )

    def _check_interface(self, where: str) -> None:
        """Check that the target's interface is given, and that of no other target."""
        mine = self.target.interface
        other = "p4runtime" if mine == "bfrt" else "bfrt"
        _require(not getattr(self, other), f"{where}: {other} is not an interface of target {self.target}; set {mine}")
        _require(bool(self.control), f"{where}: {mine} missing; it is the address of its control interface")
        _require_address(self.control, f"{where}: {mine}")
        _require(self.target.udp_ports or not self.udp_ports, f"{where}: udp_ports are those of a soft switch")
        _require(self.target.configures_ports or not self.ports, f"{where}: only a tofino has ports that are set up")
        _require(self.device >= self.target.default_device, f"{where}: device_id is 0 and P4Runtime counts from 1")
        hosts = [port.number for port in self.ports if port.role == "host"]
        _require(
            not self.target.configures_ports or bool(hosts), f"{where}: no [[switches.ports]] names a port of a host"
        )
        for what, values in (("number", hosts), ("name", [port.name for port in self.ports])):
            for value in values:
                _require(values.count(value) == 1, f"{where}: {values.count(value)} ports have the {what} {value}")  # type: ignore[arg-type]

    @property
    def sees_macs(self) -> bool:
        """True if its ports carry Ethernet frames; those of a soft switch can be UDP sockets."""
        return self.mac != NO_MAC and not self.udp_ports

    def pool(self, workers: int) -> int:
        """Return the default pool size for a job with this many workers."""
        if self.small_pool and workers <= self.small_job:
            return self.small_pool
        return self.default_pool or self.target.default_pool


@dataclass(frozen=True)
class TenantConfig:
    """One [[tenants]] table: limits for its live jobs; 0 means unlimited.

    `members` are certificates that belong to it instead of to their organization, by their full names:
    ORGANIZATION/NAME (O and CN), or NAME without an organization.
    """

    name: str
    jobs: int = 0
    workers: int = 0
    slots: int = 0
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ConfigError: one is negative, or the default quota has members.

        """
        for what in ("jobs", "workers", "slots"):
            if getattr(self, what) < 0:
                raise ConfigError(f"tenant {self.name!r}: {what} is {getattr(self, what)} and must be 0 or more")
        if self.name == EVERYBODY and self.members:
            raise ConfigError(f"tenant {EVERYBODY!r} stands for all others and has no members")


@dataclass(frozen=True)
class ControllerConfig:
    """The whole file; `listen` is host:port with port 0 for any free one, or unix:PATH.

    `tls` is a directory of certificates, or empty; `insecure` allows connections beyond loopback without TLS. Agents in
    `shared_agents` carry ranks of every tenant.
    """

    switches: tuple[SwitchConfig, ...] = ()
    listen: str = "127.0.0.1:7600"
    store: Path = Path("controller.sqlite")
    tls: str = ""
    insecure: bool = False
    tenants: tuple[TenantConfig, ...] = ()
    shared_agents: tuple[str, ...] = ()
    tree_levels: int = 3

    def __post_init__(self) -> None:
        """Check the values that concern more than one switch.

        Raises:
            ConfigError: two switches or tenants have the same name, a member has two tenants, `listen` is invalid, or
                the parents of the switches do not make trees.

        """
        _require_address(self.listen, "listen")
        names = [switch.name for switch in self.switches]
        for name in names:
            _require(names.count(name) == 1, f"{names.count(name)} switches have the name {name!r}")
        tenants = [tenant.name for tenant in self.tenants]
        members = [member for tenant in self.tenants for member in tenant.members]
        for what, given in (("tenants have the name", tenants), ("tenants have the member", members)):
            for name in given:
                _require(given.count(name) == 1, f"{given.count(name)} {what} {name!r}")
        levels = self.tree_levels
        _require(1 <= levels <= MAX_TREE_LEVELS, f"tree_levels is {levels} and must be 1 to {MAX_TREE_LEVELS}")
        self._check_trees(switch_trees(self.switches, levels))

    def _check_trees(self, trees: SwitchTrees) -> None:
        by_name = {switch.name: switch for switch in self.switches}
        for switch in self.switches:
            if (link := switch.parent) is not None:
                for what, number, end in (("uplink", link.uplink, switch), ("port", link.port, by_name[link.switch])):
                    highest = end.target.highest_port
                    _require(
                        1 <= number <= highest,
                        f"switch {switch.name!r}: parent: {what} is {number} and must be 1 to {highest}",
                    )
            below = [(name, by_name[name].values) for name in trees.below(switch.name)]
            unequal = unequal_values((name, values) for name, values in below if values)
            _require(not unequal, f"{unequal}; they are in one tree, where all switches need the same number")
        # Any number of peers can be at a UDP port.
        links = {one.name: one.parent for one in self.switches if one.parent is not None and one.sees_macs}
        twice = ports_used_twice(links)
        _require(not twice, f"{twice}; a port has one link")

    @property
    def security(self) -> Security:
        """The protection of the controller's connections."""
        return Security.of(self.tls, self.insecure)


def ports_between_switches(switches: Iterable[SwitchConfig]) -> dict[tuple[str, int], str]:
    """Return the ports that lead to another switch alone, by switch and number, with the name of that switch.

    A UDP port is not one: any number of peers can be there.
    """
    by_name = {one.name: one for one in switches}
    ends = {}
    for one in by_name.values():
        if one.parent is None:
            continue
        if by_name[one.parent.switch].sees_macs:
            ends[one.parent.switch, one.parent.port] = one.name
        if one.sees_macs:
            ends[one.name, one.parent.uplink] = one.parent.switch
    return ends


def switch_trees(switches: Iterable[SwitchConfig], levels: int) -> SwitchTrees:
    """Return the trees of switches, of at most `levels` levels.

    Raises:
        ConfigError: their parents do not make trees.

    """
    try:
        return SwitchTrees({one.name: one.parent.switch if one.parent else None for one in switches}, levels)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def load_config(path: Path) -> ControllerConfig:
    """Read a configuration file.

    Raises:
        ConfigError: it cannot be read, or a value in it is not allowed.

    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration {path} is not TOML: {error}") from None
    try:
        return _config(data)
    except ConfigError as error:
        raise ConfigError(f"configuration {path}: {error}") from None


def _config(data: Mapping[str, Any]) -> ControllerConfig:
    unknown = data.keys() - {"agents", "controller", "switches", "tenants"}
    _require(
        not unknown,
        f"unknown table {', '.join(sorted(unknown))}; there are [controller], [agents], [[switches]] and [[tenants]]",
    )
    own = data.get("controller", {})
    _require(isinstance(own, dict), "controller must be a table: [controller]")
    for name in ("switches", "tenants"):
        _require(isinstance(data.get(name, []), list), f"{name} must be an array of tables: [[{name}]]")
    switches = tuple(_switch(table) for table in data.get("switches", []))
    tenants = tuple(_tenant(table) for table in data.get("tenants", []))
    values = _values(ControllerConfig, own, "[controller]", but={"switches", "tenants", "shared_agents"})
    if "store" in values:
        values["store"] = Path(values["store"])
    shared = _shared_agents(data.get("agents", {}))
    return ControllerConfig(switches=switches, tenants=tenants, shared_agents=shared, **values)


def _shared_agents(table: Any) -> tuple[str, ...]:
    _require(isinstance(table, dict), "agents must be a table: [agents]")
    unknown = table.keys() - {"shared"}
    _require(not unknown, f"[agents]: unknown key {', '.join(sorted(unknown))}; known is shared")
    names = table.get("shared", [])
    _require(
        isinstance(names, list)
        and all(isinstance(name, str) and (name == EVERY_AGENT or is_full_name(name)) for name in names),
        f"[agents]: shared is {names!r} and must be an array of names of agents (with an organization:"
        f" ORGANIZATION/NAME), or {[EVERY_AGENT]!r} for all",
    )
    return tuple(names)


def _switch(table: Any) -> SwitchConfig:
    if isinstance(table, dict) and isinstance(table.get("parent"), list):
        raise ConfigError(
            f"[[switches]]: {len(table['parent'])} parents are given for one switch, which has at most one"
        )
    values = _values(SwitchConfig, table, "[[switches]]")
    ports = tuple(map(_port, values.pop("ports", ())))
    parent = values.pop("parent", None)
    target = values.pop("target")
    _require(target in TARGETS, f"switch {values['name']!r}: target {target!r} is not one of {', '.join(TARGETS)}")
    link = None if parent is None else ParentLink(**_values(ParentLink, parent, "[[switches]]: parent"))
    return SwitchConfig(**values, target=TARGETS[target], ports=ports, parent=link)


def _port(table: Any) -> TofinoPort:
    values = _values(TofinoPort, table, "[[switches.ports]]")
    try:
        return TofinoPort(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _tenant(table: Any) -> TenantConfig:
    values = _values(TenantConfig, table, "[[tenants]]")
    members = values.pop("members", [])
    _require(all(isinstance(one, str) for one in members), "[[tenants]]: members must be texts")
    return TenantConfig(**values, members=tuple(members))


def _values(kind: type, table: Any, where: str, but: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the table's values, after checking that their names and types are those of the dataclass' fields."""
    _require(isinstance(table, dict), f"{where} must be a table")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in but}
    for name, value in table.items():
        _require(name in fields, f"{where}: unknown key {name!r}; known are {', '.join(fields)}")
        wanted = _TYPES.get(str(fields[name].type), str)
        _require(type(value) is wanted, f"{where}: {name} is {value!r} and must be of type {wanted.__name__}")
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in table]
    _require(not missing, f"{where}: {', '.join(missing)} missing")
    return dict(table)


def _require_address(text: str, what: str) -> None:
    try:
        parse_grpc_address(text)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
