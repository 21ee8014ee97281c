"""Topologies in network namespaces, with the soft switch and with BMv2: up, jobs, losses, restarts, crashes, down."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from switchml.dataplane import targets
from switchml.topologies.namespaces import Namespaces
from switchml.topologies.topology import racks
from tests.support.fabric_harness import Ctl, needs_namespaces, runs

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
TRAINING = ("--", sys.executable, str(EXAMPLE), "--hidden", "48", "--batch", "32", "--epochs", "6")
LOSS = 0.02
DEADLINE = 40.0
FEATURES = (
    "import socket, sys, switchml.topologies.ethtool as e; print(e.active_features(socket.socket(), sys.argv[1]))"
)


pytestmark = needs_namespaces
needs_bmv2 = pytest.mark.skipif(
    shutil.which("simple_switch_grpc") is None, reason="skipped: simple_switch_grpc not found"
)
TARGETS = ("soft", pytest.param("bmv2", marks=needs_bmv2))


@pytest.fixture(autouse=True)
def nothing_is_left(ctl: Ctl) -> Iterator[None]:
    interfaces = set(Path("/sys/class/net").iterdir())
    yield
    ctl.run("down")
    assert Namespaces(ctl.run_dir).existing() == []
    assert set(Path("/sys/class/net").iterdir()) == interfaces


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE} s"
        time.sleep(0.05)


def inside(ctl: Ctl, node: str, *command: str) -> str:
    arguments = Namespaces(ctl.run_dir).command(node, command)
    return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=30).stdout


def train(ctl: Ctl, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the demo job with 4 workers; return the results of the launcher and of the training."""
    result = ctl.json("job", "start", "--workers", "4", *options, *TRAINING)
    assert result["state"] == "COMPLETED"
    training = json.loads((Path(result["run_dir"]) / "training.json").read_text())
    assert training["test_accuracy"] >= 0.95
    assert len(training["parameters_sha256"]) == 4
    assert len(set(training["parameters_sha256"])) == 1
    return result, training


@pytest.fixture(scope="module")
def embedded() -> Iterator[dict[str, Any]]:
    """Run the same training on the embedded fabric, with the values per packet of BMv2."""
    base = Path(tempfile.mkdtemp(prefix="swml-"))
    control = Ctl(base / "run")
    try:
        control.run("up", "--values", "64")
        yield train(control)[1]
    finally:
        control.run("down")
        shutil.rmtree(base)


@pytest.mark.parametrize("target", TARGETS)
def test_the_demo_job_ends_with_the_same_bits_on_every_switch(target: str, ctl: Ctl, embedded: dict[str, Any]) -> None:
    up = ctl.json("up", "--switch", target, "--workers", "4", "--values", "64")
    assert [process["name"] for process in up["processes"]] == ["ports", "s1", "controller", "h1", "h2", "h3", "h4"]
    result, training = train(ctl)
    assert training["parameters_sha256"] == embedded["parameters_sha256"]
    assert training["test_accuracy"] == embedded["test_accuracy"]
    assert "injected_loss" not in result["switch"]["dropped"]
    job = ctl.json("job", "show", result["name"])
    assert [rank["agent"] for rank in job["ranks"]] == ["h1", "h2", "h3", "h4"]

    losses = ctl.json("switch", "loss", "--ingress", str(LOSS), "--egress", str(LOSS))["losses"]
    assert [loss["port"] for loss in losses] == [1, 2, 3, 4]
    assert all(loss["ingress"] == loss["egress"] == pytest.approx(LOSS) for loss in losses)
    assert ctl.json("switch", "show")["losses"] == losses
    result, training = train(ctl)
    assert training["parameters_sha256"] == embedded["parameters_sha256"]
    # Each contribution is lost with that probability, and so is each of the four copies of a result.
    lost = result["switch"]["dropped"]["injected_loss"]
    assert lost > LOSS * (result["switch"]["contributions"] + 4 * result["switch"]["results"]) / 2
    assert ctl.json("switch", "loss", "--off")["losses"] == []


@pytest.mark.parametrize("target", TARGETS)
def test_racks_give_the_same_bits(target: str, ctl: Ctl, embedded: dict[str, Any]) -> None:
    """Test a job on two leaves and a spine, also with losses on every link."""
    up = ctl.json("up", "--switch", target, "--workers", "4", "--racks", "2", "--values", "64")
    names = ["ports", "spine", "leaf1", "leaf2", "controller", "h1", "h2", "h3", "h4"]
    assert [process["name"] for process in up["processes"]] == names
    result, training = train(ctl, "--switch", "spine")
    assert training["parameters_sha256"] == embedded["parameters_sha256"]
    job = ctl.json("job", "show", result["name"])
    assert [(place["switch"], place["upstream"]) for place in job["switches"]] == [
        ("spine", ""),
        ("leaf1", "spine"),
        ("leaf2", "spine"),
    ]
    assert [(rank["agent"], rank["switch"]) for rank in job["ranks"]] == [
        ("h1", "leaf1"),
        ("h2", "leaf1"),
        ("h3", "leaf2"),
        ("h4", "leaf2"),
    ]
    for name, ports in (("spine", (1, 2)), ("leaf1", (1, 2, 3)), ("leaf2", (1, 2, 3))):
        losses = ("--ingress", str(LOSS), "--egress", str(LOSS), *(f"--port={port}" for port in ports))
        assert len(ctl.json("switch", "loss", name, *losses)["losses"]) == len(ports)
    result, training = train(ctl, "--switch", "spine")
    assert training["parameters_sha256"] == embedded["parameters_sha256"]


