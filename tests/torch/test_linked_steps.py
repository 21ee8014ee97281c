"""`bench ddp` and the studies of GRACE and ByteScheduler: a few training steps over links of a limited rate."""

import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from switchml.benchmarks.ddp import WRAPPERS
from switchml.topologies.namespaces import Namespaces
from tests.support.fabric_harness import Ctl, Studies, needs_namespaces

POWERSGD = "powersgd:rank=2:start=3"


@needs_namespaces
def test_steps_of_two_workers() -> None:
    with tempfile.TemporaryDirectory(prefix="swml-") as base:  # short enough for the paths of Unix sockets
        ctl = Ctl(Path(base) / "run")
        small = ["--link", "1gbit", "--workers", "2", "--repetitions", "1", "--steps", "1"]
        result = ctl.json("bench", "ddp", *small, "--torch-python", sys.executable)
        assert Namespaces(Path(base) / "run-links").existing() == []
    rows = {(row["wrapper"], row["backend"]): row for row in result["rows"]}
    assert set(rows) == {(wrapper, backend) for wrapper in WRAPPERS for backend in ("switchml", "gloo")}
    size = 4 * 4 * 1024 * 1025
    for row in rows.values():
        assert row["parameters"] == size // 4
        assert row["median"] > 0.9 * row["bound"]
    # Two workers send as much in a ring as to a switch: the gradients once, and a few packets for barriers.
    for backend in ("switchml", "gloo"):
        assert size <= rows["ddp", backend]["link_bytes"] <= 1.1 * size


@needs_namespaces
def test_compression_of_two_workers() -> None:
    """Three methods make steps and train a little; the bytes that native code counts are those of the methods."""
    pytest.importorskip("sklearn")
    with tempfile.TemporaryDirectory(prefix="swml-") as base:
        studies = Studies(Path(base) / "run")
        small = ["--elements", "60000", "--link", "1gbit", "--workers", "2", "--repetitions", "1", "--iterations", "1"]
        small += ["--methods", f"wire:bits=8,shared_topk:density=0.01,{POWERSGD}", "--training-steps", "4"]
        small += ["--learning-rates", "1,0.5", "--momenta", "0.9,0"]
        result = studies.json("grace", *small, "--torch-python", sys.executable)
    rows = {row["method"]: row for row in result["rows"]}
    trained = [
        (sample["method"], sample["found"]["task"], sample["found"]["curve"])
        for sample in result["samples"]
        if sample["kind"] == "train"
    ]
    assert list(rows) == ["gloo", "none", "wire:bits=8", "shared_topk:density=0.01", POWERSGD]
    assert rows["gloo"]["bits"] is None
    assert rows["none"]["bits"] == pytest.approx(32, rel=0.01)
    assert rows["wire:bits=8"]["bits"] == pytest.approx(8, rel=0.01)
    assert 0.3 < rows["shared_topk:density=0.01"]["bits"] < 0.7  # 0.32, and with the places 0.64, of rank 0
    assert rows["shared_topk:density=0.01"]["compress"] > 0
    for row in rows.values():
        [steps] = row["steps"]
        assert steps["none"] > 0
        assert steps["gloo"] > 0
    for name in ("none", "wire:bits=8", "shared_topk:density=0.01", POWERSGD):
        assert [found["task"] for found in rows[name]["accuracies"]] == ["digits", "text", "ratings", "shapes"]
        assert all(0 < found["final"] < 1 for found in rows[name]["accuracies"])
        curves = [curve for method, task, curve in trained if (method, task) == (name, "text")]
        assert len(curves) == 4
        assert all(one != other for one, other in itertools.combinations(curves, 2))
    sent = {name: np.diff([point[1] for point in curve], prepend=0) for name, task, curve in trained if task == "text"}
    assert sent[POWERSGD][:3] == pytest.approx(sent["none"][:3], rel=0.01)
    assert sent[POWERSGD][3] < sent["none"][3] / 5


@needs_namespaces
def test_schedules_of_two_workers() -> None:
    """Two policies make a few steps, which end with the same parameters; the study itself checks that."""
    with tempfile.TemporaryDirectory(prefix="swml-") as base:
        studies = Studies(Path(base) / "run")
        small = ["--policies", "p3", "--size", "4MiB", "--forward", "10ms", "--workers", "2", "--repetitions", "1"]
        result = studies.json("bytescheduler", *small, "--torch-python", sys.executable)
    rows = {row["policy"]: row for row in result["rows"]}
    assert list(rows) == ["fifo", "p3"]
    for row in rows.values():
        assert row["steps"] == 6
        # At most half as much again: headers, packets that were sent twice, and the end of the turn.
        assert 4 << 20 <= row["busy"] * row["median"] * 25e6 <= 1.5 * (4 << 20)
