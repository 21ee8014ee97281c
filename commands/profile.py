"""`switchml-ctl job profile`: where a job's time goes."""

from pathlib import Path

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from switchml.commands import output
from switchml.commands.completion import complete_job
from switchml.commands.session import Session, json_option
from switchml.ops import profile_drawing, profiles

__all__ = ["profile_job"]

_MOST_CALLS = 63
_LABEL = 9  # columns before a timeline


@click.command(
    "profile",
    epilog="""\b
Examples:
  switchml-ctl job profile digits
  switchml-ctl job profile digits --seconds 5 --plot timeline.svg
  switchml-ctl job profile 7 --json | jq '.ranks[].wait'""",
)
@click.argument("job", metavar="JOB", shell_complete=complete_job)
@click.option(
    "--seconds", type=click.FloatRange(0.01, 3600), metavar="N", help="Only what happens in the next N seconds."
)
@click.option(
    "--calls", type=click.IntRange(0, _MOST_CALLS), default=8, show_default=True, metavar="N",
    help="Calls of each rank in the timeline: its latest ones.",
)  # fmt: skip
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.png|svg",
    help="Draw the timeline there; needs matplotlib.",
)
@json_option
@click.pass_obj
def profile_job(
    session: Session, job: str, seconds: float | None, calls: int, plot: Path | None, as_json: bool
) -> None:
    """Show where a job's time goes: what each rank's thread, its agent and the switch did, and its latest calls.

    quantize, wait and dequantize are the time of the rank's own thread, a call's average and the share of them. send
    and receive are the agent's time, sum is that of a switch which shares the ranks' memory: they go on meanwhile. A
    rank that waits less than the others is the one they wait for.
    """
    with session.client() as client:
        found = profiles.profile_job(client, job, seconds, calls)
    if plot is not None:
        profile_drawing.picture(found, plot)
        output.note(f"wrote {plot}")
    if as_json:
        output.print_json(found.as_dict())
    else:
        output.console().print(_shown(found))


def _shown(found: profiles.JobTimes) -> RenderableType:
    over = "since its ranks began" if found.seconds is None else f"over {found.seconds:.1f} s"
    lines: list[RenderableType] = [Text(f"job {found.name} (id {found.job}, epoch {found.epoch}), {over}; per call:")]
    lines.append(_table(found))
    lines += [
        Text(f"no profile of rank {', '.join(map(str, missing.ranks))} on {missing.agent}: {missing.reason}", "red")
        for missing in found.missing
    ]
    return Group(*lines, *_timeline(found))


def _table(found: profiles.JobTimes) -> Table:
    columns = ("rank", "agent", "calls", "call", "quantize", "wait", "dequantize", "send", "receive", "sum")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (*columns, "sleeps", "sent again", "while busy"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    for rank in found.ranks:
        calls = max(rank.calls, 1)
        own = [(rank.quantize, rank.busy), (rank.wait, rank.busy), (rank.dequantize, rank.busy)]
        table.add_row(
            str(rank.rank),
            rank.agent,
            f"{rank.calls:,}",
            _duration(rank.call_time / calls) if rank.calls else "",
            *(f"{_duration(part / calls)} {part / whole:4.0%}" if whole else "" for part, whole in own),
            *(_duration(part / calls) if part else "" for part in (rank.send, rank.receive, rank.sum)),
            f"{rank.sleeps / calls:,.1f}",
            f"{rank.retransmissions:,}",
            f"{rank.bytes / rank.busy / 1e6:,.1f} MB/s" if rank.busy else "",
        )
    return table


def _timeline(found: profiles.JobTimes) -> list[RenderableType]:
    span = profile_drawing.window(found)
    if span is None:
        return [Text("no call has ended in that time")]
    width = max(20, min(output.console().width, 120) - _LABEL)
    lines: list[RenderableType] = []
    for rank, signs in profile_drawing.rows(found, width):
        line = Text(f"rank {rank.rank:<{_LABEL - 5}}")
        for sign in signs:
            state = next((name for name, each in profile_drawing.SIGNS.items() if each == sign), None)
            line.append(sign, profile_drawing.COLOURS[state] if state is not None else "")
        lines.append(line)
    legend = ", ".join(f"{sign} {state}" for state, sign in profile_drawing.SIGNS.items())
    lines.append(Text(f"{'':{_LABEL}}{_duration(span[1] - span[0])} of the latest calls: {legend}", "dim"))
    return lines


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
