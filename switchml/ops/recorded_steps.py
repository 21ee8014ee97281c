"""Runs a training program for some steps, and records them.

Over Gloo, through a switch of this machine, and, as root, over links of a chosen rate between network namespaces.
"""

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
from switchml.launch import fabric
from switchml.launch.job_start import WorkerCommand, run_job
from switchml.launch.kinds.shaped import Shaped
from switchml.launch.launcher import LaunchObserver, check_command, run_workers
from switchml.launch.master_port import held_master_port
from switchml.launch.own_run_directory import own_run_directory
from switchml.launch.settings import EMBEDDED_VALUES, Settings
from switchml.ops.step_model import Recording
from switchml.topologies.namespaces import HOST_INTERFACE, require_privileges
from switchml.topologies.shaped_links import Shape, require_shaping
from switchml.torch_backend import RECORD

__all__ = ["Limits", "ShapedHosts", "over_gloo", "shaped_hosts", "through_a_switch"]

_WARM_UP: Final = 2  # steps that are not counted: programs prepare, and blocks of zeros are looked for
_START_SECONDS: Final = 240.0  # for a program to come to its steps, and to end after them
_KILL_SECONDS: Final = 10.0  # after a program was asked to end
_LAST_LINES: Final = 20  # of its output, in an error
_FIRST_PORT: Final = 29500  # where ranks meet, in the namespace of the first one
_QUEUE_SECONDS: Final = 0.05  # the longest time that a packet waits for a link
_NAMESPACE: Final = "NETWORK_NAMESPACE"


@dataclasses.dataclass(frozen=True)
class Limits:
    """The steps that each run makes, or the seconds that they take if these are over first."""

    steps: int
    seconds: float


def over_gloo(command: Sequence[str], workers: int, limits: Limits, *, traced: bool) -> Recording:
    """Run the command over Gloo, and return its steps; `traced` ones have their collectives, but are a little slower.

    Raises CommandNotFoundError and CommandNotExecutableError, NoStepsError, and what `run_workers` raises.
    """
    with _directory() as directory, held_master_port() as meeting:
        variables = {
            "SWITCHML_TORCH_FALLBACK": "gloo",
            "SWITCHML_RUN_DIR": str(directory / "no-fabric"),
            "MASTER_ADDR": "127.0.0.1",
            "LOCAL_WORLD_SIZE": str(workers),
            **meeting,
        }
        of_ranks = [{**variables, "LOCAL_RANK": str(rank)} for rank in range(workers)]
        backend = "switchml" if traced else "gloo"  # the one contains Gloo, and can be traced
        return _recorded(_Run(tuple(command), backend, limits), of_ranks, directory)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A command with the backend that it uses; `before` precedes it at each rank."""

    command: tuple[str, ...]
    backend: str
    limits: Limits
    before: tuple[str, ...] = ()


def _recorded(run: _Run, of_ranks: Sequence[Mapping[str, str]], directory: Path) -> Recording:
    """Run the command once with the variables of each rank, and return the steps."""
    check_command(run.command[0])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SWITCHML_", "TORCHEL"))}
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if not os.environ.get(name)}
    shared = {**inherited, **threads, **_told(directory, run.backend, run.limits), "WORLD_SIZE": str(len(of_ranks))}
    with _ended_after(_START_SECONDS + run.limits.seconds):
        run_workers(
            [*run.before, *run.command],
            [{**shared, **variables, "RANK": str(rank)} for rank, variables in enumerate(of_ranks)],
            directory,
            LaunchObserver(),
        )
    return _read(directory, directory, run.command)


@dataclasses.dataclass
class ShapedHosts:
    """Hosts behind links of one rate, with one rank on each, and a switch. Made by `shaped_hosts`."""

    fabric: fabric.Fabric
    _port: int = _FIRST_PORT

    def steps(self, command: Sequence[str], backend: str, variables: Mapping[str, str], limits: Limits) -> Recording:
        """Run the command with a backend, gloo or switchml, and these variables, and return its steps.

        Raises CommandNotFoundError and CommandNotExecutableError, NoStepsError, and what `run_workers` raises.
        """
        agents = self.fabric.agents
        self._port += 1  # the last one may still be in use
        shared = {
            **variables,
            "MASTER_ADDR": str(agents[0]["address"]),
            "MASTER_PORT": str(self._port),
            "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
            "LOCAL_WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
        }
        of_ranks = [
            {**shared, "SWITCHML_AGENT": str(agent["socket"]), _NAMESPACE: str(agent["namespace"])} for agent in agents
        ]
        inside = ("sh", "-c", f'exec ip netns exec "${_NAMESPACE}" "$@"', "sh")
        with _directory() as directory:
            return _recorded(_Run(tuple(command), backend, limits, inside), of_ranks, directory)


@contextlib.contextmanager
def shaped_hosts(settings: Settings, workers: int, rate: int) -> Iterator[ShapedHosts]:
    """Yield hosts with links of `rate` bits per second, which are namespaces of this machine and end with the context.

    Raises NamespaceError without root or tc, FabricBusyError, and what starting a fabric raises.
    """
    require_privileges()
    require_shaping()
    kind = Shaped(workers=workers, shape=Shape(rate, _QUEUE_SECONDS), values=EMBEDDED_VALUES)
    with own_run_directory(settings.run_dir, "advise", "advise") as directory:
        found, _ = fabric.start(directory, kind, keep=True)
        yield ShapedHosts(found)


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
        threading.Timer(seconds + later, os.kill, (os.getpid(), signal.SIGTERM)) for later in (0.0, _KILL_SECONDS)
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
