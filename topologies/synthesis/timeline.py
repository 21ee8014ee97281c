"""A picture of a schedule: when each link is in use, and for which rank's chunk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from switchml.common.pictures import write_picture
from switchml.common.schedules import Schedule, Send
from switchml.topologies.synthesis.sketch import SketchedNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["picture"]

_ROWS: Final = 64  # more links than these are too many for a picture; those between hosts are shown first


def picture(schedule: Schedule, network: SketchedNetwork, path: Path) -> None:
    """Write the timeline into a file, .png or .svg. Raises what `write_picture` raises."""
    write_picture(path, lambda: _figure(schedule, network))


def _figure(schedule: Schedule, network: SketchedNetwork) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    rows = sorted({_row(send, network) for send in schedule.sends})
    shown = {row: place for place, row in enumerate(rows[:_ROWS])}
    figure = Figure(figsize=(10, 1.5 + 0.17 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colours = colormaps["hsv"]
    parts = schedule.chunks_per_rank * (schedule.ranks if schedule.collective == "all-to-all" else 1)
    for send in schedule.sends:
        row = _row(send, network)
        if row in shown:
            colour = colours(send.chunks[0] // parts / schedule.ranks)
            axes.barh(
                shown[row], send.end - send.start, left=send.start, height=0.8, color=colour, edgecolor="white",
                linewidth=0.5, hatch="///" if send.reduces else None,
            )  # fmt: skip
    axes.set_yticks(list(shown.values()), [label for _, _, label in shown], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("microseconds; a colour for the chunks of each rank, hatched where the receiver adds")
    left_out = f"; {len(rows) - len(shown)} links are left out" if len(rows) > len(shown) else ""
    axes.set_title(f"{schedule.collective} of {schedule.ranks} ranks, {network.name}{left_out}", fontsize=9)
    return figure


def _row(send: Send, network: SketchedNetwork) -> tuple[int, tuple[int, ...], str]:
    """Return the row of a send, which sorts the switch and links between hosts above those within."""
    ends = (send.sources[0], send.destinations[0])
    if len(send.sources) > 1:
        return 0, send.sources, f"switch, {', '.join(map(str, send.sources))}"
    return (1 if network.crosses(ends) else 2), ends, f"{ends[0]} → {ends[1]}"
