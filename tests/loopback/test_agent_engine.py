"""The agent's engine: one rank's process or switch cannot delay the service of other ranks."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import DropReason
from switchml.dataplane.softswitch._native import ShmPortSpec, Switch, UdpPortSpec
from switchml.host_agent._engine import Engine
from tests.loopback.agent_harness import RunningAgent, in_thread, running_agent
from tests.loopback.agents_server import DEADLINE
from tests.loopback.rank_assignments import rank_assignment
from tests.loopback.shm_process import RankProcess, ShmProcess
from tests.support.soft_switch import running_switch, stopped, wait_until

SLOTS = 64
VALUES = 64
SECONDS = 0.5
"""The time for which others are watched; counting to 2^31 or a switch's timeout takes several times as long."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    engine.start()
    yield engine
    engine.stop()


def open_rank(engine: Engine, job: int) -> int:
    """Open the only rank of a job over UDP, with an address at which no switch answers."""
    return engine.open_rank(rank_assignment(job, 0, 1, slots=SLOTS, values=VALUES))


@pytest.mark.parametrize("chunk", [1 + 2 * SLOTS, 2 + SLOTS, 2**31 + 1])
def test_a_switch_that_shares_memory_refuses_chunks_out_of_order(tmp_path: Path, engine: Engine, chunk: int) -> None:
    path = str(tmp_path / "shm.sock")
    switch = Switch(2 * SLOTS, VALUES)
    switch.add_port(1, ShmPortSpec(path=path))
    switch.start()
    with (
        ShmProcess(engine, path, 1, 0, 1, 0, SLOTS, VALUES) as process,
        ShmProcess(engine, path, 2, 0, 1, SLOTS, SLOTS, VALUES) as bystander,
    ):
        process.contribute_nothing(1, chunk)
        process.contribute_nothing(0, 0)
        bystander.contribute_nothing(0, 0)  # the switch looks at both ranks in one turn
        wait_until(lambda: engine.status(bystander.handle)["sent"] > 0, "the other rank is served")
        assert engine.status(process.handle)["sent"] == 0
    switch.stop()


@pytest.mark.parametrize("format_", [3, 0x0101, 0xFF01, 0xFFFF])
def test_an_unknown_format_is_dropped_by_the_switch(engine: Engine, format_: int) -> None:
    switch = Switch(SLOTS, VALUES)
    udp_port = switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
    switch.start()
    handle = engine.open_rank(rank_assignment(1, 0, 1, slots=SLOTS, values=VALUES, switch_udp_port=udp_port))
    with RankProcess(engine, handle, SLOTS, VALUES) as process:
        process.write_ticket(0, 0, format_=format_)
        process.submit_index(0)
        wait_until(lambda: switch.read_drop_counter(DropReason.BAD_FORMAT)[0] > 0, "it is dropped")
    switch.stop()


def test_statuses_do_not_wait_for_a_switch_that_is_stopped(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "shm.sock"
    handles = [open_rank(engine, 2)]
    arguments = ("--shm-port", f"2={path}", "--values", str(VALUES), "--slots", str(SLOTS))
    with (
        running_switch(tmp_path, *arguments) as switch,
        ThreadPoolExecutor(1) as pool,
        ShmProcess(engine, str(path), 1, 0, 1, 0, SLOTS, VALUES) as process,
    ):
        handles.append(process.handle)
        with stopped(switch.process):
            freezing = pool.submit(engine.freeze, process.handle)
            begun = time.monotonic()
            while time.monotonic() - begun < SECONDS:
                assert all(engine.status(handle)["sent"] == 0 for handle in handles)
                engine.profile(handles[0], 0)
            assert not freezing.done()  # so none of these calls has waited for its end
        assert freezing.result() == [0] * SLOTS


def traffic_class_of_a_packet(receiver: socket.socket) -> int:
    """Return the second byte of the IPv4 header of the next packet."""
    _, ancillary, _, _ = receiver.recvmsg(1 << 16, socket.CMSG_SPACE(1))
    [(level, kind, value)] = ancillary
    assert (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS)
    return value[0]


async def traffic_class_of_a_job(agent: RunningAgent, job: int, priority: int) -> int:
    """Return that of the packets to a switch that never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(DEADLINE)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        await agent.start_job(job, 1, priority=priority, switch_udp_port=receiver.getsockname()[1])
        communicator = await agent.connect(0, job)
        work = communicator.all_reduce(np.ones(1, np.float32), async_op=True)
        found = await in_thread(lambda: traffic_class_of_a_packet(receiver))
        await agent.revoke(pb.REVOCATION_REASON_JOB_STOPPED, job)
        with pytest.raises(switchml.SwitchMLError):
            await in_thread(work.wait)
        await in_thread(communicator.close)
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_packets_have_the_dscp_of_their_jobs_priority(tmp_path: Path, threads: int) -> None:
    async def scenario() -> list[int]:
        async with running_agent(tmp_path, transport="udp", threads=threads, dscp={7: 46, 1: 8}) as agent:
            return [await traffic_class_of_a_job(agent, job, priority) for job, priority in ((1, 0), (2, 1), (3, 7))]

    assert asyncio.run(scenario()) == [0, 8 << 2, 46 << 2]
