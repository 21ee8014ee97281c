"""Draw how a job spends its time: a timeline of each rank's latest calls, as text for a terminal and as a picture.

The times at which a call was submitted, begun and ended are exact. Within a call quantizing, waiting and dequantizing
alternate chunk by chunk; the drawing shows the total of each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from switchml.common.counter_table import THREAD
from switchml.common.errors import DrawingError
from switchml.common.pictures import write_picture
from switchml.ops.profiles import CallTimes, JobTimes, RankTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "SIGNS", "lanes", "picture", "rows", "window"]

COLOURS: Final = {"queued": "#d0d0d0", "quantize": "#1f77b4", "wait": "#ffbf4d", "dequantize": "#2ca02c"}
SIGNS: Final = {"queued": ".", "quantize": "q", "wait": "-", "dequantize": "d"}
_PARTS: Final = tuple(counter.quantity for counter in THREAD)
_MOST_LANES: Final = 8  # parallel calls in one rank's row


@dataclass(frozen=True)
class _Stretch:
    """One call's activity from `begin` to `end`."""

    state: str
    begin: float
    end: float


def window(times: JobTimes) -> tuple[float, float] | None:
    """Return when the first of the latest calls was submitted and when the last one ended; None without calls."""
    calls = [call for rank in times.ranks for call in rank.latest]
    if not calls:
        return None
    return min(call.submitted for call in calls), max(call.ended for call in calls)


def rows(times: JobTimes, width: int) -> Iterator[tuple[RankTimes, str]]:
    """Yield each rank with its timeline: `width` characters of SIGNS, and spaces where no call was active.

    A character shows the activity that filled most of its time span.
    """
    span = window(times)
    if span is None:
        return
    first, last = span
    step = max(last - first, 1e-9) / width
    for rank in times.ranks:
        filled: list[dict[str, float]] = [{} for _ in range(width)]
        for call in rank.latest:
            for stretch in _stretches(call):
                _fill(filled, stretch, first, step)
        yield rank, "".join(_sign(cell, step) for cell in filled)


def _fill(filled: list[dict[str, float]], stretch: _Stretch, first: float, step: float) -> None:
    begin, end = (stretch.begin - first) / step, (stretch.end - first) / step
    for cell in range(max(0, int(begin)), min(len(filled), int(end) + 1)):
        overlap = min(end, cell + 1) - max(begin, cell)
        if overlap > 0:
            filled[cell][stretch.state] = filled[cell].get(stretch.state, 0.0) + overlap * step


def _sign(cell: dict[str, float], step: float) -> str:
    working = {state: time for state, time in cell.items() if state != "queued"}
    chosen = working or cell
    if sum(chosen.values()) < step / 4:
        return " "
    return SIGNS[max(chosen, key=lambda state: chosen[state])]


def _stretches(call: CallTimes) -> Iterator[_Stretch]:
    if call.begun > call.submitted:
        yield _Stretch("queued", call.submitted, call.begun)
    begin = call.begun
    for state in _PARTS:
        end = min(begin + getattr(call, state), call.ended)
        if end > begin:
            yield _Stretch(state, begin, end)
        begin = end


def lanes(calls: Iterable[CallTimes], most: int | None = None) -> list[list[CallTimes]]:
    """Distribute calls over lanes so that the calls of a lane do not overlap, unless that takes more than `most`."""
    found: list[list[CallTimes]] = []
    for call in sorted(calls, key=lambda each: each.submitted):
        free = next((lane for lane in found if lane[-1].ended <= call.submitted), None)
        if free is None and (most is None or len(found) < most):
            found.append(free := [])
        (free if free is not None else min(found, key=lambda lane: lane[-1].ended)).append(call)
    return found


def picture(times: JobTimes, path: Path) -> None:
    """Write the timeline as a picture; the file's suffix, .png or .svg, selects the format.

    Raises DrawingError if no call has ended, and what `write_picture` raises.
    """
    write_picture(path, lambda: _figure(times))


def _figure(times: JobTimes) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    span = window(times)
    if span is None:
        raise DrawingError(f"no call of job {times.name} ended in that time: there is nothing to draw")
    scale, unit = _unit(span[1] - span[0])
    figure = Figure(figsize=(11.0, 1.6 + 0.5 * len(times.ranks)), layout="constrained")
    axes = figure.subplots()
    for row, rank in enumerate(times.ranks):
        rows_of_calls = lanes(rank.latest, _MOST_LANES)
        for number, lane in enumerate(rows_of_calls):
            height = 0.8 / len(rows_of_calls)
            bottom = row - 0.4 + number * height
            for state, spans in _spans(lane, span[0], scale).items():
                axes.broken_barh(spans, (bottom, 0.9 * height), facecolor=COLOURS[state])
            ends = [(call.ended - span[0]) * scale for call in lane]
            axes.vlines(ends, bottom, bottom + 0.9 * height, color="0.2", linewidth=0.6)
    axes.set_yticks(range(len(times.ranks)), [f"rank {rank.rank}" for rank in times.ranks])
    axes.set_ylim(len(times.ranks) - 0.5, -0.5)
    axes.set_xlim(0, (span[1] - span[0]) * scale)
    axes.set_xlabel(f"time ({unit})")
    axes.set_title(f"job {times.name}: the latest calls of each rank")
    figure.legend(
        handles=[Patch(color=colour, label=state) for state, colour in COLOURS.items()], loc="outside lower center",
        ncols=len(COLOURS), frameon=False,
    )  # fmt: skip
    return figure


def _spans(lane: Sequence[CallTimes], first: float, scale: float) -> dict[str, list[tuple[float, float]]]:
    spans: dict[str, list[tuple[float, float]]] = {}
    for call in lane:
        for stretch in _stretches(call):
            width = (stretch.end - stretch.begin) * scale
            spans.setdefault(stretch.state, []).append(((stretch.begin - first) * scale, width))
    return spans


def _unit(seconds: float) -> tuple[float, str]:
    if seconds >= 2:
        return 1.0, "s"
    return (1e3, "ms") if seconds >= 2e-3 else (1e6, "us")
