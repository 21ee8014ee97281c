"""The systems that are compared: SwitchML with each transport, and its peers.

Each creates groups of ranks on this machine, all with the same interface.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from switchml import benchmarks
from switchml.benchmarks import gloo, open_mpi
from switchml.benchmarks.errors import BenchmarkError
from switchml.benchmarks.options import PEERS, TRANSPORTS, VARIANTS
from switchml.benchmarks.ranks import Launcher, RankGroup, rank_group, start
from switchml.benchmarks.workers.counters import take_share
from switchml.common.processes import ProcessRecord
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch import fabric
from switchml.launch.fabric_state import PORT_KEEPER, Fabric
from switchml.launch.job_start import attach_environment
from switchml.launch.kinds import Embedded
from switchml.launch.run_directory import UNIX_PATH_LIMIT, RunDirectory

__all__ = [
    "Peer",
    "SwitchML",
    "System",
    "launch_each",
    "own_fabric",
    "prepare_work_directory",
    "rank_command",
    "rank_environment",
    "work_directory",
]

RANK: Final = "switchml.benchmarks.workers.rank"
"""The program of a rank."""
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def work_directory() -> Iterator[Path]:
    """Yield a new directory for run directories, sockets and logs.

    Raises BenchmarkError if its path is too long for Unix sockets.
    """
    with tempfile.TemporaryDirectory(prefix="swml-bench-") as name:
        prepare_work_directory(Path(name), "set TMPDIR to a directory with a shorter path")
        yield Path(name)


def prepare_work_directory(directory: Path, advice: str) -> None:
    """Make an empty directory one that ranks can work with.

    Raises BenchmarkError, with `advice`, if its path is too long for Unix sockets.
    """
    longest = directory / max((f"{name}.sock" for name in (*TRANSPORTS, *VARIANTS, *PEERS)), key=len)
    if len(os.fsencode(longest)) > UNIX_PATH_LIMIT:
        raise BenchmarkError(f"{longest} is too long for a Unix socket; {advice}")
    modules = directory / "modules" / "switchml"
    modules.mkdir(parents=True)
    # Other interpreters find this package here, and no other installed package.
    (modules / "benchmarks").symlink_to(Path(benchmarks.__file__).parent, target_is_directory=True)


class System(Protocol):
    """One way to sum tensors."""

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def description(self) -> str:
        """The version."""

    def group(self, workers: int, directory: Path) -> contextlib.AbstractContextManager[RankGroup]:
        """Yield a new group of `workers` ranks for the duration of the context."""


@dataclasses.dataclass(frozen=True)
class SwitchML:
    """The fabric that runs in a work directory; `name` is its transport.

    `prefixes` are the commands that run a rank's command where its agent is, by agent; none by default. `switch` is
    the one on which its jobs run, or the top of their tree, unless they run over `aggregators`.
    """

    name: str
    description: str
    fabric: Fabric
    prefixes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    switch: str = ""
    aggregators: tuple[str, ...] = ()
    wire: str = ""  # of its all-reduces; empty: the usual one
    direct: bool = True  # ranks that share memory add up values themselves
    program: str = RANK  # of its ranks; one that has more commands

    @property
    def daemons(self) -> tuple[ProcessRecord, ...]:
        """The switch and the agents, which move packets. The other processes take no part in a call."""
        others = ("controller", PORT_KEEPER)
        return tuple(process for process in self.fabric.processes if process.name not in others)

    def client(self) -> ControllerClient:
        """A client of the fabric's controller."""
        return ControllerClient(self.fabric.controller)

    @contextlib.contextmanager
    def group(self, workers: int, directory: Path) -> Iterator[RankGroup]:
        """Yield the ranks of a new job. Raises RankFailed and what ControllerClient raises."""
        with self.client() as client:
            request = pb.StartJobRequest(
                workers=workers,
                name=f"bench-{self.name}-{workers}",
                switch="" if self.aggregators else self.switch,
                aggregators=self.aggregators,
            )
            job = client.start_job(request)

        def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
            shared = rank_environment(directory) | {
                "SWITCHML_BENCH_DAEMONS": ",".join(str(process.pid) for process in self.daemons),
                "SWITCHML_BENCH_WIRE": self.wire,
                "SWITCHML_DIRECT": "1" if self.direct else "0",
            }
            command = rank_command(sys.executable, "switchml", address, self.program)
            return launch_each(
                [
                    ([*self.prefixes.get(rank.agent, ()), *command], shared | attach_environment(job, rank))
                    for rank in sorted(job.ranks, key=lambda rank: rank.rank)
                ],
                log,
            )

        try:
            with rank_group(self.name, workers, directory, launch) as group:
                yield group
        finally:
            with self.client() as client:
                client.stop_job(job.id)


@contextlib.contextmanager
def own_fabric(transport: str, directory: Path, kind: Embedded | None = None) -> Iterator[SwitchML]:
    """Yield an embedded fabric in `directory` for the duration of the context. Raises what starting one raises."""
    run_directory = RunDirectory(directory / transport)
    found, _ = fabric.start(run_directory, dataclasses.replace(kind or Embedded(), transport=transport), keep=True)
    try:
        for process in found.processes:
            take_share(process.pid)
        yield SwitchML(transport, f"SwitchML {found.version}", found)
    finally:
        fabric.stop(run_directory)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A system other than SwitchML. Created by `Peer.find`."""

    name: str
    description: str
    python: str

    @classmethod
    def find(cls, name: str, torch_python: str) -> Peer:
        """Return the peer of this name, of PEERS. Raises MissingPeer if this machine lacks what it needs."""
        if name == "gloo":
            return cls(name, gloo.version(torch_python), torch_python)
        open_mpi.command(name, 1, Path())  # compiles the rank, or says what is missing
        return cls(name, open_mpi.version(), torch_python)

    @contextlib.contextmanager
    def group(self, workers: int, directory: Path) -> Iterator[RankGroup]:
        """Yield a new group of ranks. Raises RankFailed."""
        with (
            _reserved_port() as port,
            rank_group(self.name, workers, directory, self._launcher(workers, port)) as group,
        ):
            yield group

    def _launcher(self, workers: int, port: int) -> Launcher:
        def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
            environment = rank_environment(address.parent)
            if self.name != "gloo":
                return launch_each([(open_mpi.command(self.name, workers, address), environment)], log)
            environment |= {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            environment |= {"GLOO_SOCKET_IFNAME": "lo"}
            command = rank_command(self.python, "gloo", address)
            return launch_each([(command, environment | {"RANK": str(rank)}) for rank in range(workers)], log)

        return launch


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """Yield a TCP port that the kernel gives to no program that asks for any free one; a named one can be had there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]


def rank_command(python: str, backend: str, address: Path, program: str = RANK) -> list[str]:
    """Return the command line of a rank that connects to the benchmark's socket at `address`."""
    return [python, "-m", program, backend, str(address)]


def rank_environment(directory: Path) -> dict[str, str]:
    """Return the environment of a rank, in which any interpreter finds the benchmarks of this work directory."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")}
    paths = [str(directory / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**ours, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)}


def launch_each(starts: Sequence[tuple[Sequence[str], Mapping[str, str]]], log: Path) -> list[subprocess.Popen[bytes]]:
    """Start processes of a group, each given by its command line and environment; all or none. Raises RankFailed."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command, environment in starts:
            processes.append(start(command, log, environment))
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise
    return processes
