"""The controller is killed while a job makes 100 all-reduces, and while one changes its epoch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import DEADLINE, ControllerProcess, ScriptedAgent, configuration, wait_until
from tests.support.soft_switch import running_switch

CALLS = 100
KILLED_AT = 20
ELEMENTS = 200_000


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as switch:
        process = ControllerProcess(tmp_path, configuration(switch))
        yield process
        process.stop()


@pytest.fixture
def agent(controller: ControllerProcess, tmp_path: Path) -> Iterator[Path]:
    """Provide the socket of a registered agent process, with a running controller."""
    client = controller.start()
    socket = tmp_path / "agent.sock"
    command = [
        sys.executable,
        "-m",
        "switchml.host_agent.daemon",
        "--controller",
        client.address,
        "--socket",
        str(socket),
    ]
    with (tmp_path / "agent.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_until(lambda: any(agent.live for agent in client.list_agents()), "the agent has registered")
        yield socket
    finally:
        process.terminate()
        process.wait(DEADLINE)


def all_reduces(comm: switchml.Communicator, before_call: Callable[[int], None]) -> list[float]:
    """Make checked calls on this rank and return the seconds that each took."""
    seconds = []
    for number in range(CALLS):
        before_call(number)
        x = np.full(ELEMENTS, number + comm.rank, np.int32)
        began = time.perf_counter()
        comm.all_reduce(x)
        seconds.append(time.perf_counter() - began)
        assert (x == 2 * number + 1).all()
    return seconds


def p95(seconds: list[float]) -> float:
    """In milliseconds."""
    return 1e3 * float(np.percentile(seconds, 95))


def test_no_all_reduce_fails(controller: ControllerProcess, agent: Path, figure: Callable[[str], None]) -> None:
    with ControllerClient(controller.listen) as client:
        job = client.start_job(pb.StartJobRequest(workers=2, name="goes-on"))
    quiet: dict[int, list[float]] = {}
    killed: dict[int, list[float]] = {}
    back = threading.Event()
    errors: list[BaseException] = []

    def kill(number: int) -> None:
        if number == KILLED_AT:
            assert controller.process is not None
            controller.process.kill()

    def train(rank: int) -> None:
        try:
            with switchml.connect(agent=agent, job="goes-on", rank=rank) as comm:
                quiet[rank] = all_reduces(comm, lambda _: None)
                killed[rank] = all_reduces(comm, kill if rank == 0 else lambda _: None)
                assert back.wait(DEADLINE)
                all_reduces(comm, lambda _: None)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(killed) == 2 or errors, "the calls have been made")
    controller.kill()  # it has already ended; collect its status
    client = controller.start()
    wait_until(lambda: client.get_job("goes-on").ranks[1].state == pb.RANK_STATE_ATTACHED, "the job is taken over")
    back.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert errors == []
    assert client.get_job("goes-on").epoch == job.epoch
    *_, last = client.watch_job("goes-on")
    assert last.state == pb.JOB_STATE_COMPLETED
    figure(
        f"{CALLS} all-reduces of {ELEMENTS} int32: p95 {p95(quiet[0]):.2f} ms; "
        f"with the controller killed in their midst: p95 {p95(killed[0]):.2f} ms, longest {1e3 * max(killed[0]):.2f} ms"
    )


def test_while_a_job_changes_its_epoch(controller: ControllerProcess) -> None:
    """Check that the job fails when a controller takes over, which cannot know how far the change got."""
    client = controller.start()
    with ScriptedAgent(client.address) as agent, ScriptedAgent(client.address, "a2") as other:
        job = client.start_job(pb.StartJobRequest(workers=2, name="changes", on_failure=pb.ON_FAILURE_SHRINK))
        agent.event(job, 0, pb.RankEvent.KIND_ATTACHED)
        other.event(job, 1, pb.RankEvent.KIND_ATTACHED)
        other.event(job, 1, pb.RankEvent.KIND_LOST, detail="its process was killed")
        agent.wait_for("quiesce")
        controller.kill()
    client = controller.start()
    found = client.get_job("changes")
    assert (found.state, found.failure) == (
        pb.JOB_STATE_FAILED,
        "the controller was restarted while the job changed to another epoch",
    )
    assert client.list_switches()[0].slots_free == client.list_switches()[0].slots
    with ScriptedAgent(client.address) as agent:
        assert client.start_job(pb.StartJobRequest(workers=2)).epoch > job.epoch + 1