def test_a_tree_of_four_levels(ctl: Ctl, tmp_path: Path) -> None:
    """The controller's configuration allows the levels of the topology file."""
    content = racks(2, 4).as_dict()
    for level, child in enumerate(("spine", "above"), start=1):
        above = {**content["switches"][0], "name": "top" if child == "above" else "above"}
        above |= {"mac": f"02:00:00:00:02:{level:02x}", "ipv4": f"10.0.2.{level}"}
        [below] = [switch for switch in content["switches"] if switch["name"] == child]
        below["parent"] = {"switch": above["name"], "port": 1, "uplink": 9}
        content["switches"].insert(0, above)
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(content))
    ctl.run("up", "--topology", str(path))
    ctl.environment["SWITCHML_FABRIC_VALUES"] = "256"
    sums = ctl.worker("sums", "--sizes", "1,65,20000")
    result = ctl.json("job", "start", "--workers", "4", "--switch", "top", *sums)
    assert result["state"] == "COMPLETED"
    levels = {switch["name"]: switch["parent"]["switch"] for switch in content["switches"] if "parent" in switch}
    assert levels == {"above": "top", "spine": "above", "leaf1": "spine", "leaf2": "spine"}


@needs_bmv2
@pytest.mark.parametrize(("spine", "leaves"), [("bmv2", "soft"), ("soft", "bmv2")])
def test_targets_of_a_tree_can_differ(
    spine: str, leaves: str, ctl: Ctl, embedded: dict[str, Any], tmp_path: Path
) -> None:
    content = racks(2, 4, targets.TARGETS[leaves]).as_dict()
    content["switches"][0]["target"] = spine
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(content))
    ctl.json("up", "--topology", str(path))
    result, training = train(ctl, "--switch", "spine")
    assert training["parameters_sha256"] == embedded["parameters_sha256"]
    assert len(ctl.json("job", "show", result["name"])["switches"]) == 3


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_laid_out_is_what_the_file_says(target: str, ctl: Ctl, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text("""\
name: odd
mtu: 4000
switches:
  - {name: leaf, mac: "06:00:00:00:00:fe", ipv4: 192.168.7.254}
hosts:
  - {name: left, mac: "06:00:00:00:00:01", ipv4: 192.168.7.1/24, switch: leaf, port: 17}
  - {name: right, mac: "06:00:00:00:00:02", ipv4: 192.168.9.2/30, switch: leaf, port: 300}
""")
    up = ctl.json("up", "--switch", target, "--topology", str(path))
    assert [agent["switch_port"] for agent in up["agents"]] == [17, 300]
    for node, interface in (("left", "eth0"), ("right", "eth0"), ("all-switches", "leaf-eth300")):
        shown = inside(ctl, node, "ip", "address", "show", interface)
        assert "mtu 4000" in shown
        assert "inet6" not in shown
        features = inside(ctl, node, sys.executable, "-c", FEATURES, interface)
        assert "highdma" in features
        assert not re.search("checksum|segmentation|gro|gso", features)
    assert "192.168.9.2/30" in inside(ctl, "right", "ip", "address")
    neighbour = "192.168.7.254 dev eth0 lladdr 06:00:00:00:00:fe PERMANENT"
    assert neighbour in inside(ctl, "right", "ip", "neighbour")
    ctl.environment["SWITCHML_FABRIC_VALUES"] = "64" if target == "bmv2" else "256"
    sums = ctl.worker("sums", "--sizes", "1,65,20000")
    assert ctl.json("job", "start", "--workers", "4", *sums)["state"] == "COMPLETED"  # two ranks on each host
    assert re.search(r"port 300 ── right +192\.168\.9\.2/30", ctl.run("topology", "show").stdout)
    [switch] = ctl.json("switch", "list")["switches"]
    # P4Runtime has numbers for multicast groups before version 1.5, and bytes since then; both occur here.
    before = tuple(map(int, switch["control_version"].split("."))) < (1, 5, 0)
    assert before == (target == "bmv2")
    again = ctl.run("up", "--switch", target, "--topology", str(path))
    assert "already runs" in again.stderr


@needs_bmv2
def test_the_controller_survives_the_restart_of_bmv2(ctl: Ctl) -> None:
    up = ctl.json("up", "--switch", "bmv2", "--workers", "2")
    ctl.environment |= {"SWITCHML_CONTROLLER": up["controller"], "SWITCHML_FABRIC_VALUES": "64"}
    assert ctl.json("job", "start", "--workers", "2", "--name", "waits")["state"] == "READY"
    entries = {entry["table"] for entry in ctl.json("switch", "show")["entries"]}
    [pid] = [process["pid"] for process in up["processes"] if process["name"] == "s1"]
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]

    def connected() -> bool:
        return bool(ctl.json("switch", "list")["switches"][0]["connected"])

    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not connected(), "the controller notices")
    refused = ctl.json("job", "start", "--workers", "2", status=3)
    assert refused["error"] == "SwitchUnavailable"
    with (ctl.run_dir / "logs" / "again.log").open("w") as log:
        again = subprocess.Popen(Namespaces(ctl.run_dir).command("all-switches", command), stdout=log, stderr=log)
    try:
        wait_until(connected, "the controller is back")
        # The job that was READY has its tables again, so that ranks can attach; the next job runs as well.
        assert {entry["table"] for entry in ctl.json("switch", "show")["entries"]} == entries
        assert ctl.json("job", "show", "waits")["state"] == "READY"
        sums = ctl.worker("sums", "--sizes", "1,65,20000")
        assert ctl.json("job", "start", "--workers", "2", *sums)["state"] == "COMPLETED"
    finally:
        del ctl.environment["SWITCHML_CONTROLLER"]
        ctl.run("down")
        # `down` ends all processes in its namespaces, including those of other programs.
        assert again.wait(DEADLINE) is not None


