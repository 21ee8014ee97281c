"""libswitchml: programs in C over a real switch and agent, alone and together with ranks in Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.config import prefix
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.collective_harness import Fabric, running_fabric

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
SECONDS = 120.0
COMPILER = shutil.which("gcc") or shutil.which("cc")


@pytest.fixture(params=["udp", "shm", "direct"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path, transport=request.param) as running:
        yield running


def compiled(directory: Path, source: Path) -> Path:
    """Compile a program as docs/guides/libswitchml.md says."""
    program = directory / source.stem
    options = subprocess.run(
        [sys.executable, "-m", "switchml.config", "--cflags", "--libs"], check=True, capture_output=True, text=True
    ).stdout.split()
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-enum-conversion"]
    assert COMPILER is not None
    subprocess.run([COMPILER, *warnings, str(source), "-o", str(program), *options, "-lm", "-pthread"], check=True)
    return program


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_collectives(fabric: Fabric, tmp_path: Path, ranks: int) -> None:
    fabric.add_job(1, ranks)
    command = [str(compiled(tmp_path, HERE / "collectives.c")), str(fabric.socket), "1", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr


class Ranks:
    """Ranks in C that make all-reduces."""

    def __init__(self, program: Path, fabric: Fabric, size: int) -> None:
        self._command = [str(program), str(fabric.socket), "1"]
        self._size = size
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, rank: int, calls: int, elements: int) -> subprocess.Popen[str]:
        arguments = [str(number) for number in (rank, self._size, calls, elements)]
        process = subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        return process


def output(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=SECONDS)[0].strip()


def test_a_rank_in_python_and_one_in_c(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add_job(1, 2)
    ranks = Ranks(compiled(tmp_path, HERE / "rank.c"), fabric, 2)
    in_c = ranks.start(1, 3, 1000)
    with fabric.connect(0) as comm:
        for _ in range(3):
            x = np.full(1000, 2, np.float32)
            comm.all_reduce(x)
            assert (x == 3).all()
    assert output(in_c) == "3000"


def test_ranks_in_two_languages_that_call_differently(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add_job(1, 2)
    ranks = Ranks(compiled(tmp_path, HERE / "rank.c"), fabric, 2)
    in_c = ranks.start(1, 1, 1000)
    with fabric.connect(0) as comm, pytest.raises(switchml.CollectiveMismatch, match="the ranks call differently"):
        comm.all_reduce(np.ones(1001, np.float32))
    said = output(in_c)
    assert said.startswith("SWITCHML_COLLECTIVE_MISMATCH 0 rank 1 of job ")
    assert "This rank's call there is all_reduce number 0 (sum of 1000 float32 as blocks)" in said


def test_a_rank_that_dies_is_named_to_ranks_in_c(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add_job(1, 3)
    ranks = Ranks(compiled(tmp_path, HERE / "rank.c"), fabric, 3)
    others = [ranks.start(rank, 1_000_000, 1000) for rank in (0, 1)]
    dying = ranks.start(2, 1_000_000, 1000)
    dying.send_signal(signal.SIGKILL)
    dying.wait(SECONDS)
    for process in others:
        assert output(process).startswith("SWITCHML_WORKER_LOST 1 rank ")


def test_a_job_that_is_stopped(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add_job(1, 2)
    ranks = Ranks(compiled(tmp_path, HERE / "rank.c"), fabric, 2)
    both = [ranks.start(rank, 1_000_000, 100) for rank in range(2)]
    fabric.revoke(1, pb.REVOCATION_REASON_JOB_STOPPED, message="it was stopped")
    for process in both:
        assert output(process).startswith("SWITCHML_JOB_ENDED 0 rank ")


def test_what_cannot_be_attached_to(tmp_path: Path) -> None:
    program = compiled(tmp_path, HERE / "rank.c")

    def said(*arguments: str) -> str:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
        return done.stdout

    missing = str(tmp_path / "no.sock")
    assert said(missing, "1", "0", "2", "1", "1").startswith(
        f"SWITCHML_CONNECT_ERROR 0 there is no agent socket at {missing}"
    )
    with running_fabric(tmp_path) as fabric:
        agent = str(fabric.socket)
        assert "SWITCHML_CONNECT_ERROR 0 " in said(agent, "7", "0", "2", "1", "1")
        fabric.add_job(1, 2)
        assert "has 2 ranks, not 3" in said(agent, "1", "0", "3", "1", "1")


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    program = compiled(tmp_path, CHECKOUT / "examples" / "c" / "all_reduce.c")
    control = Path(sys.executable).parent / "switchml-ctl"
    environment = os.environ | {"SWITCHML_RUN_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        [str(control), "job", "start", "--workers", "4", "--", str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [f"rank {rank} of 4: 5.99976" in done.stdout + done.stderr for rank in range(4)] == [True] * 4


def test_the_library_exports_the_header_alone() -> None:
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(prefix() / "lib" / "libswitchml.so.0")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    exported = {line.split()[2].split("@")[0] for line in listed.splitlines() if line.split()[1] == "T"}
    header = (prefix() / "include" / "switchml.h").read_text()
    assert exported == set(re.findall(r"^\w[\w* ]*[ *](switchml_\w+)\(", header, re.MULTILINE))
