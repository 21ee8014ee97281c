"""The controller's configuration file (TOML) as dataclasses.

Example::

    [controller]
    listen = "127.0.0.1:7600"        # or "unix:/path/of/a/socket"
    store = "/var/lib/switchml/controller.sqlite"

    [[switches]]
    name = "s1"
    target = "soft"                  # or "bmv2"
    p4runtime = "127.0.0.1:9559"     # or "unix:/path/of/a/socket"
    device_id = 1
    address = "10.0.0.1"             # of its data plane
    udp_port = 48864
    mac = "02:00:00:00:00:01"
    values_per_packet = 256          # soft; on bmv2 64 or 256: which of the compiled programs is loaded
    slots = 4096                     # soft; on bmv2 the p4info says it
    default_pool = 512               # slots of a job that asks for none
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any

from controller.errors import ConfigError
from controller.jobs import parse_mac
from controller.slots import MINIMUM_SLOTS, is_power_of_two
from dataplane.constants import PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_VALUES, PROTOCOL_UDP_PORT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ControllerConfig", "SwitchConfig", "load_config", "split_address", "unix_path"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEFAULT_POOL = {"soft": 512, "bmv2": 32}
_DEFAULT_VALUES = {"soft": 256, "bmv2": 64}
_COMPILED_VALUES = (64, 256)  # dataplane/p4/build/bmv2
_UNIX = "unix:"


@dataclass(frozen=True)
class SwitchConfig:
    """One [[switches]] table; `values_per_packet` and `default_pool` of 0 mean the target's own default."""

    name: str
    target: str
    p4runtime: str
    address: str
    device_id: int = 1
    udp_port: int = PROTOCOL_UDP_PORT
    mac: str = "00:00:00:00:00:00"
    values_per_packet: int = 0
    slots: int = 4096
    default_pool: int = 0

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: one is not allowed.

        """
        where = f"switch {self.name!r}"
        _require(bool(_NAME.fullmatch(self.name)), f"{where}: name must be 1 to 64 of A-Z a-z 0-9 _ . -")
        _require(self.target in _DEFAULT_POOL, f"{where}: target {self.target!r} is none of {', '.join(_DEFAULT_POOL)}")
        if unix_path(self.p4runtime, f"{where}: p4runtime") is None:
            split_address(self.p4runtime, f"{where}: p4runtime")
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
            ("device_id", 1, 2**64 - 1),
            ("udp_port", 1, 65535),
            ("values_per_packet", 0, PROTOCOL_MAX_VALUES),
            ("slots", MINIMUM_SLOTS, PROTOCOL_MAX_SLOT_INDEX + 1),
            ("default_pool", 0, PROTOCOL_MAX_SLOT_INDEX + 1),
        ):
            value = getattr(self, name)
            _require(low <= value <= high, f"{where}: {name} is {value} and must be {low} to {high}")
        _require(
            self.target != "bmv2" or self.values in _COMPILED_VALUES,
            f"{where}: values_per_packet is {self.values}; the P4 program for bmv2 is compiled for"
            f" {' and '.join(map(str, _COMPILED_VALUES))}",
        )
        pool = self.default_pool
        _require(
            pool == 0 or (is_power_of_two(pool) and pool >= MINIMUM_SLOTS),
            f"{where}: default_pool is {pool} and must be a power of two from {MINIMUM_SLOTS}",
        )

    @property
    def values(self) -> int:
        """The values per packet that are asked for."""
        return self.values_per_packet or _DEFAULT_VALUES[self.target]

    @property
    def pool(self) -> int:
        """The slots of a job that asks for none."""
        return self.default_pool or _DEFAULT_POOL[self.target]


@dataclass(frozen=True)
class ControllerConfig:
    """The whole file; `listen` is host:port with port 0 for any free one, or unix:PATH."""

    switches: tuple[SwitchConfig, ...] = ()
    listen: str = "127.0.0.1:7600"
    store: Path = Path("controller.sqlite")

    def __post_init__(self) -> None:
        """Check what concerns more than one switch.

        Raises:
            ConfigError: two switches have one name, or `listen` is no address.

        """
        if unix_path(self.listen, "listen") is None:
            split_address(self.listen, "listen")
        names = [switch.name for switch in self.switches]
        for name in names:
            _require(names.count(name) == 1, f"{names.count(name)} switches have the name {name!r}")


def load_config(path: Path) -> ControllerConfig:
    """Read a configuration file.

    Raises:
        ConfigError: it cannot be read or holds something that is not allowed.

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
    unknown = data.keys() - {"controller", "switches"}
    _require(not unknown, f"unknown table {', '.join(sorted(unknown))}; there are [controller] and [[switches]]")
    own, tables = data.get("controller", {}), data.get("switches", [])
    _require(isinstance(own, dict), "controller must be a table: [controller]")
    _require(isinstance(tables, list), "switches must be an array of tables: [[switches]]")
    switches = tuple(SwitchConfig(**_values(SwitchConfig, table, "[[switches]]")) for table in tables)
    values = _values(ControllerConfig, own, "[controller]", but={"switches"})
    if "store" in values:
        values["store"] = Path(values["store"])
    return ControllerConfig(switches=switches, **values)


def _values(kind: type, table: Any, where: str, but: frozenset[str] | set[str] = frozenset()) -> dict[str, Any]:
    """Return the table's values, after checking that their names and types are those of the dataclass' fields."""
    _require(isinstance(table, dict), f"{where} must be a table")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in but}
    for name, value in table.items():
        _require(name in fields, f"{where}: unknown key {name!r}; known are {', '.join(fields)}")
        wanted = int if fields[name].type == "int" else str
        _require(type(value) is wanted, f"{where}: {name} is {value!r} and must be of type {wanted.__name__}")
    missing = [n for n, f in fields.items() if f.default is dataclasses.MISSING and n not in table]
    _require(not missing, f"{where}: {', '.join(missing)} missing")
    return dict(table)


def unix_path(text: str, what: str) -> Path | None:
    """Return the path of "unix:PATH", None when `text` is something else.

    Raises:
        ConfigError: the path is not absolute.

    """
    if not text.startswith(_UNIX):
        return None
    path = Path(text.removeprefix(_UNIX))
    _require(path.is_absolute(), f"{what}: {text!r} has no absolute path after {_UNIX}")
    return path


def split_address(text: str, what: str) -> tuple[str, int]:
    """Return host and port of "host:port".

    Raises:
        ConfigError: it is no such text.

    """
    host, _, port = text.rpartition(":")
    _require(
        bool(host) and port.isascii() and port.isdigit() and int(port) <= 65535,
        f"{what}: {text!r} is not HOST:PORT with a port from 0 to 65535, nor unix:PATH",
    )
    return host, int(port)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
