"""Start jobs: create one at the controller, run its workers on this machine, and report the outcome."""

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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from switchml.common.errors import NotEndedError, RemoteRanksError
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError, ControllerUnavailable, DeadlineExceeded
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.controller.retry import Retry, ask
from switchml.launch import fabric
from switchml.launch.launcher import Consequence, Launch, LaunchObserver, check_command, run_workers
from switchml.launch.master_port import held_master_port
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import Settings

__all__ = [
    "JobObserver",
    "JobRun",
    "JobStarted",
    "WorkerCommand",
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
_ANSWER_SECONDS: Final = 30.0  # for the controller to hear how the ranks ended, and to report how the job did
_PLACE_SECONDS: Final = 10.0  # for the job to reach an epoch in which a lost rank can be replaced
_JOB_COUNTERS: Final = ("contributions", "results", "resent", "duplicate", "stale", "wrong_epoch")


@dataclasses.dataclass(frozen=True)
class WorkerCommand:
    """The command line of each worker; its `variables` override those of this process, but not those of the job.

    `restarts` limits the restarts of the command over all ranks, with `on_failure` RESTART.
    """

    line: Sequence[str]
    variables: Mapping[str, str]
    restarts: int


@dataclasses.dataclass(frozen=True)
class JobRun:
    """The outcome of a job with a command. `seconds` is the time from the first worker's start to the last end."""

    job: pb.Job
    launch: Launch
    counters: dict[str, int]
    dropped: dict[str, int]
    run_dir: Path
    seconds: float

    @property
    def first_failed(self) -> int | None:
        """The rank whose failure ended the job.

        If the controller has lost a rank, it is that one: processes that noticed may have ended before the lost one
        itself did. Otherwise it is the first rank whose process failed.
        """
        if self.job.state == pb.JOB_STATE_COMPLETED and self.job.on_failure != pb.ON_FAILURE_ABORT:
            return None  # the others have done the work
        lost = {rank.worker for rank in self.job.ranks if rank.state == pb.RANK_STATE_LOST}
        return next((rank for rank in self.launch.failed if rank in lost), next(iter(self.launch.failed), None))

    @property
    def exit_code(self) -> int:
        """The exit status of the first rank that failed; 128 + n after signal n; 1 if only the job FAILED."""
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
    """Observe a job while it runs. `progress` is called from another thread than the other methods."""

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Called when the job is READY, before its workers start."""

    def output(self, rank: int, line: bytes) -> None:
        """Called for each line that a worker writes."""

    def progress(self, job: pb.Job) -> None:
        """Called with the job's state as reported by the controller."""

    def note(self, text: str) -> None:
        """Called with a message for the user."""


def ended(job: pb.Job) -> bool:
    """Return whether the job has ended in any way."""
    return job.state in (pb.JOB_STATE_COMPLETED, pb.JOB_STATE_FAILED, pb.JOB_STATE_STOPPED)


def exit_status(job: pb.Job) -> int:
    """Return the exit status for an ended job: 0 if COMPLETED, else that of a rank that failed, or 1."""
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
        raise NotEndedError(f"job {job} did not end within {timeout:g} s: it is {state_name}") from None
    assert last is not None, "the stream of a job has at least one state"
    return last


def attach_environment(job: pb.Job, rank: pb.Rank) -> dict[str, str]:
    """Return the variables by which a training process finds its place in the job."""
    return {
        "SWITCHML_AGENT": rank.agent_socket,
        "SWITCHML_JOB": job.name,
        "SWITCHML_RANK": str(rank.rank),
        "SWITCHML_WORLD_SIZE": str(job.workers),
    }


def shell_variables(job: pb.Job, rank: pb.Rank) -> str:
    """Return these variables as assignments that precede a shell command."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in attach_environment(job, rank).items())


def switch_counters(job: pb.Job) -> dict[str, int]:
    """Return the switch's counters for the job: packets by verdict, and the sums of contributions and results."""
    return {name: job.counters.get(name, 0) for name in _JOB_COUNTERS}


def start_job(settings: Settings, request: pb.StartJobRequest, report: fabric.Reporter) -> JobStarted:
    """Start a job for processes that attach by themselves; an embedded fabric started for it stays until `down`.

    Raises what ControllerClient raises, RunDirectoryError and what starting a fabric raises.
    """
    directory = RunDirectory(settings.run_dir)
    with fabric.using(settings, report=report) as controller:
        with fabric.connect(settings, controller) as client:
            job = client.start_job(request)
        if settings.controller is None:
            fabric.keep(directory)
        directory.create()
        return JobStarted(job, directory.job_directory(job.key, job.name), controller)


def run_job(
    settings: Settings,
    request: pb.StartJobRequest,
    command: WorkerCommand,
    observer: JobObserver,
    *,
    background: bool = False,
) -> JobRun:
    """Start a job, run `command` once for each of its ranks, and return when all of that has ended.

    An embedded fabric that is started for the job ends with it. In the `background` it stays, and when the job is
    stopped its commands get SIGTERM.

    Raises CommandNotFoundError and CommandNotExecutableError before anything is started, RemoteRanksError if a rank is
    assigned to another host (the job is then stopped), what ControllerClient raises, RunDirectoryError and what
    starting a fabric raises. Once the job is ready, a controller that is away is asked again as long as a worker runs.
    """
    check_command(command.line[0])
    run_directory = RunDirectory(settings.run_dir)
    run_directory.create()
    with fabric.using(settings, report=observer.note) as controller, fabric.connect(settings, controller) as client:
        job = client.start_job(request)
        try:
            _require_local(job, command.line)
            if background and settings.controller is None:
                fabric.keep(run_directory)
            directory = run_directory.job_directory(job.key, job.name)
            drops_before = _drops(client, job, observer)
            observer.started(job, directory)
            with _watching(settings, controller, job, observer, background) as seen, held_master_port() as meeting:
                began = time.monotonic()
                environments = [
                    {**environment, **meeting, **command.variables}
                    for environment in _environments(job, controller, run_directory.path, directory)
                ]
                with _Reports(client, job, command.restarts, environments, observer) as reports:
                    launch = run_workers(command.line, environments, directory, reports)
                    seconds = time.monotonic() - began
            job = _wait_end(client, seen, observer, reports.deadline)
            dropped = _drops(client, job, observer) - drops_before
        except BaseException:
            _stop(client, job.id, observer)
            raise
    return JobRun(job, launch, switch_counters(job), dict(dropped), directory, seconds)


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


def _environments(job: pb.Job, controller: str, run_dir: Path, directory: Path) -> list[dict[str, str]]:
    shared = {
        "WORLD_SIZE": str(job.workers),
        "LOCAL_WORLD_SIZE": str(job.workers),
        "MASTER_ADDR": "127.0.0.1",
        "SWITCHML_CONTROLLER": controller,
        "SWITCHML_RUN_DIR": str(run_dir),
        "SWITCHML_JOB_DIR": str(directory),
    }
    # Every worker has its share of the CPUs; if each had a thread per CPU, they would only wait for each other.
    # A torchrun around this program has started none of these workers, and one inside is recognised by these variables.
    outer = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC_")}
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if not os.environ.get(name)}
    return [
        {
            **outer,
            **threads,
            **shared,
            "RANK": str(rank.rank),
            "LOCAL_RANK": str(rank.rank),
            **attach_environment(job, rank),
        }
        for rank in sorted(job.ranks, key=lambda rank: rank.rank)
    ]


