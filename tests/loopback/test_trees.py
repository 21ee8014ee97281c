"""Jobs on trees of soft switches whose ranks send packets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.controller.errors import NoAgent
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES
from switchml.dataplane.floats import sum_digits
from tests.loopback.tree_fabric import (
    DEADLINE,
    LOSSY,
    SLOTS,
    THREE_LEVELS,
    TWO_LEAVES,
    VALUES,
    Fabric,
    require_equal,
    running,
    sums,
)
from tests.support.controller_harness import wait_until

Floats = npt.NDArray[np.float32]

SURVIVES = Path(__file__).parents[1] / "support" / "workers" / "survives.py"


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(tmp_path_factory.mktemp("racks"), TWO_LEAVES, ("l1", "l2")) as fabric:
        yield fabric


def test_bits_are_those_of_one_switch(racks: Fabric) -> None:
    agents = ["l1", "l2", "l1", "l2", "l2"]
    job, in_tree = racks.run(agents, "tree", sums)
    assert {place.switch: place.upstream for place in job.switches} == {"spine": "", "l1": "spine", "l2": "spine"}
    require_equal(in_tree, 5)
    alone, on_one = racks.run(["l1"] * 5, "alone", sums)
    assert [place.switch for place in alone.switches] == ["l1"]
    for mine, theirs in zip(in_tree[0], on_one[0], strict=True):
        assert mine.tobytes() == theirs.tobytes()
    wait_until(lambda: racks.free_slots() == {SLOTS}, "the slots are free")


def test_each_switch_rounds_sums_of_floats(racks: Fabric) -> None:
    """A leaf rounds the sum of its ranks to float32, and the spine that of the leaves' sums."""
    agents = ["l1", "l2", "l1", "l2", "l2"]

    def contribution(rank: int) -> Floats:
        random = np.random.default_rng(rank)
        return (random.standard_normal(5000) * np.exp2(random.integers(-20, 20, 5000))).astype(np.float32)

    def float_sum(comm: switchml.Communicator) -> Floats:
        x = contribution(comm.rank)
        comm.all_reduce(x, wire=switchml.Floats())
        return x

    _, results = racks.run(agents, "floats", float_sum)
    of_leaves = [
        sum_digits(np.stack([contribution(rank) for rank, agent in enumerate(agents) if agent == leaf]))
        for leaf in ("l1", "l2")
    ]
    for result in results:
        assert result.tobytes() == sum_digits(np.stack(of_leaves)).tobytes()
    exact = np.sum([contribution(rank).astype(np.float64) for rank in range(5)], axis=0)
    rounding = sum(np.spacing(np.abs(of_leaf)) / 2 for of_leaf in of_leaves)
    dropped = 7 * 2.0**-47 * np.abs(np.stack([contribution(rank) for rank in range(5)] + of_leaves)).max(axis=0)
    assert (np.abs(results[0] - exact) <= np.spacing(np.abs(results[0])) / 2 + rounding + dropped).all()


def test_spine_gets_one_contribution_of_each_leaf_and_chunk(racks: Fabric) -> None:
    chunks = 100

    def one_sum(comm: switchml.Communicator) -> None:
        comm.all_reduce(np.ones(chunks * VALUES, np.int32))

    job, _ = racks.run(["l1", "l1", "l1", "l2", "l2"], "counted", one_sum)
    sent = job.counters["contributions"] + job.counters["duplicate"] + job.counters["resent"]
    retransmissions = sum(rank.counters.retransmissions + rank.counters.fast_retransmissions for rank in job.ranks)
    assert job.counters["results"] == chunks
    assert job.counters["contributions"] == 2 * chunks
    assert sent <= 2 * chunks + retransmissions


