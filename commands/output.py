"""How switchml-ctl shows what the library functions return: tables for people, one JSON object for programs."""

import dataclasses
import io
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import rich.progress
from google.protobuf.message import Message
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from switchml.common.progress import Progress
from switchml.controller.drivers import LOSS_TABLES
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word, value_word
from switchml.launch import detached
from switchml.launch.fabric_state import FabricStatus
from switchml.launch.jobs import JobRun, JobStarted, attach_environment, shell_variables, switch_counters
from switchml.ops.doctor import Check
from switchml.ops.stragglers import Straggler
from switchml.ops.switch_ports import PortActivity
from switchml.ops.versions import Version

__all__ = [
    "DetachedObserver",
    "ProgressBar",
    "ProgressObserver",
    "agent_dict",
    "as_dict",
    "console",
    "job_detail",
    "job_line",
    "job_run_dict",
    "jobs_table",
    "live",
    "note",
    "print_json",
    "replace_what_cannot_be_encoded",
    "show_agent",
    "show_agents",
    "show_attach",
    "show_checks",
    "show_fabric",
    "show_job_run",
    "show_losses",
    "show_ports",
    "show_switch",
    "show_switches",
    "show_versions",
    "started_dict",
]

_FILE_WIDTH = 200
_STATE_STYLES = {"RUNNING": "green", "COMPLETED": "green", "READY": "cyan", "FAILED": "red", "STOPPED": "yellow"}


def console() -> Console:
    """Return the console that results go to. It interprets no markup, and wraps lines only on a terminal."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)


def replace_what_cannot_be_encoded() -> None:
    """Let standard output and error show "?" for characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def note(text: str) -> None:
    """Tell the person who waits, on standard error."""
    click.echo(f"switchml-ctl: {text}", err=True)


def print_json(content: Mapping[str, Any]) -> None:
    """The one JSON object on standard output."""
    click.echo(json.dumps(content, indent=2))


