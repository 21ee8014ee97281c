"""Draw traces as message sequence charts in SVG, with time running down."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from model.cases import Case
from model.spin import Event
from switchml.dataplane.constants import Verdict

__all__ = ["draw"]

_LEFT, _RIGHT = 160, 190  # margins before the first and after the last lifeline
_LANE = 210  # distance between lifelines
_ROW = 34
_HEAD = 64
_INK, _GREY, _RED, _GREEN = "#1f2937", "#9ca3af", "#c81e1e", "#15803d"
_ENDS = {
    "wrong_sum": "wrong sum: worker 0's contribution is missing",
    "disagreement": "one survivor holds this chunk, the other one does not",
    "mixed": "half phase 0, half phase 2; worker 1 holds phase 0 and ignores it",
    "witness": "all workers have finished, and every sum is right",
}

# Epoch, slot, worker and phase identify a contribution. For a RESULT the worker is the receiver.
_Key = tuple[int, int, int, int]


@dataclass
class _Chart:
    """The shapes drawn so far, and the rows in which packets were sent."""

    workers: int
    with_controller: bool
    shapes: list[str] = field(default_factory=list)
    begun: dict[_Key, int] = field(default_factory=dict)
    delivered: dict[_Key, int] = field(default_factory=dict)  # number of deliveries
    results: dict[_Key, int] = field(default_factory=dict)
    held: set[_Key] = field(default_factory=set)

    @property
    def lanes(self) -> int:
        return self.workers + 1 + self.with_controller

    def x(self, lane: int) -> int:
        return _LEFT + lane * _LANE

    def worker(self, rank: int) -> int:
        """Return the x coordinate of a worker; the switch is between the first worker and the others."""
        return self.x(rank if rank == 0 else rank + 1)

    @property
    def switch(self) -> int:
        return self.x(1)

    @property
    def controller(self) -> int:
        return self.x(self.workers + 1)

    def label(self, rank: int, row: float, words: str, colour: str = _INK) -> None:
        """Write words next to a worker's lifeline, on the side away from the switch."""
        side, anchor = (-10, "end") if rank == 0 else (10, "start")
        self.text(self.worker(rank) + side, row, words, colour, anchor)

    def text(self, x: int, row: float, words: str, colour: str = _INK, anchor: str = "start") -> None:
        y = _HEAD + row * _ROW
        self.shapes.append(
            f'<text x="{x}" y="{y:.0f}" fill="{colour}" text-anchor="{anchor}" '
            f'paint-order="stroke" stroke="#ffffff" stroke-width="4">{escape(words)}</text>'
        )

    def arrow(self, start: tuple[int, float], end: tuple[int, float], colour: str, dashed: bool = False) -> None:
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        (x1, row1), (x2, row2) = start, end
        self.shapes.append(
            f'<line x1="{x1}" y1="{_HEAD + row1 * _ROW:.0f}" x2="{x2}" y2="{_HEAD + row2 * _ROW:.0f}" '
            f'stroke="{colour}" stroke-width="1.6"{dashes} marker-end="url(#{_marker(colour)})"/>'
        )


def draw(case: Case, trace: tuple[Event, ...], path: Path) -> None:
    """Write the drawing of one run to ``path``, which is overwritten; raises OSError."""
    chart = _Chart(case.workers, any(event.name == "lost" for event in trace))
    for row, event in enumerate(trace):
        _HANDLERS.get(event.name, _end)(chart, row, event)
    path.write_text(_document(chart, len(trace)), encoding="utf-8")


def _key(event: Event) -> _Key:
    return (event.values["epoch"], event.values["slot"], event.values["worker"], event.values["phase"])


def _place(chart: _Chart, event: Event) -> str:
    epoch = f"epoch {event.values['epoch'] + 1}, " if chart.with_controller else ""
    return f"{epoch}phase {event.values['phase']}"


def _begin(chart: _Chart, row: int, event: Event) -> None:
    chart.begun[_key(event)] = row
    chart.label(event.values["worker"], row + 0.1, f"sends {_place(chart, event)}")