@pytest.mark.parametrize("loss", [(), LOSSY])
def test_values_reach_only_the_ranks_that_read_them(tmp_path: Path, loss: tuple[str, ...]) -> None:
    """Test the bytes that each rank, alone at its link, gets of an all-gather and a reduce-scatter, and their bits."""
    agents = ["l1", "l2", "l1.b", "l2.b", "l1.c"]
    world_size, of_part = len(agents), 5
    size = of_part * VALUES
    together = threading.Barrier(world_size, timeout=DEADLINE)
    counted: list[list[int]] = []

    def use(fabric: Fabric, comm: switchml.Communicator) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        def count() -> None:
            if together.wait() == 0:
                ranks = fabric.client.profile_job(comm.name).ranks
                counted.append([one.received_bytes for one in sorted(ranks, key=lambda one: one.rank)])
            together.wait()

        count()
        gathered = np.zeros((world_size, size), np.int32)
        comm.all_gather(np.full(size, comm.rank + 1, np.int32), gathered)
        count()
        part = np.zeros(size, np.int32)
        comm.reduce_scatter(np.arange(world_size * size, dtype=np.int32) * (comm.rank + 1), part)
        count()
        return gathered, part

    with running(tmp_path, TWO_LEAVES, agents, dict.fromkeys(TWO_LEAVES, loss)) as fabric:
        _, found = fabric.run(agents, "pruned", partial(use, fabric))
    sums = np.arange(world_size * size, dtype=np.int32) * 15
    for rank, (gathered, part) in enumerate(found):
        assert (gathered == np.arange(1, world_size + 1)[:, None]).all()
        assert np.array_equal(part, sums[rank * size : (rank + 1) * size])
    before, after_gather, after_scatter = np.array(counted)
    headers, values = world_size * of_part * PROTOCOL_HEADER_BYTES, of_part * 4 * VALUES
    assert (after_gather - before == headers + (world_size - 1) * values).all()
    assert (after_scatter - after_gather == headers + values).all()


def test_jobs_share_the_trees(racks: Fabric) -> None:
    def one_sum(comm: switchml.Communicator) -> int:
        x = np.full(50_000, comm.rank + 1, np.int32)
        for _ in range(5):
            x[:] = comm.rank + 1
            comm.all_reduce(x)
        assert (x == x[0]).all()
        return int(x[0])

    def one_job(number: int) -> list[int]:
        agents = [["l1", "l2"], ["l2", "l1", "l1"], ["l2", "l2"]][number % 3]

        def one(rank: int) -> int:
            with racks.connect(agents, rank, f"shared/{number}") as comm:
                return one_sum(comm)

        with ThreadPoolExecutor(len(agents)) as threads:
            return [future.result(DEADLINE) for future in [threads.submit(one, rank) for rank in range(len(agents))]]

    with ThreadPoolExecutor(6) as threads:
        found = [future.result(DEADLINE) for future in [threads.submit(one_job, number) for number in range(6)]]
    assert found == [[3, 3], [6, 6, 6], [3, 3]] * 2
    wait_until(lambda: racks.free_slots() == {SLOTS}, "the slots are free")


def test_controller_places_ranks_on_few_switches(racks: Fabric) -> None:
    requests = [pb.StartJobRequest(workers=workers, name=f"placed-{workers}") for workers in (6, 5, 4)]
    jobs = [racks.client.start_job(request) for request in requests]
    assert [len(job.switches) for job in jobs] == [1, 1, 3]
    assert jobs[0].switches[0].switch != jobs[1].switches[0].switch
    assert len({place.epoch for place in jobs[2].switches}) == len({place.slot_base for place in jobs[2].switches}) == 1
    with pytest.raises(NoAgent, match=r"2 ranks asked, .* of the tree have room for 1"):
        racks.client.start_job(pb.StartJobRequest(workers=2, name="too-many"))
    for job in jobs:
        racks.client.stop_job(job.name)


