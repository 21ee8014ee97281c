"""Open MPI as a peer: found on PATH, with a rank that is compiled on demand and kept."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchml.benchmarks.errors import MissingPeer
from switchml.common.run_directory import expanded

__all__ = ["TRANSPORTS", "command", "command_on_hosts", "version"]

_APART: Final = "-apart"

TRANSPORTS: Final = {
    "mpi-tcp": ("self,tcp", "--mca", "btl_tcp_if_include", "lo"),
    "mpi-shm": ("self,vader",),
    f"mpi-shm{_APART}": ("self,vader",),
}
"""Byte transfer layers and other options of mpirun for each peer.

Reductions are in place, except for peers whose names end with -apart: these reduce from one buffer into another.
"""

_SOURCE: Final = Path(__file__).parent / "peers" / "open_mpi_rank.c"
_COMPILE_SECONDS: Final = 60
_PACKAGES: Final = "install openmpi-bin libopenmpi-dev (the names of Debian and Ubuntu)"


def command(peer: str, ranks: int, address: Path) -> list[str]:
    """Return the command line that runs `ranks` ranks which connect to `address`. Raises MissingPeer."""
    mpirun = _find("mpirun")
    btl, *more = TRANSPORTS[peer]
    line = [mpirun, "--np", str(ranks), "--oversubscribe", "--bind-to", "none"]
    line += ["--mca", "btl", btl, *more, "--mca", "mpi_yield_when_idle", "1"]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    return [*line, str(_program()), str(address), *(["apart"] if peer.endswith(_APART) else [])]


def command_on_hosts(hosts: Sequence[str], address: Path, remote_shell: Path, network: str) -> list[str]:
    """Return the command line that runs a rank on each of these hosts, over TCP in their network. Raises MissingPeer.

    Daemons on the hosts are started by `remote_shell`, which takes the place of ssh.
    """
    line = [_find("mpirun"), "--np", str(len(hosts)), "--host", ",".join(hosts), "--bind-to", "none"]
    line += ["--mca", "plm_rsh_agent", str(remote_shell), "--mca", "plm_rsh_no_tree_spawn", "1"]
    line += ["--mca", "btl", "self,tcp", "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1"]
    line += ["--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network]
    if os.geteuid() == 0:
        line.append("--allow-run-as-root")
    return [*line, str(_program()), str(address)]


@functools.cache
def version() -> str:
    """Return the version that mpirun reports. Raises MissingPeer."""
    said = subprocess.run(
        [_find("mpirun"), "--version"], check=False, capture_output=True, text=True, timeout=_COMPILE_SECONDS
    ).stdout
    if "Open MPI" not in said:
        raise MissingPeer(f"mpirun on PATH is not Open MPI's: {_PACKAGES}")
    return said.splitlines()[0]


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingPeer(f"{program} not found on PATH: {_PACKAGES}")
    return found


@functools.cache
def _program() -> Path:
    """The compiled rank. Its name is made of what it was made from, so that nothing stale is found."""
    mpicc = _find("mpicc")
    digest = hashlib.sha256(_SOURCE.read_bytes() + version().encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or expanded("~/.cache")) / "switchml"
    program = cache / f"open_mpi_rank-{digest}"
    if program.exists():
        return program
    draft = program.with_name(f"{program.name}.{os.getpid()}")
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        compiler = subprocess.run(
            [mpicc, "-O2", "-o", str(draft), str(_SOURCE), "-lm"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMPILE_SECONDS,
        )
        if compiler.returncode != 0:
            raise MissingPeer(f"mpicc cannot compile {_SOURCE}: {compiler.stderr.strip()[-500:]}")
        draft.replace(program)  # atomically, because another benchmark may do the same
    except OSError as error:
        raise MissingPeer(
            f"{cache} cannot be written: {error.strerror}; set XDG_CACHE_HOME to another place"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return program
