"""Small runs of `switchml-ctl bench`: it starts everything itself, verifies results, and leaves nothing behind."""

import json
from pathlib import Path

from tests.support.fabric_harness import Ctl, Studies


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


def test_allreduce_of_int64(ctl: Ctl) -> None:
    """Three words for each element with two ranks, in whole packets and a part of one; sums are exact."""
    small = ["--workers", "2", "--sizes", "4008", "--transport", "shm,udp", "--repetitions", "1", "--iterations", "3"]
    wide = ["--dtype", "int64", "--magnitude", "62", "--peers", "mpi-tcp"]
    result = ctl.json("bench", "allreduce", *small, *wide)
    assert [(row["system"], row["calls"]) for row in result["rows"]] == [("shm", 3), ("udp", 3)]
    assert [(sample["element_type"], sample["largest_error"]) for sample in result["samples"]] == [("int64", 0)] * 2
    assert "float32 only" in result["missing"]["mpi-tcp"]
    refused = ctl.run("bench", "allreduce", "--dtype", "int64", "--sizes", "4KiB,4004", status=2)
    assert "multiple of 8 bytes" in refused.stderr


def test_other_collectives(ctl: Ctl) -> None:
    small = ["--workers", "3", "--sizes", "1000", "--repetitions", "1", "--iterations", "2", "--peers", "mpi-tcp"]
    for collective in ("reduce_scatter", "all_gather", "scatter_and_gather", "broadcast"):
        found = ctl.json("bench", "allreduce", "--collective", collective, *small)
        assert [row["system"] for row in found["rows"]] == ["shm", "udp"]
        assert found["missing"] == {"mpi-tcp": "measured with all-reduces only"}
        for sample in found["samples"]:
            assert sample["largest_error"] <= sample["allowed_error"] < 1e-5


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


def test_sparse_calls_send_what_follows_from_the_blocks(ctl: Ctl) -> None:
    """Packets have a quarter of a block, or two blocks; the latter are sent as dense ones if most have values."""
    small = ["--workers", "2", "--size", "256KiB", "--values", "64,512", "--transport", "udp", "--peers", ""]
    small += ["--repetitions", "1", "--iterations", "1"]
    result = ctl.json("bench", "sparse", *small, "--densities", "0.1,0.7")
    cases = [("random", 0.1), ("random", 0.7), ("all", 0.1), ("all", 0.7), ("none", 0.1)]
    found = [(row["values"], row["overlap"], row["density"]) for row in result["rows"]]
    assert found == [(values, *case) for values in (64, 512) for case in cases]
    for row in result["rows"]:
        assert row["is_sparse"] == (row["values"] == 64 or row["density"] == 0.1)
        if row["is_sparse"]:
            assert row["blocks"] == 2 * (1024 if row["values"] == 64 else 256)
            assert (row["sent"], row["received"]) == (row["expected_sent"], row["expected_received"])
            assert 0 < row["sent"] <= row["received"]
        assert row["ratio"] > 0
    for sample in result["samples"]:
        assert sample["turn"]["largest_error"] <= sample["turn"]["allowed_error"]


def test_simulation(ctl: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "simulate.json"
    arguments = ["--trees", "4,2x2", "--size", "16KiB", "--losses", "0,1%", "--late", "0,1ms", "--seeds", "2"]
    studies = Studies(ctl.run_dir)
    shown = studies.run("switchml", *arguments, "--json", str(file)).stdout
    assert "Simulated, not measured" in shown
    result = json.loads(file.read_text())
    assert [(row["tree"], row["loss"], row["late"]) for row in result["rows"]] == [
        (tree, *case) for tree in ("4", "2x2") for case in ((0, 0), (0.01, 0), (0, 0.001))
    ]
    assert "| 2x2 | 4 | 1 % |" in studies.run("show", str(file), "--markdown").stdout
    assert "was not written by" in ctl.run("bench", "show", str(file), status=1).stderr
    refused = studies.run("switchml", "--trees", "65", status=2)
    assert "1 to 64 children of a switch" in refused.stderr
