"""Two controllers on one store: the standby takes over from one that dies, stops or stalls, and jobs continue."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError, StoreError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.store.database import Store, lock_path, stand_by
from switchml.controller.store.lock import BEAT_SECONDS, LEASE_SECONDS, LOOP_SECONDS, Beating, Leader, StoreLock
from tests.support.controller_harness import DEADLINE, configuration, controller_command, resume, suspend, wait_until
from tests.support.soft_switch import SwitchProcess, running_switch


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Pair:
    """Two controllers of one switch, and an agent that has both addresses."""

    def __init__(self, directory: Path, switch: SwitchProcess) -> None:
        self.directory = directory
        self.config = directory / "controller.toml"
        self.config.write_text(configuration(switch))
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.controllers: list[subprocess.Popen[bytes]] = []
        self.start(0)
        self.client = ControllerClient(",".join(self.addresses), timeout=2)
        wait_until(self.is_connected, "the switch is connected")
        self.start(1, "--standby")
        command = [
            sys.executable,
            "-m",
            "switchml.host_agent.daemon",
            "--controller",
            ",".join(self.addresses),
            "--name",
            "a1",
        ]
        self.socket = directory / "agent.sock"
        with (directory / "agent.log").open("wb") as log:
            self.agent = subprocess.Popen([*command, "--socket", str(self.socket)], stderr=log)
        wait_until(self.has_agent, "the agent has registered")

    def start(self, number: int, *options: str) -> None:
        address = self.addresses[number]
        arguments = ["--config", str(self.config), "--store", str(self.directory / "store.sqlite"), "--listen", address]
        with self.log(number).open("ab") as log:
            self.controllers.append(subprocess.Popen(controller_command(*arguments, *options), stderr=log))
        awaited = "stands by" if options else "listens on"
        wait_until(lambda: awaited in self.log(number).read_text(), f"controller {number} {awaited}")

    def log(self, number: int) -> Path:
        return self.directory / f"controller-{number}.log"

    def is_connected(self) -> bool:
        try:
            return all(switch.connected and switch.primary for switch in self.client.list_switches())
        except ControllerError:
            return False

    def has_agent(self) -> bool:
        try:
            return any(agent.live for agent in self.client.list_agents())
        except ControllerError:
            return False

    def close(self) -> None:
        self.client.close()
        for process in (self.agent, *self.controllers):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(DEADLINE)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with (
        running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as switch,
        contextlib.closing(Pair(tmp_path, switch)) as pair,
    ):
        yield pair


def all_reduce_during(pair: Pair, event: Callable[[], None]) -> None:
    """Make checked all-reduces on two ranks, before and while `event` happens and afterwards."""
    job = pair.client.start_job(pb.StartJobRequest(workers=2, name="goes-on"))
    done, sums, errors = threading.Event(), [0, 0], []

    def train(rank: int) -> None:
        try:
            with switchml.connect(agent=pair.socket, job="goes-on", rank=rank) as comm:
                more = np.ones(1, np.int32)
                while more[0]:
                    x = np.full(20_000, sums[rank] + rank, np.int32)
                    comm.all_reduce(x)
                    assert (x == 2 * sums[rank] + 1).all()
                    sums[rank] += 1
                    more[0] = rank == 0 and not done.is_set()
                    comm.all_reduce(more)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: sums[1] > 20 or errors, "all-reduces are under way")
        event()
        before = sums[1]
        wait_until(lambda: sums[1] > before + 20 or errors, "all-reduces go on")
    finally:
        done.set()
        for thread in threads:
            thread.join(DEADLINE)
    assert errors == []
    assert job.epoch == pair.client.get_job("goes-on").epoch


@pytest.mark.parametrize(
    "how", ["killed", *(pytest.param(how, marks=pytest.mark.long) for how in ("ended", "stalled"))]
)
def test_the_standby_takes_over_while_a_job_runs(pair: Pair, how: str, figure: Callable[[str], None]) -> None:
    first = pair.controllers[0]

    def lose_the_leader() -> None:
        began = time.monotonic()
        ways: dict[str, Callable[[], object]] = {
            "killed": first.kill,
            "ended": first.terminate,
            "stalled": partial(suspend, first),
        }
        ways[how]()
        with ControllerClient(pair.addresses[1], timeout=2) as second:
            pair.client.close()
            pair.client = second
            wait_until(lambda: pair.is_connected() and pair.has_agent(), "the standby leads")
            figure(f"leader {how}: the standby leads and has the agent after {time.monotonic() - began:.1f} s")
        pair.client = ControllerClient(pair.addresses[1])

    all_reduce_during(pair, lose_the_leader)
    assert pair.client.info().term == 2
    *_, last = pair.client.watch_job("goes-on")
    assert last.state == pb.JOB_STATE_COMPLETED
    assert pair.client.start_job(pb.StartJobRequest(workers=2)).state == pb.JOB_STATE_READY
    if how == "stalled":
        resume(first)
        if f"killed process {first.pid}" not in pair.log(1).read_text():  # inside a transaction
            assert first.wait(DEADLINE) == 1  # it notices that the other controller leads, and ends
            assert "has taken over store" in pair.log(0).read_text()
        assert pair.is_connected()


def test_a_second_leader_is_refused(pair: Pair) -> None:
    arguments = ["--config", str(pair.config), "--store", str(pair.directory / "store.sqlite")]
    refused = subprocess.run(
        controller_command(*arguments, "--listen", "127.0.0.1:0"), capture_output=True, text=True, timeout=DEADLINE
    )
    assert refused.returncode == 1
    assert "in use by another controller" in refused.stderr
    assert "--standby" in refused.stderr


STALLS_INSIDE_A_TRANSACTION = """
import os, signal, sqlite3, sys
from pathlib import Path
from switchml.controller.store.database import Store
path = Path(sys.argv[1])
database = Store(path)._database if sys.argv[2] == "leader" else sqlite3.connect(path)
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE leadership SET term = 99")
os.kill(os.getpid(), signal.SIGSTOP)
"""


def stopped_inside_a_transaction(store: Path, who: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", STALLS_INSIDE_A_TRANSACTION, str(store), who])
    wait_until(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), "it has stopped")
    return process


def test_a_leader_that_stalls_inside_a_transaction_is_killed(tmp_path: Path) -> None:
    leader = stopped_inside_a_transaction(tmp_path / "store.sqlite", "leader")
    with contextlib.closing(asyncio.run(stand_by(tmp_path / "store.sqlite"))) as store:
        assert leader.wait(DEADLINE) == -signal.SIGKILL
        assert store.term == 2  # what the leader had not committed is gone


async def test_a_leader_whose_event_loop_is_slow_goes_on_to_beat(tmp_path: Path) -> None:
    """Block the loop until a standby has seen more beats than fit into its patience."""
    wanted = 2 * int(LEASE_SECONDS / BEAT_SECONDS)
    seen: set[bytes] = set()

    def look() -> None:
        def enough() -> bool:
            seen.add(lock_path(store.path).read_bytes())
            return len(seen) > wanted

        wait_until(enough, f"{wanted} beats")

    with contextlib.closing(Store(tmp_path / "store.sqlite")) as store:
        leading = asyncio.create_task(store.lead())
        await asyncio.sleep(0)
        watching = threading.Thread(target=look)
        watching.start()
        watching.join()
        assert len(seen) > wanted
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)


def test_a_leader_whose_event_loop_stands_still_does_not_beat(tmp_path: Path) -> None:
    lock, started = StoreLock(tmp_path / "lock"), [0.0]
    before = (tmp_path / "lock").read_bytes()
    with contextlib.closing(Beating(lock, lambda: started.pop() if started else LOOP_SECONDS + 1)) as beating:
        beating.beat()
        assert (tmp_path / "lock").read_bytes() == before
        beating.turned()
        beating.beat()
        assert (tmp_path / "lock").read_bytes() != before
    lock.close()


def test_a_process_that_is_not_the_leader_is_never_killed(tmp_path: Path) -> None:
    Store(tmp_path / "store.sqlite").close()
    other = stopped_inside_a_transaction(tmp_path / "store.sqlite", "other")
    try:
        with pytest.raises(StoreError, match="locked; another process"):
            Store(tmp_path / "store.sqlite", Leader((tmp_path / "store.sqlite.lock").stat().st_ino, os.getpid()))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait(DEADLINE)
