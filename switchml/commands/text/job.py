"""Text about jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from switchml.commands.job import (
    JobDetached,
    JobEnd,
    JobFinished,
    JobFound,
    JobLogs,
    JobReady,
    Jobs,
    JobStanding,
    JobWatch,
)
from switchml.commands.text.printing import Frame, Part, Verbatim, text
from switchml.commands.text.tables import age, packet_columns, packet_counts, state_text, table
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.launch.job_start import shell_variables, switch_counters
from switchml.ops.stragglers import lag

__all__: list[str] = []


@text.register(Jobs)
def _(found: Jobs) -> Iterator[Part]:
    if not found.jobs:
        yield "no jobs" if found.ended else "no live jobs"
        return
    columns = ("id", "name", "state", "workers", "switch", "slots", "priority", "age", "why")
    drop = ("priority", "slots", "age", "switch")
    jobs = table(*columns, right=("id", "workers", "priority", "age"), drop=drop, wrap=("switch", "why"))
    for job in found.jobs:
        switches = ", ".join(place.switch for place in job.switches)
        slots = ", ".join(dict.fromkeys(map(_slot_range, job.switches)))
        state = state_text(enum_word(pb.JobState, job.state))
        priority = str(job.priority)
        jobs.add_row(
            *(str(job.id), job.name, state, str(job.workers), switches, slots, priority, age(job.created), job.failure)
        )
    yield jobs


def _slot_range(place: pb.JobSwitch) -> str:
    return f"{place.slot_base}-{place.slot_base + place.slots - 1}"


@text.register(JobEnd)
def _(end: JobEnd) -> Iterator[Part]:
    yield _line(end.job)


@text.register(JobWatch)
def _(watch: JobWatch) -> Iterator[Part]:
    for job in watch:
        yield Frame(Group(*_detail(job)), f"{time.strftime('%H:%M:%S')} {_line(job)}")


def _line(job: pb.Job) -> str:
    """Return a job in one line: its state, its position, and which rank the others wait for."""
    position = min((rank.position for rank in job.ranks), default=0)
    line = f"{job.name}: {enum_word(pb.JobState, job.state)}, {position:,} chunks"
    if behind := lag(job):
        line += f", {behind}"
    return line + (f": {job.failure}" if job.failure else "")


@text.register(JobFound)
def _(found: JobFound) -> Iterator[Part]:
    return _detail(found.job)


def _detail(job: pb.Job) -> Iterator[RenderableType]:
    yield Text.assemble(
        (job.name, "bold"), f" (id {job.id}, key {job.key})  ", state_text(enum_word(pb.JobState, job.state))
    )
    if job.failure:
        yield Text(job.failure, style="red")
    tree = any(place.upstream for place in job.switches)
    names = ", ".join(place.switch for place in job.switches)
    aggregators = len(job.switches) > 1 and not tree
    where = f"a tree of {len(job.switches)} switches" if tree else f"the aggregators {names}" if aggregators else names
    slots = "".join(f", slots {_slot_range(place)}" for place in job.switches[:1])  # the same on all switches
    yield f"{job.workers} workers on {where}{slots}, {job.values_per_packet} values a packet, epoch {job.epoch}" + (
        f", priority {job.priority}" if job.priority else ""
    )
    if tree:
        yield from _tree(job, "", "")
    last = max((rank.position for rank in job.ranks), default=0)
    columns = ("rank", "state", "host", "agent", "chunks", "behind", *packet_columns(), "round trip", "exit")
    drop = ("host", "sent", "round trip", "retransmitted", "agent")
    ranks = table(*columns, right=(columns[0], *columns[4:]), drop=drop)
    for rank in job.ranks:
        ranks.add_row(
            str(rank.rank),
            enum_word(pb.RankState, rank.state),
            rank.host,
            f"{rank.agent} at {rank.switch}" if tree else rank.agent,
            f"{rank.position:,}",
            f"{last - rank.position:,}",
            *packet_counts(rank),
            f"{rank.counters.round_trip_seconds * 1e6:,.0f} us" if rank.counters.round_trip_seconds else "",
            str(rank.exit_code) if rank.HasField("exit_code") else "",
        )
    yield ranks
    what = f"switch {job.switches[0].switch}" if tree else "aggregators together" if aggregators else "switch"
    yield f"{what}: {_counts(switch_counters(job))}"


def _tree(job: pb.Job, upstream: str, indent: str) -> Iterator[str]:
    """Yield a line for each switch below `upstream`, with the ranks at it."""
    children = [place.switch for place in job.switches if place.upstream == upstream]
    for name in children:
        ranks = ", ".join(str(rank.rank) for rank in job.ranks if rank.switch == name)
        branch, trunk = ("└─ ", "   ") if name == children[-1] else ("├─ ", "│  ")
        start, below = (indent + branch, indent + trunk) if upstream else ("", "")
        yield f"{start}{name}" + (f": ranks {ranks}" if ranks else "")
        yield from _tree(job, name, below)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or "none"


@text.register(JobStanding)
def _(standing: JobStanding) -> Iterator[Part]:
    job, slowest = standing.job, standing.straggler
    head = Text.assemble((job.name, "bold"), f" (id {job.id})  ", state_text(enum_word(pb.JobState, job.state)))
    policy = enum_word(pb.OnFailure, job.on_failure).lower()
    yield head.append(f"  {job.workers} ranks, epoch {job.epoch}, on failure {policy}").append(
        f", priority {job.priority}" if job.priority else ""
    )
    if job.failure:
        yield Text(job.failure, style="red")
    for change in job.changes:
        when = time.strftime("%H:%M:%S", time.localtime(change.time))
        yield f"{when} epoch {change.epoch} with {change.workers} ranks: {change.reason}"
    if slowest is None:
        yield "no rank is behind"
        return
    leaf = f" at switch {slowest.switch}" if any(place.upstream for place in job.switches) else ""
    yield (
        f"slowest: rank {slowest.rank} (agent {slowest.agent} on {slowest.host}{leaf}, {slowest.state}) is "
        f"{slowest.behind:,} chunks behind the first and has not advanced for {slowest.idle_seconds:.1f} s"
    )


@text.register(JobFinished)
def _(finished: JobFinished) -> Iterator[Part]:
    run = finished.run
    state = state_text(enum_word(pb.JobState, run.job.state))
    yield Text.assemble((run.job.name, "bold"), f" (id {run.job.id})  ", state, f"  after {run.seconds:.1f} s")
    if run.job.failure:
        yield Text(run.job.failure, style="red")
    yield f"exit codes: {' '.join(str(code) for code in run.launch.exit_codes)}"
    if run.counters["contributions"] == 0:
        yield "switch: no contributions (ranks on one machine add up most values themselves)"
    else:
        yield f"switch: {_counts(run.counters)}; dropped: {_counts(run.dropped)}"
    yield f"logs and results: {run.run_dir}"


@text.register(JobReady)
def _(ready: JobReady) -> Iterator[Part]:
    job = ready.started.job
    yield Text.assemble((job.name, "bold"), f" (id {job.id}) is ", state_text(enum_word(pb.JobState, job.state)))
    yield "Each rank attaches with `switchml.connect()` in a process on its host with these variables:"
    for rank in job.ranks:
        yield Verbatim(f"  {rank.host}:  {shell_variables(job, rank)}\n")  # to be copied
    yield f"Watch it with `switchml-ctl job watch {job.name}`, end it with `switchml-ctl job stop {job.name}`."


@text.register(JobDetached)
def _(detached: JobDetached) -> Iterator[Part]:
    job = detached.job
    yield f"{job.name} (id {job.id}) runs in the background, process {detached.pid}, logs in {detached.run_dir}"
    yield f"Wait for it with `switchml-ctl job wait {job.name}`."


@text.register(JobLogs)
def _(logs: JobLogs) -> Iterator[Part]:
    for rank, piece in logs.pieces:
        if logs.prefixed:
            yield Verbatim("".join(f"[{rank}] {line}\n" for line in piece.splitlines()))
        else:
            yield Verbatim(piece)
