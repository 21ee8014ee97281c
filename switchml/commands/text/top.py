"""Text of the fabric's current activity."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from switchml.commands.text.printing import Frame, Part, text
from switchml.commands.text.tables import table
from switchml.commands.top import Activity, ServedPage
from switchml.common.counter_table import RANK
from switchml.common.counters import by_heading, headings
from switchml.ops import top

__all__: list[str] = []

_MOST_RANKS = 16  # of each job in the table: those that lag furthest


@text.register(Activity)
def _(activity: Activity) -> Iterator[Part]:
    yield Frame(Text("looking ..."))
    for snapshot in activity.snapshots:
        shown = _snapshot(snapshot)
        yield Frame(shown, shown)


@text.register(ServedPage)
def _(served: ServedPage) -> Iterator[Part]:
    yield f"the live page, until this command is interrupted: {served.page.url}"
    served.page.serve()


def _snapshot(snapshot: top.Snapshot) -> RenderableType:
    head = Text(f"{time.strftime('%H:%M:%S', time.localtime(snapshot.time))}  {len(snapshot.jobs)} jobs, ")
    head.append(f"{snapshot.agents_live} agents")
    if snapshot.agents_gone:
        head.append(f", gone: {', '.join(snapshot.agents_gone)}", "red")
    for switch in snapshot.switches:
        state = f", switch {switch.name}: {switch.slots_free:,} of {switch.slots:,} slots free"
        head.append(state if switch.connected else f", switch {switch.name}: {switch.failure}", _style(switch))
    return Group(head, *(line for job in snapshot.jobs for line in _job(job)))


def _style(switch: top.SwitchActivity) -> str:
    return "" if switch.connected else "red"


def _job(job: top.JobActivity) -> list[RenderableType]:
    head = Text.assemble(("\n" + job.name, "bold"), f" (id {job.id}) on {', '.join(job.switches)}  {job.state}  ")
    head.append(f"{_rate(job.bytes_per_second)}, {job.retransmitted_share:.1%} retransmitted, {job.age_seconds:,.0f} s")
    if job.straggler is not None:
        last = next(rank for rank in job.ranks if rank.rank == job.straggler)
        leaf = f" below {last.switch}" if len(job.switches) > 1 else ""
        head.append(f"  rank {job.straggler}{leaf} is {last.behind:,} chunks behind", "yellow")
    columns = ("rank", "state", "agent", "chunks", "behind", "rate", *headings("top", RANK), "round trip")
    drop = ("round trip", "packets/s", "agent", "chunks")
    ranks = table(*columns, right=(columns[0], *columns[3:]), drop=drop)
    shown = sorted(job.ranks, key=lambda rank: (-rank.behind, rank.rank))[:_MOST_RANKS]
    for rank in sorted(shown, key=lambda rank: rank.rank):
        ranks.add_row(
            str(rank.rank),
            rank.state,
            rank.agent if len(job.switches) == 1 else f"{rank.agent} at {rank.switch}",
            f"{rank.position:,}",
            f"{rank.behind:,}",
            _rate(rank.bytes_per_second),
            *(f"{rate:,.0f}" for rate in by_heading("top", RANK, rank.per_second).values()),
            f"{rank.round_trip_seconds * 1e6:,.0f} us" if rank.round_trip_seconds else "",
        )
    left_out = len(job.ranks) - len(shown)
    return [head, ranks, *([Text(f"and {left_out} ranks that lag less", "dim")] if left_out else [])]


def _rate(bytes_per_second: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.2f} {unit}"
    return f"{bytes_per_second / 1e3:.1f} kB/s"
