"""Controller, switch or both are restarted, or are replaced by another one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import finsy as fy
import pytest

from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.drivers.p4tables import NONCE
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import RankState
from tests.support.controller_harness import (
    DEADLINE,
    ControllerProcess,
    ScriptedAgent,
    configuration,
    resume,
    suspend,
    wait_until,
)
from tests.support.p4_messages import DELETE, table_entry, update
from tests.support.soft_switch import Client, SwitchProcess, running_switch


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SwitchProcess]:
    with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as process:
        yield process


@pytest.fixture
def controller(switch: SwitchProcess, tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path, configuration(switch))
    yield process
    process.stop()


def with_switch(switch: SwitchProcess, action: Callable[[fy.Switch], Awaitable[None]]) -> None:
    """Change the switch without the controller; no controller may be running."""

    async def run() -> None:
        async with fy.Switch("s", switch.address, fy.SwitchOptions()) as connected:
            assert connected.is_primary
            await action(connected)

    asyncio.run(run())


STORES = Path(__file__).parents[1] / "unit" / "stores"


def written_since(process: ControllerProcess, start: int) -> list[str]:
    return [line for line in process.log.read_text()[start:].splitlines() if "updates written" in line]


def come_back(client: ControllerClient, job: pb.Job, attached: bool = True, **values: Any) -> ScriptedAgent:
    """Check that an agent that continued while the controller was away reports its ranks."""
    agent = ScriptedAgent(client.address, **values)
    agent.__enter__()
    assert agent.error is None, agent.error
    ranks = [rank.rank for rank in job.ranks if rank.agent == agent.name]
    agent.send(agent.ready(pb.Assignment(job=job.id, epoch=job.epoch, ranks=ranks)))
    if attached:
        for rank in ranks:
            agent.event(job, rank, pb.RankEvent.KIND_ATTACHED)
    return agent


def test_a_damaged_switch_is_repaired(controller: ControllerProcess, switch: SwitchProcess) -> None:
    client = controller.start()
    agent = ScriptedAgent(client.address).__enter__()
    job = client.start_job(pb.StartJobRequest(workers=2))
    detail = client.show_switch()
    controller.kill()

    async def damage(connected: fy.Switch) -> None:
        await connected.delete([fy.P4TableEntry("rank_table", match=fy.Match(job=job.id, rank=1))])
        await connected.modify([fy.P4MulticastGroupEntry(job.id, replicas=[(1, 1)])])
        foreign = fy.P4TableEntry(
            "job_table", match=fy.Match(job=9), action=fy.Action("describe_job", slot_value=0, slot_mask=0)
        )
        await connected.insert([foreign, fy.P4MulticastGroupEntry(77, replicas=[(1, 0)])])

    with_switch(switch, damage)
    before = len(controller.log.read_text())
    client = controller.start()
    (line,) = written_since(controller, before)
    assert "4 updates written to hold the tables of 1 jobs" in line
    repaired = client.show_switch()
    assert sorted(map(str, repaired.entries)) == sorted(map(str, detail.entries))
    assert list(repaired.groups) == list(detail.groups)
    agent.disconnect()


def test_agents_that_do_not_come_back(controller: ControllerProcess, limit: Callable[[float], float]) -> None:
    client = controller.start()
    with ScriptedAgent(client.address, "a1") as first, ScriptedAgent(client.address, "a2") as second:
        job = client.start_job(pb.StartJobRequest(workers=4))
        controller.kill()
        assert first.ended.wait(DEADLINE)
        assert second.ended.wait(DEADLINE)
    client = controller.start()
    agent = come_back(client, job, attached=False)
    revocation = agent.wait_for("revocation", seconds=limit(13))
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [2, 3])
    *_, last = client.watch_job(job.id)
    assert "agent a2 did not come back within 10 s" in last.failure
    assert not client.show_switch().groups
    agent.disconnect()


def test_a_rank_that_was_lost_before_the_restart(controller: ControllerProcess, tmp_path: Path) -> None:
    """Test the store of a controller that ended between the loss and the change: it waited for a switch, say."""
    client = controller.start()
    with ScriptedAgent(client.address, "a1") as agent, ScriptedAgent(client.address, "a2") as other:
        job = client.start_job(pb.StartJobRequest(workers=2, on_failure=pb.ON_FAILURE_SHRINK))
        agent.event(job, 0, pb.RankEvent.KIND_ATTACHED)
        other.event(job, 1, pb.RankEvent.KIND_ATTACHED)
        wait_until(lambda: client.get_job(job.id).state == pb.JOB_STATE_RUNNING, "all ranks are attached")
        controller.kill()
    with sqlite3.connect(tmp_path / "store.sqlite") as database:
        database.execute("UPDATE ranks SET state = ? WHERE rank = 1", (RankState.LOST,))
    client = controller.start()
    agent = come_back(client, job)
    agent.wait_for("quiesce")
    agent.disconnect()


def test_an_agent_that_comes_back_after_the_end(controller: ControllerProcess) -> None:
    """Test a launcher that is back before the agents are: these are told what they would have been told then."""
    client = controller.start()
    with ScriptedAgent(client.address) as agent:
        job = client.start_job(pb.StartJobRequest(workers=2))
        for rank in range(2):
            agent.event(job, rank, pb.RankEvent.KIND_ATTACHED)
        wait_until(lambda: client.get_job(job.id).state == pb.JOB_STATE_RUNNING, "all ranks are attached")
        controller.kill()
    client = controller.start()
    assert client.report_exit(job.id, 1, 137).state == pb.JOB_STATE_FAILED
    agent = come_back(client, job)
    revocation = agent.wait_for("revocation")
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [1])
    assert revocation.message == "rank 1 exited with status 137"
    agent.disconnect()


@pytest.mark.parametrize(
    ("values", "words"),
    [({"instance": "new"}, "agent a1 was restarted"), ({"socket_address": "127.0.0.9"}, "agent a1 has other sockets")],
)
def test_an_agent_that_was_restarted_as_well(controller: ControllerProcess, values: dict[str, str], words: str) -> None:
    client = controller.start()
    with ScriptedAgent(client.address) as agent:
        job = client.start_job(pb.StartJobRequest(workers=2))
        controller.kill()
        assert agent.ended.wait(DEADLINE)
    client = controller.start()
    agent = come_back(client, job, attached=False, **values)
    *_, last = client.watch_job(job.id)
    assert last.state == pb.JOB_STATE_FAILED
    assert words in last.failure
    assert agent.wait_for("revocation")
    agent.disconnect()


def test_the_jobs_of_a_store_of_version_0_1_0_go_on(switch: SwitchProcess, tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, configuration(switch, "leaf-1"))
    controller.start()  # this loads the pipeline
    controller.stop()
    with Client(switch.address, election_id=11) as p4runtime:  # that of the first term
        p4runtime.write(update(DELETE, table_entry("rank_table", NONCE)))  # version 0.1.0 wrote none
    (tmp_path / "store.sqlite").unlink()
    with sqlite3.connect(tmp_path / "store.sqlite") as database:
        database.executescript((STORES / "schema_5.sql").read_text())
    try:
        client = controller.start()
        job = client.get_job("running")
        assert list(job.switches) == [pb.JobSwitch(switch="leaf-1", epoch=5, slot_base=128, slots=32, group=6)]
        agents = [
            come_back(client, job, name=f"host-{number}", switch="leaf-1", instance=f"instance-{number}")
            for number in (1, 2)
        ]
        for agent in agents:
            assert agent.wait_for("activation") == pb.Activation(job=job.id, epoch=job.epoch)
        for rank in job.ranks:
            agents[rank.agent == "host-2"].event(job, rank.rank, pb.RankEvent.KIND_CLOSED)
        *_, last = client.watch_job(job.id)
        assert (last.state, last.failure) == (pb.JOB_STATE_COMPLETED, "")
        failures = {name: client.get_job(name).failure for name in ("starting", "changing", "5")}
        assert failures["starting"] == "the controller was restarted while the job started"
        assert failures["changing"] == "the controller was restarted while the job changed to another epoch"
        assert failures["5"].startswith("no switch has the name 'leaf-2'")
        for agent in agents:
            agent.disconnect()
    finally:
        controller.stop()


def test_a_job_that_was_starting(controller: ControllerProcess) -> None:
    client = controller.start()
    with ScriptedAgent(client.address, answer=lambda _: None) as agent:
        start = client._stubs().jobs.Start.future(pb.StartJobRequest(workers=1, name="half"))
        agent.wait_for("assignment")
        controller.kill()
        assert start.exception()
    client = controller.start()
    job = client.get_job("half")
    assert (job.state, job.failure) == (pb.JOB_STATE_FAILED, "the controller was restarted while the job started")
    assert client.list_switches()[0].slots_free == 1024


def test_setting_up_twice_writes_nothing(controller: ControllerProcess) -> None:
    for _ in range(2):
        controller.start().close()
        controller.stop()
    log = controller.log.read_text()
    assert log.count("pipeline loaded") == 1
    assert log.count("updates written") == 1


def test_ids_and_counters_of_a_reused_id(controller: ControllerProcess, switch: SwitchProcess, tmp_path: Path) -> None:
    client = controller.start()
    with ScriptedAgent(client.address):
        assert client.start_job(pb.StartJobRequest(workers=1)).id == 1
    client.close()
    controller.stop()

    async def count(connected: fy.Switch) -> None:
        data = fy.P4CounterData(packet_count=5, byte_count=500)
        await connected.modify([fy.P4CounterEntry("job_counter", index=(1 << 4) | 1, data=data)])

    with_switch(switch, count)
    with sqlite3.connect(tmp_path / "store.sqlite") as store:
        store.execute("UPDATE jobs SET id = 1023")
        store.execute("UPDATE job_switches SET multicast_group = 1023")  # as admission numbers it
    client = controller.start()
    with ScriptedAgent(client.address):
        job = client.start_job(pb.StartJobRequest(workers=1))
        assert job.id == 1
        assert not any(client.get_job(1).counters.values())


def test_a_second_controller_stands_by(switch: SwitchProcess, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = ControllerProcess(tmp_path / "first", configuration(switch))
    second = ControllerProcess(tmp_path / "second", configuration(switch))
    try:
        first.start()
        client = second.start()
        (seen,) = client.list_switches()
        assert (seen.connected, seen.primary) == (True, False)
        with ScriptedAgent(client.address):
            with pytest.raises(errors.SwitchUnavailable, match="another controller is its primary"):
                client.start_job(pb.StartJobRequest(workers=1))
            first.stop()
            wait_until(lambda: client.list_switches()[0].primary, "the second controller takes over")
            wait_until(lambda: client.list_switches()[0].connected, "and has set the switch up")
            assert client.start_job(pb.StartJobRequest(workers=1)).state == pb.JOB_STATE_READY
    finally:
        first.stop()
        second.stop()


def test_a_controller_that_was_suspended_does_not_blame_its_agents(controller: ControllerProcess) -> None:
    client = controller.start()
    with ScriptedAgent(client.address) as agent:
        job = client.start_job(pb.StartJobRequest(workers=1))
        assert controller.process is not None
        suspend(controller.process)
        assert not agent.ended.wait(6)
        resume(controller.process)
        assert not agent.ended.wait(3)
        assert client.get_job(job.id).state == pb.JOB_STATE_READY


def test_a_switch_of_another_size_after_a_restart(controller: ControllerProcess, switch: SwitchProcess) -> None:
    client = controller.start()
    with ScriptedAgent(client.address) as agent:
        client.start_job(pb.StartJobRequest(workers=1, name="old"))
        controller.stop()
        assert agent.ended.wait(DEADLINE)
    controller.config.write_text(configuration(switch, values_per_packet=128))
    client = controller.start()
    job = client.get_job("old")
    assert job.state == pb.JOB_STATE_FAILED
    assert job.failure == "switch s1 has 128 values per packet, not 64, since the controller was restarted"
    with ScriptedAgent(client.address):
        assert client.start_job(pb.StartJobRequest(workers=1)).values_per_packet == 128
