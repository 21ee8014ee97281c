"""Workers killed by SIGKILL in the middle of an all-reduce: the errors of the others, and their delay."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.fabric_harness import Ctl, wait_until

MEGABYTES_64 = str(64 * 2**20 // 4)
SECONDS = 2.0
Limit = Callable[[float], float]


def said(stderr: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the JSON objects that the ranks printed, with their workers' numbers."""
    found = []
    for line in stderr.splitlines():
        if line.startswith("[") and "] {" in line:
            worker, words = line[1:].split("] ", 1)
            found.append((int(worker), json.loads(words)))
    return found


def value(words: list[tuple[int, dict[str, Any]]], key: str) -> dict[int, Any]:
    """Return the last value of `key` that each worker printed."""
    return {worker: word[key] for worker, word in words if key in word}


FABRICS = {
    "shm": ["--transport", "shm"],
    "udp": ["--transport", "udp"],
    "udp-threads": ["--transport", "udp", "--threads", "2"],
    "udp-lossy": ["--transport", "udp", "--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02"],
    "shm-lossy": ["--transport", "shm", "--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02"],
    "bmv2": ["--switch", "bmv2", "--workers", "3"],
}
LONG = tuple(pytest.param(name, marks=pytest.mark.long) for name in ("udp", "udp-threads"))
LOSSY = tuple(pytest.param(name, marks=pytest.mark.long) for name in ("udp-lossy", "shm-lossy"))
NO_BMV2 = os.geteuid() != 0 or shutil.which("simple_switch_grpc") is None
BMV2 = pytest.param(
    "bmv2",
    marks=(pytest.mark.long, pytest.mark.skipif(NO_BMV2, reason="skipped: needs root and simple_switch_grpc")),
)


@pytest.fixture(params=["shm", *LONG])
def on(request: pytest.FixtureRequest, ctl: Ctl) -> Ctl:
    ctl.run("up", *FABRICS[request.param])
    return ctl


@pytest.fixture
def size(request: pytest.FixtureRequest) -> str:
    """Return the number of elements of a sum; BMv2 takes a hundred times as long."""
    return "20000" if "bmv2" in request.node.name else "1000000"


def run(ctl: Ctl, policy: str, *arguments: str, workers: int = 3, status: int = 0) -> list[tuple[int, dict[str, Any]]]:
    worker = ctl.worker("survives", *arguments)
    done = ctl.run("job", "start", "--workers", str(workers), "--on-failure", policy, "--json", *worker, status=status)
    result = json.loads(done.stdout)
    assert result["state"] == ("FAILED" if status else "COMPLETED")
    assert ctl.json("job", "list")["jobs"] == []
    [switch] = ctl.json("switch", "list")["switches"]
    assert int(switch.get("jobs", 0)) == 0
    return said(done.stderr)


def test_the_others_are_told_within_two_seconds(
    on: Ctl, lost_worker_runs: int, figure: Callable[[str], None], limit: Limit
) -> None:
    seconds = []
    for _ in range(lost_worker_runs):
        arguments = ["--victim", "1", "--at", "1", "--size", MEGABYTES_64, "--delay", "60"]
        words = run(on, "abort", *arguments, status=137)
        assert value(words, "in_the_middle") == {1: True}
        [killed] = value(words, "killed").values()
        lost = value(words, "error_at")
        assert lost.keys() == {0, 2}
        for worker, when in lost.items():
            seconds.append(when - killed)
            message = value(words, "error")[worker]
            assert "WorkerLost" in message
            # The launcher may notice it before the agent does.
            assert "rank 1 was lost: agent agent-0 on" in message or "rank 1 exited with status 137" in message
            assert "which did not complete, is undefined" in message
    median, longest = statistics.median(seconds), max(seconds)
    figure(
        f"{lost_worker_runs} workers killed, {len(seconds)} of {2 * lost_worker_runs} others told so by WorkerLost: "
        f"after {median:.3f} s (median), {longest:.3f} s (longest)"
    )
    assert longest < limit(SECONDS)


@pytest.mark.parametrize("on", ["shm", *LONG, *LOSSY, BMV2], indirect=True)
def test_they_go_on_without_it(on: Ctl, size: str, limit: Limit) -> None:
    words = run(on, "shrink", "--victim", "1", "--size", size)
    assert value(words, "world_size") == {0: 2, 2: 2}
    assert value(words, "rank") == {0: 0, 2: 1}
    assert value(words, "lost") == {0: [1], 2: [1]}
    assert len(set(value(words, "completed").values())) == 1
    assert value(words, "steps") == {0: 20, 2: 20}
    [killed] = value(words, "killed").values()
    assert all(0 < when - killed < limit(SECONDS) for when in value(words, "changed").values())


