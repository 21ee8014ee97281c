"""The agent's conversation with the controller."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import switchml
from switchml.common.tls import Security
from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_VERSION
from switchml.host_agent.errors import RegistrationRefused
from switchml.host_agent.outbox import Outbox
from tests.loopback.agent_harness import VALUES, RawProcess, RunningAgent, expect_event, in_thread, running_agent
from tests.loopback.agents_server import DEADLINE, AgentsServer, serving
from tests.support.soft_switch import running_switch, stopped

ATTEMPTS = 6


async def test_it_introduces_itself_and_beats(tmp_path: Path) -> None:
    async with running_agent(tmp_path, switch="s1", switch_port=7, mac="02:00:00:00:00:09", max_ranks=5) as agent:
        register = agent.controller.registrations[0]
        assert (register.version, register.protocol_version) == (VERSION, PROTOCOL_VERSION)
        assert (register.name, register.address, register.socket) == (
            "agent-1",
            "127.0.0.1",
            str(tmp_path / "agent.sock"),
        )
        assert (register.switch, register.switch_port, register.mac) == ("s1", 7, "02:00:00:00:00:09")
        assert register.max_ranks == 5
        assert register.instance
        assert not (await agent.controller.next_heartbeat()).ranks


async def test_a_job_from_assignment_to_its_end(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        controller = agent.controller
        await agent.start_job(1, 2)
        comms = [await agent.connect(0), await agent.connect(1, "job-1", world_size=2)]
        await expect_event(controller, pb.RankEvent.KIND_ATTACHED, 0)
        await expect_event(controller, pb.RankEvent.KIND_ATTACHED, 1)
        assert [(comm.rank, comm.world_size, comm.name, comm.epoch) for comm in comms] == [
            (0, 2, "job-1", 1),
            (1, 2, "job-1", 1),
        ]
        arrays = [np.full(1000, comm.rank + 1, np.int32) for comm in comms]
        await asyncio.gather(*(in_thread(partial(c.all_reduce, x)) for c, x in zip(comms, arrays, strict=True)))
        assert all((x == 3).all() for x in arrays)

        for comm in comms:
            await in_thread(comm.close)
            await expect_event(controller, pb.RankEvent.KIND_CLOSED, comm.rank)
        # The last counters came before the report that the ranks are closed.
        statuses = {status.rank: status for beat in controller.heartbeats for status in beat.ranks}
        for status in statuses.values():
            assert status.position == 16  # ceil(1000 / 64)
            assert status.counters.received == 16
        await agent.revoke(pb.REVOCATION_REASON_JOB_COMPLETED)
        await until_no_ranks(agent)


async def until_no_ranks(agent: RunningAgent) -> None:
    end = time.monotonic() + DEADLINE
    while (await agent.controller.next_heartbeat()).ranks:
        assert time.monotonic() < end, "the ranks of an ended job are still in the heartbeats"


async def test_heartbeats_go_on_while_ranks_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "shm.sock"
    with running_switch(tmp_path, "--shm-port", f"2={path}", "--values", str(VALUES)) as switch:
        async with running_agent(tmp_path, transport="shm", switch_socket=path) as agent:
            with stopped(switch.process):  # it does not answer, like an agent that allocates memory for many ranks
                await agent.controller.send(assignment=agent.assignment(1))
                for _ in range(10):
                    await agent.controller.next_heartbeat()
                assert not agent.controller.messages
            ready = await agent.controller.next("assignment_ready")
            assert [endpoint.rank for endpoint in ready.endpoints] == [0, 1]


async def test_a_job_that_is_revoked_while_its_ranks_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "shm.sock"
    with running_switch(tmp_path, "--shm-port", f"2={path}", "--values", str(VALUES)) as switch:
        async with running_agent(tmp_path, transport="shm", switch_socket=path) as agent:
            with stopped(switch.process):
                await agent.controller.send(assignment=agent.assignment(1))
                await agent.revoke(pb.REVOCATION_REASON_JOB_STOPPED)
                for _ in range(10):
                    await agent.controller.next_heartbeat()
            failed = await agent.controller.next("assignment_failed")
            assert "while its ranks were opened" in failed.reason
            ready = await agent.assign(agent.assignment(1, epoch=2))
            assert [endpoint.rank for endpoint in ready.endpoints] == [0, 1]


async def test_the_same_assignment_twice_opens_nothing_twice(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        first = await agent.assign(agent.assignment())
        assert [endpoint.rank for endpoint in first.endpoints] == [0, 1]
        assert len({endpoint.udp_port for endpoint in first.endpoints}) == 1
        assert await agent.assign(agent.assignment()) == first
        assert len((await agent.controller.next_heartbeat()).ranks) == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"job": 0}, "job id 0"),
        ({"job": 1024}, "job id 1024"),
        ({"epoch": 0}, "epoch 0"),
        ({"epoch": 65536}, "epoch 65536"),
        ({"world_size": 4097}, "world size 4097"),
        ({"ranks": [3, 64], "world_size": 65}, "rank 64 directly below one switch, which tells at most 64 ranks apart"),
        ({"ranks": []}, "ranks"),
        ({"ranks": [1, 1]}, "ranks"),
        ({"ranks": [2]}, "ranks"),
        ({"ranks": range(6), "world_size": 6}, "--max-ranks"),
        ({"slots": 24}, "power of two"),
        ({"slots": 2**31}, "slots"),
        ({"slot_base": 8}, "slot_base"),
        ({"values_per_packet": 2049}, "2049 values"),
        ({"switch_udp_port": 0}, "UDP port 0"),
        ({"aggregators": [pb.Aggregator(address="a.b", udp_port=1)]}, "aggregator 'a.b', UDP port 1"),
        ({"aggregators": [pb.Aggregator(address="10.0.0.1", udp_port=1)] * 65}, "65 aggregators of 16 slots; 64 is"),
        ({"switch_address": "switch.example"}, "switch.example"),
    ],
)
async def test_an_assignment_that_cannot_be_carried_out(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    async with running_agent(tmp_path, max_ranks=5) as agent:
        assignment = agent.assignment(**changes)
        await agent.controller.send(assignment=assignment)
        failed = await agent.controller.next("assignment_failed")
        assert (failed.job, failed.epoch) == (assignment.job, assignment.epoch)
        assert why in failed.reason
        assert not (await agent.controller.next_heartbeat()).ranks


async def test_an_address_that_is_not_this_hosts(tmp_path: Path) -> None:
    async with running_agent(tmp_path, address="192.0.2.1") as agent:
        await agent.controller.send(assignment=agent.assignment())
        assert "192.0.2.1" in (await agent.controller.next("assignment_failed")).reason


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (pb.REVOCATION_REASON_JOB_COMPLETED, switchml.JobEnded),
        (pb.REVOCATION_REASON_JOB_STOPPED, switchml.JobEnded),
        (pb.REVOCATION_REASON_WORKER_LOST, switchml.WorkerLost),
        (pb.REVOCATION_REASON_CALL_MISMATCH, switchml.CollectiveMismatch),
        (pb.REVOCATION_REASON_INTEGRITY, switchml.IntegrityError),
        (pb.REVOCATION_REASON_JOB_FAILED, switchml.JobEnded),
        (pb.REVOCATION_REASON_SWITCH_LOST, switchml.SwitchLost),
    ],
)
async def test_a_revocation_ends_calls_in_flight(
    tmp_path: Path, reason: pb.RevocationReason, error: type[switchml.SwitchMLError]
) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job()
        comm = await agent.connect(0)
        work = comm.all_reduce(np.ones(100, np.float32), async_op=True)
        await agent.revoke(reason, ranks=[1], message="as the test wants it")
        with pytest.raises(error, match="as the test wants it") as raised:
            await in_thread(work.wait)
        if isinstance(raised.value, switchml.WorkerLost):
            assert raised.value.ranks == (1,)
        if isinstance(raised.value, switchml.JobEnded):
            assert raised.value.failed == (reason == pb.REVOCATION_REASON_JOB_FAILED)
        with pytest.raises(error, match="was not started"):
            comm.barrier()
        await in_thread(comm.close)
        await until_no_ranks(agent)
        with pytest.raises(switchml.ConnectError, match="has ended: as the test wants it") as refused:
            await agent.connect(0)
        assert refused.value.reason == "JobEnded"


async def test_revocations_of_other_epochs_and_jobs_are_ignored(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 1, epoch=5)
        comm = await agent.connect(0)
        await agent.revoke(pb.REVOCATION_REASON_JOB_STOPPED)  # epoch 1
        await agent.revoke(pb.REVOCATION_REASON_JOB_STOPPED, job=2)
        await agent.controller.send(activation=pb.Activation(job=9, epoch=1))
        await agent.controller.next_heartbeat()
        await in_thread(comm.barrier)
        await in_thread(comm.close)


async def test_a_process_that_goes_away_is_reported_at_once(tmp_path: Path, limit: Callable[[float], float]) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job()
        process = await in_thread(lambda: RawProcess(agent.options.socket))
        await in_thread(lambda: process.attach(rank=1))
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 1)
        began = time.monotonic()
        process.socket.close()
        event = await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 1)
        assert time.monotonic() - began < limit(1)
        assert "without closing" in event.detail


async def test_a_close_waits_until_the_controller_knows_of_it(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 1)
        comm = await agent.connect(0)
        await agent.controller.set_answers(False)
        closing = asyncio.create_task(in_thread(comm.close))
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 0)
        await expect_event(agent.controller, pb.RankEvent.KIND_CLOSED, 0)
        for _ in range(4):
            await agent.controller.next_heartbeat()
        assert not closing.done()
        await agent.controller.set_answers(True)
        await closing


async def test_a_stop_waits_until_the_controller_has_the_last_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox()
    monkeypatch.setattr("switchml.host_agent.daemon.Outbox", lambda: outbox)
    async with running_agent(tmp_path) as agent:
        await agent.controller.next_heartbeat()  # the agent is registered
        for rank in range(200):
            outbox.put(pb.AgentMessage(rank_event=pb.RankEvent(job=1, epoch=1, rank=rank)))
    assert [message.rank_event.rank for message in agent.controller.messages] == list(range(200))


async def test_a_process_that_cannot_go_on_says_why(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job()
        comm = await agent.connect(1)
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 1)
        await in_thread(lambda: comm.end("out of\nmemory"))
        assert (await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 1)).detail == "out of memory"


async def test_jobs_outlive_the_controller(tmp_path: Path) -> None:
    controller = AgentsServer()
    async with running_agent(tmp_path) as agent:
        port = int(agent.options.controller.rpartition(":")[2])
        await agent.start_job(1, 2)
        comms = [await agent.connect(rank) for rank in (0, 1)]
        await agent.controller.wait_for(lambda: len(agent.controller.messages) == 2)
        endpoints = {status.rank for status in (await agent.controller.next_heartbeat()).ranks}
        assert endpoints == {0, 1}
        await agent.stop_controller()
        for _ in range(3):  # no controller answers, and nothing stops
            await asyncio.gather(*(in_thread(comm.barrier) for comm in comms))
        await in_thread(comms[1].close)

        async with serving(controller, port):
            ready = await controller.next("assignment_ready")
            assert [endpoint.rank for endpoint in ready.endpoints] == [0, 1]
            await expect_event(controller, pb.RankEvent.KIND_ATTACHED, 0)
            await expect_event(controller, pb.RankEvent.KIND_ATTACHED, 1)
            await expect_event(controller, pb.RankEvent.KIND_CLOSED, 1)
            assert controller.registrations[0].instance == agent.controller.registrations[0].instance
            await controller.send(revocation=pb.Revocation(job=1, epoch=1, reason=pb.REVOCATION_REASON_JOB_STOPPED))
            with pytest.raises(switchml.JobEnded):
                await in_thread(comms[0].barrier)
            await in_thread(comms[0].close)


async def test_each_attempt_to_find_the_controller_makes_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise grpc's waits between connections, which grow, would delay the return of the ranks after a long time."""
    attempts, connections, enough = 0, 0, asyncio.Event()
    aio_channel = Security.aio_channel

    def attempt(*arguments: Any) -> grpc.aio.Channel:
        nonlocal attempts
        attempts += 1
        if attempts > ATTEMPTS:
            enough.set()
        return aio_channel(*arguments)

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with running_agent(tmp_path) as agent:
        await agent.stop_controller()
        async with await asyncio.start_server(refuse, "127.0.0.1", int(agent.options.controller.rpartition(":")[2])):
            monkeypatch.setattr(Security, "aio_channel", attempt)
            await asyncio.wait_for(enough.wait(), DEADLINE)
    assert connections >= ATTEMPTS


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.ALREADY_EXISTS])
async def test_a_refusal_is_final(tmp_path: Path, code: grpc.StatusCode) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.stop_controller()
        refusing = AgentsServer()
        refusing.refusal = (code, "the name agent-1 is taken")
        async with serving(refusing, int(agent.options.controller.rpartition(":")[2])):
            with pytest.raises(RegistrationRefused, match="the name agent-1 is taken"):
                await asyncio.wait_for(agent.task, DEADLINE)
    assert not agent.options.socket.exists()


