"""Workers that are killed in the middle of an all-reduce, by SIGKILL: what the others see, and when."""

import json
from typing import Any

import pytest
from fabric_harness import Ctl

MEGABYTES_64 = str(64 * 2**20 // 4)
SECONDS = 2.0


def said(stderr: str) -> list[tuple[int, dict[str, Any]]]:
    """The JSON objects that the ranks printed, with their workers' numbers."""
    found = []
    for line in stderr.splitlines():
        if line.startswith("[") and "] {" in line:
            worker, words = line[1:].split("] ", 1)
            found.append((int(worker), json.loads(words)))
    return found


def value(words: list[tuple[int, dict[str, Any]]], key: str) -> dict[int, Any]:
    """What each worker that said it last said of `key`."""
    return {worker: word[key] for worker, word in words if key in word}


@pytest.fixture(params=["shm", "udp"])
def on(request: pytest.FixtureRequest, ctl: Ctl) -> Ctl:
    ctl.run("up", "--transport", request.param)
    return ctl


def run(ctl: Ctl, policy: str, *arguments: str, workers: int = 3, status: int = 0) -> list[tuple[int, dict[str, Any]]]:
    worker = ctl.worker("survives", *arguments)
    done = ctl.run("job", "start", "--workers", str(workers), "--on-failure", policy, "--json", *worker, status=status)
    result = json.loads(done.stdout)
    assert result["state"] == ("FAILED" if status else "COMPLETED")
    assert ctl.json("job", "list")["jobs"] == []
    [switch] = ctl.json("switch", "list")["switches"]
    assert int(switch.get("jobs", 0)) == 0
    return said(done.stderr)


def test_the_others_are_told_within_two_seconds(on: Ctl, lost_worker_runs: int) -> None:
    for _ in range(lost_worker_runs):
        delay = "0.05"
        words = run(on, "abort", "--victim", "1", "--at", "1", "--size", MEGABYTES_64, "--delay", delay, status=137)
        [killed] = value(words, "killed").values()
        lost = value(words, "error_at")
        assert lost.keys() == {0, 2}
        for worker, when in lost.items():
            assert 0 < when - killed < SECONDS, f"worker {worker}: {when - killed:.2f} s"
            message = value(words, "error")[worker]
            assert "WorkerLost" in message
            assert "rank 1 was lost" in message
            assert "agent-0" in message or "exited with status 137" in message


def test_they_go_on_without_it(on: Ctl) -> None:
    words = run(on, "shrink", "--victim", "1")
    assert value(words, "world_size") == {0: 2, 2: 2}
    assert value(words, "rank") == {0: 0, 2: 1}
    assert value(words, "lost") == {0: [1], 2: [1]}
    assert len(set(value(words, "completed").values())) == 1
    assert value(words, "steps") == {0: 20, 2: 20}
    [killed] = value(words, "killed").values()
    assert all(0 < when - killed < SECONDS for when in value(words, "changed").values())


def test_two_are_lost_at_once(on: Ctl) -> None:
    words = run(on, "shrink", "--victim", "0", "--victim", "2", workers=4)
    assert value(words, "world_size") == {1: 2, 3: 2}
    assert value(words, "rank") == {1: 0, 3: 1}
    assert value(words, "steps") == {1: 20, 3: 20}


def test_it_is_started_again_and_takes_its_place(on: Ctl) -> None:
    words = run(on, "restart", "--victim", "0")
    assert value(words, "world_size") == {0: 3, 1: 3, 2: 3}
    assert value(words, "rank") == {0: 0, 1: 1, 2: 2}
    assert value(words, "steps") == {0: 20, 1: 20, 2: 20}
    assert value(words, "lost") == {1: [0], 2: [0]}
