"""Runs a whole job: asks the controller for it, runs its workers on this machine, and says how it went."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from switchml.common.errors import NotEndedError, RemoteRanksError
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError, DeadlineExceeded
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.launch import fabric
from switchml.launch.launcher import Launch, check_command, reserved_port, run_workers
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import Settings

__all__ = [
    "JobObserver",
    "JobRequest",
    "JobRun",
    "JobStarted",
    "attach_environment",
    "ended",
    "exit_status",
    "run_job",
    "shell_variables",
    "start_job",
    "switch_counters",
    "wait_job",
]

_END_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 15.0  # for the controller to say how the job ended
_PLACE_SECONDS: Final = 10.0  # for the job to be in an epoch in which a lost rank has its place
_JOB_COUNTERS: Final = ("contributions", "results", "resent", "duplicate", "stale", "wrong_epoch")


@dataclasses.dataclass(frozen=True)
class JobRequest:
    """What is asked of the controller. `name` empty: made up; `slots` 0: the default; `switch` empty: any.

    `restarts` is how often the command may be started again in all, where `on_failure` is RESTART.
    """

    workers: int
    name: str = ""
    slots: int = 0
    switch: str = ""
    on_failure: pb.OnFailure = pb.ON_FAILURE_ABORT
    restarts: int = 3


@dataclasses.dataclass(frozen=True)
class JobRun:
    """How a job with a command ended. `seconds` is from the start of its first worker to the end of its last."""

    job: pb.Job
    launch: Launch
    counters: dict[str, int]
    dropped: dict[str, int]
    run_dir: Path
    seconds: float

    @property
    def first_failed(self) -> int | None:
        """The rank whose failure ended the job.

        That is the one that the controller has lost, where there is one: its process may still have been ending when
        those that noticed had ended already. Otherwise it is the first whose process failed.
        """
        if self.job.state == pb.JOB_STATE_COMPLETED and self.job.on_failure != pb.ON_FAILURE_ABORT:
            return None  # the others have done the work
        lost = {rank.worker for rank in self.job.ranks if rank.state == pb.RANK_STATE_LOST}
        return next((rank for rank in self.launch.failed if rank in lost), next(iter(self.launch.failed), None))

    @property
    def exit_code(self) -> int:
        """That of the rank that failed first; 128 + n when signal n ended it all; 1 when only the job FAILED."""
        if self.launch.interrupted is not None:
            return 128 + self.launch.interrupted
        if self.first_failed is not None:
            return self.launch.exit_codes[self.first_failed]
        return int(self.job.state == pb.JOB_STATE_FAILED)


@dataclasses.dataclass(frozen=True)
class JobStarted:
    """A READY job whose processes attach by themselves."""

    job: pb.Job
    run_dir: Path
    controller: str


class JobObserver(Protocol):
    """Sees a job while it runs. `progress` is called from another thread than the rest."""

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """The job is READY; its workers are about to start."""

    def output(self, rank: int, line: bytes) -> None:
        """A worker has written a line."""

    def progress(self, job: pb.Job) -> None:
        """The job as the controller sees it now."""

    def note(self, text: str) -> None:
        """Something that a person should know."""


def ended(job: pb.Job) -> bool:
    """Whether the job is over, one way or another."""
    return job.state in (pb.JOB_STATE_COMPLETED, pb.JOB_STATE_FAILED, pb.JOB_STATE_STOPPED)


def exit_status(job: pb.Job) -> int:
    """Return the exit status that an ended job stands for: 0 if COMPLETED, else that of a rank that failed, or 1."""
    if job.state == pb.JOB_STATE_COMPLETED:
        return 0
    failed = [rank for rank in job.ranks if rank.exit_code]
    lost_first = sorted(failed, key=lambda rank: (rank.state != pb.RANK_STATE_LOST, rank.rank))
    return lost_first[0].exit_code if lost_first else 1


def wait_job(client: ControllerClient, job: int | str, timeout: float | None = None) -> pb.Job:
    """Wait until a job has ended, at most `timeout` seconds, and return it.

    Raises NotEndedError after that time, and what ControllerClient.watch_job raises.
    """
    last: pb.Job | None = None
    try:
        for state in client.watch_job(job, timeout):
            last = state
    except DeadlineExceeded:
        if last is None:
            raise
        state_name = enum_word(pb.JobState, last.state)
        raise NotEndedError(f"job {job} has not ended within {timeout:g} s: it is {state_name}") from None
    assert last is not None, "the stream of a job has at least one state"
    return last


def attach_environment(job: pb.Job, rank: pb.Rank) -> dict[str, str]:
    """The variables by which a training process finds its place in the job."""
    return {
        "SWITCHML_AGENT": rank.agent_socket,
        "SWITCHML_JOB": job.name,
        "SWITCHML_RANK": str(rank.rank),
        "SWITCHML_WORLD_SIZE": str(job.workers),
    }


def shell_variables(job: pb.Job, rank: pb.Rank) -> str:
    """Return the same as assignments that a shell takes before a command."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in attach_environment(job, rank).items())


