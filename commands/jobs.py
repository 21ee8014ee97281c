"""The commands of switchml-ctl about jobs."""

import contextlib
import sys
import time
from typing import Any

import click

from switchml.commands import output
from switchml.commands.completion import complete_job
from switchml.commands.profile import profile_job
from switchml.commands.session import ExitCode, Root, Session, json_option, setting
from switchml.commands.status import job_status
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS
from switchml.launch import detached, job_logs, jobs

__all__ = ["job_group"]

_POLICIES = {"abort": pb.ON_FAILURE_ABORT, "shrink": pb.ON_FAILURE_SHRINK, "restart": pb.ON_FAILURE_RESTART}


def _workers(_context: click.Context, _parameter: click.Parameter, value: int) -> int:
    if not 1 <= value <= PROTOCOL_MAX_WORKERS:
        raise click.BadParameter(f"a job has 1..{PROTOCOL_MAX_WORKERS} workers, not {value}.")
    return value


job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)


def _variables(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        name, equals, _ = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE.")
    return dict(value.split("=", 1) for value in values)


@click.group("job")
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
    type=click.Choice(list(_POLICIES)),
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
@json_option
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
    as_json: bool,
    command: tuple[str, ...],
    **options: Any,
) -> int:
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
    settings = session.settings(**options)
    policy = _POLICIES[on_failure]
    request = jobs.JobRequest(workers, name, settings.job_slots, settings.job_switch, policy, restarts)
    if not command:
        started = jobs.start_job(settings, request, output.note)
        if as_json:
            output.print_json(output.started_dict(started))
        else:
            output.show_attach(started.job)
        return ExitCode.OK
    observers = output.DetachedObserver(as_json) if in_background else output.ProgressObserver()
    with observers as observer:
        run = jobs.run_job(settings, request, command, observer, variables=variables, background=in_background)
    if as_json:
        output.print_json(output.job_run_dict(run))
    else:
        output.show_job_run(run)
    return run.exit_code


def _start_detached() -> int:
    """Run this command line again in the background; print what it says until the job is ready."""
    root = click.get_current_context().find_root().command
    assert isinstance(root, Root)
    arguments = list(root.arguments)
    arguments[arguments.index("--detach")] = "--in-background"
    status, said = detached.start(arguments)
    click.echo(said, nl=False)
    return ExitCode.OK if status is None else status


@job_group.command("list", epilog="\b\nExamples:\n  switchml-ctl job list\n  switchml-ctl job list --all --json")
@click.option("--all", "include_ended", is_flag=True, help="Jobs that have ended as well.")
@json_option
@click.pass_obj
def list_jobs(session: Session, include_ended: bool, as_json: bool) -> None:
    """List jobs."""
    with session.client() as client:
        found = client.list_jobs(include_ended=include_ended)
    if as_json:
        output.print_json({"jobs": [output.as_dict(job) for job in found]})
    else:
        output.console().print(output.jobs_table(found, "no jobs" if include_ended else "no live jobs"))


@job_group.command("show", epilog="\b\nExamples:\n  switchml-ctl job show digits\n  switchml-ctl job show 7 --json")
@job_argument
@json_option
@click.pass_obj
def show_job(session: Session, job: str, as_json: bool) -> None:
    """Show one job: its ranks, where they are, how far they are, what the switch counted."""
    with session.client() as client:
        _show_job(client.get_job(job), as_json)


def _show_job(found: pb.Job, as_json: bool) -> None:
    if as_json:
        output.print_json(output.as_dict(found))
    else:
        output.console().print(output.job_detail(found))


@job_group.command("watch", epilog="\b\nExample:\n  switchml-ctl job watch digits")
@job_argument
@json_option
@click.pass_obj
def watch_job(session: Session, job: str, as_json: bool) -> int:
    """Watch a job until it ends; a rank that the others wait for is named. With --json only its end is printed.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1.
    """
    last: pb.Job | None = None
    terminal = sys.stdout.isatty() and not as_json
    with session.client() as client, contextlib.ExitStack() as stack:
        display = stack.enter_context(output.live("")) if terminal else None
        for last in client.watch_job(job):
            if display is not None:
                display.update(output.job_detail(last), refresh=True)
            elif not as_json:
                click.echo(f"{time.strftime('%H:%M:%S')} {output.job_line(last)}")
    assert last is not None, "the stream of a job has at least one state"
    if as_json:
        output.print_json(output.as_dict(last))
    return jobs.exit_status(last)


@job_group.command(
    "wait",
    epilog="""\b
Examples:
  switchml-ctl job wait digits && echo trained
  switchml-ctl job wait 7 --timeout 600""",
)
@job_argument
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Wait at most S seconds.  [default: without end]",
)
@json_option
@click.pass_obj
def wait_job(session: Session, job: str, timeout: float | None, as_json: bool) -> int:
    """Wait without output until a job has ended, then print how.

    The exit status is 0 if the job has COMPLETED, else that of a rank that failed, or 1; 124 after --timeout.
    """
    with session.client() as client:
        found = jobs.wait_job(client, job, timeout)
    if as_json:
        output.print_json(output.as_dict(found))
    else:
        click.echo(output.job_line(found))
    return jobs.exit_status(found)


@job_group.command(
    "logs",
    epilog="""\b
Examples:
  switchml-ctl job logs digits
  switchml-ctl job logs digits --rank 0 --tail 20
  switchml-ctl job logs 7 -f""",
)
@job_argument
@click.option(
    "--rank",
    type=click.IntRange(0, PROTOCOL_MAX_WORKERS - 1),
    metavar="R",
    help="Only this rank.  [default: all, with `[rank] ` before each line]",
)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each rank.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job and the ranks' commands have ended.")
@json_option
@click.pass_obj
def logs(session: Session, job: str, rank: int | None, tail: int | None, follow: bool, as_json: bool) -> None:
    """Print what the commands of a job wrote. Its logs stay after its end, those of a fabric that is down too."""
    settings = session.settings()
    paths = job_logs.find(settings, job, rank)
    texts: dict[int, list[str]] = {number: [] for number in paths}
    for number, text in job_logs.read(settings, job, paths, follow=follow, tail=tail):
        if as_json:
            texts[number].append(text)
        elif rank is not None:
            click.echo(text, nl=False)
        else:
            for line in text.splitlines():
                click.echo(f"[{number}] {line}")
    if as_json:
        found = [
            {"rank": number, "path": str(path), "lines": "".join(texts[number]).splitlines()}
            for number, path in paths.items()
        ]
        output.print_json({"job": job, "logs": found})


@job_group.command("stop", epilog="\b\nExamples:\n  switchml-ctl job stop digits\n  switchml-ctl job stop --all")
@click.argument("job", required=False, metavar="JOB", shell_complete=complete_job)
@click.option("--all", "every", is_flag=True, help="All live jobs.")
@json_option
@click.pass_obj
def stop_job(session: Session, job: str | None, every: bool, as_json: bool) -> None:
    """Stop a job and free its slots. A job that has ended is shown as it is."""
    if (job is not None) == every:
        raise click.UsageError("give a JOB or --all")
    with session.client() as client:
        if job is not None:
            _show_job(client.stop_job(job), as_json)
            return
        stopped = [client.stop_job(found.id) for found in client.list_jobs()]
    if as_json:
        output.print_json({"jobs": [output.as_dict(found) for found in stopped]})
    else:
        output.console().print(output.jobs_table(stopped))


job_group.add_command(profile_job)
job_group.add_command(job_status)
