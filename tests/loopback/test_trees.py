"""Jobs on trees of soft switches: real switches, controller and agents, over UDP on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from controller_harness import ControllerProcess, configuration, wait_until
from soft_switch import SwitchProcess, running_switch

import switchml
from switchml.controller.errors import NoAgent
from switchml.controller.proto import switchml_pb2 as pb

T = TypeVar("T")

DEADLINE = 60.0
VALUES = 64
SLOTS = 1024
MAX_RANKS = 8  # of an agent
TWO_LEAVES = {"spine": "", "l1": "spine", "l2": "spine"}
THREE_LEVELS = {"core": "", "s1": "core", "l1": "s1", "l2": "s1", "s2": "core"}
LOSSY = ("--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02", "--seed", "7")
SURVIVES = Path(__file__).parents[1] / "fabric" / "workers" / "survives.py"


class Fabric:
    """One agent for each switch of `leaves`, by whose name it goes."""

    def __init__(self, directory: Path, parents: dict[str, str], leaves: Sequence[str], faults: Sequence[str]) -> None:
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self.switches: dict[str, SwitchProcess] = {}
        for name in parents:
            (directory / name).mkdir()
            self.switches[name] = self._stack.enter_context(
                running_switch(directory / name, "--udp-port", "1=127.0.0.1:0", "--values", str(VALUES), *faults)
            )
        config = "".join(self._configuration(name, parent) for name, parent in parents.items())
        self.controller = ControllerProcess(directory, config)
        self.client = self.controller.start()
        self._agents = {name: self._start_agent(name, number) for number, name in enumerate(leaves)}
        wait_until(lambda: len([a for a in self.client.list_agents() if a.live]) == len(leaves), "agents registered")

    def _configuration(self, name: str, parent: str) -> str:
        table = configuration(self.switches[name], name)
        return table + f'parent = {{switch = "{parent}", port = 1, uplink = 1}}\n' if parent else table

    def _start_agent(self, name: str, number: int) -> subprocess.Popen[bytes]:
        arguments = ["--controller", self.controller.listen, "--name", name, "--switch", name]
        arguments += ["--address", f"127.0.0.{number + 1}", "--socket", str(self.socket(name))]
        arguments += ["--max-ranks", str(MAX_RANKS)]
        with (self._directory / f"{name}.log").open("w") as log:
            return subprocess.Popen([sys.executable, "-m", "switchml.host_agent.daemon", *arguments], stderr=log)

    def socket(self, agent: str) -> Path:
        return self._directory / f"{agent}.sock"

    def connect(self, agents: Sequence[str], rank: int, key: str) -> switchml.Communicator:
        """Return the rank's communicator of a job whose ranks are at `agents`."""
        return switchml.connect(
            agent=self.socket(agents[rank]),
            job=key,
            rank=rank,
            world_size=len(agents),
            create=True,
            timeout=DEADLINE,
        )

    def run(self, agents: Sequence[str], key: str, use: Callable[[switchml.Communicator], T]) -> tuple[pb.Job, list[T]]:
        """Run a job with a rank at each of `agents`; return it after its end, and what `use` returned for each rank."""

        def one(rank: int) -> tuple[str, T]:
            with self.connect(agents, rank, key) as comm:
                return comm.name, use(comm)

        with ThreadPoolExecutor(len(agents)) as threads:
            found = [future.result(DEADLINE) for future in [threads.submit(one, rank) for rank in range(len(agents))]]
        name = found[0][0]
        wait_until(lambda: not self.client.list_jobs(), "the job has ended")
        return self.client.get_job(name), [result for _, result in found]

    def free_slots(self) -> set[int]:
        return {switch.slots_free for switch in self.client.list_switches()}

    def stop(self) -> None:
        with self._stack:
            for agent in self._agents.values():
                agent.terminate()
            for agent in self._agents.values():
                assert agent.wait(DEADLINE) == 0
            self.client.close()
            self.controller.stop()


@contextlib.contextmanager
def running(
    directory: Path, parents: dict[str, str], leaves: Sequence[str], faults: Sequence[str] = ()
) -> Iterator[Fabric]:
    fabric = Fabric(directory, parents, leaves, faults)
    try:
        yield fabric
    finally:
        fabric.stop()


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(tmp_path_factory.mktemp("racks"), TWO_LEAVES, ("l1", "l2")) as fabric:
        yield fabric


def inputs(rank: int, length: int = 20_001) -> npt.NDArray[np.float32]:
    values = np.random.default_rng(rank).standard_normal(length).astype(np.float32)
    values[(np.arange(length) // 256 + rank) % 3 != 0] = 0  # blocks that some ranks have
    return values


def sums(comm: switchml.Communicator) -> list[npt.NDArray[np.generic]]:
    """Return the results of several kinds of calls."""
    whole = np.arange(10_000, dtype=np.int32) * (comm.rank + 1)
    dense, sparse, narrow = inputs(comm.rank), inputs(comm.rank), inputs(comm.rank)
    comm.all_reduce(whole)
    comm.all_reduce(dense)
    comm.all_reduce(sparse, sparse=True)
    comm.all_reduce(narrow, wire_bits=16)
    average = inputs(comm.rank)
    comm.all_reduce(average, op="avg")
    told = np.full(500, comm.rank, np.float64)
    comm.broadcast(told, root=comm.world_size - 1)
    comm.barrier()
    return [whole, dense, sparse, narrow, average, told]


def require_equal(found: Sequence[Sequence[npt.NDArray[np.generic]]], world_size: int) -> None:
    """Check that all ranks have the same results, and those whose sums are exact the right ones."""
    for results in found:
        for mine, theirs in zip(results, found[0], strict=True):
            assert np.array_equal(mine, theirs)
    total = sum(range(1, world_size + 1))
    assert np.array_equal(found[0][0], np.arange(10_000, dtype=np.int32) * total)
    assert (found[0][5] == world_size - 1).all()
    exact = np.sum([inputs(rank).astype(np.float64) for rank in range(world_size)], axis=0)
    assert np.abs(found[0][1] - exact).max() < 1e-5


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
    jobs = [racks.client.start_job(workers, name=f"placed-{workers}") for workers in (6, 5, 4)]
    assert [len(job.switches) for job in jobs] == [1, 1, 3]
    assert jobs[0].switches[0].switch != jobs[1].switches[0].switch
    assert len({place.epoch for place in jobs[2].switches}) == len({place.slot_base for place in jobs[2].switches}) == 1
    with pytest.raises(NoAgent, match=r"2 ranks asked, .* of the tree have room for 1"):
        racks.client.start_job(2, name="too-many")
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
    [job] = [one for one in racks.client.list_jobs(include_ended=True) if one.changes]
    assert [(place.switch, place.upstream) for place in job.switches] == [("l1", "")]
    wait_until(lambda: racks.free_slots() == {SLOTS}, "the slots are free")


def test_losses_on_every_link(tmp_path: Path) -> None:
    with running(tmp_path, TWO_LEAVES, ("l1", "l2"), LOSSY) as fabric:
        _, found = fabric.run(["l1", "l2", "l2"], "lossy", sums)
        require_equal(found, 3)


def test_three_levels(tmp_path: Path) -> None:
    with running(tmp_path, THREE_LEVELS, ("l1", "l2", "s2"), LOSSY) as fabric:
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
