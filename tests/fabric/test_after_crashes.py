"""The remains of a fabric whose processes were all killed, and the search for a rank that lags."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl, runs, wait_until

LAGS = """
import sys, time
import numpy as np
import switchml
with switchml.connect() as comm:
    comm.barrier()
    if comm.rank == 1:
        time.sleep(600)
    comm.all_reduce(np.ones(100_000, np.float32))
"""


@pytest.mark.long
def test_nothing_of_a_dead_fabric_is_left(fabric: Ctl) -> None:
    """Check that `up` removes slots, groups, entries, sockets and files of jobs and processes that were killed."""
    fabric.run("job", "start", "--workers", "2", "--name", "orphan")
    dead = fabric.processes()
    for process in dead:
        os.kill(process["pid"], signal.SIGKILL)
    wait_until(lambda: not any(runs(process["pid"]) for process in dead), "all have ended")
    fabric.run("up", "--agents", "2")
    assert fabric.json("job", "list")["jobs"] == []
    detail = fabric.json("switch", "show")
    assert detail["switch"]["slots_free"] == detail["switch"]["slots"]
    assert [entry for entry in detail.get("entries", []) if entry["table"] != "switch_address_table"] == []
    assert detail.get("groups", []) == []
    live = {process["pid"] for process in fabric.processes()}
    sockets = {path.name for path in Path(fabric.run_dir).iterdir() if path.is_socket()}
    of_switch = {"p4runtime.sock", "switch.sock"}
    assert sockets == {"agent-0.sock", "agent-1.sock", "controller.sock", "ports.sock", *of_switch}
    for path in Path(fabric.run_dir).glob("*.ready"):
        assert json.loads(path.read_text())["pid"] in live
    fabric.run("job", "start", "--workers", "2", *fabric.worker("sums", "--sizes", "1000"))


@pytest.mark.long
def test_agents_that_outlive_the_switch_and_the_controller(fabric: Ctl) -> None:
    """Check that the controller, when it connects, removes the tables of a run that is not in its store."""
    started = fabric.json("job", "start", "--workers", "2", "--name", "orphan")
    [controller] = [process for process in fabric.processes() if process["name"] == "controller"]
    os.kill(controller["pid"], signal.SIGKILL)
    wait_until(lambda: not runs(controller["pid"]), "the controller has ended")
    for path in Path(fabric.run_dir).glob("controller.sqlite*"):
        path.unlink()
    assert started["state"] == "READY"
    fabric.run("up")
    assert fabric.json("job", "list", "--all")["jobs"] == []
    entries = fabric.json("switch", "show").get("entries", [])
    assert [entry for entry in entries if entry["table"] != "switch_address_table"] == []


@pytest.mark.long
def test_the_slowest_rank_is_named(fabric: Ctl) -> None:
    job = fabric.start("job", "start", "--workers", "3", "--name", "lags", "--", sys.executable, "-c", LAGS)

    def lags() -> bool:
        if not fabric.json("job", "list")["jobs"]:
            return False
        slowest = fabric.json("job", "status", "lags")["straggler"]
        return slowest is not None and slowest["rank"] == 1 and slowest["idle_seconds"] > 1

    wait_until(lags, "rank 1 is named")
    said = fabric.run("job", "status", "lags").stdout
    assert "slowest: rank 1 (agent agent-0 on" in said
    assert "chunks behind the first and has not advanced for" in said
    fabric.run("job", "stop", "lags")
    job.communicate(timeout=60)