def test_a_fabric_that_crashed_is_cleared_away(ctl: Ctl) -> None:
    ctl.run("up", "--switch", "soft", "--workers", "2")
    neighbour = Ctl(ctl.run_dir.parent / "other")
    try:
        neighbour.run("up", "--switch", "soft", "--workers", "2")
        processes = ctl.processes()
        for process in processes[:-1]:
            os.kill(process["pid"], signal.SIGKILL)
        wait_until(lambda: not any(runs(process["pid"]) for process in processes[:-1]), "they have ended")
        again = ctl.run("up", "--switch", "soft", "--workers", "2")
        assert "removing the fabric" in again.stderr
        assert not runs(processes[-1]["pid"])
        assert ctl.json("job", "start", "--workers", "2", *ctl.worker("sums", "--sizes", "65"))["state"] == "COMPLETED"

        # The same if all records of the fabric are lost.
        processes = ctl.processes()
        (ctl.run_dir / "fabric.json").unlink()
        assert "removed network namespaces" in ctl.run("down").stderr
        assert not any(runs(process["pid"]) for process in processes)
        assert Namespaces(ctl.run_dir).existing() == []
        assert neighbour.json("status")["state"] == "running"
        sums = neighbour.worker("sums", "--sizes", "65")
        assert neighbour.json("job", "start", "--workers", "2", *sums)["state"] == "COMPLETED"
    finally:
        neighbour.run("down")
    assert Namespaces(neighbour.run_dir).existing() == []


def test_up_that_is_killed_halfway_is_cleared_away(ctl: Ctl) -> None:
    starter = ctl.start("up", "--switch", "soft", "--workers", "2")
    wait_until(lambda: Namespaces(ctl.run_dir).existing(), "it has begun")
    starter.kill()
    starter.communicate()
    ctl.run("down")
    assert Namespaces(ctl.run_dir).existing() == []


def test_a_switch_that_cannot_start_leaves_nothing(ctl: Ctl, tmp_path: Path) -> None:
    """Check that the error contains the last output of a program of that name that ends at once."""
    (tmp_path / "simple_switch_grpc").write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    (tmp_path / "simple_switch_grpc").chmod(0o755)
    ctl.environment["PATH"] = f"{tmp_path}:{ctl.environment['PATH']}"
    failed = ctl.run("up", "--switch", "bmv2", "--workers", "2", status=1)
    assert "s1 ended with status 3" in failed.stderr
    assert "no such luck" in failed.stderr
    assert Namespaces(ctl.run_dir).existing() == []


def test_a_job_may_bring_its_own_namespaces(ctl: Ctl) -> None:
    ctl.environment |= {"SWITCHML_FABRIC_SWITCH": "soft", "SWITCHML_FABRIC_WORKERS": "2"}
    result = ctl.json("job", "start", "--workers", "2", *ctl.worker("sums", "--sizes", "65"))
    assert result["state"] == "COMPLETED"
    assert Namespaces(ctl.run_dir).existing() == []
