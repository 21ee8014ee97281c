"""The commands of switchml-ctl about jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Group, renderer, setting
from switchml.commands.completion import complete_job
from switchml.commands.result import Rendered, Result, message_dict
from switchml.commands.session import Session
from switchml.commands.standard_streams import note
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS

if TYPE_CHECKING:
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.launch.jobs import JobRun, JobStarted
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

_MOST_CALLS = 63  # of a rank, in its profile


# ---- results --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class JobFound(Result):
    """One job."""

    job: pb.Job

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return message_dict(self.job)


@dataclasses.dataclass(frozen=True)
class JobEnd(JobFound):
    """A job that has ended, and how."""

    @property
    def exit_status(self) -> int:
        """0 if the job has COMPLETED, else the status of a rank that failed, or 1."""
        from switchml.launch.jobs import exit_status

        return exit_status(self.job)


@dataclasses.dataclass
class JobWatch(Result):
    """The states of a job as they come, of which JSON has the last one."""

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
        """That of the job's end."""
        return self.end().exit_status

    def as_dict(self) -> dict[str, Any]:
        """Return the last state as JSON takes it."""
        return self.end().as_dict()


@dataclasses.dataclass(frozen=True)
class Jobs(Result):
    """Some jobs: live ones, and with `ended` all that the controller knows."""

    jobs: Sequence[pb.Job]
    ended: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"jobs": [message_dict(job) for job in self.jobs]}


@dataclasses.dataclass(frozen=True)
class JobReady(Result):
    """A job to which processes attach by themselves."""

    started: JobStarted

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        from switchml.launch.jobs import attach_environment, switch_counters

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
        """That of the rank that failed first, or 0."""
        return self.run.exit_code

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        run = self.run
        counters = {**run.counters, "dropped": run.dropped}
        return _job_start_dict(run.job, run.run_dir, run.launch.exit_codes, counters, round(run.seconds, 3))