def _deliver(chart: _Chart, row: int, event: Event) -> None:
    key = _key(event)
    times = chart.delivered.get(key, 0)
    chart.delivered[key] = times + 1
    late = key in chart.held
    verdict = Verdict(event.values["verdict"])
    colour = _RED if late else _INK
    # A second delivery while the sender still waits is a retransmission: its arrow starts just before its arrival.
    start = row - 0.8 if times and not late else chart.begun[key] + 0.05
    chart.arrow((chart.worker(key[2]), start), (chart.switch, row), colour, dashed=times > 0)
    what = "late duplicate: " if late else "retransmitted: " if times else ""
    side, anchor = (-8, "end") if key[2] != 0 else (8, "start")
    chart.text(chart.switch + side, row + 0.1, f"{what}{verdict.name.lower()}", colour, anchor)
    if verdict in (Verdict.COMPLETED, Verdict.RESENT):
        receivers = range(chart.workers) if verdict is Verdict.COMPLETED else [key[2]]
        for receiver in receivers:
            chart.results[(key[0], key[1], receiver, key[3])] = row


def _recirculated(chart: _Chart, row: int, event: Event) -> None:
    right = event.values["right"] == 1
    colour = _INK if right else _RED
    chart.text(chart.switch - 8, row + 0.1, f"recirculated, {_place(chart, event)}", colour, "end")
    if right:
        for receiver in range(chart.workers):
            chart.results[(event.values["epoch"], event.values["slot"], receiver, event.values["phase"])] = row
    else:
        chart.arrow((chart.switch, row), (chart.worker(event.values["worker"]), row + 0.8), _RED)


def _accept(chart: _Chart, row: int, event: Event) -> None:
    key = _key(event)
    chart.held.add(key)
    right = event.values["right"] == 1
    colour = _GREEN if right else _RED
    chart.arrow((chart.switch, chart.results[key]), (chart.worker(key[2]), row), colour)
    chart.label(key[2], row + 0.1, f"{'holds' if right else 'accepts'} phase {key[3]}", colour)


def _asked(chart: _Chart, row: int, event: Event) -> None:
    _control(chart, row, chart.worker(event.values["worker"]), f"worker {event.values['worker']}: quiesce")


def _told(chart: _Chart, row: int, event: Event) -> None:
    _control(chart, row, chart.worker(event.values["worker"]), f"worker {event.values['worker']}: new epoch")


def _changed(chart: _Chart, row: int, event: Event) -> None:
    _control(chart, row, chart.switch, f"table entry of worker {event.values['worker']}")


def _control(chart: _Chart, row: int, receiver: int, words: str) -> None:
    chart.arrow((chart.controller, row - 0.5), (receiver, row), _GREY)
    chart.text(chart.controller + 10, row - 0.4, words)


def _lost(chart: _Chart, row: int, event: Event) -> None:
    chart.text(chart.controller + 10, row, f"worker {event.values['worker']} is lost", _RED)


def _fetching(chart: _Chart, row: int, event: Event) -> None:
    del event
    chart.text(chart.controller + 10, row, "fetch what any survivor holds")


def _end(chart: _Chart, row: int, event: Event) -> None:
    good = event.name == "witness"
    words = "the survivors agree: both hold phase 0" if good and chart.with_controller else _ENDS[event.name]
    chart.text(20, row + 0.4, words, _GREEN if good else _RED)


_HANDLERS = {
    "begin": _begin,
    "deliver": _deliver,
    "recirculated": _recirculated,
    "accept": _accept,
    "lost": _lost,
    "asked": _asked,
    "fetching": _fetching,
    "changed": _changed,
    "told": _told,
}


def _marker(colour: str) -> str:
    return f"head{colour[1:]}"


def _document(chart: _Chart, rows: int) -> str:
    width = _LEFT + _RIGHT + (chart.lanes - 1) * _LANE
    height = _HEAD + (rows + 1) * _ROW
    names = {chart.worker(rank): f"worker {rank}" for rank in range(chart.workers)}
    names[chart.switch] = "switch"
    if chart.with_controller:
        names[chart.controller] = "controller"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        "<defs>",
        *(
            f'<marker id="{_marker(colour)}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
            for colour in (_INK, _GREY, _RED, _GREEN)
        ),
        "</defs>",
    ]
    for x, name in sorted(names.items()):
        lines.append(f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 12}" stroke="{_GREY}"/>')
        lines.append(f'<text x="{x}" y="24" text-anchor="middle" font-weight="bold" fill="{_INK}">{name}</text>')
    return "\n".join([*lines, *chart.shapes, "</svg>"]) + "\n"
