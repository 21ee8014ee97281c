"""The commands of switchml-ctl about jobs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import CommandGroup, setting
from switchml.commands.completion import complete_job
from switchml.commands.result import Rendered, Result, message_dict
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note
from switchml.common.job_numbers import MAX_PRIORITY
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD

if TYPE_CHECKING:
    from switchml.client.wire import Wire
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.launch.job_start import JobRun, JobStarted
    from switchml.ops.profile_findings import Findings
    from switchml.ops.profiles import JobTimes
    from switchml.ops.stragglers import Straggler

__all__ = [
    "JobDetached",
    "JobEnd",
    "JobFinished",
    "JobFound",
    "JobLogs",
    "JobProfile",
    "JobReady",
    "JobStanding",
    "JobWatch",
    "Jobs",
    "job_group",
]

_MOST_CALLS = 63  # of each rank, in its profile


# ---- results --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class JobFound(Result):
    """One job."""

    job: pb.Job

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return message_dict(self.job)


@dataclasses.dataclass(frozen=True)
class JobEnd(JobFound):
    """A job that has ended."""

    @property
    def exit_status(self) -> int:
        """0 if the job has COMPLETED, else the status of a rank that failed, or 1."""
        from switchml.launch.job_start import exit_status

        return exit_status(self.job)


@dataclasses.dataclass
class JobWatch(Result):
    """The states of a job as they change; JSON has the last one."""

    states: Iterator[pb.Job]
    last: pb.Job | None = None

    def __iter__(self) -> Iterator[pb.Job]:
        for state in self.states:
            self.last = state
            yield state

    def end(self) -> JobEnd:
        """Wait for the last state and return it."""
        for _ in self:
            pass
        assert self.last is not None, "the stream of a job has at least one state"
        return JobEnd(self.last)

    @property
    def exit_status(self) -> int:
        """The exit status of the job's end."""
        return self.end().exit_status

    def as_dict(self) -> dict[str, Any]:
        """Return the last state as a dictionary for JSON."""
        return self.end().as_dict()


@dataclasses.dataclass(frozen=True)
class Jobs(Result):
    """A list of jobs: the live ones, or with `ended` all that the controller knows."""

    jobs: Sequence[pb.Job]
    ended: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"jobs": [message_dict(job) for job in self.jobs]}


@dataclasses.dataclass(frozen=True)
class JobReady(Result):
    """A job to which processes attach by themselves."""

    started: JobStarted

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        from switchml.launch.job_start import attach_environment, switch_counters

        job = self.started.job
        ranks = sorted(job.ranks, key=lambda rank: rank.rank)
        return {
            **_job_start_dict(job, self.started.run_dir, [], {**switch_counters(job), "dropped": {}}, 0.0),
            "controller": self.started.controller,
            "attach": [{"host": rank.host, **attach_environment(job, rank)} for rank in ranks],
        }


@dataclasses.dataclass(frozen=True)
class JobFinished(Result):
    """A job with a command that has ended."""

    run: JobRun

    @property
    def exit_status(self) -> int:
        """The exit status of the first rank that failed, or 0."""
        return self.run.exit_code

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        run = self.run
        counters = {**run.counters, "dropped": run.dropped}
        return _job_start_dict(run.job, run.run_dir, run.launch.exit_codes, counters, round(run.seconds, 3))