class _Reports(LaunchObserver):
    """Tell the controller how each worker ended, and ask it for the consequence.

    A thread does so, in the order of the ends, and asks again while the controller is away. When the context ends, it
    gives up at the `deadline`.
    """

    def __init__(
        self,
        client: ControllerClient,
        job: pb.Job,
        restarts: int,
        environments: Sequence[Mapping[str, str]],
        observer: JobObserver,
    ) -> None:
        self._client = client
        self._job = job.id
        self._on_failure = job.on_failure
        self._restarts_left = restarts
        self._environments = environments
        self._observer = observer
        self._thread = ThreadPoolExecutor(1, "reports")
        self.deadline = float("inf")
        """The end of all waiting for the controller, by the monotonic clock; it is set when all workers have ended."""

    def __enter__(self) -> _Reports:
        return self

    def __exit__(self, *_: object) -> None:
        self.deadline = time.monotonic() + _ANSWER_SECONDS
        self._thread.shutdown()

    def output(self, rank: int, line: bytes) -> None:
        self._observer.output(rank, line)

    def ended(self, rank: int, exit_code: int) -> None:
        """Report the end of a worker's process."""
        if exit_code != 0:
            self._observer.note(f"rank {rank} has ended with status {exit_code}")
        self._thread.submit(self._report, rank, exit_code)

    def interrupted(self, number: int) -> None:  # noqa: ARG002
        """Stop the job."""
        _stop(self._client, self._job, self._observer)

    def failed(self, rank: int, exit_code: int) -> Future[Consequence] | None:  # noqa: ARG002
        """Decide after a worker failed: end the job, continue, or return the environment of its replacement."""
        if self._on_failure == pb.ON_FAILURE_ABORT:
            return None
        return self._thread.submit(self._consequence, rank)

    @property
    def _are_final(self) -> bool:
        """True if no worker is restarted."""
        return self._on_failure != pb.ON_FAILURE_RESTART or self._restarts_left == 0

    def _retry(self) -> Retry:
        return Retry(give_up=lambda: time.monotonic() >= self.deadline)

    def _report(self, worker: int, exit_code: int) -> None:
        if time.monotonic() >= self.deadline:
            self._observer.note(f"cannot tell the controller how rank {worker} ended: it does not answer")
            return
        final = self._are_final
        try:
            ask(lambda: self._client.report_exit(self._job, worker, exit_code, final=final), self._retry())
        except ControllerError as error:
            self._observer.note(f"cannot tell the controller how rank {worker} ended: {error}")

    def _consequence(self, worker: int) -> Consequence:
        try:
            if self._on_failure == pb.ON_FAILURE_SHRINK:
                return not ended(ask(lambda: self._client.get_job(self._job), self._retry()))
            if self._are_final:
                return False
            rank, job = self._wait_for_place(worker)
        except ControllerError as error:
            self._observer.note(f"cannot ask the controller about the failed rank {worker}: {error}")
            return False
        if rank is None:
            return False
        self._restarts_left -= 1
        self._observer.note(
            f"rank {worker} is restarted in epoch {job.epoch}; {self._restarts_left} more restarts are allowed"
        )
        return {**self._environments[worker], **attach_environment(job, rank)}

    def _wait_for_place(self, worker: int) -> tuple[pb.Rank | None, pb.Job]:
        """Return the rank that waits for a new process; None if the job has ended."""
        retry = self._retry()
        began = time.monotonic()
        for job in self._client.watch_job(self._job, retry=retry):
            if retry.away:  # the time of an absence does not count
                began = time.monotonic()
                continue
            rank = next((rank for rank in job.ranks if rank.worker == worker), None)
            if ended(job) or time.monotonic() - began > _PLACE_SECONDS:
                return None, job
            if rank is not None and rank.state == pb.RANK_STATE_ASSIGNED:
                return rank, job
        return None, job


