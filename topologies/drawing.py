"""Draw a topology: as text for a terminal, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switchml.common.pictures import write_picture
from switchml.topologies.topology import Switch, Topology

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["picture", "text"]

_HOSTS_IN_A_ROW: Final = 16


def text(topology: Topology) -> str:
    """Return the topology as a tree: each switch with its ports, and the hosts and switches attached to them."""
    count = len(topology.hosts)
    lines = [f"{topology.name}: {count} {'host' if count == 1 else 'hosts'}, links of MTU {topology.mtu}", ""]
    for switch in topology.switches:
        if switch.parent is None:
            lines.append(_described(switch))
            lines += _below(topology, switch, "")
    return "\n".join(lines)


def _described(switch: Switch) -> str:
    return f"{switch.name}  {switch.target}  {switch.ipv4}  {switch.mac}"


def _below(topology: Topology, switch: Switch, indent: str) -> Iterator[str]:
    """Yield a line for each port of a switch that leads to a host or a switch below, with what is below that."""
    hosts = {host.port: host for host in topology.hosts if host.switch == switch.name}
    children = {one.parent.port: one for one in topology.switches if one.parent and one.parent.switch == switch.name}
    ports = sorted(hosts.keys() | children.keys())
    port_width = max((len(str(port)) for port in ports), default=0)
    name_width = max((len(host.name) for host in hosts.values()), default=0)
    address_width = max((len(str(host.ipv4)) for host in hosts.values()), default=0)
    for port in ports:
        branch, trunk = ("└", "   ") if port == ports[-1] else ("├", "│  ")
        start = f"{indent}{branch}─ port {port:<{port_width}} ── "
        if port in hosts:
            host = hosts[port]
            yield f"{start}{host.name:<{name_width}}  {host.ipv4!s:<{address_width}}  {host.mac}"
            continue
        child = children[port]
        assert child.parent is not None, "it is below this switch"
        yield f"{start}port {child.parent.uplink} of {_described(child)}"
        yield from _below(topology, child, indent + trunk)


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
    places = _places(topology)
    height = max(y for _, y in places.values())
    figure = Figure(figsize=(max(4.0, 1.3 * columns), 2.4 + 1.1 * (rows + height)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{topology.name}, MTU {topology.mtu}")
    axes.set_axis_off()
    for child, link in topology.links.items():
        (x, y), (above_x, above_y) = places[child], places[link.switch]
        axes.plot([above_x, x], [above_y, y], color="0.6", zorder=1)
        _port(axes, link.uplink, x + 0.3 * (above_x - x), y + 0.3 * (above_y - y))
        _port(axes, link.port, x + 0.7 * (above_x - x), y + 0.7 * (above_y - y))
    for index, host in enumerate(topology.hosts):
        row, column = divmod(index, columns)
        x, y = column + 0.5, -1.0 - row
        switch_x, switch_y = places[host.switch]
        axes.plot([switch_x, x], [switch_y, y], color="0.6", zorder=1)
        _port(axes, host.port, x + 0.25 * (switch_x - x), y + 0.25 * (switch_y - y))
        _node(axes, x, y, f"{host.name}\n{host.ipv4.ip}", "#dbe9f6")
    for switch in topology.switches:
        _node(axes, *places[switch.name], _label(switch), "#fde2c4")
    axes.set_xlim(0, columns)
    axes.set_ylim(-rows - 0.5, height + 0.5)
    return figure


def _places(topology: Topology) -> dict[str, tuple[float, float]]:
    """Return the place of each switch, by name: those below no other one are on top, those with hosts at height 0."""
    columns = min(len(topology.hosts), _HOSTS_IN_A_ROW)
    depths = {switch.name: _depth(topology, switch) for switch in topology.switches}
    deepest, found = max(depths.values()), {}
    for depth in range(deepest + 1):
        level = [name for name, its in depths.items() if its == depth]
        for index, name in enumerate(level):
            found[name] = (columns * (index + 0.5) / len(level), float(deepest - depth))
    return found


def _depth(topology: Topology, switch: Switch) -> int:
    """Return the number of switches above one."""
    above = [one for one in topology.switches if switch.parent is not None and one.name == switch.parent.switch]
    return 1 + _depth(topology, above[0]) if above else 0


def _port(axes: Any, number: int, x: float, y: float) -> None:
    axes.annotate(
        str(number), (x, y), size=8, ha="center", va="center",
        bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": "0.6"}, zorder=2,
    )  # fmt: skip


def _label(switch: Switch) -> str:
    return f"{switch.name} ({switch.target})\n{switch.ipv4}"


def _node(axes: Any, x: float, y: float, label: str, colour: str) -> None:
    axes.text(
        x, y, label, size=8, ha="center", va="center", zorder=3,
        bbox={"boxstyle": "round", "facecolor": colour, "edgecolor": "0.3"},
    )  # fmt: skip
