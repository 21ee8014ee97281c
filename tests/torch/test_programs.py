"""Whole programs, which are the same but for the back end's word: their losses are those of Gloo."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric_harness import Ctl

PROGRAMS = Path(__file__).parent / "programs"
TEXT = PROGRAMS.parents[2] / "docs" / "understand" / "protocol.md"


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the directory in which DeepSpeed compiles what it needs on CPUs, with a lock that a killed one leaves."""
    pytest.importorskip("deepspeed")
    return tmp_path_factory.mktemp("extensions")


def losses(fabric: Ctl, directory: Path, program: str, size: int, *arguments: str, **variables: str) -> list[list[Any]]:
    """Run a program with both words. Returns the losses of each rank, Gloo's first."""
    environment = [f"{name}={value}" for name, value in {"OMP_NUM_THREADS": "1", **variables}.items()]
    found = []
    for word in ("gloo", "switchml"):
        out = directory / word
        out.mkdir()
        line = [argument.format(word=word, out=out) for argument in arguments]
        command = ["env", "-C", str(out), *environment, sys.executable, str(PROGRAMS / program), *line]
        result = fabric.json("job", "start", "--workers", str(size), "--", *command)
        assert result["state"] == "COMPLETED", (Path(result["run_dir"]) / "rank-0.log").read_text()
        found.append([json.loads((out / f"losses-{rank}.json").read_text()) for rank in range(size)])
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_a_causal_language_model(fabric: Ctl, tmp_path: Path, size: int) -> None:
    expected, found = losses(fabric, tmp_path, "causal_lm.py", size, "{word}", str(TEXT), "{out}")
    assert found == [pytest.approx(of_rank, rel=1e-4) for of_rank in expected]
    assert found[0][-1] < found[0][0] - 1  # it has learned something


def assert_zero(fabric: Ctl, directory: Path, size: int, width: int, stages: str, **variables: str) -> None:
    words = ("{word}", str(width), "{out}", *stages)
    expected, found = losses(fabric, directory, "zero.py", size, *words, **variables)
    for of_rank, of_gloo in zip(found, expected, strict=True):
        assert of_rank == [pytest.approx(of_stage, rel=1e-5) for of_stage in of_gloo]


@pytest.mark.parametrize("size", [2, 4])
def test_deepspeed(fabric: Ctl, tmp_path: Path, extensions: Path, size: int) -> None:
    assert_zero(fabric, tmp_path, size, 32, "0123", TORCH_EXTENSIONS_DIR=str(extensions))


def test_deepspeed_with_sizes_that_it_pads(fabric: Ctl, tmp_path: Path, extensions: Path) -> None:
    """DeepSpeed's padding is uninitialized memory, from which floats on the wire keep the gradients apart."""
    assert_zero(fabric, tmp_path, 4, 33, "3", TORCH_EXTENSIONS_DIR=str(extensions), SWITCHML_TORCH_WIRE="floats")
