"""Short forms of studies: trainings with error feedback, and a ring over two racks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.fabric_harness import Studies, needs_namespaces


def test_a_hard_threshold_has_a_smaller_total_error_than_topk() -> None:
    pytest.importorskip("sklearn", reason="needs the package scikit-learn")
    with tempfile.TemporaryDirectory(prefix="swml-") as base:  # short enough for the paths of Unix sockets
        small = ["--methods", "hard_threshold:threshold=0.01", "--steps", "30", "--workers", "2"]
        result = Studies(Path(base) / "run").json("hard_threshold", *small, "--torch-python", sys.executable)
    hard, topk = result["rows"]
    assert topk["density"] == pytest.approx(hard["density"], rel=0.2)
    assert hard["total_error"] < topk["total_error"]


@needs_namespaces
def test_the_found_order_crosses_twice_between_the_racks() -> None:
    with tempfile.TemporaryDirectory(prefix="swml-") as base:
        small = ["--hosts", "4", "--orders", "1", "--size", "1MiB", "--iterations", "1"]
        result = Studies(Path(base) / "run").json("cloud_collectives", *small, "--torch-python", sys.executable)
    found, *_, worst = [row for row in result["rows"] if row["seconds"] is not None]
    assert (found["crossings"], worst["crossings"]) == (2, 4)
    assert worst["trunk_bytes"] > 1.7 * found["trunk_bytes"]
