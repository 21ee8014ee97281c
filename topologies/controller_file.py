"""The controller's configuration for a topology whose switches already exist."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from switchml.common.errors import TopologyFileError
from switchml.topologies.topology import Switch, Topology

__all__ = ["controller_file"]


def controller_file(topology: Topology) -> str:
    """Return the text of a controller's configuration file, in TOML.

    Raises:
        TopologyFileError: a switch is one that `switchml-ctl up` starts and configures itself.

    """
    for switch in topology.switches:
        if switch.target.default_slots:
            raise TopologyFileError(
                f"switch {switch.name} has the target {switch.target}: `switchml-ctl up --topology FILE` starts it "
                "and configures its controller; this command is for switches that already exist"
            )
    return "\n".join(
        [
            f"# Generated from topology {topology.name}.",
            "[controller]",
            'listen = "0.0.0.0:7600"',
            'tls = "/etc/switchml/tls"  # certificates: docs/operate/security.md',
            f"tree_levels = {topology.levels}",
            *map(_tables, topology.switches),
        ]
    )


def _tables(switch: Switch) -> str:
    fields = {"name": switch.name, "target": switch.target.name, "bfrt": switch.bfrt, "program": switch.program}
    fields |= {"address": str(switch.ipv4), "mac": switch.mac}
    fields["tls"] = "off"  # bf_switchd has no TLS
    tables = [_table("[[switches]]", fields)]
    if switch.parent is not None:
        tables.append(_table("[switches.parent]", dataclasses.asdict(switch.parent)))
    defaults = (
        {field.name: field.default for field in dataclasses.fields(type(switch.ports[0]))} if switch.ports else {}
    )
    for port in switch.ports:
        chosen = {name: value for name, value in dataclasses.asdict(port).items() if value != defaults[name]}
        tables.append(_table("[[switches.ports]]", chosen))
    return "\n".join(tables)


def _table(name: str, fields: dict[str, Any]) -> str:
    # A JSON string or number is also a TOML one.
    return "".join([f"\n{name}\n", *(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())])