def _job_start_dict(
    job: pb.Job, run_dir: Path, exit_codes: Sequence[int], switch: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Return what `job start` prints, with or without a command."""
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.controller.proto.words import enum_word

    return {
        "job_id": job.id,
        "key": job.key,
        "name": job.name,
        "workers": job.workers,
        "state": enum_word(pb.JobState, job.state),
        "failure": job.failure,
        "exit_codes": list(exit_codes),
        "switch": dict(switch),
        "run_dir": str(run_dir),
        "seconds": seconds,
    }


@dataclasses.dataclass(frozen=True)
class JobDetached(Result):
    """A job whose launcher, the process `pid`, runs in the background."""

    job: pb.Job
    run_dir: Path
    pid: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        from switchml.controller.proto import switchml_pb2 as pb
        from switchml.controller.proto.words import enum_word

        return {
            "job_id": self.job.id,
            "key": self.job.key,
            "name": self.job.name,
            "workers": self.job.workers,
            "state": enum_word(pb.JobState, self.job.state),
            "run_dir": str(self.run_dir),
            "pid": self.pid,
        }


@dataclasses.dataclass(frozen=True)
class JobStanding(Result):
    """A job's status, and the rank that the others wait for; None if no rank lags."""

    job: pb.Job
    straggler: Straggler | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        from switchml.controller.proto import switchml_pb2 as pb
        from switchml.controller.proto.words import enum_word

        return {
            "name": self.job.name,
            "state": enum_word(pb.JobState, self.job.state),
            "failure": self.job.failure,
            "epoch": self.job.epoch,
            "workers": self.job.workers,
            "on_failure": enum_word(pb.OnFailure, self.job.on_failure).lower(),
            "priority": self.job.priority,
            "changes": [message_dict(change) for change in self.job.changes],
            "straggler": dataclasses.asdict(self.straggler) if self.straggler is not None else None,
        }


@dataclasses.dataclass(frozen=True)
class JobProfile(Result):
    """A profile of how a job spends its time."""

    times: JobTimes

    @property
    def findings(self) -> Findings:
        """The conclusions about the job's speed."""
        from switchml.ops.profile_findings import findings

        return findings(self.times)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {**self.times.as_dict(), "findings": dataclasses.asdict(self.findings)}


@dataclasses.dataclass(frozen=True)
class JobLogs(Result):
    """The logs of a job: their paths by rank, and pieces of their text as they arrive.

    With `prefixed`, each line is shown to people with its rank in front.
    """

    job: str
    paths: Mapping[int, Path]
    pieces: Iterator[tuple[int, str]]
    prefixed: bool

    def as_dict(self) -> dict[str, Any]:
        """Return all of the text as a dictionary for JSON."""
        texts: dict[int, list[str]] = {rank: [] for rank in self.paths}
        for rank, text in self.pieces:
            texts[rank].append(text)
        found = [
            {"rank": rank, "path": str(path), "lines": "".join(texts[rank]).splitlines()}
            for rank, path in self.paths.items()
        ]
        return {"job": self.job, "logs": found}


# ---- parameters -----------------------------------------------------------------------------------------------------


def _workers(_context: click.Context, _parameter: click.Parameter, value: int) -> int:
    if not 1 <= value <= PROTOCOL_MAX_WORLD:
        raise click.BadParameter(f"a job must have 1..{PROTOCOL_MAX_WORLD} workers, not {value}.")
    return value


def _wire(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Wire | None:
    if text is None:
        return None
    from switchml.client.wire import parse_wire

    try:
        return parse_wire(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _variables(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        name, equals, _ = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE.")
    return dict(value.split("=", 1) for value in values)


_job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)


# ---- commands -------------------------------------------------------------------------------------------------------


@click.group("job", cls=CommandGroup)
def job_group() -> None:
    """Start, watch and stop jobs. JOB is a job's id or name."""


@job_group.command(
    "start",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  switchml-ctl job start --workers 8 -- python train.py --epochs 10
  switchml-ctl job start --workers 4 --name shared --slots 256
  switchml-ctl job start --workers 4 --aggregators h1,h2,h3,h4 -- python train.py
  switchml-ctl job start --workers 8 --on-failure restart -- python train.py
  switchml-ctl job start --workers 8 --env OMP_NUM_THREADS=4 --detach -- python train.py
  switchml-ctl job start --workers 8 --json -- python train.py > result.json""",
)
@click.option(
    "--workers",
    type=int,
    required=True,
    callback=_workers,
    metavar="N",
    help="Number of ranks of the job, 1..4096; one switch takes at most 64.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the job; by default the controller generates one.")
@setting("job.slots")
@setting("job.switch")
@setting("job.aggregators")
@click.option(
    "--on-failure",
    type=click.Choice(["abort", "shrink", "restart"]),
    default="abort",
    show_default=True,
    help="When a rank is lost: end the job, continue without it, or restart its command.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, MAX_PRIORITY),
    default=0,
    show_default=True,
    metavar="N",
    help=f"Priority among the tenant's jobs, up to {MAX_PRIORITY}: higher ones send first.",
)
@click.option(
    "--order",
    type=click.Choice(["ring", "halving-doubling"]),
    help="Give ranks to agents in the order that suits this algorithm by the last `probe`.",
)
@click.option(
    "--wire",
    callback=_wire,
    metavar="WIRE",
    help="How PyTorch's floating-point numbers travel: blocks:bits=16, codes:name=natural8, floats, ...; some switches"
    " sum neither codes nor floats.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Maximum number of restarts, with --on-failure restart.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    callback=_variables,
    metavar="NAME=VALUE",
    help="Environment variable for the commands, set before all others; repeat for more.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Return once the job is ready, and leave it running in the background; a fabric started for it stays.",
)
@click.option("--in-background", is_flag=True, hidden=True, help="The process that --detach starts.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def start_job(
    session: CommandSession,
    /,
    workers: int,
    name: str,
    on_failure: str,
    priority: int,
    order: str | None,
    wire: Wire | None,
    restarts: int,
    variables: dict[str, str],
    detach: bool,
    in_background: bool,
    command: tuple[str, ...],
    **options: Any,
) -> JobReady | JobFinished | Rendered:
    """Start a job, with COMMAND run once for each of its workers, or READY for processes that attach by themselves.

    The fabric is the configured one, the run directory's live one, or one that is started for this job and ends with
    it. Each worker finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and SWITCHML_* in
    its environment; its output goes to rank-N.log in the job's directory ($SWITCHML_JOB_DIR) and to standard error.
    SIGINT and SIGTERM are forwarded to all workers, a second one kills them. With --detach the workers are started by a
    separate process, which writes to launcher.log in that directory: `job wait` then reports the job's exit status,
    `job logs` the workers' output, and `job stop` ends it.

    The first rank that fails ends the job. With --on-failure shrink or restart the others continue in a new epoch:
    calls that were in flight raise switchml.WorldChanged (docs/guides/failures.md).
    """
    if not command and (detach or variables):
        raise click.UsageError("--detach and --env are for jobs with a COMMAND")
    settings = session.settings(**options)
    if command and Path(command[0]).name == "torchrun":
        raise click.UsageError(
            "torchrun starts the ranks of a job itself, as `job start` does; run torchrun alone, which needs no job to"
            " be started before, or `job start --workers N -- python TRAIN.py`"
        )
    if detach:
        return _start_detached(session.arguments)

    from switchml.commands.probe import found_order
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.launch import job_start

    request = pb.StartJobRequest(
        workers=workers,
        name=name,
        slots=settings.job_slots,
        switch=settings.job_switch,
        on_failure=f"ON_FAILURE_{on_failure.upper()}",
        priority=priority,
        aggregators=settings.job_aggregators,
        adds_floats=wire is not None and wire.kind == "floats",
        agents=() if order is None else [host.name for host in found_order(session, order)[1]],
    )
    if not command:
        return JobReady(job_start.start_job(settings, request, note))

    from switchml.commands.displays import DetachedJob, JobDisplay

    def announcement(job: pb.Job, run_dir: Path) -> str:
        return session.rendered(JobDetached(job, run_dir, os.getpid()))

    if wire is not None:
        variables = {"SWITCHML_TORCH_WIRE": str(wire), **variables}
    worker_command = job_start.WorkerCommand(command, variables, restarts)
    with DetachedJob(announcement) if in_background else JobDisplay() as observer:
        run = job_start.run_job(settings, request, worker_command, observer, background=in_background)
    return JobFinished(run)


def _start_detached(arguments: Sequence[str]) -> Rendered:
    """Run a command line again in the background, and return its output up to the moment the job is ready."""
    from switchml.launch import detached

    again = list(arguments)
    again[again.index("--detach")] = "--in-background"
    status, output = detached.start(again)
    return Rendered(output, 0 if status is None else status)


@job_group.command("list", epilog="\b\nExamples:\n  switchml-ctl job list\n  switchml-ctl job list --all --json")
@click.option("--all", "include_ended", is_flag=True, help="Include jobs that have ended.")
@click.pass_obj
def list_jobs(session: CommandSession, include_ended: bool) -> Jobs:
    """List jobs; after the end of the fabric, those that the controller's store holds."""
    with session.records() as records:
        return Jobs(records.list_jobs(include_ended=include_ended), include_ended)


@job_group.command("show", epilog="\b\nExamples:\n  switchml-ctl job show digits\n  switchml-ctl job show 7 --json")
@_job_argument
@click.pass_obj
def show_job(session: CommandSession, job: str) -> JobFound:
    """Show one job: its ranks, where they run, their positions, and the switch's counters."""
    with session.records() as records:
        return JobFound(records.get_job(job))


@job_group.command(
    "status",
    epilog="""\b
Examples:
  switchml-ctl job status digits
  switchml-ctl job status 7 --json | jq .straggler""",
)
@_job_argument
@click.pass_obj
def job_status(session: CommandSession, job: str) -> JobStanding:
    """Show a job's status: its state, losses and epochs, and the slowest rank and how far it lags."""
    from switchml.ops.stragglers import straggler

    with session.records() as records:
        found = records.get_job(job)
    return JobStanding(found, straggler(found))


@job_group.command("watch", epilog="\b\nExample:\n  switchml-ctl job watch digits")
@_job_argument
@click.pass_obj
def watch_job(session: CommandSession, job: str) -> JobWatch:
    """Watch a job until it ends; a rank that the others wait for is named. With --json only its end is printed.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1.
    """
    client = session.client_until_shown()
    return JobWatch(client.watch_job(job))


@job_group.command(
    "wait",
    epilog="""\b
Examples:
  switchml-ctl job wait digits && echo trained
  switchml-ctl job wait 7 --timeout 600""",
)
@_job_argument
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Wait at most S seconds.  [default: no limit]",
)
@click.pass_obj
def wait_job(session: CommandSession, job: str, timeout: float | None) -> JobEnd:
    """Wait silently until a job has ended, then print its outcome.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1; 124 after --timeout.
    """
    from switchml.launch import job_start

    with session.client() as client:
        return JobEnd(job_start.wait_job(client, job, timeout))


@job_group.command(
    "logs",
    epilog="""\b
Examples:
  switchml-ctl job logs digits
  switchml-ctl job logs digits --rank 0 --tail 20
  switchml-ctl job logs 7 -f""",
)
@_job_argument
@click.option(
    "--rank",
    type=click.IntRange(0, PROTOCOL_MAX_WORLD - 1),
    metavar="R",
    help="Show only this rank.  [default: all, with `[rank] ` before each line]",
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Show only the last N lines of each rank.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the job and the ranks' commands have ended.")
@click.pass_obj
def logs(session: CommandSession, job: str, rank: int | None, tail: int | None, follow: bool) -> JobLogs:
    """Print the output of a job's commands. Logs remain after the job's end, and after the end of the fabric."""
    from switchml.launch import job_logs

    settings = session.settings()
    paths = job_logs.find(settings, job, rank)
    pieces = job_logs.read(settings, job, paths, follow=follow, tail=tail, notice=note)
    return JobLogs(job, paths, pieces, rank is None)


@job_group.command("stop", epilog="\b\nExamples:\n  switchml-ctl job stop digits\n  switchml-ctl job stop --all")
@click.argument("job", required=False, metavar="JOB", shell_complete=complete_job)
@click.option("--all", "every", is_flag=True, help="Stop all live jobs.")
@click.pass_obj
def stop_job(session: CommandSession, job: str | None, every: bool) -> JobFound | Jobs:
    """Stop a job and free its slots. A job that has ended is shown as it is."""
    if (job is not None) == every:
        raise click.UsageError("give a JOB or --all")
    with session.client() as client:
        if job is not None:
            return JobFound(client.stop_job(job))
        return Jobs([client.stop_job(found.id) for found in client.list_jobs()])


@job_group.command(
    "profile",
    epilog="""\b
Examples:
  switchml-ctl job profile digits
  switchml-ctl job profile digits --seconds 5 --plot timeline.svg
  switchml-ctl job profile digits --seconds 5 --trace trace.json
  switchml-ctl job profile 7 --json | jq '.ranks[].wait'""",
)
@_job_argument
@click.option("--seconds", type=click.FloatRange(0.01, 3600), metavar="N", help="Profile only the next N seconds.")
@click.option(
    "--calls", type=click.IntRange(0, _MOST_CALLS), metavar="N",
    help="Number of each rank's latest calls in the timeline.  [default: 8; with --trace all that are known]",
)  # fmt: skip
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.png|svg",
    help="Draw the timeline into this file; needs matplotlib.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write the calls and their phases into this file, for ui.perfetto.dev or chrome://tracing; with --seconds each"
    " call that ends in that time.",
)
@click.pass_obj
def profile_job(
    session: CommandSession, job: str, seconds: float | None, calls: int | None, plot: Path | None, trace: Path | None
) -> JobProfile:
    """Show how a job spends its time: each rank's thread, its agent and the switch, and the latest calls.

    quantize, wait and dequantize are the time of the rank's own thread, as the average of a call and the percentage.
    send and receive are the agent's time, sum is that of a switch that shares the ranks' memory: these run at the same
    time. A rank that waits less than the others is the one that they wait for.
    """
    from switchml.ops import profile_drawing, profile_trace, profiles

    if calls is None and trace is None:
        calls = 8
    with session.client() as client:
        found = profiles.profile_job(client, job, seconds, calls)
    if plot is not None:
        profile_drawing.picture(found, plot)
        note(f"wrote {plot}")
    if trace is not None:
        profile_trace.write_trace(found, trace)
        note(f"wrote {trace}")
    return JobProfile(found)
