"""Draw a topology: as text for a terminal, and as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switchml.common.pictures import write_picture
from switchml.topologies.topology import Switch, Topology

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["picture", "text"]

_HOSTS_IN_A_ROW: Final = 16


def text(topology: Topology) -> str:
    """Return the topology as a tree: each switch with its ports, and the hosts attached to them."""
    count = len(topology.hosts)
    lines = [f"{topology.name}: {count} {'host' if count == 1 else 'hosts'}, links of MTU {topology.mtu}", ""]
    for switch in topology.switches:
        lines.append(f"{switch.name}  {switch.target}  {switch.ipv4}  {switch.mac}")
        hosts = sorted((host for host in topology.hosts if host.switch == switch.name), key=lambda host: host.port)
        port_width = max((len(str(host.port)) for host in hosts), default=0)
        name_width = max((len(host.name) for host in hosts), default=0)
        address_width = max((len(str(host.ipv4)) for host in hosts), default=0)
        for host in hosts:
            branch = "└" if host is hosts[-1] else "├"
            lines.append(
                f"{branch}─ port {host.port:<{port_width}} ── {host.name:<{name_width}}  "
                f"{host.ipv4!s:<{address_width}}  {host.mac}"
            )
    return "\n".join(lines)


def picture(topology: Topology, path: Path) -> None:
    """Write the topology as a picture; the file's suffix, .png or .svg, selects the format.

    Raises what `write_picture` raises.
    """
    write_picture(path, lambda: _figure(topology))


def _figure(topology: Topology) -> Figure:
    from matplotlib.figure import Figure

    count = len(topology.hosts)
    columns = min(count, _HOSTS_IN_A_ROW)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(max(4.0, 1.3 * columns), 2.4 + 1.1 * rows), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{topology.name}, MTU {topology.mtu}")
    axes.set_axis_off()
    places = {switch.name: _place(index, topology) for index, switch in enumerate(topology.switches)}
    for index, host in enumerate(topology.hosts):
        row, column = divmod(index, columns)
        x, y = column + 0.5, -1.0 - row
        switch_x, switch_y = places[host.switch]
        axes.plot([switch_x, x], [switch_y, y], color="0.6", zorder=1)
        axes.annotate(
            str(host.port), (x + 0.25 * (switch_x - x), y + 0.25 * (switch_y - y)), size=8, ha="center", va="center",
            bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": "0.6"}, zorder=2,
        )  # fmt: skip
        _node(axes, x, y, f"{host.name}\n{host.ipv4.ip}", "#dbe9f6")
    for switch in topology.switches:
        _node(axes, *places[switch.name], _label(switch), "#fde2c4")
    axes.set_xlim(0, columns)
    axes.set_ylim(-rows - 0.5, 0.5)
    return figure


def _place(index: int, topology: Topology) -> tuple[float, float]:
    columns = min(len(topology.hosts), _HOSTS_IN_A_ROW)
    return columns * (index + 0.5) / len(topology.switches), 0.0


def _label(switch: Switch) -> str:
    return f"{switch.name} ({switch.target})\n{switch.ipv4}"


def _node(axes: Any, x: float, y: float, label: str, colour: str) -> None:
    axes.text(
        x, y, label, size=8, ha="center", va="center", zorder=3,
        bbox={"boxstyle": "round", "facecolor": colour, "edgecolor": "0.3"},
    )  # fmt: skip
