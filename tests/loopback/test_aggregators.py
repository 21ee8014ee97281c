"""Jobs over aggregators, soft switches that share a job's slots as parameter servers do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.errors import InvalidRequest, SwitchNotFound
from switchml.controller.proto import switchml_pb2 as pb
from tests.loopback.tree_fabric import DEADLINE, LOSSY, SLOTS, VALUES, Fabric, require_equal, running, sums
from tests.support.controller_harness import wait_until

SURVIVES = Path(__file__).parents[1] / "support" / "workers" / "survives.py"
# A switch for the agents, and aggregators without agents; the agents of h1 share memory with their switch.
SWITCHES = {"s0": "", "a1": "", "a2": "", "a3": "", "h1": "", "spine": "", "leaf": "spine"}
AGENTS = ("s0", "h1")
KINDS = ("int32", "float32", "sparse", "16 bits", "average", "broadcast", "float64")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(tmp_path_factory.mktemp("servers"), SWITCHES, AGENTS, hosts=["h1"]) as fabric:
        yield fabric


def completed(fabric: Fabric, names: list[str]) -> list[int]:
    return [fabric.client.show_switch(name).verdicts["completed"] for name in names]


@pytest.mark.parametrize("names", [["a1"], ["a1", "a2", "a3"], ["a2", "s0", "h1", "a1"]], ids=len)
def test_bits_are_those_of_one_switch(servers: Fabric, names: list[str]) -> None:
    agents = ["s0", "h1", "s0", "h1"]
    _, alone = servers.run(["s0"] * 4, "alone", sums)
    job, found = servers.run(agents, f"over-{len(names)}", sums, aggregators=names)
    assert [(place.switch, place.upstream) for place in job.switches] == [(name, "") for name in names]
    assert len({(place.epoch, place.slot_base) for place in job.switches}) == 1
    require_equal(found, 4)
    for kind, mine, theirs in zip(KINDS, found[0], alone[0], strict=True):
        assert mine.tobytes() == theirs.tobytes(), kind
    wait_until(lambda: servers.free_slots() == {SLOTS}, "the slots are free")


def test_chunks_are_spread_evenly(servers: Fabric) -> None:
    names, chunks = ["a1", "a2", "a3"], 2000
    before = completed(servers, names)
    job, _ = servers.run(["s0", "h1"], "even", lambda comm: comm.all_reduce(np.ones(chunks * VALUES, np.int32)), names)
    loads = np.subtract(completed(servers, names), before)
    assert loads.sum() == job.counters["results"] == chunks
    assert loads.max() / loads.mean() <= 1.02


@pytest.mark.parametrize(
    ("names", "options", "error", "words"),
    [
        (["a1", "nope"], {}, SwitchNotFound, "no switch has the name 'nope'; configured: s0, a1"),
        (["a1", "a2", "a1"], {}, InvalidRequest, "aggregator a1 is named 2 times"),
        (["a1", "a b"], {}, InvalidRequest, "aggregator 'a b' is not a switch's name"),
        (["a1", "leaf"], {}, InvalidRequest, "aggregator leaf is below switch spine"),
        (
            ["a1"],
            {"switch": "s0"},
            InvalidRequest,
            "is on switch s0 with its tree, or over the aggregators a1; give one",
        ),
        (["a1", "a2", "a3"], {"slots": 2}, InvalidRequest, "2 slots cannot be shared by 3 aggregators; ask for more"),
        ([f"s{n}" for n in range(65)], {}, InvalidRequest, "aggregators has 65 entries, and may have 64"),
    ],
)
def test_bad_aggregators(
    servers: Fabric, names: list[str], options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        servers.client.start_job(pb.StartJobRequest(workers=2, aggregators=names, **options))  # type: ignore[arg-type]
    assert servers.free_slots() == {SLOTS}


def test_processes_that_name_other_aggregators(servers: Fabric) -> None:
    with ThreadPoolExecutor(2) as threads:
        others = [
            threads.submit(servers.connect, ["s0", "s0"], rank, "others", names)
            for rank, names in enumerate([("a1", "a2"), ("a2", "a1")])
        ]
        for other in others:
            with pytest.raises(switchml.ConnectError, match=r"a2,a1|a1,a2.* set SWITCHML_AGGREGATORS alike"):
                other.result(DEADLINE)


def test_shrinks_after_a_lost_rank(servers: Fabric) -> None:
    environment = {
        **os.environ,
        "SWITCHML_ON_FAILURE": "shrink",
        "SWITCHML_AGGREGATORS": "a1,a3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "WORLD_SIZE": "3",
    }
    command = [sys.executable, str(SURVIVES), "--victim", "1", "--steps", "8", "--size", "200000"]
    processes = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "SWITCHML_AGENT": str(servers.socket(agent))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, agent in enumerate(["s0", "h1", "s0"])
    ]
    said = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, -9, 0]
    words = [json.loads(line) for line in said[0].splitlines()]
    assert (words[-1]["world_size"], words[-1]["steps"]) == (2, 8)
    ended = [servers.client.get_job(one.id) for one in servers.client.list_jobs(include_ended=True)]
    [job] = [one for one in ended if one.changes]
    assert [place.switch for place in job.switches] == ["a1", "a3"]
    wait_until(lambda: servers.free_slots() == {SLOTS}, "the slots are free")


def test_controller_restarts(servers: Fabric) -> None:
    agents, names = ["s0", "h1"], ["a2", "a3"]
    with ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(servers.connect, agents, rank, "again", names) for rank in range(2)]
        comms = [future.result(DEADLINE) for future in begun]
        servers.controller.kill()
        servers.client.close()
        servers.client = servers.controller.start()
        wait_until(lambda: len([a for a in servers.client.list_agents() if a.live]) == 2, "the agents are back")

        def one_sum(comm: switchml.Communicator) -> bool:
            x = np.full(10_000, comm.rank + 1, np.int32)
            comm.all_reduce(x)
            return bool((x == 3).all())

        assert all(future.result(DEADLINE) for future in [threads.submit(one_sum, comm) for comm in comms])
        [job] = servers.client.list_jobs()
        assert [place.switch for place in job.switches] == names
        for comm in comms:
            comm.close()
    wait_until(lambda: servers.free_slots() == {SLOTS}, "the slots are free")


def test_losses_and_the_end_of_an_aggregator(tmp_path: Path) -> None:
    names = ["a1", "a2"]
    switches = dict.fromkeys(["s0", *names], "")
    with running(tmp_path, switches, ["s0"], dict.fromkeys(names, LOSSY)) as fabric, ThreadPoolExecutor(2) as threads:
        job, found = fabric.run(["s0"] * 3, "lossy", sums, names)
        require_equal(found, 3)
        assert sum(rank.counters.retransmissions + rank.counters.fast_retransmissions for rank in job.ranks) > 0
        begun = [threads.submit(fabric.connect, ["s0", "s0"], rank, "ends", names) for rank in range(2)]
        comms = [future.result(DEADLINE) for future in begun]
        fabric.switches["a2"].process.terminate()
        fabric.switches["a2"].process.wait(DEADLINE)

        def one_sum(comm: switchml.Communicator) -> None:
            comm.all_reduce(np.ones(100_000, np.int32), timeout=DEADLINE)

        for one in [threads.submit(one_sum, comm) for comm in comms]:
            with pytest.raises(switchml.SwitchLost, match="switch a2 is gone"):
                one.result(DEADLINE)
        for comm in comms:
            comm.close()
