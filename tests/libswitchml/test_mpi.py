"""MPI programs whose large collectives go through the network: compiled and run with this machine's MPI library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 240.0
RANKS = 4
CONTROL = str(Path(sys.executable).parent / "switchml-ctl")

pytestmark = pytest.mark.skipif(
    shutil.which("mpicc") is None or shutil.which("mpirun") is None,
    reason="there is no MPI library; on Debian or Ubuntu: sudo apt-get install libopenmpi-dev openmpi-bin",
)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library by the line of docs/mpi.md, with warnings as errors."""
    directory = tmp_path_factory.mktemp("mpi")
    line = re.search(r"^mpicc .*$", (ROOT / "docs/mpi.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run("sh", "-c", f"cd {directory} && {line[0]} -Wall -Wextra -Werror", PATH=path)
    assert done.returncode == 0, done.stderr
    return directory / "libswitchml-mpi.so"


@pytest.fixture(scope="module")
def program(library: Path) -> Path:
    path = library.parent / "mpi_program"
    done = run("mpicc", "-Wall", "-Wextra", "-Werror", "-o", str(path), str(HERE / "mpi_program.c"))
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def run_directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    assert run(CONTROL, "up", SWITCHML_RUN_DIR=str(directory)).returncode == 0
    yield directory
    run(CONTROL, "down", SWITCHML_RUN_DIR=str(directory))


def mpirun(library: Path, program: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    variables = {"LD_PRELOAD": str(library), "SWITCHML_MPI_REPORT": "1"} | variables
    exported = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return run("mpirun", "--oversubscribe", "-n", str(RANKS), *exported, str(program), **allowed)


def reported(done: subprocess.CompletedProcess[str], function: str) -> tuple[int, int]:
    """Return the calls that went through the network, and those of MPI."""
    found = re.search(rf"rank 0: {function}: network (\d+) calls, \d+ bytes; MPI (\d+) calls", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]), int(found[2])


def test_results_are_those_of_mpi(library: Path, program: Path, run_directory: Path) -> None:
    done = mpirun(library, program, SWITCHML_RUN_DIR=str(run_directory), SWITCHML_MPI_LEAST_BYTES="100000")
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
    # In each of three communicators six types, in place and not; MPI_MAX and the short ones are MPI's.
    assert reported(done, "MPI_Allreduce") == (3 * 6 * 2, 3 * (6 + 2))
    assert reported(done, "MPI_Reduce_scatter_block")[0] > 0
    assert reported(done, "MPI_Allgather")[0] > 0
    ended = run(CONTROL, "job", "list", "--all", SWITCHML_RUN_DIR=str(run_directory)).stdout
    assert ended.count("COMPLETED") == 4, ended  # the world, its halves and the copy that the program has not freed
    assert "FAILED" not in ended


def test_without_an_agent_the_program_runs_as_before(library: Path, program: Path, tmp_path: Path) -> None:
    done = mpirun(library, program, SWITCHML_RUN_DIR=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
    assert reported(done, "MPI_Allreduce")[0] == 0
    assert done.stderr.count("switchml: collectives stay with MPI; rank 0: there is no agent socket at") == 1
