"""All-reduces of JAX programs, whose ranks are processes on a real fabric."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed; `make test-jax` sets up an environment that has it")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 300.0
CONTROL = str(Path(sys.executable).parent / "switchml-ctl")


def control(run_directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONTROL, *arguments],
        cwd=ROOT,
        env=os.environ | {"SWITCHML_RUN_DIR": str(run_directory), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("jax") / "run"
    started = control(directory, "up")
    assert started.returncode == 0, started.stderr
    yield directory
    control(directory, "down")


def run_ranks(run_directory: Path, workers: int, *command: str, policy: str = "abort") -> tuple[int, str]:
    """Run a job of `workers` ranks; return its exit status, and what it and its ranks have printed."""
    done = control(
        run_directory, "job", "start", "--workers", str(workers), "--on-failure", policy, "--", sys.executable, *command
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "workers"),
    [("types", 3), ("trees", 2), ("order", 2), ("derivatives", 3), ("training", 4), ("refusals", 2)],
)
def test_ranks(run_directory: Path, name: str, workers: int) -> None:
    status, printed = run_ranks(run_directory, workers, "-m", "tests.jax.rank", name)
    assert status == 0, printed


def test_a_job_that_goes_on_without_lost_ranks_is_refused(run_directory: Path) -> None:
    status, printed = run_ranks(run_directory, 2, "-m", "tests.jax.rank", "policies", policy="shrink")
    assert status == 0, printed


def test_a_killed_rank_is_named_to_the_others(run_directory: Path) -> None:
    status, printed = run_ranks(run_directory, 3, "-m", "tests.jax.rank", "killed")
    assert status != 0
    assert "rank 0 was told" in printed, printed
    assert "rank 2 was told" in printed, printed


def test_the_program_of_the_documentation(run_directory: Path, tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs/guides/jax.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    program = tmp_path / "train.py"
    program.write_text(block[1], encoding="utf-8")
    status, printed = run_ranks(run_directory, 2, str(program))
    assert status == 0, printed
    errors = re.findall(r"rank \d: error (\S+)", printed)
    assert len(errors) == 2, printed
    assert errors[0] == errors[1]
    assert float(errors[0]) < 0.01


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_the_interface_is_that_of_the_installed_jax() -> None:
    options = ["-std=c++17", "-fsyntax-only", f"-I{ROOT}", f"-I{jax.ffi.include_dir()}"]
    done = subprocess.run(
        ["g++", *options, str(HERE / "ffi_abi.cc")], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