def switch_counters(job: pb.Job) -> dict[str, int]:
    """What the switch counted for the job: packets by verdict, contributions and results in all."""
    return {name: job.counters.get(name, 0) for name in _JOB_COUNTERS}


def start_job(settings: Settings, request: JobRequest, report: fabric.Reporter) -> JobStarted:
    """Start a job for processes that attach by themselves; an embedded fabric started for it stays until `down`.

    Raises what ControllerClient raises, RunDirectoryError and what starting a fabric raises.
    """
    directory = RunDirectory(settings.run_dir)
    with fabric.using(settings, report=report) as controller:
        with fabric.connect(settings, controller) as client:
            job = _start(client, request)
        if settings.controller is None:
            fabric.keep(directory)
        directory.create()
        return JobStarted(job, directory.job_directory(job.key, job.name), controller)


def run_job(
    settings: Settings,
    request: JobRequest,
    command: Sequence[str],
    observer: JobObserver,
    *,
    variables: Mapping[str, str] | None = None,
    background: bool = False,
) -> JobRun:
    """Start a job, run `command` once for each of its ranks, and return when all of that has ended.

    `variables` are set for the command besides those of this process and of the job, and before them. An embedded
    fabric that is started for it ends with it. In the `background` it stays instead, and the commands of a job that
    somebody stops get SIGTERM.

    Raises CommandNotFoundError and CommandNotExecutableError before anything is started, RemoteRanksError when a rank
    belongs to another host (the job is stopped again), what ControllerClient raises, RunDirectoryError and what
    starting a fabric raises.
    """
    check_command(command[0])
    run_directory = RunDirectory(settings.run_dir)
    run_directory.create()
    with fabric.using(settings, report=observer.note) as controller, fabric.connect(settings, controller) as client:
        job = _start(client, request)
        try:
            _require_local(job, command)
            if background and settings.controller is None:
                fabric.keep(run_directory)
            directory = run_directory.job_directory(job.key, job.name)
            drops_before = _drops(client, job.switch)
            observer.started(job, directory)
            with _watching(settings, controller, job, observer, background) as seen, reserved_port() as port:
                began = time.monotonic()
                environments = [
                    {**environment, **(variables or {})}
                    for environment in _environments(job, controller, run_directory.path, directory, port)
                ]
                failures = _Failures(client, job.id, request, environments, observer)
                launch = run_workers(
                    command,
                    environments,
                    directory,
                    on_output=observer.output,
                    on_exit=_ExitReporter(client, job.id, observer, failures),
                    on_interrupt=lambda _number: _stop(client, job.id, observer),
                    on_failure=failures.follow,
                )
                seconds = time.monotonic() - began
            job, dropped = _outcome(client, seen, drops_before, observer)
        except BaseException:
            _stop(client, job.id, observer)
            raise
    return JobRun(job, launch, switch_counters(job), dropped, directory, seconds)


def _outcome(
    client: ControllerClient, seen: _Seen, drops_before: Mapping[str, int], observer: JobObserver
) -> tuple[pb.Job, dict[str, int]]:
    """Return the job that has ended, and what its switch dropped while it ran.

    Where the controller does not say, it is the job as it was seen last: the workers' exit codes do not depend on it.
    """
    try:
        job = _wait_end(client, seen.job.id)
        dropped = {name: count - drops_before.get(name, 0) for name, count in _drops(client, job.switch).items()}
        return job, {name: count for name, count in dropped.items() if count}
    except ControllerError as error:
        seen.job.failure = f"the controller does not say how the job ended, and this is its last known state: {error}"
        observer.note(seen.job.failure)
        return seen.job, {}


def _start(client: ControllerClient, request: JobRequest) -> pb.Job:
    return client.start_job(
        request.workers,
        name=request.name,
        slots=request.slots,
        switch=request.switch,
        on_failure=request.on_failure,
    )


def _require_local(job: pb.Job, command: Sequence[str]) -> None:
    here = socket.gethostname()
    remote = [rank for rank in job.ranks if rank.host != here or not _is_socket(Path(rank.agent_socket))]
    if not remote:
        return
    lines = [f"  on {rank.host}:  {shell_variables(job, rank)} {shlex.join(command)}" for rank in remote]
    numbers = ", ".join(str(rank.rank) for rank in remote)
    raise RemoteRanksError(
        f"ranks {numbers} of {job.name} belong to agents on other hosts, where this program cannot start a command. "
        "Start the job without a command and run it on each host:\n" + "\n".join(lines)
    )


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _environments(job: pb.Job, controller: str, run_dir: Path, directory: Path, port: int) -> list[dict[str, str]]:
    shared = {
        "WORLD_SIZE": str(job.workers),
        "LOCAL_WORLD_SIZE": str(job.workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "SWITCHML_CONTROLLER": controller,
        "SWITCHML_RUN_DIR": str(run_dir),
        "SWITCHML_JOB_DIR": str(directory),
    }
    # Every worker has its share of the cores; a thread pool per worker for all of them would only make them wait.
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if not os.environ.get(name)}
    return [
        {
            **os.environ,
            **threads,
            **shared,
            "RANK": str(rank.rank),
            "LOCAL_RANK": str(rank.rank),
            **attach_environment(job, rank),
        }
        for rank in sorted(job.ranks, key=lambda rank: rank.rank)
    ]


