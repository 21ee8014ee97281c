"""Jobs on trees of soft switches: real switches, controller and agents, over UDP on loopback."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ControllerProcess, configuration, wait_until
from tests.support.soft_switch import SwitchProcess, running_switch

T = TypeVar("T")

DEADLINE = 60.0
VALUES = 64
SLOTS = 1024
MAX_RANKS = 8  # of an agent
TWO_LEAVES = {"spine": "", "l1": "spine", "l2": "spine"}
THREE_LEVELS = {"core": "", "s1": "core", "l1": "s1", "l2": "s1", "s2": "core"}
LOSSY = ("--drop", "0.02", "--duplicate", "0.02", "--delay", "0.02", "--seed", "7")


class Fabric:
    """One agent for each of `leaves`: at the switch of that name, or of the name before a dot.

    The ranks of the `hosts` among these share memory with their switch. `faults` are options of switches, by name.
    """

    def __init__(
        self,
        directory: Path,
        parents: dict[str, str],
        leaves: Sequence[str],
        faults: Mapping[str, Sequence[str]],
        hosts: Sequence[str],
    ) -> None:
        self._directory = directory
        self._hosts = hosts
        self._stack = contextlib.ExitStack()
        self.switches: dict[str, SwitchProcess] = {}
        for name in parents:
            (directory / name).mkdir()
            arguments = ["--udp-port", "1=127.0.0.1:0", "--values", str(VALUES), *faults.get(name, ())]
            if name in hosts:
                arguments += ["--shm-port", f"2={self._switch_socket(name)}"]
            self.switches[name] = self._stack.enter_context(running_switch(directory / name, *arguments))
        config = "".join(self._configuration(name, parent) for name, parent in parents.items())
        self.controller = ControllerProcess(directory, config)
        self.client = self.controller.start()
        self._agents = {name: self._start_agent(name, number) for number, name in enumerate(leaves)}
        wait_until(lambda: len([a for a in self.client.list_agents() if a.live]) == len(leaves), "agents registered")

    def _configuration(self, name: str, parent: str) -> str:
        table = configuration(self.switches[name], name)
        return table + f'parent = {{switch = "{parent}", port = 1, uplink = 1}}\n' if parent else table

    def _start_agent(self, name: str, number: int) -> subprocess.Popen[bytes]:
        arguments = ["--controller", self.controller.listen, "--name", name, "--switch", name.partition(".")[0]]
        arguments += ["--address", f"127.0.0.{number + 1}", "--socket", str(self.socket(name))]
        arguments += ["--max-ranks", str(MAX_RANKS)]
        if name in self._hosts:
            arguments += ["--transport", "shm", "--switch-socket", str(self._switch_socket(name))]
        with (self._directory / f"{name}.log").open("w") as log:
            return subprocess.Popen([sys.executable, "-m", "switchml.host_agent.daemon", *arguments], stderr=log)

    def _switch_socket(self, name: str) -> Path:
        return self._directory / name / "switch.sock"

    def socket(self, agent: str) -> Path:
        return self._directory / f"{agent}.sock"

    def connect(
        self, agents: Sequence[str], rank: int, key: str, aggregators: Sequence[str] = ()
    ) -> switchml.Communicator:
        """Return the rank's communicator of a job whose ranks are at `agents`."""
        return switchml.connect(
            agent=self.socket(agents[rank]),
            job=key,
            rank=rank,
            world_size=len(agents),
            create=True,
            timeout=DEADLINE,
            aggregators=aggregators,
        )

    def run(
        self,
        agents: Sequence[str],
        key: str,
        use: Callable[[switchml.Communicator], T],
        aggregators: Sequence[str] = (),
    ) -> tuple[pb.Job, list[T]]:
        """Run a job with a rank at each of `agents`; return it after its end, and what `use` returned for each rank."""

        def one(rank: int) -> tuple[str, T]:
            with self.connect(agents, rank, key, aggregators) as comm:
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
    directory: Path,
    parents: dict[str, str],
    leaves: Sequence[str],
    faults: Mapping[str, Sequence[str]] | None = None,
    hosts: Sequence[str] = (),
) -> Iterator[Fabric]:
    fabric = Fabric(directory, parents, leaves, faults or {}, hosts)
    try:
        yield fabric
    finally:
        fabric.stop()


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
    comm.all_reduce(sparse, skip_zeros=True)
    comm.all_reduce(narrow, wire=switchml.Blocks(16))
    average = inputs(comm.rank)
    comm.all_reduce(average, op="avg")
    told = np.full(500, comm.rank, np.float64)
    comm.broadcast(told, root=comm.world_size - 1)
    doubles = inputs(comm.rank).astype(np.float64)
    comm.all_reduce(doubles)
    comm.barrier()
    return [whole, dense, sparse, narrow, average, told, doubles]


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
    assert np.abs(found[0][6] - exact).max() < 1e-14
