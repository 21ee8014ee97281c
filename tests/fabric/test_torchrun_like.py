"""Ranks started by a launcher of torch programs: they get its variables, and none of SwitchML's."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric_harness import SCRIPTS, WORKERS, Ctl, needs_namespaces

DEADLINE = 80


class Launcher:
    """Starts ranks as torchrun does on one node; the fabric is where `switchml-ctl up` puts it by default."""

    def __init__(self, ctl: Ctl) -> None:
        self.ctl = ctl
        self.environment = {name: v for name, v in ctl.environment.items() if not name.startswith("SWITCHML_")}
        self.environment["XDG_RUNTIME_DIR"] = str(ctl.run_dir.parent)

    def start(
        self, size: int, *arguments: str, restart: int = 0, port: int = 29500, extra: Mapping[str, str] | None = None
    ) -> list[subprocess.Popen[str]]:
        shared = {
            **self.environment,
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_RESTART_COUNT": str(restart),
            **(extra or {}),
        }
        return [
            subprocess.Popen(
                [sys.executable, str(WORKERS / "meets.py"), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(size)
        ]

    def run(self, size: int, *arguments: str, **options: Any) -> list[tuple[int, dict[str, Any]]]:
        """Return exit status and last output of each rank."""
        processes = self.start(size, *arguments, **options)
        try:
            outputs = [process.communicate(timeout=DEADLINE)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        return [
            (process.returncode, json.loads(output) if output else {})
            for process, output in zip(processes, outputs, strict=True)
        ]


def new_launcher() -> Iterator[Launcher]:
    base = Path(tempfile.mkdtemp(prefix="swml-"))
    ctl = Ctl(base / "switchml")  # the default with this XDG_RUNTIME_DIR
    try:
        yield Launcher(ctl)
    finally:
        ctl.run("down")
        shutil.rmtree(base)


launcher = pytest.fixture(new_launcher, name="launcher")


@pytest.fixture(scope="module")
def running() -> Iterator[Launcher]:
    """Provide one fabric with two agents for several tests."""
    for launcher in new_launcher():
        up(launcher, "--agents", "2")
        yield launcher


def up(launcher: Launcher, *arguments: str) -> dict[str, Any]:
    """Test `switchml-ctl up` without a run directory."""
    command = [str(SCRIPTS / "switchml-ctl"), "up", "--json", *arguments]
    found = subprocess.run(command, env=launcher.environment, stdout=subprocess.PIPE, timeout=60, check=True)
    content: dict[str, Any] = json.loads(found.stdout)
    assert content["run_dir"] == str(launcher.ctl.run_dir)
    return content


def words(results: list[tuple[int, dict[str, Any]]], key: str) -> list[Any]:
    assert [status for status, _ in results] == [0] * len(results), results
    return [said[key] for _, said in results]


def test_a_run_a_crash_and_a_restart_in_a_new_epoch(running: Launcher, limit: Callable[[float], float]) -> None:
    first = running.run(4)
    assert words(first, "sum") == [10] * 4
    assert words(first, "rank") == [0, 1, 2, 3]
    [name] = set(words(first, "job"))

    crashed = running.run(4, "--crash", "2")
    assert [status for status, _ in crashed] == [3, 3, -9, 3]
    for rank in (0, 1, 3):
        said = crashed[rank][1]
        assert said["lost"] == [2]
        assert "rank 2 was lost" in said["message"]
        assert said["seconds"] < limit(2)
    epochs = [crashed[0][1]["epoch"]]

    # --max-restarts: all ranks return with another key; a launcher that does not count restarts uses the same one.
    for restart in (1, 1):
        again = running.run(4, restart=restart)
        assert words(again, "sum") == [10] * 4
        epochs += set(words(again, "epoch"))
    assert epochs == sorted(set(epochs))

    for job in running.ctl.json("job", "list")["jobs"]:
        running.ctl.run("job", "watch", job["name"])  # its ranks have closed it, so it will end soon
    jobs = running.ctl.json("job", "list", "--all")["jobs"]
    assert [job["state"] for job in jobs] == ["COMPLETED", "FAILED", "COMPLETED", "COMPLETED"]
    assert [job["name"] for job in jobs[:2]] == [name, name]
    assert len({job["name"] for job in jobs}) == 2
    [switch] = running.ctl.json("switch", "list")["switches"]
    assert switch["slots_free"] == switch["slots"]


def test_a_rank_that_does_not_come_is_named_to_the_others(running: Launcher) -> None:
    for status, said in running.run(2, "--timeout", "10", extra={"WORLD_SIZE": "3"}):
        assert status == 4
        assert said["reason"] == "MissingRanks"
        assert "rank 2 of 3 did not come in time" in said["message"]


def test_the_agents_of_a_fabric_share_the_ranks(running: Launcher) -> None:
    processes = running.start(4, "--wait")
    try:
        said = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
        job = running.ctl.json("job", "show", said[0]["job"])
        assert job["state"] == "RUNNING"
        assert [rank["agent"] for rank in job["ranks"]] == ["agent-0", "agent-0", "agent-1", "agent-1"]
        # Another program that runs at the same time is another job.
        assert words(running.run(2, port=29501), "sum") == [3, 3]
    finally:
        for process in processes:
            process.communicate("\n", timeout=DEADLINE)
    assert [process.returncode for process in processes] == [0] * 4


def test_without_a_fabric_the_way_to_one_is_said(launcher: Launcher) -> None:
    [(status, said)] = launcher.run(1)
    assert status == 4
    assert "switchml-ctl up" in said["message"]


@needs_namespaces
def test_ranks_on_the_hosts_of_a_network(launcher: Launcher) -> None:
    up(launcher, "--switch", "soft", "--workers", "2")
    processes = launcher.start(4, "--wait")
    try:
        said = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
        assert [one["sum"] for one in said] == [10] * 4
        job = launcher.ctl.json("job", "show", said[0]["job"])
        assert [rank["agent"] for rank in job["ranks"]] == ["h1", "h1", "h2", "h2"]
    finally:
        for process in processes:
            process.communicate("\n", timeout=DEADLINE)
