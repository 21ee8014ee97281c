"""Jobs on hosts with their own switches, with which ranks share memory, below one that all hosts share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import switchml
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

SURVIVES = Path(__file__).parents[1] / "support" / "workers" / "survives.py"
HOSTS = ("l1", "l2")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(tmp_path_factory.mktemp("hosts"), TWO_LEAVES, HOSTS, hosts=HOSTS) as fabric:
        yield fabric


def parts(comm: switchml.Communicator) -> list[npt.NDArray[np.int32]]:
    """Return the sum of a reduce-scatter, and what an all-gather makes of these."""
    whole = np.arange(5_000 * comm.world_size, dtype=np.int32) + comm.rank
    part = np.empty(5_000, np.int32)
    comm.reduce_scatter(whole, part)
    gathered = np.empty_like(whole)
    comm.all_gather(part, gathered)
    return [part, gathered]


def test_bits_are_those_of_one_switch(hosts: Fabric) -> None:
    agents = ["l1", "l1", "l1", "l2", "l2"]
    job, in_tree = hosts.run(agents, "tree", sums)
    assert {place.switch: place.upstream for place in job.switches} == TWO_LEAVES
    require_equal(in_tree, 5)
    alone, on_one = hosts.run(["l1"] * 5, "alone", sums)
    assert [place.switch for place in alone.switches] == ["l1"]
    for mine, theirs in zip(in_tree[0], on_one[0], strict=True):
        assert mine.tobytes() == theirs.tobytes()
    wait_until(lambda: hosts.free_slots() == {SLOTS}, "the slots are free")


def test_host_sends_one_contribution_for_all_its_ranks(hosts: Fabric) -> None:
    chunks = 100

    def one_sum(comm: switchml.Communicator) -> None:
        comm.all_reduce(np.ones(chunks * VALUES, np.int32))

    job, _ = hosts.run(["l1"] * 4 + ["l2"] * 4, "counted", one_sum)
    again = sum(rank.counters.retransmissions for rank in job.ranks)
    assert job.counters["results"] == chunks
    assert job.counters["contributions"] == 2 * chunks
    assert job.counters["duplicate"] + job.counters["resent"] <= again


def test_owned_parts(hosts: Fabric) -> None:
    _, found = hosts.run(["l1", "l2", "l1", "l2"], "parts", parts)
    expected = 4 * np.arange(20_000, dtype=np.int32) + 6
    for rank, (part, gathered) in enumerate(found):
        assert np.array_equal(part, expected[5_000 * rank : 5_000 * (rank + 1)])
        assert np.array_equal(gathered, expected)


@pytest.mark.parametrize(
    ("parents", "places", "shared", "agents"),
    [
        (TWO_LEAVES, HOSTS, HOSTS, ["l1", "l1", "l2", "l2"]),
        (TWO_LEAVES, HOSTS, ("l1",), ["l1", "l2", "l1", "l2"]),  # the ranks at l2 send packets
        (THREE_LEVELS, ("l1", "l2", "s2"), ("l1", "l2", "s2"), ["l1", "l2", "s2", "s2"]),
    ],
)
def test_losses_on_the_links_between_switches(
    tmp_path: Path, parents: dict[str, str], places: tuple[str, ...], shared: tuple[str, ...], agents: list[str]
) -> None:
    """Test that a host's switch repeats what is lost: its ranks, which share memory with it, send no packets."""
    above = {name for name in parents.values() if name}
    with running(tmp_path, parents, places, dict.fromkeys(above, LOSSY), shared) as fabric:
        job, found = fabric.run(agents, "lossy", lambda comm: (sums(comm), parts(comm)))
        require_equal([whole for whole, _ in found], 4)
        assert np.array_equal(np.concatenate([part for _, (part, _) in found]), found[0][1][1])
        assert sum(rank.counters.retransmissions for rank in job.ranks) > 0


def test_losses_on_all_ports(tmp_path: Path) -> None:
    with running(tmp_path, TWO_LEAVES, HOSTS, dict.fromkeys(TWO_LEAVES, LOSSY), HOSTS) as fabric:
        _, found = fabric.run(["l1", "l2", "l2"], "lossy", sums)
        require_equal(found, 3)


def test_shrinks_after_a_lost_rank(tmp_path: Path) -> None:
    """Test the loss of one of two ranks of a host over lossy links, and then of the other one."""
    agents = ["l1", "l2", "l1", "l2"]
    environment = {
        **os.environ,
        "SWITCHML_ON_FAILURE": "shrink",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "WORLD_SIZE": str(len(agents)),
    }
    with running(tmp_path, TWO_LEAVES, HOSTS, {"spine": LOSSY}, HOSTS) as fabric:
        processes = [
            subprocess.Popen(
                [sys.executable, str(SURVIVES), "--victim", "1", "--victim", "3", "--steps", "10"],
                env={**environment, "RANK": str(rank), "SWITCHML_AGENT": str(fabric.socket(agent))},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, agent in enumerate(agents)
        ]
        said = [process.communicate(timeout=DEADLINE)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, -9, 0, -9]
        for rank in (0, 2):
            words = [json.loads(line) for line in said[rank].splitlines()]
            assert (words[-1]["world_size"], words[-1]["steps"]) == (2, 10)
        ended = [fabric.client.get_job(one.id) for one in fabric.client.list_jobs(include_ended=True)]
        [job] = [one for one in ended if one.changes]
        assert [(place.switch, place.upstream) for place in job.switches] == [("l1", "")]
        wait_until(lambda: fabric.free_slots() == {SLOTS}, "the slots are free")
