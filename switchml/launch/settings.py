"""Settings: command-line options take precedence over environment variables, the configuration file and defaults."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ConfigurationError
from switchml.common.names import names_in_list
from switchml.common.run_directory import default_run_directory, expanded, read_config_file
from switchml.common.shares import share
from switchml.dataplane.constants import PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_VALUES, PROTOCOL_MAX_WORKERS
from switchml.dataplane.targets import BMV2, SOFT, STARTED

__all__ = ["EMBEDDED_POOL", "EMBEDDED_VALUES", "FABRIC_OPTIONS", "KEYS"]
__all__ += ["SMALL_POOL", "TRANSPORTS", "Key", "Settings", "load"]

TRANSPORTS: Final = ("auto", "shm", "udp")
"""The transports by which ranks of the embedded fabric reach their switch; auto is shm."""

EMBEDDED_VALUES: Final = 2048
"""Default values per packet of the embedded fabric: loopback takes packets of up to 64 KiB."""

EMBEDDED_POOL: Final = {"udp": 256, "shm": 128}
"""Slots of a job there, by transport, with EMBEDDED_VALUES. Fewer cause more wake-ups, more exceed the caches."""

SMALL_POOL: Final = 32
"""The same over shared memory if each worker has a CPU: it then busy-polls, so more slots would save no wake-ups."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that every command needs. `controller` is None for the run directory's fabric.

    `fabric` has values for FABRIC_OPTIONS, which may contradict each other; `launch.kinds.kind_of` checks them. `tls`
    is a directory of certificates for a configured controller; `insecure` allows connections without. `given` has the
    keys that an option, a variable or the file sets.
    """

    controller: str | None
    run_dir: Path
    fabric: Mapping[str, Any]
    job_slots: int
    job_switch: str
    tls: str | None = None
    insecure: bool = False
    job_aggregators: tuple[str, ...] = ()
    given: tuple[Key, ...] = ()


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(f"must be a whole number from {low} to {high}")
        try:
            number = int(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number from {low} to {high}") from None
        if not low <= number <= high:
            raise ValueError(f"{number} is outside {low}..{high}")
        return number

    return parse


def _program(value: Any) -> str:
    if value not in BMV2.programs:
        raise ValueError(f"{value!r} must be one of {', '.join(BMV2.programs)}")
    return _text(value)


def _probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be a number from 0 to 1, or a percentage")
    return share(str(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _flag(value: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in known:
        raise ValueError(f"{value!r} is neither true nor false")
    return known[str(value).lower()]


def _target(value: Any) -> str:
    if value not in STARTED:
        raise ValueError(f"{value!r} must be one of {', '.join(STARTED)}")
    return _text(value)


def _transport(value: Any) -> str:
    if value not in TRANSPORTS:
        raise ValueError(f"{value!r} must be one of {', '.join(TRANSPORTS)}")
    return _text(value)


def _switch_name(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", _text(value)):
        raise ValueError(f"{value!r} is not a name of letters, digits, `.`, `_` and `-`")
    return _text(value)


def _names(value: Any) -> tuple[str, ...]:
    return names_in_list(_text(value))


def _ipv4(value: Any) -> str:
    try:
        return str(IPv4Address(_text(value)))
    except AddressValueError:
        raise ValueError(f"{value!r} is not an IPv4 address") from None


def _path(value: Any) -> str:
    return str(expanded(_text(value)))


def _address(value: Any) -> str:
    text = _text(value)
    if text.startswith("unix:/"):
        return text
    for address in text.split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{address!r} is neither HOST:PORT nor unix:/PATH")
    return text


@dataclasses.dataclass(frozen=True)
class Key:
    """One setting: its place in the file ("table.key"), its environment variable and the parser of its value."""

    name: str
    variable: str
    parse: Callable[[Any], Any]
    default: Any
    help: str

    @property
    def option(self) -> str:
        """Its option of switchml-ctl."""
        return "--" + self.name.rpartition(".")[2].replace("_", "-")


KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (
        Key(
            "controller",
            "SWITCHML_CONTROLLER",
            _address,
            None,
            "Controller's address, HOST:PORT or unix:/PATH; with a standby IPV4:PORT,IPV4:PORT.",
        ),
        Key(
            "tls",
            "SWITCHML_TLS",
            _path,
            None,
            "Directory of certificates for the configured controller.  [SWITCHML_TLS]",
        ),
        Key(
            "insecure",
            "SWITCHML_INSECURE",
            _flag,
            False,
            "Connect to a controller beyond loopback without TLS.  [SWITCHML_INSECURE]",
        ),
        Key("run_dir", "SWITCHML_RUN_DIR", _text, None, "Run directory: state, sockets, logs, job directories."),
        Key(
            "fabric.switch",
            "SWITCHML_FABRIC_SWITCH",
            _target,
            "",
            "Lay the fabric out in network namespaces, with a switch of this target: soft or bmv2.",
        ),
        Key(
            "fabric.workers",
            "SWITCHML_FABRIC_WORKERS",
            _whole(1, PROTOCOL_MAX_WORKERS),
            None,
            "Hosts to lay out: this many on one switch, or the first ones of the topology file.",
        ),
        Key(
            "fabric.racks",
            "SWITCHML_FABRIC_RACKS",
            _whole(2, 32),
            None,
            "Racks for the hosts or agents, each with a switch below one that they share.",
        ),
        Key(
            "fabric.topology",
            "SWITCHML_FABRIC_TOPOLOGY",
            _path,
            "",
            "Topology file (YAML) to lay out in network namespaces.",
        ),
        Key("fabric.agents", "SWITCHML_FABRIC_AGENTS", _whole(1, 64), 1, "Agents of the embedded fabric."),
        Key(
            "fabric.transport",
            "SWITCHML_FABRIC_TRANSPORT",
            _transport,
            TRANSPORTS[0],
            "How ranks of the embedded fabric reach the switch: shm (shared memory), udp, or auto, which is shm.",
        ),
        Key(
            "fabric.threads",
            "SWITCHML_FABRIC_THREADS",
            _whole(1, 64),
            1,
            "Data threads of the embedded fabric: of the switch and, over UDP, of each agent.",
        ),
        Key(
            "fabric.values",
            "SWITCHML_FABRIC_VALUES",
            _whole(1, PROTOCOL_MAX_VALUES),
            None,
            f"Values per packet; default: {EMBEDDED_VALUES} in the embedded fabric, else {SOFT.default_values} "
            f"on soft, and {BMV2.default_values} or 256 on bmv2.",
        ),
        Key(
            "fabric.program",
            "SWITCHML_FABRIC_PROGRAM",
            _program,
            "",
            "P4 program of bmv2: switchml, the default, or switchml_floats, which adds floats as well.",
        ),
        Key(
            "fabric.slots",
            "SWITCHML_FABRIC_SLOTS",
            _whole(1, PROTOCOL_MAX_SLOT_INDEX + 1),
            None,
            f"Slots of the soft switch; default: {SOFT.default_slots}.",
        ),
        Key(
            "fabric.drop",
            "SWITCHML_FABRIC_DROP",
            _probability,
            0.0,
            "Fraction of packets that the soft switch drops on purpose.",
        ),
        Key(
            "fabric.duplicate",
            "SWITCHML_FABRIC_DUPLICATE",
            _probability,
            0.0,
            "Fraction of packets that it duplicates.",
        ),
        Key(
            "fabric.delay",
            "SWITCHML_FABRIC_DELAY",
            _probability,
            0.0,
            "Fraction of packets that it delays past later ones.",
        ),
        Key(
            "fabric.flip",
            "SWITCHML_FABRIC_FLIP",
            _probability,
            0.0,
            "Fraction of packets in which it flips a bit, after all checksums.",
        ),
        Key(
            "fabric.seed",
            "SWITCHML_FABRIC_SEED",
            _whole(0, 2**63 - 1),
            1,
            "Seed of the injected faults.",
        ),
        Key(
            "fabric.leaf",
            "SWITCHML_FABRIC_LEAF",
            _switch_name,
            "",
            "Start this host's part of a fabric on several hosts: its own soft switch, which has this name in the "
            "controller's configuration, and an agent of the same name.",
        ),
        Key(
            "fabric.address",
            "SWITCHML_FABRIC_ADDRESS",
            _ipv4,
            "",
            "IPv4 address of this host's data interface, for --leaf.",
        ),
        Key(
            "fabric.certificates",
            "SWITCHML_FABRIC_CERTIFICATES",
            _path,
            "",
            "Directory with switch-LEAF and agent-LEAF, as `certs init` writes them, for --leaf.",
        ),
        Key(
            "job.slots",
            "SWITCHML_JOB_SLOTS",
            _whole(0, PROTOCOL_MAX_SLOT_INDEX + 1),
            0,
            "Slots of a job, a power of two; 0: the switch's default.",
        ),
        Key(
            "job.switch",
            "SWITCHML_JOB_SWITCH",
            _text,
            "",
            "Switch that a job runs on; empty: any with enough free resources.",
        ),
        Key(
            "job.aggregators",
            "SWITCHML_AGGREGATORS",
            _names,
            (),
            "Soft switches that share a job's slots as parameter servers, NAME,... (docs/guides/parameter-servers.md).",
        ),
    )
}
"""All settings, by their names in the configuration file."""

FABRIC_OPTIONS: Final[dict[str, Any]] = {
    **{
        name.removeprefix("fabric."): 0 if key.default is None else key.default
        for name, key in KEYS.items()
        if name.startswith("fabric.")
    },
    "controller": "",
    "insecure": False,
}
"""The options of all kinds of fabrics, with their defaults; 0 stands for the default of the kind."""


def _read_file(environment: Mapping[str, str], named: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """Return the configuration file's path and its values, by the names in KEYS."""
    path, content = read_config_file(environment, named)
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": inner_value for inner, inner_value in value.items()})
        else:
            flat[name] = value
    for name in flat:
        if name not in KEYS:
            raise ConfigurationError(f"configuration file {path}: unknown key {name}; known keys are {', '.join(KEYS)}")
    return path, flat