def _stop(client: ControllerClient, job: int, observer: JobObserver) -> None:
    try:
        client.stop_job(job)
    except ControllerError as error:
        observer.note(f"cannot stop the job: {error}")


def _wait_end(client: ControllerClient, seen: _Seen, observer: JobObserver, deadline: float) -> pb.Job:
    """Return the ended job. A job whose workers never attached is still alive, and is stopped here.

    If the controller has not answered at the deadline, this is the job's last known state: the workers' exit codes do
    not depend on it.
    """
    job = seen.job.id
    retry = Retry(give_up=lambda: time.monotonic() >= deadline)
    began: float | None = None
    try:
        for state in client.watch_job(job, retry=retry):
            if retry.away:
                continue
            if ended(state):
                return state
            began = began or time.monotonic()
            attached = any(rank.state == pb.RANK_STATE_ATTACHED for rank in state.ranks)
            # An agent's report about a process that ended at once may arrive after the launcher's.
            if time.monotonic() - began >= (_END_SECONDS if attached else _SETTLE_SECONDS):
                break
        return ask(lambda: client.stop_job(job), retry)
    except ControllerError as error:
        seen.job.failure = f"the controller does not report how the job ended; its last known state: {error}"
        observer.note(seen.job.failure)
        return seen.job


def _drops(client: ControllerClient, job: pb.Job, observer: JobObserver) -> Counter[str]:
    """Return what the job's switches have dropped, by reason; a switch that cannot be read is left out."""
    dropped: Counter[str] = Counter()
    for place in job.switches:
        try:
            dropped += Counter(client.show_switch(place.switch).drop_reasons)
        except ControllerError as error:  # noqa: PERF203
            observer.note(f"the packets that switch {place.switch} dropped are not known: {error}")
            if isinstance(error, (ControllerUnavailable, DeadlineExceeded)):
                break  # the others cannot be read either
    return dropped


@dataclasses.dataclass
class _Seen:
    """The latest state of the job that the controller sent."""

    job: pb.Job


@contextlib.contextmanager
def _watching(
    settings: Settings, controller: str, job: pb.Job, observer: JobObserver, end_when_stopped: bool
) -> Iterator[_Seen]:
    """Report the job's progress to the observer from a separate thread, and keep the latest state.

    With `end_when_stopped`, stopping the job has the same effect as a signal to this process.
    """
    stopping = threading.Event()
    seen = _Seen(job)

    def watch() -> None:
        try:
            with fabric.connect(settings, controller) as client:
                retry = Retry(give_up=stopping.is_set, notice=observer.note)
                for state in client.watch_job(job.id, retry=retry):
                    seen.job = state
                    observer.progress(state)
                    if stopping.is_set():
                        return
                    if end_when_stopped and state.state == pb.JOB_STATE_STOPPED:
                        os.kill(os.getpid(), signal.SIGTERM)
        except ControllerError as error:
            if not stopping.is_set():
                observer.note(f"cannot show the job's progress: {error}")

    thread = threading.Thread(target=watch, name="watch-job", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join(2.0)