def _job_start_dict(
    job: pb.Job, run_dir: Path, exit_codes: Sequence[int], switch: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Return what `job start` prints with a command and without."""
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
    """A job whose launcher, the process `pid`, goes on in the background."""

    job: pb.Job
    run_dir: Path
    pid: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
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
    """How a job stands, and the rank that the others wait for; None where no rank is behind."""

    job: pb.Job
    straggler: Straggler | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        from switchml.controller.proto import switchml_pb2 as pb
        from switchml.controller.proto.words import enum_word

        return {
            "name": self.job.name,
            "state": enum_word(pb.JobState, self.job.state),
            "failure": self.job.failure,
            "epoch": self.job.epoch,
            "workers": self.job.workers,
            "on_failure": enum_word(pb.OnFailure, self.job.on_failure).lower(),
            "changes": [message_dict(change) for change in self.job.changes],
            "straggler": dataclasses.asdict(self.straggler) if self.straggler is not None else None,
        }


@dataclasses.dataclass(frozen=True)
class JobProfile(Result):
    """Where a job's time goes."""

    times: JobTimes

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return self.times.as_dict()


@dataclasses.dataclass(frozen=True)
class JobLogs(Result):
    """The logs of a job: their paths by rank, and pieces of their text as they come.

    `prefixed` is whether people see the rank before each line.
    """

    job: str
    paths: Mapping[int, Path]
    pieces: Iterator[tuple[int, str]]
    prefixed: bool

    def as_dict(self) -> dict[str, Any]:
        """Return all of the text as JSON takes it."""
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
    if not 1 <= value <= PROTOCOL_MAX_WORKERS:
        raise click.BadParameter(f"a job has 1..{PROTOCOL_MAX_WORKERS} workers, not {value}.")
    return value


def _variables(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        name, equals, _ = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE.")
    return dict(value.split("=", 1) for value in values)


_job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)


# ---- commands -------------------------------------------------------------------------------------------------------


@click.group("job", cls=Group)
def job_group() -> None:
    """Start, watch and stop jobs. JOB is a job's id or name."""


@job_group.command(
    "start",
    context_settings={"allow_interspersed_args": False},
    epilog="""\b
Examples:
  switchml-ctl job start --workers 8 -- python train.py --epochs 10
  switchml-ctl job start --workers 4 --name shared --slots 256
  switchml-ctl job start --workers 8 --on-failure restart -- python train.py
  switchml-ctl job start --workers 8 --env OMP_NUM_THREADS=4 --detach -- python train.py
  switchml-ctl job start --workers 8 --json -- python train.py > result.json""",
)
@click.option("--workers", type=int, required=True, callback=_workers, metavar="N", help="Ranks of the job, 1..64.")
@click.option("--name", default="", metavar="NAME", help="Name of the job; by default the controller makes one up.")
@setting("job.slots", "--slots")
@setting("job.switch", "--switch")
@click.option(
    "--on-failure",
    type=click.Choice(["abort", "shrink", "restart"]),
    default="abort",
    show_default=True,
    help="When a rank is lost: end the job, go on without it, or start its command again.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="How often commands are started again, with --on-failure restart.",
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    callback=_variables,
    metavar="NAME=VALUE",
    help="Variable of the commands' environment, before any other; repeat.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Return once the job is ready, and leave it running in the background; a fabric started for it stays.",
)
@click.option("--in-background", is_flag=True, hidden=True, help="What --detach starts.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def start_job(
    session: Session,
    /,
    workers: int,
    name: str,
    on_failure: str,
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
    SIGINT and SIGTERM are passed on to all workers, a second one kills them. With --detach the workers are started by
    a process of its own, which writes to launcher.log there: `job wait` has the job's exit status then, `job logs` what
    the workers write, and `job stop` ends it.

    The first rank that fails ends the job. With --on-failure shrink or restart the others go on in a new epoch: they
    get switchml.WorldChanged from the calls that were under way (docs/reliability.md).
    """
    if not command and (detach or variables):
        raise click.UsageError("--detach and --env are for jobs with a COMMAND")
    if detach:
        return _start_detached()

    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.launch import jobs

    settings = session.settings(**options)
    policies = {"abort": pb.ON_FAILURE_ABORT, "shrink": pb.ON_FAILURE_SHRINK, "restart": pb.ON_FAILURE_RESTART}
    policy = policies[on_failure]
    request = jobs.JobRequest(workers, name, settings.job_slots, settings.job_switch, policy, restarts)
    if not command:
        return JobReady(jobs.start_job(settings, request, note))

    from switchml.commands.displays import DetachedJob, JobDisplay

    with DetachedJob(renderer()) if in_background else JobDisplay() as observer:
        run = jobs.run_job(settings, request, command, observer, variables=variables, background=in_background)
    return JobFinished(run)


def _start_detached() -> Rendered:
    """Run this command line again in the background, and return what it says until the job is ready."""
    from switchml.commands.root import cli
    from switchml.launch import detached

    arguments = list(cli.arguments)
    arguments[arguments.index("--detach")] = "--in-background"
    status, said = detached.start(arguments)
    return Rendered(said, 0 if status is None else status)


@job_group.command("list", epilog="\b\nExamples:\n  switchml-ctl job list\n  switchml-ctl job list --all --json")
@click.option("--all", "include_ended", is_flag=True, help="Jobs that have ended as well.")
@click.pass_obj
def list_jobs(session: Session, include_ended: bool) -> Jobs:
    """List jobs."""
    with session.client() as client:
        return Jobs(client.list_jobs(include_ended=include_ended), include_ended)


@job_group.command("show", epilog="\b\nExamples:\n  switchml-ctl job show digits\n  switchml-ctl job show 7 --json")
@_job_argument
@click.pass_obj
def show_job(session: Session, job: str) -> JobFound:
    """Show one job: its ranks, where they are, how far they are, what the switch counted."""
    with session.client() as client:
        return JobFound(client.get_job(job))


@job_group.command(
    "status",
    epilog="""\b
Examples:
  switchml-ctl job status digits
  switchml-ctl job status 7 --json | jq .straggler""",
)
@_job_argument
@click.pass_obj
def job_status(session: Session, job: str) -> JobStanding:
    """Show how a job stands: its state, its losses and epochs, and the slowest rank and how far it is behind."""
    from switchml.ops.stragglers import straggler

    with session.client() as client:
        found = client.get_job(job)
    return JobStanding(found, straggler(found))


@job_group.command("watch", epilog="\b\nExample:\n  switchml-ctl job watch digits")
@_job_argument
@click.pass_obj
def watch_job(session: Session, job: str) -> JobWatch:
    """Watch a job until it ends; a rank that the others wait for is named. With --json only its end is printed.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1.
    """
    client = click.get_current_context().with_resource(session.client())
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
    help="Wait at most S seconds.  [default: without end]",
)
@click.pass_obj
def wait_job(session: Session, job: str, timeout: float | None) -> JobEnd:
    """Wait without output until a job has ended, then print how.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1; 124 after --timeout.
    """
    from switchml.launch import jobs

    with session.client() as client:
        return JobEnd(jobs.wait_job(client, job, timeout))


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
    type=click.IntRange(0, PROTOCOL_MAX_WORKERS - 1),
    metavar="R",
    help="Only this rank.  [default: all, with `[rank] ` before each line]",
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each rank.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job and the ranks' commands have ended.")
@click.pass_obj
def logs(session: Session, job: str, rank: int | None, tail: int | None, follow: bool) -> JobLogs:
    """Print what the commands of a job wrote. Its logs stay after its end, those of a fabric that is down too."""
    from switchml.launch import job_logs

    settings = session.settings()
    paths = job_logs.find(settings, job, rank)
    return JobLogs(job, paths, job_logs.read(settings, job, paths, follow=follow, tail=tail), rank is None)


@job_group.command("stop", epilog="\b\nExamples:\n  switchml-ctl job stop digits\n  switchml-ctl job stop --all")
@click.argument("job", required=False, metavar="JOB", shell_complete=complete_job)
@click.option("--all", "every", is_flag=True, help="All live jobs.")
@click.pass_obj
def stop_job(session: Session, job: str | None, every: bool) -> JobFound | Jobs:
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
  switchml-ctl job profile 7 --json | jq '.ranks[].wait'""",
)
@_job_argument
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
@click.pass_obj
def profile_job(session: Session, job: str, seconds: float | None, calls: int, plot: Path | None) -> JobProfile:
    """Show where a job's time goes: what each rank's thread, its agent and the switch did, and its latest calls.

    quantize, wait and dequantize are the time of the rank's own thread, a call's average and the share of them. send
    and receive are the agent's time, sum is that of a switch which shares the ranks' memory: they go on meanwhile. A
    rank that waits less than the others is the one they wait for.
    """
    from switchml.ops import profile_drawing, profiles

    with session.client() as client:
        found = profiles.profile_job(client, job, seconds, calls)
    if plot is not None:
        profile_drawing.picture(found, plot)
        note(f"wrote {plot}")
    return JobProfile(found)
