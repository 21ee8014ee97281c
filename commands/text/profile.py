"""Text and timelines of job profiles."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from switchml.commands.job import JobProfile
from switchml.commands.text.printing import Part, console, text
from switchml.commands.text.tables import table
from switchml.ops import profile_drawing
from switchml.ops.profiles import JobTimes

__all__: list[str] = []

_LABEL = 9  # columns before a timeline


@text.register(JobProfile)
def _(profile: JobProfile) -> Iterator[Part]:
    times = profile.times
    over = "since its ranks began" if times.seconds is None else f"over {times.seconds:.1f} s"
    yield Text(f"job {times.name} (id {times.job}, epoch {times.epoch}), {over}; per call:")
    yield _table(times)
    for missing in times.missing:
        ranks = ", ".join(map(str, missing.ranks))
        yield Text(f"no profile of rank {ranks} on {missing.agent}: {missing.reason}", "red")
    yield from _timeline(times)


def _table(times: JobTimes) -> Table:
    columns = ["rank", "agent", "calls", "call", "quantize", "wait", "dequantize", "send", "receive", "sum"]
    columns += ["sleeps", "retransmitted", "while busy"]
    made = table(*columns, right=(columns[0], *columns[2:]))
    for rank in times.ranks:
        calls = max(rank.calls, 1)
        own = [(rank.quantize, rank.busy), (rank.wait, rank.busy), (rank.dequantize, rank.busy)]
        made.add_row(
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
    return made


def _timeline(times: JobTimes) -> Iterator[Text]:
    span = profile_drawing.window(times)
    if span is None:
        yield Text("no call ended in that time")
        return
    width = max(20, min(console().width, 120) - _LABEL)
    for rank, signs in profile_drawing.rows(times, width):
        line = Text(f"rank {rank.rank:<{_LABEL - 5}}")
        for sign in signs:
            state = next((name for name, each in profile_drawing.SIGNS.items() if each == sign), None)
            line.append(sign, profile_drawing.COLOURS[state] if state is not None else "")
        yield line
    legend = ", ".join(f"{sign} {state}" for state, sign in profile_drawing.SIGNS.items())
    yield Text(f"{'':{_LABEL}}{_duration(span[1] - span[0])} of the latest calls: {legend}", "dim")


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
