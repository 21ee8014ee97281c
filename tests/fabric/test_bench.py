"""Small runs of `switchml-ctl bench`: it starts everything itself, verifies results, and leaves nothing behind."""

import json
from pathlib import Path

from fabric_harness import Ctl


def test_allreduce_over_both_transports(ctl: Ctl, tmp_path: Path) -> None:
    arguments = ["--workers", "2", "--sizes", "64KiB", "--transport", "shm,udp", "--repetitions", "1"]
    arguments += ["--iterations", "3", "--peers", "gloo", "--torch-python", "/no/such/python"]
    file = tmp_path / "result.json"
    shown = ctl.run("bench", "allreduce", *arguments, "--json", str(file)).stdout
    assert "/no/such/python cannot be run" in shown
    result = json.loads(file.read_text())
    assert [row["system"] for row in result["rows"]] == ["shm", "udp"]
    for row in result["rows"]:
        assert (row["workers"], row["bytes"], row["calls"]) == (2, 65536, 3)
        assert 0 < row["median"] <= row["slowest"] <= 10
        assert row["cpu_seconds_per_gb"] > 0
    for sample in result["samples"]:
        assert sample["largest_error"] <= sample["allowed_error"]
    assert result["states"]
    assert not ctl.run_dir.exists()  # it used a separate fabric
    again = ctl.run("bench", "show", str(file), "--markdown").stdout
    assert "| 2 | 64 KiB | shm |" in again


def test_queued_tensors_and_losses(ctl: Ctl) -> None:
    small = ["--workers", "2", "--size", "4KiB", "--repetitions", "1", "--iterations", "2"]
    latency = ctl.json("bench", "latency", *small, "--peers", "", "--tensors", "20", "--transport", "shm")
    assert [(row["tensors"], row["calls"]) for row in latency["rows"]] == [(1, 2), (20, 3)]
    loss = ctl.json("bench", "loss", "--workers", "2", "--size", "1MiB", "--repetitions", "1", "--shares", "5%")
    assert [row["share"] for row in loss["rows"]] == [0.0, 0.05]
    assert loss["rows"][1]["lost"] > 0
    assert all(row["largest_error"] <= row["allowed_error"] for row in loss["rows"])


def test_jobs(ctl: Ctl) -> None:
    result = ctl.json("bench", "jobs", "--workers", "2", "--starts", "1", "--jobs", "4", "--at-once", "3")
    kinds = [row["kind"] for row in result["rows"]]
    assert kinds == ["idle", "start", *["sequence"] * 4, "at once", "stopped"]
    live, stopped = result["rows"][-2:]
    assert live["start_median"] > 0
    for before, after in zip(live["footprints"], stopped["footprints"], strict=True):
        assert before["process"] == after["process"]
        assert after["descriptors"] <= before["descriptors"]
