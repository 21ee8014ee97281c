"""Text and timelines of job profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from switchml.commands.job import JobProfile
from switchml.commands.text.printing import Part, console, text
from switchml.commands.text.tables import FittedTable, table
from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.common.counters import Counter, by_heading, headings
from switchml.ops import profile_drawing
from switchml.ops.profile_findings import Findings
from switchml.ops.profiles import JobTimes, RankTimes

__all__: list[str] = []

_COUNTED: Final = (*PROCESS, *THREAD, *PATH)
_MUCH: Final = 0.2  # share of the time
_LABEL: Final = 9  # columns before a timeline


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
    yield from _sentences(profile.findings)


def _sentences(found: Findings) -> Iterator[str]:
    if found.in_calls is not None:
        limit = (
            f"at most {found.most_gain:.1f} times as fast" if found.most_gain is not None else "faster without limit"
        )
        yield (
            f"A rank had a call for {found.in_calls:.0%} of the time. If calls took none, the job would be {limit}, "
            "and less so if they overlap with computing."
        )
    if found.waiting is not None and found.waiting > _MUCH:
        yield (
            f"Ranks waited for {found.waiting:.0%} of the time of the latest calls until the last rank began them, "
            f"which no network makes shorter; in {found.last_share:.0%} of them that was rank {found.last_rank}."
        )
    if found.in_calls is not None and found.in_calls > _MUCH:
        yield "`switchml-ctl advise` predicts which options make this program faster."


def _table(times: JobTimes) -> FittedTable:
    columns = ["rank", "agent", *headings("profile", _COUNTED), *headings("profile", RANK), "while busy"]
    drop = ("sleeps", "without values", "agent", "receive", "send", "sum", "retransmitted", "while busy")
    made = table(*columns, right=(columns[0], *columns[2:]), drop=drop)
    for rank in times.ranks:
        packets = by_heading("profile", RANK, rank.packets)
        made.add_row(
            str(rank.rank),
            rank.agent,
            *(_cell(counter, rank) for counter in _COUNTED if "profile" in counter.headings),
            *(f"{count:,}" for count in packets.values()),
            f"{rank.counted['bytes'] / rank.busy / 1e6:,.1f} MB/s" if rank.busy else "",
        )
    return made


def _cell(counter: Counter, rank: RankTimes) -> str:
    """Return a duration or a number of times per call, or else a total."""
    value, calls = counter.in_units(rank.counted[counter.name]), max(rank.counted["calls"], 1)
    if counter.unit == "times":
        return f"{value / calls:,.1f}"
    if counter.unit != "nanoseconds":
        return f"{value:,}"
    if counter in THREAD:
        return f"{_duration(value / calls)} {value / rank.busy:4.0%}" if rank.busy else ""
    return _duration(value / calls) if value else ""


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
