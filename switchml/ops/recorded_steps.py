"""Runs a training program for some steps, and records them: over Gloo, and through a switch of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from switchml.common.errors import NoStepsError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch.job_start import WorkerCommand, run_job
from switchml.launch.launcher import check_command, run_workers
from switchml.launch.master_port import held_master_port
from switchml.launch.settings import Settings
from switchml.ops.step_model import Recording
from switchml.torch_backend import RECORD

__all__ = ["Limits", "over_gloo", "through_a_switch"]

_WARM_UP: Final = 2  # steps that are not counted: programs prepare, and blocks of zeros are looked for
_START_SECONDS: Final = 60.0  # for a program to come to its steps, and to end after them
_LAST_LINES: Final = 20  # of its output, in an error


@dataclasses.dataclass(frozen=True)
class Limits:
    """The steps that each run makes, or the seconds that they take if these are over first."""

    steps: int
    seconds: float


def over_gloo(command: Sequence[str], workers: int, limits: Limits, *, traced: bool) -> Recording:
    """Run the command over Gloo, and return its steps; `traced` ones have their collectives, but are a little slower.

    Raises CommandNotFoundError and CommandNotExecutableError, NoStepsError, and what `run_workers` raises.
    """
    check_command(command[0])
    with _directory() as directory, held_master_port() as meeting:
        backend = "switchml" if traced else "gloo"  # the one contains Gloo, and can be traced
        told = _told(directory, backend, limits) | {
            "SWITCHML_TORCH_FALLBACK": "gloo",
            "SWITCHML_RUN_DIR": str(directory / "no-fabric"),
            "MASTER_ADDR": "127.0.0.1",
            "WORLD_SIZE": str(workers),
            "LOCAL_WORLD_SIZE": str(workers),
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHML_", "TORCHEL"))}
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if not os.environ.get(name)}
        environments = [
            {**inherited, **threads, **told, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            for rank in range(workers)
        ]
        with _ended_after(_START_SECONDS + limits.seconds):
            run_workers(
                command,
                environments,
                directory,
                on_output=lambda _rank, _line: None,
                on_exit=lambda _rank, _status: None,
                on_interrupt=lambda _number: None,
            )
        return _read(directory, directory, command)


def through_a_switch(settings: Settings, command: Sequence[str], workers: int, limits: Limits) -> Recording:
    """Run the command as a job of a separate fabric, which ends with it, and return its steps.

    Raises NoStepsError, and what `run_job` raises.
    """
    with _directory() as directory:
        own = dataclasses.replace(settings, run_dir=directory / "fabric", controller=None)
        request = pb.StartJobRequest(workers=workers)
        line = WorkerCommand(tuple(command), _told(directory, "switchml", limits), 0)
        with _ended_after(_START_SECONDS + limits.seconds):
            run = run_job(own, request, line, _Silent())
        return _read(directory, run.run_dir, command)


class _Silent:
    """Observes a job without showing anything; its output is in the ranks' logs."""

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Do nothing."""

    def output(self, rank: int, line: bytes) -> None:
        """Do nothing."""

    def progress(self, job: pb.Job) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="swml-advise-") as name:
        yield Path(name)


def _told(directory: Path, backend: str, limits: Limits) -> dict[str, str]:
    """Return the variable that `switchml.torch.recording` reads."""
    told: Mapping[str, object] = {
        "directory": str(directory),
        "backend": backend,
        "steps": limits.steps + _WARM_UP,
        "seconds": limits.seconds,
    }
    return {RECORD: json.dumps(told)}


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Interrupt this process, which then ends its workers, if the context has not ended in time; then kill them."""
    timers = [
        threading.Timer(seconds + later, os.kill, (os.getpid(), signal.SIGTERM)) for later in (0.0, _START_SECONDS / 6)
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _read(directory: Path, logs: Path, command: Sequence[str]) -> Recording:
    try:
        return Recording.read(directory, _WARM_UP)
    except NoStepsError as error:
        log = logs / "rank-0.log"
        lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:] if log.exists() else []
        said = "\n".join(["; rank 0 wrote:", *lines]) if lines else ""
        raise NoStepsError(f"{shlex.join(command)}: {error}{said}") from error