@pytest.mark.parametrize("attaches", [False, True])
def test_one_is_lost_before_the_others_attach(ctl: Ctl, attaches: bool) -> None:
    ctl.run("up")
    worker = ctl.worker("comes_late", "--victim", "1", *["--attaches"] * attaches)
    done = ctl.run("job", "start", "--workers", "4", "--on-failure", "shrink", "--json", *worker)
    assert json.loads(done.stdout)["state"] == "COMPLETED"
    words = said(done.stderr)
    assert value(words, "rank") == {0: 0, 2: 1, 3: 2}
    assert value(words, "world_size") == dict.fromkeys([0, 2, 3], 3)
    assert value(words, "generation") == dict.fromkeys([0, 2, 3], 1)
    assert value(words, "sum") == dict.fromkeys([0, 2, 3], 1 + 2 + 3)


@pytest.mark.long
def test_two_are_lost_at_once(on: Ctl) -> None:
    words = run(on, "shrink", "--victim", "0", "--victim", "2", workers=4)
    assert value(words, "world_size") == {1: 2, 3: 2}
    assert value(words, "rank") == {1: 0, 3: 1}
    assert value(words, "steps") == {1: 20, 3: 20}


@pytest.mark.parametrize("on", ["shm", *LONG, *LOSSY, BMV2], indirect=True)
def test_it_is_started_again_and_takes_its_place(on: Ctl, size: str) -> None:
    words = run(on, "restart", "--victim", "0", "--size", size)
    assert value(words, "world_size") == {0: 3, 1: 3, 2: 3}
    assert value(words, "rank") == {0: 0, 1: 1, 2: 2}
    assert value(words, "steps") == {0: 20, 1: 20, 2: 20}
    assert value(words, "lost") == {1: [0], 2: [0]}


@pytest.mark.long
@pytest.mark.parametrize(  # several agents over UDP get results by IP multicast, one alone does not
    ("policy", "transport", "workers"),
    [("shrink", "udp", 3), ("shrink", "udp", 2), ("restart", "shm", 3), ("restart", "udp", 3)],
)
def test_an_agent_is_killed(ctl: Ctl, policy: str, transport: str, workers: int, limit: Limit) -> None:
    ctl.run("up", "--agents", str(workers), "--transport", transport)
    [agent] = [process for process in ctl.processes() if process["name"] == "agent-1"]
    worker = ctl.worker("survives", "--steps", "60", "--pause", "0.15")
    job = ctl.start("job", "start", "--workers", str(workers), "--on-failure", policy, "--json", *worker)
    wait_until(lambda: min(positions(ctl), default=0) > 1000, "the ranks are under way")
    killed = time.monotonic()
    os.kill(agent["pid"], signal.SIGKILL)
    stdout, stderr = job.communicate(timeout=60)
    assert json.loads(stdout)["state"] == "COMPLETED", stderr
    words = said(stderr)
    changed = value(words, "changed")
    others = {0, 2} if workers == 3 else {0}
    assert changed.keys() == others
    assert all(when - killed < limit(5) for when in changed.values())
    assert "rank 1 was lost: " in value(words, "message")[0]  # the launcher may notice it before the controller does
    assert value(words, "error")[1].startswith("AgentLost")
    assert value(words, "steps") == dict.fromkeys(others if policy == "shrink" else others | {1}, 60)


def positions(ctl: Ctl) -> list[int]:
    """Return the position of each rank of the only job."""
    jobs = ctl.json("job", "list")["jobs"]
    return [int(rank["position"]) for rank in jobs[0]["ranks"]] if jobs else []


def start_ranks(ctl: Ctl, policy: str, ranks: list[int], *arguments: str) -> list[subprocess.Popen[str]]:
    """Start the three ranks of a job by rendezvous, with the variables of a launcher of torch programs."""
    processes = []
    for rank in ranks:
        environment = {
            **ctl.environment,
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29999",
            "SWITCHML_ON_FAILURE": policy,
        }
        command = ctl.worker("survives", *arguments)[1:]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    return processes


@pytest.mark.long
def test_a_rank_attaches_again(ctl: Ctl) -> None:
    ctl.run("up")
    processes = start_ranks(ctl, "restart", [0, 1, 2], "--victim", "1", "--pause", "0.01")
    assert processes[1].wait(60) == -9
    processes += start_ranks(ctl, "restart", [1], "--victim", "1", "--pause", "0.01")
    endings = [json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in processes]
    assert [(end["rank"], end["world_size"], end["steps"]) for end in (endings[0], *endings[2:])] == [
        (0, 3, 20),
        (2, 3, 20),
        (1, 3, 20),
    ]
    [ended] = ctl.json("job", "list", "--all")["jobs"]
    job = ctl.json("job", "show", ended["name"])
    assert (job["state"], job["generation"], job["changes"][0]["joined"]) == ("COMPLETED", 1, [1])


@pytest.mark.long
def test_ranks_that_met_go_on_without_one(ctl: Ctl) -> None:
    ctl.run("up")
    processes = start_ranks(ctl, "shrink", [0, 1, 2], "--victim", "0")
    endings = [json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in processes]
    assert [end.get("world_size") for end in endings] == [None, 2, 2]
    assert [end.get("rank") for end in endings] == [None, 0, 1]
