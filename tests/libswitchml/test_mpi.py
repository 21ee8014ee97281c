"""MPI programs whose large collectives go through the network: compiled and run with this machine's MPI library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 240.0
RANKS = 4
CONTROL = str(Path(sys.executable).parent / "switchml-ctl")


@dataclass(frozen=True)
class MpiLibrary:
    """An installed MPI library; Debian and Ubuntu have several next to each other."""

    compiler: str
    launcher: str
    packages: str
    options: tuple[str, ...]  # of the launcher
    keeps_others: tuple[str, ...] | None  # options with which it does not end the other ranks of one that dies, if any

    def exported(self, variables: dict[str, str]) -> list[str]:
        """Return the launcher's options that set these variables for the ranks."""
        if "mpich" in self.launcher:
            return [word for name, value in variables.items() for word in ("-env", name, value)]
        return [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]


OPEN_MPI = MpiLibrary(
    "mpicc.openmpi",
    "mpirun.openmpi",
    "libopenmpi-dev openmpi-bin",
    ("--oversubscribe", "--mca", "btl", "tcp,self"),  # as between hosts
    ("--enable-recovery",),
)
MPICH = MpiLibrary("mpicc.mpich", "mpirun.mpich", "libmpich-dev mpich", (), None)


@pytest.fixture(scope="module", params=[OPEN_MPI, MPICH], ids=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> MpiLibrary:
    library: MpiLibrary = request.param
    if shutil.which(library.compiler) is None or shutil.which(library.launcher) is None:
        pytest.skip(f"this MPI library is not installed; on Debian or Ubuntu: apt-get install {library.packages}")
    return library


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.fixture(scope="module")
def library(mpi: MpiLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library by the line of docs/guides/mpi.md, with warnings as errors."""
    directory = tmp_path_factory.mktemp("mpi")
    line = re.search(r"^mpicc( .*)$", (ROOT / "docs/guides/mpi.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run("sh", "-c", f"cd {directory} && {mpi.compiler}{line[1]} -Wall -Wextra -Werror", PATH=path)
    assert done.returncode == 0, done.stderr
    return directory / "libswitchml-mpi.so"


@pytest.fixture(scope="module")
def program(mpi: MpiLibrary, library: Path) -> Path:
    path = library.parent / "mpi_program"
    done = run(mpi.compiler, "-Wall", "-Wextra", "-Werror", "-o", str(path), str(HERE / "mpi_program.c"))
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def run_directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    assert run(CONTROL, "up", SWITCHML_RUN_DIR=str(directory)).returncode == 0
    yield directory
    run(CONTROL, "down", SWITCHML_RUN_DIR=str(directory))


def mpirun(
    mpi: MpiLibrary, library: Path, *command: str, options: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    exported = mpi.exported({"LD_PRELOAD": str(library), "SWITCHML_MPI_REPORT": "1"} | variables)
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return run(mpi.launcher, *mpi.options, *options, "-n", str(RANKS), *exported, *command, **allowed)


def reported(done: subprocess.CompletedProcess[str], function: str) -> tuple[int, int]:
    """Return the calls that went through the network, and those of MPI."""
    found = re.search(rf"rank 0: {function}: network (\d+) calls, \d+ bytes; MPI (\d+) calls", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]), int(found[2])


def test_results_are_those_of_mpi(mpi: MpiLibrary, library: Path, program: Path, run_directory: Path) -> None:
    done = mpirun(mpi, library, str(program), SWITCHML_RUN_DIR=str(run_directory), SWITCHML_MPI_LEAST_BYTES="100000")
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
    # In each of three communicators six types, in place and not; MPI_MAX and the short ones are MPI's. One more call
    # has a rank that waits for a message of another one.
    assert reported(done, "MPI_Allreduce") == (3 * 6 * 2 + 1, 3 * (6 + 2))
    assert reported(done, "MPI_Iallreduce") == (8 * 2, 0)  # in each of eight ways to wait
    assert reported(done, "MPI_Reduce_scatter_block")[0] > 0
    assert reported(done, "MPI_Allgather")[0] > 0
    ended = run(CONTROL, "job", "list", "--all", SWITCHML_RUN_DIR=str(run_directory)).stdout
    assert ended.count("COMPLETED") == 4, ended  # the world, its halves and the copy that the program has not freed
    assert "FAILED" not in ended


def test_without_an_agent_the_program_runs_as_before(
    mpi: MpiLibrary, library: Path, program: Path, tmp_path: Path
) -> None:
    done = mpirun(
        mpi, library, str(program), SWITCHML_RUN_DIR=str(tmp_path / "none"), SWITCHML_MPI_LEAST_BYTES="100000"
    )
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
    assert reported(done, "MPI_Allreduce")[0] == 0
    assert done.stderr.count("switchml: collectives stay with MPI; rank 0: there is no agent socket at") == 1


def test_a_rank_that_dies_is_named_to_the_others_or_all_end(
    mpi: MpiLibrary, library: Path, program: Path, run_directory: Path
) -> None:
    done = mpirun(
        mpi,
        library,
        str(program),
        "dead",
        options=mpi.keeps_others or (),
        SWITCHML_RUN_DIR=str(run_directory),
        SWITCHML_MPI_LEAST_BYTES="100000",
    )
    if mpi.keeps_others is None:
        assert done.returncode != 0  # the launcher has ended all ranks
        return
    for rank in (0, 2, 3):
        assert f"rank {rank} was told" in done.stdout, done.stdout + done.stderr
        assert re.search(rf"SWITCHML_WORKER_LOST: rank {rank} of job '.*': rank 1 was lost", done.stderr), done.stderr
