"""`switchml-ctl top`: what goes on in the fabric, live."""

import sys
import time

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from switchml.commands import output
from switchml.commands.session import Session, json_option
from switchml.ops import top

__all__ = ["show_top"]

_MOST_RANKS = 16  # of a job, in the table: those that are furthest behind


@click.command(
    "top",
    epilog="""\b
Examples:
  switchml-ctl top
  switchml-ctl top --interval 5
  switchml-ctl top --once --json | jq '.jobs[].bytes_per_second'""",
)
@click.option(
    "--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="S",
    help="Seconds between two looks; rates are between them.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Show it once, after one interval.")
@json_option
@click.pass_obj
def show_top(session: Session, interval: float, once: bool, as_json: bool) -> None:
    """Show live jobs with rates, retransmissions and who is behind, until interrupted. --json shows it once.

    A job's rate is that of its slowest rank, in bytes of tensors. Agents tell their counters once a second.
    """
    with session.client() as client:
        snapshots = top.watch(client, interval)
        if as_json:
            output.print_json(next(snapshots).as_dict())
        elif once:
            output.console().print(_shown(next(snapshots)))
        elif sys.stdout.isatty():
            with output.live(Text("looking ...")) as display:
                for snapshot in snapshots:
                    display.update(_shown(snapshot), refresh=True)
        else:
            for snapshot in snapshots:
                output.console().print(_shown(snapshot))


def _shown(snapshot: top.Snapshot) -> RenderableType:
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
    head = Text.assemble(("\n" + job.name, "bold"), f" (id {job.id}) on {job.switch}  {job.state}  ")
    head.append(f"{_rate(job.bytes_per_second)}, {job.retransmitted_share:.1%} sent again, {job.age_seconds:,.0f} s")
    if job.straggler is not None:
        behind = max(rank.behind for rank in job.ranks)
        head.append(f"  rank {job.straggler} is {behind:,} chunks behind", "yellow")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rank", "state", "agent", "chunks", "behind", "rate", "packets/s", "again/s", "round trip"):
        table.add_column(name, justify="left" if name in ("state", "agent") else "right")
    shown = sorted(job.ranks, key=lambda rank: (-rank.behind, rank.rank))[:_MOST_RANKS]
    for rank in sorted(shown, key=lambda rank: rank.rank):
        table.add_row(
            str(rank.rank),
            rank.state,
            rank.agent,
            f"{rank.position:,}",
            f"{rank.behind:,}",
            _rate(rank.bytes_per_second),
            f"{rank.packets_per_second:,.0f}",
            f"{rank.retransmissions_per_second:,.0f}",
            f"{rank.round_trip_seconds * 1e6:,.0f} us" if rank.round_trip_seconds else "",
        )
    left_out = len(job.ranks) - len(shown)
    return [head, table, *([Text(f"and {left_out} ranks that are less behind", "dim")] if left_out else [])]


def _rate(bytes_per_second: float) -> str:
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.2f} {unit}"
    return f"{bytes_per_second / 1e3:.1f} kB/s"