def test_shrinks_after_a_lost_rank(racks: Fabric) -> None:
    """Test the loss of one of two ranks of a leaf, and then of the other one, after which a switch is left alone."""
    agents = ["l1", "l2", "l1", "l2"]
    environment = {
        **os.environ,
        "SWITCHML_ON_FAILURE": "shrink",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "WORLD_SIZE": str(len(agents)),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(SURVIVES), "--victim", "1", "--victim", "3", "--steps", "10"],
            env={**environment, "RANK": str(rank), "SWITCHML_AGENT": str(racks.socket(agent))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, agent in enumerate(agents)
    ]
    said = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, -9, 0, -9]
    for rank in (0, 2):
        words = [json.loads(line) for line in said[rank].splitlines()]
        assert words[-1]["world_size"] == 2
        assert words[-1]["steps"] == 10
        assert {number for word in words for number in word.get("lost", ())} >= {1}
    ended = [racks.client.get_job(one.id) for one in racks.client.list_jobs(include_ended=True)]
    [job] = [one for one in ended if one.changes]
    assert [(place.switch, place.upstream) for place in job.switches] == [("l1", "")]
    wait_until(lambda: racks.free_slots() == {SLOTS}, "the slots are free")


def test_losses_on_every_link(tmp_path: Path) -> None:
    with running(tmp_path, TWO_LEAVES, ("l1", "l2"), dict.fromkeys(TWO_LEAVES, LOSSY)) as fabric:
        _, found = fabric.run(["l1", "l2", "l2"], "lossy", sums)
        require_equal(found, 3)


def test_three_levels(tmp_path: Path) -> None:
    with running(tmp_path, THREE_LEVELS, ("l1", "l2", "s2"), dict.fromkeys(THREE_LEVELS, LOSSY)) as fabric:
        job, found = fabric.run(["l1", "l2", "s2", "l2"], "deep", sums)
        require_equal(found, 4)
        assert {place.switch: place.upstream for place in job.switches} == THREE_LEVELS


@pytest.mark.parametrize("victim", ["spine", "l2"])
def test_lost_switch_ends_the_jobs_of_its_trees(tmp_path: Path, victim: str) -> None:
    with running(tmp_path, TWO_LEAVES, ("l1", "l2")) as fabric, ThreadPoolExecutor(4) as threads:
        tree = [threads.submit(fabric.connect, ["l1", "l2"], rank, "tree") for rank in range(2)]
        alone = [threads.submit(fabric.connect, ["l1", "l1"], rank, "alone") for rank in range(2)]
        comms = [future.result(DEADLINE) for future in (*tree, *alone)]
        fabric.switches[victim].process.terminate()
        fabric.switches[victim].process.wait(DEADLINE)

        def one_sum(comm: switchml.Communicator) -> None:
            comm.all_reduce(np.ones(100_000, np.int32), timeout=DEADLINE)

        sums = [threads.submit(one_sum, comm) for comm in comms]
        for one in sums[2:]:
            one.result(DEADLINE)
        for one in sums[:2]:
            with pytest.raises(switchml.SwitchLost, match=f"switch {victim} is gone"):
                one.result(DEADLINE)
        for comm in comms:
            comm.close()


def test_controller_restarts(racks: Fabric) -> None:
    agents = ["l1", "l2", "l2"]
    with ThreadPoolExecutor(3) as threads:
        comms = [f.result(DEADLINE) for f in [threads.submit(racks.connect, agents, r, "again") for r in range(3)]]
        racks.controller.kill()
        racks.client.close()
        racks.client = racks.controller.start()
        wait_until(lambda: len([a for a in racks.client.list_agents() if a.live]) == 2, "the agents are back")

        def one_sum(comm: switchml.Communicator) -> bool:
            x = np.full(10_000, comm.rank + 1, np.int32)
            comm.all_reduce(x)
            return bool((x == 6).all())

        assert all(future.result(DEADLINE) for future in [threads.submit(one_sum, comm) for comm in comms])
        for comm in comms:
            comm.close()
    wait_until(lambda: racks.free_slots() == {SLOTS}, "the slots are free")