def as_dict(message: Message) -> dict[str, Any]:
    """A protobuf message as JSON takes it: numbers as numbers, enumerations as words, absent optional fields None."""
    content: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            content[field.name] = dict(sorted(value.items()))
        elif field.is_repeated:
            content[field.name] = [_plain(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            content[field.name] = None
        else:
            content[field.name] = _plain(field, value)
    return content


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        return value_word(field.enum_type, value)
    return value


def _table(*columns: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _state(name: str) -> Text:
    return Text(name, style=_STATE_STYLES.get(name, ""))


def _age(moment: float) -> str:
    seconds = max(0, int(time.time() - moment))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _ranges(numbers: Iterable[int]) -> str:
    """0-3, 5, 7-8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# ---- jobs -----------------------------------------------------------------------------------------------------------


def jobs_table(jobs: Sequence[pb.Job], none: str = "no live jobs") -> RenderableType:
    """Return one line per job, or `none`."""
    if not jobs:
        return none
    table = _table("id", "name", "state", "workers", "switch", "slots", "age", "why", right=("id", "workers", "age"))
    for job in jobs:
        slots = f"{job.slot_base}-{job.slot_base + job.slots - 1}" if job.slots else ""
        state = _state(enum_word(pb.JobState, job.state))
        table.add_row(str(job.id), job.name, state, str(job.workers), job.switch, slots, _age(job.created), job.failure)
    return table


def _slowest(job: pb.Job) -> tuple[int, int, int]:
    """Lowest position of all ranks, the rank that has it, and how far it is behind the first."""
    positions = {rank.rank: rank.position for rank in job.ranks}
    if not positions:
        return 0, 0, 0
    slowest = min(positions, key=lambda rank: (positions[rank], rank))
    return positions[slowest], slowest, max(positions.values()) - positions[slowest]


def job_line(job: pb.Job) -> str:
    """The job in one line: state, position, and which rank the others wait for."""
    position, rank, behind = _slowest(job)
    line = f"{job.name}: {enum_word(pb.JobState, job.state)}, {position:,} chunks"
    if behind:
        line += f", rank {rank} is {behind:,} behind"
    return line + (f": {job.failure}" if job.failure else "")


def job_status_dict(job: pb.Job, slowest: Straggler | None) -> dict[str, Any]:
    """What `job status --json` prints."""
    return {
        "name": job.name,
        "state": enum_word(pb.JobState, job.state),
        "failure": job.failure,
        "epoch": job.epoch,
        "workers": job.workers,
        "on_failure": enum_word(pb.OnFailure, job.on_failure).lower(),
        "changes": [as_dict(change) for change in job.changes],
        "straggler": dataclasses.asdict(slowest) if slowest is not None else None,
    }


def show_job_status(job: pb.Job, slowest: Straggler | None) -> None:
    """How a job stands, in a few lines."""
    out = console()
    head = Text.assemble((job.name, "bold"), f" (id {job.id})  ", _state(enum_word(pb.JobState, job.state)))
    policy = enum_word(pb.OnFailure, job.on_failure).lower()
    out.print(head, f" {job.workers} ranks, epoch {job.epoch}, on failure {policy}", soft_wrap=True)
    if job.failure:
        out.print(Text(job.failure, style="red"), soft_wrap=True)
    for change in job.changes:
        when = time.strftime("%H:%M:%S", time.localtime(change.time))
        out.print(f"{when} epoch {change.epoch} with {change.workers} ranks: {change.reason}", soft_wrap=True)
    if slowest is None:
        out.print("no rank is behind")
    else:
        out.print(
            f"slowest: rank {slowest.rank} (agent {slowest.agent} on {slowest.host}, {slowest.state}) is"
            f" {slowest.behind:,} chunks behind the first and has not moved for {slowest.idle_seconds:.1f} s",
            soft_wrap=True,
        )


def job_detail(job: pb.Job) -> RenderableType:
    """Everything about one job."""
    head = Text.assemble(
        (job.name, "bold"), f" (id {job.id}, key {job.key})  ", _state(enum_word(pb.JobState, job.state))
    )
    lines: list[RenderableType] = [head]
    if job.failure:
        lines.append(Text(job.failure, style="red"))
    slots = f"slots {job.slot_base}-{job.slot_base + job.slots - 1}" if job.slots else "no slots"
    lines.append(
        f"{job.workers} workers on {job.switch}, {slots}, {job.values_per_packet} values a packet, epoch {job.epoch}"
    )
    last = max((rank.position for rank in job.ranks), default=0)
    columns = ("rank", "state", "host", "agent", "chunks", "behind", "sent", "sent again", "round trip", "exit")
    table = _table(*columns, right=(columns[0], *columns[4:]))
    for rank in job.ranks:
        counters = rank.counters
        table.add_row(
            str(rank.rank),
            enum_word(pb.RankState, rank.state),
            rank.host,
            rank.agent,
            f"{rank.position:,}",
            f"{last - rank.position:,}",
            f"{counters.sent:,}",
            f"{counters.retransmissions + counters.early_retransmissions:,}",
            f"{counters.round_trip_seconds * 1e6:,.0f} us" if counters.round_trip_seconds else "",
            str(rank.exit_code) if rank.HasField("exit_code") else "",
        )
    lines.append(table)
    lines.append("switch: " + _counts(switch_counters(job)))
    return Group(*lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or "none"


def job_run_dict(run: JobRun) -> dict[str, Any]:
    """What `job start --json -- COMMAND` prints."""
    return {
        "job_id": run.job.id,
        "key": run.job.key,
        "name": run.job.name,
        "workers": run.job.workers,
        "state": enum_word(pb.JobState, run.job.state),
        "failure": run.job.failure,
        "exit_codes": list(run.launch.exit_codes),
        "switch": {**run.counters, "dropped": run.dropped},
        "run_dir": str(run.run_dir),
        "seconds": round(run.seconds, 3),
    }


def show_job_run(run: JobRun) -> None:
    """The end of a job with a command."""
    out = console()
    state = _state(enum_word(pb.JobState, run.job.state))
    out.print(
        Text.assemble((run.job.name, "bold"), f" (id {run.job.id})  ", state, f"  after {run.seconds:.1f} s"),
        soft_wrap=True,
    )
    if run.job.failure:
        out.print(Text(run.job.failure, style="red"), soft_wrap=True)
    out.print(f"exit codes: {' '.join(str(code) for code in run.launch.exit_codes)}", soft_wrap=True)
    out.print(f"switch: {_counts(run.counters)}; dropped: {_counts(run.dropped)}", soft_wrap=True)
    out.print(f"logs and results: {run.run_dir}", soft_wrap=True)


def started_dict(started: JobStarted) -> dict[str, Any]:
    """What `job start --json` without a command prints."""
    job = started.job
    ranks = sorted(job.ranks, key=lambda rank: rank.rank)
    return {
        "job_id": job.id,
        "key": job.key,
        "name": job.name,
        "workers": job.workers,
        "state": enum_word(pb.JobState, job.state),
        "failure": job.failure,
        "exit_codes": [],
        "switch": {**switch_counters(job), "dropped": {}},
        "run_dir": str(started.run_dir),
        "seconds": 0.0,
        "controller": started.controller,
        "attach": [{"host": rank.host, **attach_environment(job, rank)} for rank in ranks],
    }


def show_attach(job: pb.Job) -> None:
    """How processes attach to a job that was started without a command, and how to end it."""
    out = console()
    out.print(Text.assemble((job.name, "bold"), f" (id {job.id}) is ", _state(enum_word(pb.JobState, job.state))))
    out.print("Each rank attaches with `switchml.connect()` in a process that has on its host:")
    for rank in job.ranks:
        out.print(f"  {rank.host}:  {shell_variables(job, rank)}", soft_wrap=True)
    out.print(f"Watch it with `switchml-ctl job watch {job.name}`, end it with `switchml-ctl job stop {job.name}`.")


class ProgressBar(Progress):
    """Shows on standard error what is done, and below it a bar with the time left when that is a terminal."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            self._bar = rich.progress.Progress(
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("left:"),
                TimeRemainingColumn(),
                console=Console(stderr=True, highlight=False),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, work: float) -> None:
        """Show a bar of this much work."""
        if self._bar is not None:
            self._task = self._bar.add_task("", total=work)

    def did(self, work: float = 1.0) -> None:
        """Move it on."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, work)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(Text(f"switchml-ctl: {text}"), soft_wrap=True)
        else:
            note(text)


class ProgressObserver:
    """Shows a running job on standard error: workers' output, and below it a progress bar when that is a terminal."""

    def __init__(self) -> None:
        self._bar: rich.progress.Progress | None = None
        self._task: TaskID | None = None
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> "ProgressObserver":
        if sys.stderr.isatty():
            self._bar = rich.progress.Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True, highlight=False),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Say which job it is and where its logs are."""
        self.note(f"job {job.name} (id {job.id}): {job.workers} workers on {job.switch}, logs in {run_dir}")
        if self._bar is not None:
            self._task = self._bar.add_task(job.name, total=None, text="")

    def output(self, rank: int, line: bytes) -> None:
        """Pass on a line of a worker."""
        text = f"[{rank}] {line.decode('utf-8', 'replace').rstrip(chr(13))}"
        if self._bar is not None:
            self._bar.console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            click.echo(text, err=True)

    def progress(self, job: pb.Job) -> None:
        """Update the bar."""
        if self._bar is None or self._task is None:
            return
        position, rank, behind = _slowest(job)
        now = time.monotonic()
        self._first = self._first or (now, position)
        elapsed = now - self._first[0]
        text = f"{enum_word(pb.JobState, job.state)}  {position:,} chunks"
        if elapsed > 1:
            text += f"  {(position - self._first[1]) / elapsed:,.0f}/s"
        if behind:
            text += f"  rank {rank} is {behind:,} behind"
        self._bar.update(self._task, text=text)

    def note(self, text: str) -> None:
        """Pass on a remark."""
        if self._bar is not None:
            self._bar.console.print(Text(f"switchml-ctl: {text}"), soft_wrap=True)
        else:
            note(text)


class DetachedObserver:
    """Sees a job whose launcher goes on in the background once the job is ready."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __enter__(self) -> "DetachedObserver":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Say which job it is, and leave the terminal."""
        if self._as_json:
            content = {"job_id": job.id, "key": job.key, "name": job.name, "workers": job.workers}
            content |= {"state": enum_word(pb.JobState, job.state), "run_dir": str(run_dir), "pid": os.getpid()}
            said = json.dumps(content, indent=2)
        else:
            said = (
                f"{job.name} (id {job.id}) runs in the background, process {os.getpid()}, logs in {run_dir}\n"
                f"Wait for it with `switchml-ctl job wait {job.name}`."
            )
        detached.leave_terminal(f"{said}\n", run_dir)

    def output(self, rank: int, line: bytes) -> None:
        """Leave a line of a worker to the log of its rank."""

    def progress(self, job: pb.Job) -> None:
        """Show nothing; `job watch` does."""

    def note(self, text: str) -> None:
        """Pass on a remark."""
        note(text)


def live(renderable: RenderableType) -> Live:
    """A display that is rewritten in place."""
    return Live(renderable, console=console(), auto_refresh=False)


# ---- switches and agents --------------------------------------------------------------------------------------------


def show_switches(switches: Sequence[pb.Switch]) -> None:
    """Print one line per switch."""
    if not switches:
        console().print("the controller's configuration has no switch")
        return
    columns = ("name", "target", "control", "data plane", "values", "slots", "free", "largest range", "state")
    table = _table(*columns, right=columns[4:8])
    for switch in switches:
        state = Text("connected", style="green") if switch.connected else Text(switch.failure or "down", style="red")
        if switch.connected and not switch.primary:
            state = Text("connected, not primary", style="yellow")
        elif switch.connected and switch.drained:
            state = Text(f"drained, {switch.jobs} jobs left", style="yellow")
        table.add_row(
            switch.name,
            switch.target,
            switch.control_address,
            f"{switch.data_address}:{switch.data_udp_port}",
            str(switch.values_per_packet),
            f"{switch.slots:,}",
            f"{switch.slots_free:,}",
            f"{switch.largest_free_range:,}",
            state,
        )
    console().print(table)


def show_switch(detail: pb.SwitchDetail) -> None:
    """Tables, groups and counters of one switch."""
    show_switches([detail.switch])
    out = console()
    tables: dict[str, list[pb.TableEntry]] = defaultdict(list)
    for entry in detail.entries:
        tables[entry.table].append(entry)
    for name, entries in tables.items():
        if name in LOSS_TABLES.values():
            continue  # shown below, as shares
        keys = list(dict.fromkeys(key for entry in entries for key in entry.match))
        counted = any(entry.HasField("packets") for entry in entries)
        columns = [*keys, "action"] + (["packets"] if counted else [])
        table = _table(*columns, title=f"{name} ({len(entries)})", right=("packets",))
        for entry in entries:
            parameters = ", ".join(f"{key}={value}" for key, value in entry.parameters.items())
            row = [entry.match.get(key, "*") for key in keys] + [f"{entry.action}({parameters})"]
            if counted:
                row.append(f"{entry.packets:,}" if entry.HasField("packets") else "")
            table.add_row(*row)
        out.print(table)
    groups = _table("group", "port", "ranks", title=f"multicast groups ({len(detail.groups)})", right=("group", "port"))
    for group in detail.groups:
        ports: dict[int, list[int]] = defaultdict(list)
        for replica in group.replicas:
            ports[replica.port].append(replica.instance)
        for port, instances in sorted(ports.items()):
            groups.add_row(str(group.id), str(port), _ranges(instances))
    out.print(groups if detail.groups else "multicast groups: none")
    for title, counts in (("packets by verdict", detail.verdicts), ("packets dropped", detail.drop_reasons)):
        table = _table("", "packets", title=title, right=("packets",))
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            table.add_row(name.replace("_", " "), f"{count:,}")
        out.print(table if counts else f"{title}: none")
    show_losses(detail.losses)


def show_losses(losses: Sequence[pb.PortLoss]) -> None:
    """The ports that lose packets on purpose."""
    table = _table(
        "port", "coming in", "leaving", title="packets lost on purpose", right=("port", "coming in", "leaving")
    )
    for loss in losses:
        table.add_row(str(loss.port), f"{loss.ingress:.4%}", f"{loss.egress:.4%}")
    console().print(table if losses else "no port loses packets on purpose")


def show_agents(agents: Sequence[pb.Agent]) -> None:
    """Print one line per agent."""
    if not agents:
        console().print("no agent has registered with the controller")
        return
    columns = (
        "name",
        "tenant",
        "host",
        "address",
        "socket",
        "switch",
        "port",
        "ranks",
        "heartbeat",
        "version",
        "state",
    )
    table = _table(*columns, right=("port", "ranks", "heartbeat"))
    for agent in agents:
        registration = agent.registration
        table.add_row(
            registration.name,
            "shared" if agent.shared else agent.tenant,
            registration.host,
            registration.address,
            registration.socket,
            registration.switch,
            str(registration.switch_port),
            f"{agent.ranks_in_use} of {registration.max_ranks}" if registration.max_ranks else str(agent.ranks_in_use),
            f"{_age(agent.last_heartbeat)} ago" if agent.last_heartbeat else "",
            registration.version,
            Text("live", style="green") if agent.live else Text("gone", style="red"),
        )
    console().print(table)


def _carried(agent: pb.Agent, jobs: Iterable[pb.Job]) -> list[tuple[pb.Job, pb.Rank]]:
    return [(job, rank) for job in jobs for rank in job.ranks if rank.agent == agent.registration.name]


def agent_dict(agent: pb.Agent, jobs: Iterable[pb.Job]) -> dict[str, Any]:
    """Return what `agent show --json` prints; `jobs` are the live ones."""
    ranks = [{"job": job.name, "job_id": job.id, **as_dict(rank)} for job, rank in _carried(agent, jobs)]
    return {**as_dict(agent), "ranks": ranks}


def show_agent(agent: pb.Agent, jobs: Iterable[pb.Job]) -> None:
    """Print one agent and the ranks that it carries."""
    show_agents([agent])
    carried = _carried(agent, jobs)
    table = _table(
        "job", "rank", "state", "chunks", "sent", "sent again", right=("rank", "chunks", "sent", "sent again")
    )
    for job, rank in carried:
        again = rank.counters.retransmissions + rank.counters.early_retransmissions
        state = enum_word(pb.RankState, rank.state)
        table.add_row(job.name, str(rank.rank), state, f"{rank.position:,}", f"{rank.counters.sent:,}", f"{again:,}")
    console().print(table if carried else "it carries no ranks of live jobs")


def show_ports(ports: Sequence[PortActivity]) -> None:
    """Print one line per port."""
    columns = ("port", "agents", "ranks", "contributions", "contributions/s", "results/s", "lost in", "lost out")
    table = _table(*columns, right=(columns[0], *columns[2:]))
    for port in ports:
        table.add_row(
            str(port.port),
            ", ".join(port.agents),
            str(port.ranks),
            f"{port.contributions:,}",
            f"{port.contributions_per_second:,.0f}",
            f"{port.results_per_second:,.0f}",
            f"{port.ingress_loss:.4%}",
            f"{port.egress_loss:.4%}",
        )
    console().print(table if ports else "no agent is attached to a port of the switch")


def show_versions(versions: Iterable[Version]) -> None:
    """Print one line per program."""
    table = _table("", "name", "version")
    for version in versions:
        style = "red" if version.same is False else ""
        remark = "" if version.same is not False else " (another one than this program's)"
        table.add_row(version.kind, version.name, Text(version.version + remark, style=style))
    console().print(table)


# ---- the embedded fabric --------------------------------------------------------------------------------------------


def show_fabric(status: FabricStatus) -> None:
    """The processes of the run directory's fabric."""
    fabric = status.fabric
    if fabric is None:
        return
    out = console()
    dead = {process.name for process in status.dead}
    out.print(f"fabric in {fabric.run_directory.path}: {status.state}, controller {fabric.controller}", soft_wrap=True)
    table = _table("process", "pid", "state", "log", right=("pid",))
    for process in fabric.processes:
        state = Text("ended", style="red") if process.name in dead else Text("runs", style="green")
        table.add_row(process.name, str(process.pid), state, process.log)
    out.print(table)


def show_checks(checks: Iterable[Check]) -> None:
    """What the doctor found, and what to mend."""
    styles = {"ok": "green", "warning": "yellow", "failure": "red", "not found": "dim"}
    table = _table("", "check", "found")
    for check in checks:
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n-> {check.remedy}", style=styles[check.status])
        table.add_row(Text(check.status, style=styles[check.status]), check.name, found)
    console().print(table)