async def test_ranks_that_ask_at_the_same_time_share_the_controllers_answer(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 5, ranks=range(4))
        agent.controller.positions = {4: 0}
        agent.controller.may_answer_gets.clear()
        processes = [await in_thread(lambda: RawProcess(agent.options.socket)) for _ in range(4)]
        for rank, process in enumerate(processes):
            await in_thread(partial(process.attach, rank=rank, world_size=5))
        for process in processes:
            process.send({"type": "missing"})
        for _ in range(20):  # the requests are there, and the agent is in this event loop
            await asyncio.sleep(0)
        agent.controller.may_answer_gets.set()
        for process in processes:
            answer = await in_thread(process.receive)
            assert answer is not None
            assert 4 in answer["ranks"]
        assert agent.controller.gets == 1


def has_taken_part(heartbeat: pb.Heartbeat, rank: int) -> bool:
    return any(status.rank == rank and status.position > 0 for status in heartbeat.ranks)


async def test_the_ranks_that_hold_others_up(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 4, ranks=[0, 1])  # ranks 2 and 3 are on other agents
        agent.controller.positions = {0: 0, 1: 0, 2: 1, 3: 0}
        comms = [await agent.connect(rank) for rank in (0, 1)]
        waits = comms[1].all_reduce(np.ones(3, np.float32), async_op=True)
        await agent.controller.wait_for(lambda: has_taken_part(agent.controller.heartbeats[-1], 1))
        work = comms[0].all_reduce(np.ones(3, np.float32), async_op=True, timeout=0.3)
        with pytest.raises(switchml.CollectiveTimeout, match="rank 3 had not taken part") as raised:
            await in_thread(work.wait)
        assert not waits.is_completed()
        assert raised.value.ranks == (3,)
        for comm in comms:
            await in_thread(comm.close)
