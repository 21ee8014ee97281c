"""Jobs by rendezvous: a real switch, controller and two agents; the ranks are threads, or processes that die."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ControllerProcess, configuration, wait_until
from tests.support.soft_switch import running_switch

DEADLINE = 30.0
T = TypeVar("T")
SLOTS = 1024


class Fabric:
    """Agent 0 and agent 1, and the controller, which can be killed and restarted."""

    def __init__(self, directory: Path, controller: ControllerProcess) -> None:
        self.sockets = [directory / f"agent-{number}.sock" for number in range(2)]
        self.controller = controller
        self.client = controller.start()
        self._agents = [self._start_agent(directory, number) for number in range(2)]
        wait_until(lambda: len([a for a in self.client.list_agents() if a.live]) == 2, "the agents are registered")

    def _start_agent(self, directory: Path, number: int) -> subprocess.Popen[bytes]:
        arguments = ["--controller", self.controller.listen, "--name", f"agent-{number}"]
        arguments += ["--address", f"127.0.0.{number + 1}", "--socket", str(self.sockets[number])]
        with (directory / f"agent-{number}.log").open("w") as log:
            return subprocess.Popen([sys.executable, "-m", "switchml.host_agent.daemon", *arguments], stderr=log)

    def connect(
        self, rank: int, size: int, key: str, agent: int, timeout: float = DEADLINE, priority: int = 0
    ) -> switchml.Communicator:
        return switchml.connect(
            agent=self.sockets[agent],
            job=key,
            rank=rank,
            world_size=size,
            create=True,
            timeout=timeout,
            priority=priority,
        )

    def restart_controller(self) -> None:
        self.controller.kill()
        self.client.close()
        self.client = self.controller.start()

    def jobs(self, include_ended: bool = False) -> list[pb.Job]:
        return self.client.list_jobs(include_ended=include_ended)

    def stop(self) -> None:
        for agent in self._agents:
            agent.terminate()
        for agent in self._agents:
            assert agent.wait(DEADLINE) == 0
        self.client.close()


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    directory = tmp_path_factory.mktemp("fabric")
    with running_switch(directory, "--udp-port", "1=127.0.0.1:0") as switch:
        controller = ControllerProcess(directory, configuration(switch))
        try:
            running = Fabric(directory, controller)
            yield running
            running.stop()
        finally:
            controller.stop()


@pytest.fixture(autouse=True)
def nothing_is_left(fabric: Fabric) -> Iterator[None]:
    yield
    wait_until(lambda: not fabric.jobs(), "no job lives")
    wait_until(lambda: fabric.client.list_switches()[0].slots_free == SLOTS, "the slots are free")


def all_ranks(fabric: Fabric, key: str, size: int, use: Callable[[switchml.Communicator], T]) -> list[T]:
    """Start `size` ranks, the odd ones at agent 1, and call `use` for each in a separate thread."""

    def run(rank: int) -> T:
        with fabric.connect(rank, size, key, rank % 2) as comm:
            return use(comm)

    with ThreadPoolExecutor(size) as threads:
        return [future.result(DEADLINE) for future in [threads.submit(run, rank) for rank in range(size)]]


def total(comm: switchml.Communicator) -> tuple[str, int, int]:
    x = np.full(1000, comm.rank + 1, np.int32)
    comm.all_reduce(x)
    assert (x == x[0]).all()
    return comm.name, comm.epoch, int(x[0])


def test_ranks_of_two_agents_form_a_job_again_and_again(fabric: Fabric) -> None:
    first = all_ranks(fabric, "train/0", 4, total)
    assert len(set(first)) == 1
    assert [sums for _, _, sums in first] == [10] * 4
    again = all_ranks(fabric, "train/0", 4, total)
    assert again[0][0] == first[0][0]  # the same name
    assert again[0][1] > first[0][1]  # in another epoch
    wait_until(lambda: not fabric.jobs(), "the second job has ended as well")
    jobs = [job for job in fabric.jobs(include_ended=True) if job.name == first[0][0]]
    assert [job.state for job in jobs] == [pb.JOB_STATE_COMPLETED, pb.JOB_STATE_COMPLETED]
    assert [rank.agent for rank in fabric.client.get_job(jobs[0].id).ranks] == [
        "agent-0",
        "agent-1",
        "agent-0",
        "agent-1",
    ]


def test_jobs_of_different_keys_live_side_by_side(fabric: Fabric) -> None:
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(all_ranks, fabric, f"group/{number}", 2, total) for number in range(3)]
        assert len({future.result(DEADLINE)[0][0] for future in found}) == 3


def test_at_the_deadline_every_rank_that_came_is_told_who_is_missing(fabric: Fabric) -> None:
    def wait(rank: int, timeout: float) -> switchml.ConnectError:
        with pytest.raises(switchml.ConnectError, match="ranks 1, 3 of 4 did not come in time") as raised:
            fabric.connect(rank, 4, "late", rank // 2, timeout)
        return raised.value

    log = fabric.controller.log
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(wait, 2, 3 * DEADLINE)]
        wait_until(lambda: "key 'late': the first of 4 ranks waits" in log.read_text(), "it waits")
        futures.append(threads.submit(wait, 0, 0.7))
        assert [future.result(DEADLINE).reason for future in futures] == ["MissingRanks", "MissingRanks"]


WAITER = """
import sys, switchml
agent, key = sys.argv[1:]
print("waits", flush=True)
comm = switchml.connect(agent=agent, job=key, rank=1, world_size=2, create=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def waiting_process(fabric: Fabric, key: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WAITER, str(fabric.sockets[1]), key]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


def test_the_place_of_a_process_that_dies_while_it_waits_is_free(fabric: Fabric) -> None:
    log = fabric.controller.log
    with waiting_process(fabric, "dies") as process:
        wait_until(lambda: "key 'dies': the first of 2 ranks waits" in log.read_text(), "it waits")
        process.kill()
        process.wait(DEADLINE)

    def next_rank() -> int:
        with fabric.connect(1, 2, "dies", 1) as comm:
            return total(comm)[2]

    with ThreadPoolExecutor(1) as thread:
        rank_1 = thread.submit(next_rank)
        # Its agent reports first that the process is gone: the controller must not take rank 0's partner for that one.
        wait_until(lambda: log.read_text().count("key 'dies': the first of 2 ranks waits") == 2, "rank 1 waits again")
        with fabric.connect(0, 2, "dies", 0) as comm:
            assert total(comm)[2] == 3
        assert rank_1.result(DEADLINE) == 3


def test_a_rank_that_dies_is_named_to_the_others_at_once(fabric: Fabric, limit: Callable[[float], float]) -> None:
    with waiting_process(fabric, "lost") as process, fabric.connect(0, 2, "lost", 0) as comm:
        work = comm.all_reduce(np.ones(1000, np.float32), async_op=True)
        began = time.monotonic()
        process.kill()
        with pytest.raises(switchml.WorkerLost, match="rank 1 was lost") as raised:
            work.wait()
        assert time.monotonic() - began < limit(2)
        assert raised.value.ranks == (1,)
    wait_until(lambda: not fabric.jobs(), "the job has ended")
    assert fabric.jobs(include_ended=True)[-1].state == pb.JOB_STATE_FAILED


def test_the_end_of_a_rank_is_noticed_by_the_next_call_of_the_others(
    fabric: Fabric, limit: Callable[[float], float]
) -> None:
    """Let rank 2 close after two calls: the others complete those, and their third call fails at once."""

    def run(rank: int) -> tuple[float, tuple[int, ...]]:
        with fabric.connect(rank, 3, "left", rank % 2) as comm:
            x = np.full(100_000, 1, np.int32)
            comm.all_reduce(x)
            second = comm.all_reduce(x, async_op=True)
            ranks: tuple[int, ...] = ()
            began = time.monotonic()
            if rank < 2:
                with pytest.raises(switchml.RankClosed, match="rank 2 has closed its communicator after 2") as raised:
                    comm.all_reduce(np.ones(5, np.int32), async_op=True).wait()
                ranks = raised.value.ranks
            seconds = time.monotonic() - began
            second.wait()
            assert (x == 9).all()
            calls: list[Callable[[], object]] = [comm.barrier, lambda: comm.all_reduce(x)]
            for call in calls if rank < 2 else ():
                with pytest.raises(switchml.RankClosed):
                    call()
                assert isinstance(comm.failure, switchml.RankClosed)
            return seconds, ranks

    with ThreadPoolExecutor(3) as threads:
        found = [future.result(DEADLINE) for future in [threads.submit(run, rank) for rank in range(3)]]
    assert [ranks for _, ranks in found] == [(2,), (2,), ()]
    assert all(seconds < limit(2) for seconds, _ in found)
    wait_until(lambda: not fabric.jobs(), "the job has ended")
    [job] = [job for job in fabric.jobs(include_ended=True) if job.name.startswith("left")]
    assert job.state == pb.JOB_STATE_COMPLETED  # nothing was lost


def test_a_rank_that_attaches_late_learns_who_has_closed(fabric: Fabric) -> None:
    job = fabric.client.start_job(pb.StartJobRequest(workers=3))
    agents = {rank.rank: Path(rank.agent_socket) for rank in job.ranks}

    def connect(rank: int) -> switchml.Communicator:
        return switchml.connect(agent=agents[rank], job=job.id, rank=rank, world_size=3)

    connect(2).close()
    with connect(0) as early:
        with pytest.raises(switchml.RankClosed, match="rank 2 has closed its communicator after 0 calls"):
            early.all_reduce(np.ones(5, np.float32))
        with connect(1) as late, pytest.raises(switchml.RankClosed, match="rank 2"):
            late.barrier()


def test_the_end_of_a_rank_is_told_again_by_a_restarted_controller(fabric: Fabric) -> None:
    """Let rank 1 close while no controller runs."""
    with ThreadPoolExecutor(2) as threads:
        ranks = [
            future.result(DEADLINE) for future in [threads.submit(fabric.connect, n, 2, "away", n) for n in (0, 1)]
        ]
    fabric.controller.kill()
    fabric.client.close()
    ranks[1].close()
    work = ranks[0].all_reduce(np.ones(5, np.float32), async_op=True)
    fabric.client = fabric.controller.start()
    with pytest.raises(switchml.RankClosed, match="rank 1 has closed its communicator after 0 calls"):
        work.wait()
    ranks[0].close()


def test_a_controller_that_is_restarted_hears_again_of_those_who_wait(fabric: Fabric) -> None:
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(fabric.connect, 0, 2, "restart", 0)
        log = fabric.controller.log
        wait_until(lambda: "key 'restart': the first of 2 ranks waits" in log.read_text(), "it waits")
        fabric.restart_controller()
        with fabric.connect(1, 2, "restart", 1) as second, first.result(DEADLINE) as comm:
            barrier = threading.Thread(target=comm.barrier)
            barrier.start()
            second.barrier()
            barrier.join(DEADLINE)


def test_a_job_has_the_priority_that_its_ranks_ask_for(fabric: Fabric) -> None:
    def run(rank: int) -> int:
        with fabric.connect(rank, 2, "urgent", rank, priority=5) as comm:
            assert fabric.client.get_job(comm.name).priority == 5
            comm.barrier()
            return comm.priority

    def refused(rank: int) -> str:
        with pytest.raises(switchml.ConnectError, match="give all ranks the same priority") as raised:
            fabric.connect(rank, 2, "urgent", rank, priority=rank)
        return raised.value.reason

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, range(2))) == [5, 5]
        assert list(threads.map(refused, range(2))) == ["InvalidRequest"] * 2
    with pytest.raises(ValueError, match="priority is 8; it must be from 0 to 7"):
        fabric.connect(0, 2, "urgent", 0, priority=8)
    with pytest.raises(TypeError, match=r"priority is 0\.5"):
        fabric.connect(0, 2, "urgent", 0, priority=0.5)  # type: ignore[arg-type]


def test_what_is_wrong_reaches_every_rank(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(rank: int, size: int) -> str:
        with pytest.raises(switchml.ConnectError) as raised:
            fabric.connect(rank, size, "wrong", 0)
        return raised.value.reason

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(refused, (0, 1), (2, 3))) == ["WrongWorldSize"] * 2
        assert list(threads.map(refused, (0, 0), (2, 2))) == ["RankTaken"] * 2
        monkeypatch.setenv("SWITCHML_SLOTS", str(2 * SLOTS))
        assert list(threads.map(refused, (0, 1), (2, 2))) == ["NoRoom"] * 2
    monkeypatch.setenv("SWITCHML_SLOTS", "64")
    found: list[int] = []

    def note(comm: switchml.Communicator) -> None:
        comm.barrier()
        found.append(fabric.client.get_job(comm.name).switches[0].slots)
        comm.barrier()

    all_ranks(fabric, "pool", 2, note)
    assert found == [64, 64]
