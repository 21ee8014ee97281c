"""A job whose slots have been used as often as one epoch allows, which is a few hundred times here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import switchml
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.daemon import AgentOptions, serve
from tests.support.controller_harness import DEADLINE, configuration, running_controller, wait_until
from tests.support.soft_switch import running_switch

Error = TypeVar("Error", bound=switchml.SwitchMLError)
SLOTS = 2
SLOT_USES = 256
EPOCHS = 3
RANKS = 2
ELEMENTS = SLOTS * 64  # each call uses each slot once


@contextmanager
def running_agent(client: ControllerClient, socket: Path, switch_socket: Path | None) -> Iterator[None]:
    """Run an agent in a thread of this process, because its option `slot_uses` is not on the command line."""
    transport = "udp" if switch_socket is None else "shm"
    options = AgentOptions(
        client.address, "a1", "127.0.0.1", socket, transport=transport, switch_socket=switch_socket, slot_uses=SLOT_USES
    )
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(options, stop),))
    thread.start()
    try:
        wait_until(lambda: any(agent.live for agent in client.list_agents()), "the agent has registered")
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE)


@pytest.fixture(params=["udp", "shm"])
def fabric(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ControllerClient, Path]]:
    monkeypatch.setenv("SWITCHML_DIRECT", "0")  # other calls use no slots
    shm = tmp_path / "shm.sock"
    with (
        running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0", "--shm-port", f"2={shm}", "--values", "64") as switch,
        running_controller(tmp_path, configuration(switch)) as (_, client),
        running_agent(client, tmp_path / "agent.sock", shm if request.param == "shm" else None),
    ):
        yield client, tmp_path / "agent.sock"


def on_all_ranks(agent: Path, job: pb.Job, act: Callable[[switchml.Communicator], int]) -> list[int]:
    def run(rank: int) -> int:
        with switchml.connect(agent=agent, job=job.name, rank=rank) as comm:
            return act(comm)

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(run, range(RANKS)))


def reduce(comm: switchml.Communicator, call: int) -> None:
    x = np.full(ELEMENTS, call + comm.rank, np.int32)
    comm.all_reduce(x)
    assert (x == RANKS * call + sum(range(RANKS))).all()


def reduce_until(comm: switchml.Communicator, first: int, kind: type[Error]) -> tuple[int, Error]:
    """Make calls, counted from `first`, until one raises; return which one, and its error."""
    call, end = first, time.monotonic() + DEADLINE
    try:
        while time.monotonic() < end:
            reduce(comm, call)
            call += 1
    except kind as error:
        return call, error
    raise AssertionError(f"{call - first} calls were made, and the epoch did not end")


def test_all_ranks_of_a_job_that_aborts_are_told(fabric: tuple[ControllerClient, Path]) -> None:
    client, agent = fabric
    job = client.start_job(pb.StartJobRequest(workers=RANKS, slots=SLOTS))

    def train(comm: switchml.Communicator) -> int:
        call, error = reduce_until(comm, 0, switchml.EpochSpent)
        assert "--on-failure" in str(error)
        return call

    completed = on_all_ranks(agent, job, train)
    assert min(completed) > SLOT_USES / 2
    ended = client.get_job(job.id)
    assert ended.state == pb.JOB_STATE_FAILED
    assert "nearly as often as an epoch allows" in ended.failure


def test_a_job_that_survives_losses_goes_on_in_a_new_epoch(fabric: tuple[ControllerClient, Path]) -> None:
    client, agent = fabric
    job = client.start_job(pb.StartJobRequest(workers=RANKS, slots=SLOTS, on_failure=pb.ON_FAILURE_SHRINK))

    def train(comm: switchml.Communicator) -> int:
        call = 0  # the first incomplete call
        for _ in range(EPOCHS - 1):
            failed, change = reduce_until(comm, call, switchml.WorldChanged)
            assert (change.ranks, change.world_size) == ((), RANKS)
            call += change.completed
            assert call <= failed
        for _ in range(10):
            reduce(comm, call)
        assert comm.generation == EPOCHS - 1
        return call

    [first, second] = on_all_ranks(agent, job, train)
    assert first == second > (EPOCHS - 1) * SLOT_USES / 2
    *_, ended = client.watch_job(job.id)
    assert ended.state == pb.JOB_STATE_COMPLETED