def load(
    options: Mapping[str, Any] | None = None,
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings from `options` (by key name; None: not given), then environment, file and defaults.

    Raises ConfigurationError, which names the key and the source of its value.
    """
    path, content = _read_file(environment, config_file)
    found: dict[str, Any] = {}
    given: list[Key] = []
    for key in KEYS.values():
        option = (options or {}).get(key.name)
        if option is not None:
            value, source = option, f"option {key.option}"
        elif environment.get(key.variable):
            value, source = environment[key.variable], f"environment variable {key.variable}"
        elif key.name in content:
            value, source = content[key.name], f"configuration file {path}, key {key.name}"
        else:
            found[key.name] = key.default
            continue
        try:
            found[key.name] = key.parse(value)
        except ValueError as error:
            raise ConfigurationError(f"{source}: {error}") from error
        given.append(key)
    run_dir = found["run_dir"]
    fabric = {key.name.removeprefix("fabric."): found[key.name] for key in given if key.name.startswith("fabric.")}
    fabric |= {"controller": found["controller"] or "", "insecure": found["insecure"]}
    return Settings(
        controller=found["controller"],
        run_dir=expanded(run_dir) if run_dir else default_run_directory(environment),
        fabric=FABRIC_OPTIONS | fabric,
        job_slots=found["job.slots"],
        job_switch=found["job.switch"],
        job_aggregators=found["job.aggregators"],
        tls=found["tls"],
        insecure=found["insecure"],
        given=tuple(given),
    )
