"""Jobs on a real soft switch, with agents that the test controls."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from ptf_tests.wire import Packet
from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.rpc_errors import from_rpc_error
from tests.support.controller_harness import (
    DEADLINE,
    ControllerProcess,
    ScriptedAgent,
    configuration,
    running_controller,
    wait_until,
)
from tests.support.soft_switch import SwitchProcess, running_switch, stopped

VALUES = 64


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchProcess]:
    with running_switch(tmp_path_factory.mktemp("switch"), "--udp-port", "1=127.0.0.1:0") as process:
        yield process


Running = tuple[ControllerProcess, ControllerClient]


@pytest.fixture(scope="module")
def running(
    switch: SwitchProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControllerProcess, ControllerClient]]:
    with running_controller(tmp_path_factory.mktemp("controller"), configuration(switch)) as both:
        yield both


@pytest.fixture
def client(running: tuple[ControllerProcess, ControllerClient]) -> Iterator[ControllerClient]:
    """Check that the test leaves the switch as it found it."""
    client = running[1]
    yield client
    for job in client.list_jobs():
        client.stop_job(job.id)
    wait_until(lambda: not any(agent.live for agent in client.list_agents()), "the agents are gone")
    wait_until(lambda: client.list_switches()[0].slots_free == 1024, "the slots are free")
    detail = client.show_switch()
    assert [entry.table for entry in detail.entries] == ["switch_address_table"]
    assert not detail.groups


@pytest.fixture
def agent(client: ControllerClient) -> Iterator[ScriptedAgent]:
    with ScriptedAgent(client.address) as agent:
        assert agent.messages("welcome"), agent.error
        yield agent


def attach_all(agent: ScriptedAgent, job: pb.Job) -> None:
    for rank in range(job.workers):
        agent.event(job, rank, pb.RankEvent.KIND_ATTACHED)


def ended(client: ControllerClient, job: pb.Job, seconds: float = 10.0) -> pb.Job:
    *_, last = client.watch_job(job.id, timeout=seconds)
    return last


def test_a_job_from_start_to_end(client: ControllerClient, agent: ScriptedAgent, running: Running) -> None:
    job = client.start_job(pb.StartJobRequest(workers=4, name="train"))
    assert (job.state, job.name, job.workers, job.switches[0].slots, job.values_per_packet) == (
        pb.JOB_STATE_READY,
        "train",
        4,
        128,
        64,
    )
    assignment = agent.wait_for("assignment")
    assert list(assignment.ranks) == [0, 1, 2, 3]
    assert (assignment.job, assignment.epoch, assignment.world_size) == (job.id, job.epoch, 4)
    assert assignment.one_port
    assert agent.wait_for("activation") == pb.Activation(job=job.id, epoch=job.epoch)
    detail = client.show_switch("s1")
    tables = [entry.table for entry in detail.entries]
    assert {name: tables.count(name) for name in tables} == {
        "worker_table": 4, "job_table": 1, "rank_table": 4, "switch_address_table": 1,
    }  # fmt: skip
    assert [(group.id, len(group.replicas)) for group in detail.groups] == [(job.id, 4)]
    agent.event(job, 2, pb.RankEvent.KIND_ATTACHED)
    wait_until(lambda: client.get_job("train").state == pb.JOB_STATE_RUNNING, "the job runs")
    assert [r.state for r in client.get_job(job.id).ranks] == [
        pb.RANK_STATE_ASSIGNED,
        pb.RANK_STATE_ASSIGNED,
        pb.RANK_STATE_ATTACHED,
        pb.RANK_STATE_ASSIGNED,
    ]
    attach_all(agent, job)
    for rank in range(4):
        agent.event(job, rank, pb.RankEvent.KIND_CLOSED)
    job = ended(client, job)
    assert (job.state, job.failure) == (pb.JOB_STATE_COMPLETED, "")
    assert job.ended >= job.created
    assert agent.wait_for("revocation").reason == pb.REVOCATION_REASON_JOB_COMPLETED
    with sqlite3.connect(running[0].directory / "store.sqlite") as store:
        rows = store.execute("SELECT to_state FROM transitions WHERE job = ? ORDER BY rowid", (job.key,)).fetchall()
    assert [row[0] for row in rows] == [
        pb.JOB_STATE_PENDING,
        pb.JOB_STATE_READY,
        pb.JOB_STATE_RUNNING,
        pb.JOB_STATE_COMPLETED,
    ]


def test_counters_are_the_jobs_own(client: ControllerClient, switch: SwitchProcess) -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
        one.settimeout(DEADLINE)

    def answer(assignment: pb.Assignment) -> pb.AgentMessage:
        endpoints = [
            pb.Endpoint(rank=rank, address="127.0.0.1", udp_port=sockets[rank].getsockname()[1])
            for rank in assignment.ranks
        ]
        ready = pb.AssignmentReady(job=assignment.job, epoch=assignment.epoch, endpoints=endpoints)
        return pb.AgentMessage(assignment_ready=ready)

    with ScriptedAgent(client.address, answer=answer) as agent:
        job = client.start_job(pb.StartJobRequest(workers=2, slots=8))
        attach_all(agent, job)
        (assignment,) = agent.messages("assignment")
        target = (assignment.switch_address, assignment.switch_udp_port)
        assert target == switch.udp_address()
        for rank, one in enumerate(sockets):
            slot = job.switches[0].slot_base << 1
            values = tuple(range(rank, rank + VALUES))
            packet = Packet(job.id, rank, slot, 0, job.epoch, values, VALUES, secret=assignment.secret)
            one.sendto(packet.pack(), target)
            if rank == 0:
                one.sendto(packet.pack(), target)  # a duplicate
        for one in sockets:
            result = Packet.unpack(one.recv(9000))
            assert result.values == tuple(2 * i + 1 for i in range(VALUES))
        counters = dict(client.get_job(job.id).counters)
        assert (counters["contributions"], counters["results"], counters["duplicate"]) == (2, 1, 1)
        assert client.show_switch().verdicts["duplicate"] == 1
        last = client.stop_job(job.id)
        assert (last.state, dict(last.counters)) == (pb.JOB_STATE_STOPPED, counters)
        assert dict(client.get_job(job.id).counters) == counters
        again = client.start_job(pb.StartJobRequest(workers=2, slots=8))
        assert again.id != job.id
        assert not any(client.get_job(again.id).counters.values())
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"workers": 0}, errors.InvalidRequest, "1 to 4096 workers, not 0"),
        ({"workers": 2**32 - 1}, errors.InvalidRequest, "1 to 4096 workers"),
        ({"workers": 4097}, errors.InvalidRequest, "1 to 4096 workers, not 4097"),
        ({"workers": 1, "name": "a/b"}, errors.InvalidRequest, "job name 'a/b'"),
        ({"workers": 1, "slots": 3}, errors.InvalidRequest, "power of two"),
        ({"workers": 1, "slots": 2**32 - 8}, errors.InvalidRequest, "power of two"),
        ({"workers": 1, "priority": 8}, errors.InvalidRequest, "priority is 8; it must be from 0 to 7"),
        ({"workers": 1, "switch": "s9"}, errors.SwitchNotFound, "'s9'; configured: s1"),
        ({"workers": 9}, errors.NoAgent, "9 ranks asked, and the 1 live agents of switch s1 have room for 8"),
        ({"workers": 1, "slots": 2048}, errors.NoRoom, "2048 slots asked, 1024 of 1024 free"),
    ],
)
def test_refusals(
    client: ControllerClient, agent: ScriptedAgent, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.start_job(pb.StartJobRequest(**arguments))
    assert not client.list_jobs()
    assert not agent.messages("assignment")


def test_refusals_have_figures_on_the_other_side(client: ControllerClient, agent: ScriptedAgent) -> None:
    client.start_job(pb.StartJobRequest(workers=1, slots=512))
    client.start_job(pb.StartJobRequest(workers=1, slots=256))
    with pytest.raises(errors.NoRoom) as caught:
        client.start_job(pb.StartJobRequest(workers=1, slots=512))
    figures = caught.value.figures
    assert (figures["slots_asked"], figures["slots_free"], figures["largest_free_range"]) == ("512", "256", "256")


def test_without_an_agent(client: ControllerClient) -> None:
    with pytest.raises(errors.NoAgent, match="the 0 live agents"):
        client.start_job(pb.StartJobRequest(workers=1))


def test_a_name_is_used_once_at_a_time(client: ControllerClient, agent: ScriptedAgent) -> None:
    first = client.start_job(pb.StartJobRequest(workers=1, name="same"))
    with pytest.raises(errors.JobExists, match="'same'"):
        client.start_job(pb.StartJobRequest(workers=1, name="same"))
    client.stop_job("same")
    second = client.start_job(pb.StartJobRequest(workers=1, name="same"))
    assert second.key > first.key
    assert second.epoch == first.epoch + 1
    assert client.get_job("same").key == second.key


def test_unknown_jobs(client: ControllerClient) -> None:
    for ask in (client.get_job, client.stop_job, lambda job: list(client.watch_job(job))):
        with pytest.raises(errors.JobNotFound, match="id 999"):
            ask(999)
        with pytest.raises(errors.JobNotFound, match="name 'nosuch'"):
            ask("nosuch")
        with pytest.raises(errors.JobNotFound, match="id -1"):
            ask(-1)


def test_ranks_go_to_two_agents_in_blocks(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, "b"), ScriptedAgent(client.address, "a", max_ranks=3):
        job = client.start_job(pb.StartJobRequest(workers=8))
        assert [rank.agent for rank in job.ranks] == ["a"] * 3 + ["b"] * 5
        assert {agent.name: agent.ranks_in_use for agent in client.list_agents() if agent.live} == {
            "a": 3, "b": 5,
        }  # fmt: skip
        other = client.start_job(pb.StartJobRequest(workers=1))
        assert other.ranks[0].agent == "b"
        assert {one.switches[0].slot_base for one in (other, job)} == {0, 128}


def failed_start(client: ControllerClient, agent: ScriptedAgent, error: type[Exception], words: str) -> None:
    """Check that the start fails and leaves nothing; `client` also checks this at the end."""
    with pytest.raises(error, match=words):
        client.start_job(pb.StartJobRequest(workers=2, name="bad"))
    job = client.get_job("bad")
    assert job.state == pb.JOB_STATE_FAILED
    assert job.failure
    assert agent.wait_for("revocation").reason == pb.REVOCATION_REASON_JOB_FAILED


def test_ranks_that_an_agent_refuses_go_to_others(client: ControllerClient) -> None:
    """Test this also if another agent then gets other ranks than it has already opened."""
    with (
        ScriptedAgent(client.address, "a", refuses=True),
        ScriptedAgent(client.address, "b", max_ranks=2) as b,
        ScriptedAgent(client.address, "c", refuses=True),
        ScriptedAgent(client.address, "d") as d,
    ):
        job = client.start_job(pb.StartJobRequest(workers=5))
        assert [(rank.agent, rank.rank) for rank in job.ranks] == [("b", 0), ("b", 1), ("d", 2), ("d", 3), ("d", 4)]
        assert [list(assignment.ranks) for assignment in d.messages("assignment")] == [[4], [2, 3, 4]]
        assert b.wait_for("activation") == d.wait_for("activation") == pb.Activation(job=job.id, epoch=job.epoch)
        client.stop_job(job.id)
        d.disconnect()
        wait_until(lambda: not client.get_agent("d").live, "the controller knows")
        with pytest.raises(errors.AgentFailed, match="agent a refused its ranks: no sockets left"):
            client.start_job(pb.StartJobRequest(workers=5))  # b has no room for the ranks that a and c refuse


def test_a_rank_that_begins_again_goes_past_an_agent_that_refuses(client: ControllerClient) -> None:
    with (
        ScriptedAgent(client.address, "a") as first,
        ScriptedAgent(client.address, "b", quiesces=True),
    ):
        job = client.start_job(pb.StartJobRequest(workers=2, on_failure=pb.ON_FAILURE_RESTART))
        assert [rank.agent for rank in job.ranks] == ["a", "b"]
        with ScriptedAgent(client.address, "c", refuses=True), ScriptedAgent(client.address, "d"):
            first.disconnect()
            wait_until(lambda: client.get_job(job.id).changes, "the job goes on")
            job = client.get_job(job.id)
            assert [rank.agent for rank in job.ranks] == ["d", "b"]
            assert "agent c refused its ranks in the new epoch: no sockets left" in job.changes[0].reason
            client.stop_job(job.id)


def test_a_rank_that_begins_again_goes_past_an_agent_that_does_not_answer(client: ControllerClient) -> None:
    with (
        ScriptedAgent(client.address, "a") as first,
        ScriptedAgent(client.address, "b", quiesces=True),
    ):
        job = client.start_job(pb.StartJobRequest(workers=2, on_failure=pb.ON_FAILURE_RESTART))
        with (
            ScriptedAgent(client.address, "c", answer=lambda _: None) as silent,
            ScriptedAgent(client.address, "d"),
        ):
            first.disconnect()
            asked = silent.wait_for("assignment")
            over = silent.wait_for("revocation")
            assert (over.job, over.epoch) == (job.id, asked.epoch)
            wait_until(lambda: client.get_job(job.id).changes, "the job goes on")
            job = client.get_job(job.id)
            assert [rank.agent for rank in job.ranks] == ["d", "b"]
            assert "agent c did not answer within 10 s" in job.changes[0].reason
            client.stop_job(job.id)


def test_an_agent_that_refuses(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, refuses=True) as agent:
        failed_start(client, agent, errors.AgentFailed, "agent a1 refused its ranks: no sockets left")


@pytest.mark.parametrize(
    ("endpoints", "words"),
    [
        ([(0, "127.0.0.1", 5)], r"rank 0 instead of ranks 0, 1"),
        ([(0, "127.0.0.1", 5), (1, "127.0.0.1", 6), (2, "127.0.0.1", 7)], "instead of"),
        ([(0, "127.0.0.1", 5), (0, "127.0.0.1", 6)], "instead of"),
        ([(0, "127.0.0.1", 5), (1, "0.0.0.0", 6)], "0.0.0.0:6, which packets cannot be sent to"),
        ([(0, "127.0.0.1", 5), (1, "host", 6)], "host:6"),
        ([(0, "127.0.0.1", 5), (1, "127.0.0.1", 70000)], "127.0.0.1:70000"),
    ],
)
def test_an_agent_with_wrong_endpoints(
    client: ControllerClient, endpoints: list[tuple[int, str, int]], words: str
) -> None:
    def answer(assignment: pb.Assignment) -> pb.AgentMessage:
        made = [pb.Endpoint(rank=r, address=a, udp_port=p) for r, a, p in endpoints]
        ready = pb.AssignmentReady(job=assignment.job, epoch=assignment.epoch, endpoints=made)
        return pb.AgentMessage(assignment_ready=ready)

    with ScriptedAgent(client.address, answer=answer) as agent:
        failed_start(client, agent, errors.AgentFailed, words)


def test_an_agent_that_says_nothing(client: ControllerClient, limit: Callable[[float], float]) -> None:
    with ScriptedAgent(client.address, answer=lambda _: None) as agent:
        began = time.monotonic()
        failed_start(client, agent, errors.AgentTimeout, "agent a1 opened no sockets for job bad within 10 s")
        assert 9 < time.monotonic() - began < limit(13)


def test_an_agent_that_dies_during_a_start(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, answer=lambda _: None) as agent:

        def die() -> None:
            agent.wait_for("assignment")
            agent.disconnect()

        threading.Thread(target=die).start()
        with pytest.raises(errors.AgentFailed, match="agent a1 on here was lost"):
            client.start_job(pb.StartJobRequest(workers=2))


def test_a_rank_that_is_lost_during_a_start(client: ControllerClient) -> None:
    """Lose a rank like a process that waited for the others and was killed when all had attached."""
    lost = threading.Event()

    def answer_late(assignment: pb.Assignment) -> pb.AgentMessage:
        assert lost.wait(DEADLINE)
        return other.ready(assignment)

    with (
        ScriptedAgent(client.address, "a1") as agent,
        ScriptedAgent(client.address, "a2", answer=answer_late) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        request = pb.StartJobRequest(workers=4, name="early", on_failure=pb.ON_FAILURE_SHRINK)
        starting = pool.submit(client.start_job, request)
        agent.wait_for("assignment")
        job = client.get_job("early")
        agent.event(job, 1, pb.RankEvent.KIND_LOST, detail="its process was killed")
        wait_until(lambda: client.get_job("early").ranks[1].state == pb.RANK_STATE_LOST, "the loss is known")
        lost.set()
        assert starting.result().state == pb.JOB_STATE_READY
        assert agent.wait_for("quiesce").epoch == other.wait_for("quiesce").epoch == job.epoch
        client.stop_job(job.id)


def test_a_start_waits_for_the_slots_of_a_job_that_is_ending(
    client: ControllerClient, agent: ScriptedAgent, switch: SwitchProcess
) -> None:
    before = client.start_job(pb.StartJobRequest(workers=8, name="before", slots=1024))
    with ThreadPoolExecutor(2) as pool:
        with stopped(switch.process):
            stopping = pool.submit(client.stop_job, before.id)
            agent.wait_for("revocation")
            starting = pool.submit(client.start_job, pb.StartJobRequest(workers=8, name="after", slots=1024))
            time.sleep(0.3)  # a refused start takes milliseconds
            assert not starting.done()
        assert stopping.result().state == pb.JOB_STATE_STOPPED
        assert starting.result().state == pb.JOB_STATE_READY


def test_a_start_that_is_stopped(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, answer=lambda _: None) as agent:
        threading.Thread(target=lambda: (agent.wait_for("assignment"), client.stop_job("slow"))).start()
        with pytest.raises(errors.JobEnded, match="job slow was STOPPED before it was ready"):
            client.start_job(pb.StartJobRequest(workers=1, name="slow"))
        assert agent.wait_for("revocation").reason == pb.REVOCATION_REASON_JOB_STOPPED


def test_a_start_whose_workers_are_said_to_have_ended(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, answer=lambda _: None) as agent:
        threading.Thread(target=lambda: (agent.wait_for("assignment"), client.report_exit("slow", 0, 0))).start()
        with pytest.raises(errors.JobEnded, match="job slow was COMPLETED before it was ready"):
            client.start_job(pb.StartJobRequest(workers=1, name="slow"))
        assert agent.wait_for("revocation").reason == pb.REVOCATION_REASON_JOB_COMPLETED


def test_a_start_whose_client_gives_up(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, answer=lambda _: None):
        with pytest.raises(errors.DeadlineExceeded):
            client.start_job(pb.StartJobRequest(workers=1, name="left"), timeout=0.5)
        wait_until(lambda: client.get_job("left").state == pb.JOB_STATE_FAILED, "the job failed", 2)
        assert "cancelled by the client" in client.get_job("left").failure


def test_a_worker_that_dies(client: ControllerClient, agent: ScriptedAgent, limit: Callable[[float], float]) -> None:
    with ScriptedAgent(client.address, "a2") as other:
        job = client.start_job(pb.StartJobRequest(workers=4))
        attach_all(agent, job)
        other.event(job, 3, pb.RankEvent.KIND_LOST, detail="its process was killed")
        for each in (agent, other):
            revocation = each.wait_for("revocation", seconds=limit(2))
            assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [3])
        job = ended(client, job)
        assert (job.state, job.failure) == (
            pb.JOB_STATE_FAILED,
            "rank 3 was lost: agent a2 on here says: its process was killed",
        )
        assert job.ranks[3].state == pb.RANK_STATE_LOST
        client.report_exit(job.id, 3, 137)
        job = client.get_job(job.id)
        assert job.failure.endswith("; the process of rank 3 exited with status 137")
        assert job.ranks[3].exit_code == 137


def test_an_agent_that_dies(client: ControllerClient, agent: ScriptedAgent, limit: Callable[[float], float]) -> None:
    with ScriptedAgent(client.address, "a2") as other:
        job = client.start_job(pb.StartJobRequest(workers=4))
        other.disconnect()
        revocation = agent.wait_for("revocation", seconds=limit(2))
        assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [2, 3])
        failure = ended(client, job).failure
        assert "ranks 2, 3 were lost: agent a2 on here was lost" in failure
        assert "no heartbeat" not in failure


def test_an_agent_that_falls_silent(
    client: ControllerClient, agent: ScriptedAgent, limit: Callable[[float], float]
) -> None:
    with ScriptedAgent(client.address, "a2", heartbeats=False) as other:
        job = client.start_job(pb.StartJobRequest(workers=2))
        revocation = agent.wait_for("revocation", seconds=limit(6))
        assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [1])
        assert "no heartbeat for 4 s" in ended(client, job).failure
        assert other.ended.wait(DEADLINE)


def test_a_process_that_fails(client: ControllerClient, agent: ScriptedAgent) -> None:
    job = client.start_job(pb.StartJobRequest(workers=4))
    attach_all(agent, job)
    wait_until(lambda: client.get_job(job.id).ranks[3].state == pb.RANK_STATE_ATTACHED, "rank 3 attached")
    job = client.report_exit(job.id, 3, 7)
    assert (job.state, job.failure) == (pb.JOB_STATE_FAILED, "rank 3 exited with status 7")
    revocation = agent.wait_for("revocation")
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [3])
    job = client.report_exit(job.id, 0, 143)
    assert [r.exit_code if r.HasField("exit_code") else None for r in job.ranks] == [143, None, None, 7]
    assert job.failure == "rank 3 exited with status 7"
    with pytest.raises(errors.InvalidRequest, match="workers 0 to 3, not 4"):
        client.report_exit(job.id, 4, 0)


def test_processes_that_never_attach(client: ControllerClient, agent: ScriptedAgent) -> None:
    job = client.start_job(pb.StartJobRequest(workers=2))
    assert client.report_exit(job.id, 0, 0).state == pb.JOB_STATE_READY
    assert client.report_exit(job.id, 1, 0).state == pb.JOB_STATE_COMPLETED


def check_failed(agent: ScriptedAgent, job: pb.Job, rank: int, elements: int) -> None:
    call = pb.Call(sequence=9, operation="all_reduce", dtype="float32", elements=elements)
    agent.event(job, rank, pb.RankEvent.KIND_CHECK_FAILED, call=call, position=3)


def test_ranks_that_call_differently(
    client: ControllerClient, agent: ScriptedAgent, running: Running, limit: Callable[[float], float]
) -> None:
    job = client.start_job(pb.StartJobRequest(workers=3))
    attach_all(agent, job)
    for rank, elements in enumerate((100, 200, 100)):
        check_failed(agent, job, rank, elements)
    revocation = agent.wait_for("revocation", seconds=limit(0.9))
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_CALL_MISMATCH, [1])
    assert "rank 1: call 9, all_reduce of 200 float32" in revocation.message
    assert "ranks 0, 2: call 9, all_reduce of 100 float32" in revocation.message
    job = ended(client, job)
    assert (job.state, job.failure) == (pb.JOB_STATE_FAILED, revocation.message)
    log = running[0].log.read_text()
    assert all(f"check failed on rank {rank} at chunk 3" in log for rank in range(3))


def test_long_words_of_an_agent(client: ControllerClient, agent: ScriptedAgent) -> None:
    job = client.start_job(pb.StartJobRequest(workers=2))
    attach_all(agent, job)
    for rank in range(2):
        call = pb.Call(sequence=9, operation="o" * 80, dtype="d" * 80, elements=rank)
        agent.event(job, rank, pb.RankEvent.KIND_CHECK_FAILED, call=call, position=3)
    assert "o" * 80 in agent.wait_for("revocation").message
    assert len(ended(client, job).failure) < 1000


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[pb.RankStatus()] * 4097)), "Heartbeat.ranks has 4,097 entries"),
        (
            pb.AgentMessage(rank_event=pb.RankEvent(call=pb.Call(operation="o" * 81))),
            "Call.operation has 81 characters, and may have 80",
        ),
        (pb.AgentMessage(rank_event=pb.RankEvent(detail="d" * 1001)), "RankEvent.detail has 1,001 characters"),
        (pb.AgentMessage(positions=pb.Positions(ranks=[pb.RankPositions(phases=[1] * 100_000)])), "100,0.. bytes"),
    ],
)
def test_messages_that_no_agent_needs_to_send(
    client: ControllerClient, agent: ScriptedAgent, message: pb.AgentMessage, why: str
) -> None:
    agent.send(message)
    agent.ended.wait(DEADLINE)
    assert agent.error is not None
    assert agent.error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert re.search(why, agent.error.details())
    [lost] = [one for one in client.read_events() if one.kind == "agent-lost"][-1:]
    assert lost.detail.startswith("it sent a message that is too large: ")


def test_long_names_are_not_repeated_in_errors(client: ControllerClient) -> None:
    found = "JobReference.name has 60,000 characters, and may have 64: 'xxx"
    with pytest.raises(errors.InvalidRequest, match=found) as caught:
        client.get_job("x" * 60_000)
    assert len(str(caught.value)) < 200
    with pytest.raises(errors.InvalidRequest, match=r"the message has 4,000,0.. bytes, and may have 65,536"):
        client.start_job(pb.StartJobRequest(workers=1, name="x" * 4_000_000))


def test_bits_that_were_changed(
    client: ControllerClient, agent: ScriptedAgent, limit: Callable[[float], float]
) -> None:
    job = client.start_job(pb.StartJobRequest(workers=3))
    attach_all(agent, job)
    began = time.monotonic()
    check_failed(agent, job, 0, 100)
    check_failed(agent, job, 0, 999)  # only a rank's first report counts
    check_failed(agent, job, 2, 100)
    revocation = agent.wait_for("revocation", seconds=limit(10))
    assert time.monotonic() - began > 0.5
    assert revocation.reason == pb.REVOCATION_REASON_INTEGRITY
    assert "on ranks 0, 2 in call 9, all_reduce of 100 float32, at chunk 3 in slot" in revocation.message


def test_digits_are_an_id_and_never_a_name(client: ControllerClient, agent: ScriptedAgent) -> None:
    first, second = client.start_job(pb.StartJobRequest(workers=1)), client.start_job(pb.StartJobRequest(workers=1))
    with pytest.raises(errors.InvalidRequest, match="and more than a number"):
        client.start_job(pb.StartJobRequest(workers=1, name=str(second.id)))
    assert client.get_job(str(second.id)).key == second.key
    with grpc.insecure_channel(client.address) as channel:
        reference = pb.JobReference(name=str(second.id))
        assert pb_grpc.JobsStub(channel).Get(reference).key == second.key  # type: ignore[no-untyped-call]
    assert client.stop_job(str(first.id)).key == first.key


def test_watching(client: ControllerClient, agent: ScriptedAgent, limit: Callable[[float], float]) -> None:
    job = client.start_job(pb.StartJobRequest(workers=1))
    agent.statuses.append(pb.RankStatus(job=job.id, epoch=job.epoch, rank=0, position=0))
    seen: list[tuple[float, pb.Job]] = []
    watcher = threading.Thread(target=lambda: seen.extend((time.monotonic(), j) for j in client.watch_job(job.id)))
    watcher.start()
    wait_until(lambda: len(seen) >= 1, "the first one comes at once", limit(0.9))
    agent.statuses[0].position = 42
    wait_until(lambda: len(seen) >= 4, "one comes each second", limit(4))
    assert seen[-1][1].ranks[0].position == 42
    agent.event(job, 0, pb.RankEvent.KIND_ATTACHED)
    wait_until(lambda: seen[-1][1].state == pb.JOB_STATE_RUNNING, "a change is seen at once", limit(0.9))
    client.stop_job(job.id)
    watcher.join(DEADLINE)
    assert not watcher.is_alive()
    assert [j.state for _, j in seen][-2:] == [pb.JOB_STATE_RUNNING, pb.JOB_STATE_STOPPED]


def test_a_position_that_no_rank_gets_to(client: ControllerClient, agent: ScriptedAgent) -> None:
    job = client.start_job(pb.StartJobRequest(workers=1))
    for position in (2**63 - 1, 2**63, 2**64 - 1):
        agent.statuses.append(pb.RankStatus(job=job.id, epoch=job.epoch, rank=0, position=position))
    wait_until(lambda: client.get_job(job.id).ranks[0].position == 2**63 - 1, "the heartbeat was taken")
    assert client.stop_job(job.id).state == pb.JOB_STATE_STOPPED
    assert client.get_job(job.id).ranks[0].position == 2**63 - 1


def test_events_that_make_no_sense_change_nothing(client: ControllerClient, agent: ScriptedAgent) -> None:
    with ScriptedAgent(client.address, "stranger") as stranger:
        job = client.start_job(pb.StartJobRequest(workers=1, name="mine"))
        assert job.ranks[0].agent == "a1"
        stranger.event(job, 0, pb.RankEvent.KIND_LOST)
        assert stranger.wait_for("revocation").job == job.id
        agent.event(job, 63, pb.RankEvent.KIND_LOST)
        agent.event(job, 0, pb.RankEvent.KIND_UNSPECIFIED)
        agent.send(pb.AgentMessage())
        agent.send(pb.AgentMessage(register=pb.Register()))
        agent.event(job, 0, pb.RankEvent.KIND_ATTACHED)
        wait_until(lambda: client.get_job("mine").state == pb.JOB_STATE_RUNNING, "the job runs")
        assert agent.error is None


def test_an_unknown_job_is_revoked(client: ControllerClient, agent: ScriptedAgent) -> None:
    agent.send(pb.AgentMessage(assignment_ready=pb.AssignmentReady(job=1000, epoch=77)))
    revocation = agent.wait_for("revocation")
    assert (revocation.job, revocation.epoch, revocation.reason) == (1000, 77, pb.REVOCATION_REASON_JOB_FAILED)
    job = client.start_job(pb.StartJobRequest(workers=1))
    client.stop_job(job.id)
    agent.send(pb.AgentMessage(assignment_ready=pb.AssignmentReady(job=job.id, epoch=job.epoch)))
    assert agent.wait_for("revocation", 3).reason == pb.REVOCATION_REASON_JOB_STOPPED


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"version": "0.2.0"}, "version 0.2.0 and this controller 0.1.0"),
        ({"protocol_version": 2}, "protocol version 2 and this controller 1"),
        ({"switch": "s9"}, "no switch has the name 's9'"),
        ({"name": "a b"}, "agent name 'a b'"),
        ({"max_ranks": 0}, "max_ranks is 0"),
        ({"instance": ""}, "instance is empty"),
        ({"host": "h" * 257}, "Register.host has 257 characters, and may have 256"),
        ({"host": "h\x1b]0;x\x07"}, r"host must be printable, not 'h\x1b]0;x\x07'"),
        ({"socket": "/run/a\nb"}, r"socket must be printable, not '/run/a\nb'"),
        ({"version": "9.9.9\x1b[2J"}, "version must be printable"),
        ({"name": "a\n" * 1000}, "Register.name has 2,000 characters, and may have 64"),
    ],
)
def test_agents_that_are_refused(client: ControllerClient, values: dict[str, Any], words: str) -> None:
    with ScriptedAgent(client.address, **values) as agent:
        assert agent.ended.wait(DEADLINE)
        assert agent.error is not None
        assert words in agent.error.details()


def test_what_agents_say_is_shown_and_does_nothing_else(running: tuple[ControllerProcess, ControllerClient]) -> None:
    """Check the text in errors, in the failure of jobs, in events and in the log."""
    process, client = running
    evil = "no\x1b]0;title\x07\n2026-11-22 ERROR controller: forged\u202e"
    shown = r"no\x1b]0;title\x07\n2026-11-22 ERROR controller: forged\u202e"

    def refuse(assignment: pb.Assignment) -> pb.AgentMessage:
        failed = pb.AssignmentFailed(job=assignment.job, epoch=assignment.epoch, reason=evil)
        return pb.AgentMessage(assignment_failed=failed)

    def forge(assignment: pb.Assignment) -> pb.AgentMessage:
        ready = pb.AssignmentReady(job=assignment.job, epoch=assignment.epoch)
        ready.endpoints.add(rank=0, address=evil, udp_port=1)
        return pb.AgentMessage(assignment_ready=ready)

    for answer in (refuse, forge):
        with ScriptedAgent(client.address, answer=answer), pytest.raises(errors.AgentFailed) as raised:
            client.start_job(pb.StartJobRequest(workers=1, name="evil"))
        assert shown in raised.value.message
        assert shown in client.get_job("evil").failure
    with ScriptedAgent(client.address) as agent:
        for kind in (pb.RankEvent.KIND_LOST, pb.RankEvent.KIND_SWITCH_GONE):
            job = client.start_job(pb.StartJobRequest(workers=1, name="evil"))
            agent.event(job, 0, pb.RankEvent.KIND_ATTACHED, detail=evil)
            agent.event(job, 0, kind, detail=evil)
            wait_until(lambda job=job: client.get_job(job.id).state == pb.JOB_STATE_FAILED, "the job has failed")  # type: ignore[misc]
            assert shown in client.get_job(job.id).failure
    said = [event.detail for event in client.read_events()]
    assert sum(shown in detail for detail in said) >= 4
    assert all(detail.isprintable() for detail in said)
    assert all(line.isprintable() for line in process.log.read_text().splitlines())
    assert not [line for line in process.log.read_text().splitlines() if line.startswith("2026-11-22 ERROR")]


def test_two_agents_of_one_name(client: ControllerClient, agent: ScriptedAgent) -> None:
    with ScriptedAgent(client.address, instance="another") as second:
        assert second.ended.wait(DEADLINE)
        raised = from_rpc_error(second.error, client.address)
        assert isinstance(raised, errors.AgentExists)
    agent.disconnect()
    wait_until(lambda: not client.list_agents()[0].live, "the first one is gone")
    with ScriptedAgent(client.address, instance="another") as second:
        assert second.wait_for("welcome")


def test_a_session_without_register(client: ControllerClient, agent: ScriptedAgent) -> None:
    stub = pb_grpc.AgentsStub(agent._channel)  # type: ignore[no-untyped-call]
    stream = stub.Session(iter([pb.AgentMessage(heartbeat=pb.Heartbeat())]))
    with pytest.raises(Exception, match="begins with Register, not with heartbeat"):
        list(stream)


def test_info(client: ControllerClient, running: tuple[ControllerProcess, ControllerClient]) -> None:
    info = client.info()
    assert (info.version, info.protocol_version) == ("0.1.0", 1)
    assert Path(info.store_path) == running[0].directory / "store.sqlite"