class _Failures:
    """What follows when a worker fails: its end is that of all, the others go on, or it is started again."""

    def __init__(
        self,
        client: ControllerClient,
        job: int,
        request: JobRequest,
        environments: Sequence[Mapping[str, str]],
        observer: JobObserver,
    ) -> None:
        self._client = client
        self._job = job
        self._on_failure = request.on_failure
        self._restarts_left = request.restarts
        self._environments = environments
        self._observer = observer

    @property
    def are_final(self) -> bool:
        """Whether no worker is started again."""
        return self._on_failure != pb.ON_FAILURE_RESTART or self._restarts_left == 0

    def follow(self, worker: int, _exit_code: int) -> Mapping[str, str] | bool:
        """Return what `run_workers` asks of `on_failure`."""
        try:
            if self._on_failure == pb.ON_FAILURE_SHRINK:
                return not ended(self._client.get_job(self._job))
            if self.are_final:
                return False
            rank, job = self._wait_for_place(worker)
        except ControllerError as error:
            self._observer.note(f"the controller could not be asked what becomes of rank {worker}: {error}")
            return False
        if rank is None:
            return False
        self._restarts_left -= 1
        self._observer.note(
            f"rank {worker} is started again in epoch {job.epoch}; {self._restarts_left} more restarts are allowed"
        )
        return {**self._environments[worker], **attach_environment(job, rank)}

    def _wait_for_place(self, worker: int) -> tuple[pb.Rank | None, pb.Job]:
        """The rank that waits for a new process; None when the job is over."""
        began = time.monotonic()
        for job in self._client.watch_job(self._job):
            rank = next((rank for rank in job.ranks if rank.worker == worker), None)
            if ended(job) or time.monotonic() - began > _PLACE_SECONDS:
                return None, job
            if rank is not None and rank.state == pb.RANK_STATE_ASSIGNED:
                return rank, job
        return None, self._client.get_job(self._job)


class _ExitReporter:
    """Tells the controller how each rank's process ended; after one failure to do so it leaves it at that."""

    def __init__(self, client: ControllerClient, job: int, observer: JobObserver, failures: _Failures) -> None:
        self._client = client
        self._job = job
        self._observer = observer
        self._failures = failures
        self._reachable = True

    def __call__(self, rank: int, exit_code: int) -> None:
        if exit_code != 0:
            self._observer.note(f"rank {rank} has ended with status {exit_code}")
        if not self._reachable:
            return
        try:
            self._client.report_exit(self._job, rank, exit_code, final=self._failures.are_final)
        except ControllerError as error:
            self._reachable = False
            self._observer.note(f"the controller could not be told how rank {rank} ended: {error}")


def _stop(client: ControllerClient, job: int, observer: JobObserver) -> None:
    try:
        client.stop_job(job)
    except ControllerError as error:
        observer.note(f"the job could not be stopped: {error}")


def _wait_end(client: ControllerClient, job: int) -> pb.Job:
    """The ended job. Workers that never attached leave it alive: then it is stopped."""
    began = time.monotonic()
    for state in client.watch_job(job, timeout=_ANSWER_SECONDS):
        if ended(state):
            return state
        attached = any(rank.state == pb.RANK_STATE_ATTACHED for rank in state.ranks)
        # What an agent saw of a process that was gone at once may arrive after the launcher's word of its end.
        if time.monotonic() - began >= (_END_SECONDS if attached else _SETTLE_SECONDS):
            break
    return client.stop_job(job)


def _drops(client: ControllerClient, switch: str) -> dict[str, int]:
    return dict(client.show_switch(switch).drop_reasons)


@dataclasses.dataclass
class _Seen:
    """The job as the controller showed it last."""

    job: pb.Job


@contextlib.contextmanager
def _watching(
    settings: Settings, controller: str, job: pb.Job, observer: JobObserver, end_when_stopped: bool
) -> Iterator[_Seen]:
    """Show the job's progress to the observer from a thread of its own, and keep the last of it.

    With `end_when_stopped` a job that is stopped is as if this process had been told to end.
    """
    stopping = threading.Event()
    seen = _Seen(job)

    def watch() -> None:
        try:
            with fabric.connect(settings, controller) as client:
                for state in client.watch_job(job.id):
                    seen.job = state
                    observer.progress(state)
                    if stopping.is_set():
                        return
                    if end_when_stopped and state.state == pb.JOB_STATE_STOPPED:
                        os.kill(os.getpid(), signal.SIGTERM)
        except ControllerError as error:
            if not stopping.is_set():
                observer.note(f"the job's progress cannot be shown: {error}")

    thread = threading.Thread(target=watch, name="watch-job", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(2.0)
