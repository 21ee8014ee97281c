"""Training programs under torchrun and under `switchml-ctl job start`, started like users do."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric_harness import Ctl

WORKER = Path(__file__).parent / "torchrun_worker.py"
SECONDS = 300  # for starts of up to nine processes that import PyTorch, on a machine with other work
pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.fixture(scope="module")
def home() -> Iterator[Ctl]:
    """Provide a fabric in the default directory of `switchml-ctl up`."""
    base = Path(tempfile.mkdtemp(prefix="swml-"))
    ctl = Ctl(base / "switchml")
    try:
        ctl.run("up")
        yield ctl
    finally:
        ctl.run("down")
        shutil.rmtree(base)


def torchrun(ctl: Ctl, size: int, out: Path, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start the worker under torchrun without any of SwitchML's variables."""
    environment = {name: value for name, value in ctl.environment.items() if not name.startswith("SWITCHML_")}
    environment |= {"XDG_RUNTIME_DIR": str(ctl.run_dir.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), *options]
    return subprocess.Popen([*command, str(WORKER), str(out), *arguments], env=environment)


def status(process: subprocess.Popen[bytes]) -> int:
    """Return how a launcher ends; if it does not end, stop it with its workers."""
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait(SECONDS)
        raise


def said(out: Path, size: int, attempt: int = 0) -> list[dict[str, Any]]:
    return [json.loads((out / f"{attempt}-{rank}.json").read_text()) for rank in range(size)]


def live_slots(ctl: Ctl) -> int:
    [switch] = ctl.json("switch", "list")["switches"]
    return int(switch["slots"]) - int(switch["slots_free"])


@pytest.mark.parametrize("backend", ["switchml", "none"])
def test_torchrun_needs_nothing_but_the_fabric(home: Ctl, tmp_path: Path, backend: str) -> None:
    assert status(torchrun(home, 4, tmp_path, "--standalone", arguments=("--backend", backend))) == 0
    results = said(tmp_path, 4)
    assert [result["total"] for result in results] == [10.0] * 4
    assert results[0]["environment"] == []
    newest = home.json("job", "list", "--all")["jobs"][-1]
    assert newest["workers"] == 4
    assert re.fullmatch(r"torchrun_worker-[0-9a-f]{8}", newest["name"])


def test_torchrun_inside_job_start_is_refused(home: Ctl, tmp_path: Path) -> None:
    """Each torchrun would run a separate training on the job; a fallback to Gloo would hide that."""
    refused = home.run("job", "start", "--workers", "2", "--", "torchrun", "train.py", status=2)
    assert "torchrun starts the ranks of a job itself" in refused.stderr
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    home.environment["SWITCHML_TORCH_FALLBACK"] = "gloo"
    try:
        nested = [*launcher, str(WORKER), str(tmp_path)]
        done = home.run("job", "start", "--workers", "1", "--", *nested, status=1, timeout=300)
    finally:
        del home.environment["SWITCHML_TORCH_FALLBACK"]
    assert "torchrun runs inside `switchml-ctl job start`" in done.stderr


def test_a_rank_that_is_killed_and_a_restart(home: Ctl, tmp_path: Path, limit: Callable[[float], float]) -> None:
    options = ("--standalone", "--max-restarts", "1")
    assert status(torchrun(home, 4, tmp_path, *options, arguments=("--crash", "2"))) == 0
    for rank in (0, 1, 3):
        result = json.loads((tmp_path / f"0-{rank}.json").read_text())
        assert result["ranks"] == [2]
        assert "rank 2" in result["error"]
        assert result["seconds"] < limit(2)
    assert not (tmp_path / "0-2.json").exists()
    assert [result["total"] for result in said(tmp_path, 4, attempt=1)] == [10.0] * 4
    before, after = home.json("job", "list", "--all")["jobs"][-2:]
    assert before["state"] == "FAILED"
    assert "rank 2 was lost" in before["failure"]
    assert after["epoch"] > before["epoch"]
    home.run("job", "watch", after["name"])
    assert live_slots(home) == 0


def test_a_restart_on_two_nodes_which_count_differently(home: Ctl, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    options += ["--rdzv-id", "two-nodes", "--max-restarts", "1"]
    arguments = ("--backend", "none", "--crash", "3")
    nodes = [torchrun(home, 2, tmp_path, *options, arguments=arguments) for _ in range(2)]
    try:
        assert [status(node) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.terminate()
            node.wait(SECONDS)
    # Only the node of rank 3 had a failure; the names contain the number of restarts that a rank's torchrun counted.
    names = {path.name for path in tmp_path.glob("*.json")}
    assert len(names) == 4
    assert {name.partition("-")[0] for name in names} == {"0", "1"}
    results = [json.loads((tmp_path / name).read_text()) for name in names]
    assert [result["total"] for result in results] == [10.0] * 4
    assert len({(result["job"], result["epoch"]) for result in results}) == 1
    [before, after] = [job for job in home.json("job", "list", "--all")["jobs"] if job["name"] == results[0]["job"]][
        -2:
    ]
    assert (before["state"], after["epoch"] > before["epoch"]) == ("FAILED", True)


@pytest.mark.parametrize("backend", ["switchml", "gloo"])
def test_job_start_sets_what_torch_needs(home: Ctl, tmp_path: Path, backend: str) -> None:
    home.environment["SWITCHML_DIRECT"] = "0"  # so that the switch counts the calls
    command = ("--", sys.executable, str(WORKER), str(tmp_path), "--backend", backend)
    result = home.json("job", "start", "--workers", "4", *command, timeout=SECONDS)
    assert result["state"] == "COMPLETED"
    assert [found["total"] for found in said(tmp_path, 4)] == [10.0] * 4
    assert [found["backend"] for found in said(tmp_path, 4)] == [backend] * 4
    assert result["switch"]["contributions"] > 0 or backend == "gloo"
    assert home.json("job", "list")["jobs"] == []


def test_ranks_of_job_start_meet_again_and_again_at_the_held_port(home: Ctl, tmp_path: Path) -> None:
    program = tmp_path / "meets.py"
    program.write_text(
        "import os, pathlib, time, torch, torch.distributed as dist\n"
        "rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "address = 'tcp://127.0.0.1:' + os.environ['MASTER_PORT']\n"
        "for turn, how in enumerate(({}, {}, {'init_method': address, 'rank': rank, 'world_size': size})):\n"
        "    dist.init_process_group('gloo', **how)\n"
        "    x = torch.ones(1)\n"
        "    dist.all_reduce(x)\n"
        "    assert x.item() == size\n"
        "    dist.destroy_process_group()\n"
        "    over = pathlib.Path(os.environ['SWITCHML_JOB_DIR'], f'over-{turn}')\n"
        "    if rank == 0:\n"
        "        over.touch()\n"
        "    while not over.exists():\n"  # or else it may meet the server that is about to end
        "        time.sleep(0.01)\n"
    )
    result = home.json("job", "start", "--workers", "2", "--", sys.executable, str(program), timeout=SECONDS)
    assert result["state"] == "COMPLETED"
