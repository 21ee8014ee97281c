"""The life of a job and its failures, on every target, with the same controller and different switches and drivers."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.loopback.controlled_switches import TARGETS, ControlledSwitch, require_target
from tests.support.controller_harness import DEADLINE, ControllerProcess, ScriptedAgent, wait_until


@pytest.fixture(params=sorted(TARGETS))
def switch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlledSwitch]:
    require_target(request.param)
    with TARGETS[request.param](tmp_path) as process:
        yield process


@pytest.fixture
def controller(switch: ControlledSwitch, tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path, switch.configuration())
    yield process
    process.stop()
    assert "Traceback" not in process.log.read_text()


def attach_all(client: ControllerClient, agent: ScriptedAgent, job: pb.Job) -> None:
    for rank in job.ranks:
        if rank.agent == agent.name:
            agent.event(job, rank.rank, pb.RankEvent.KIND_ATTACHED)
    mine = [rank.rank for rank in job.ranks if rank.agent == agent.name]
    wait_until(
        lambda: all(client.get_job(job.id).ranks[n].state == pb.RANK_STATE_ATTACHED for n in mine),
        f"{agent.name}'s ranks attached",
    )


def tables(client: ControllerClient) -> dict[str, int]:
    names = [entry.table for entry in client.show_switch().entries]
    return {name: names.count(name) for name in names}


def assert_empty(client: ControllerClient, switch: ControlledSwitch) -> None:
    assert tables(client) == {"switch_address_table": 1}
    assert not client.show_switch().groups
    assert client.list_switches()[0].slots_free == switch.slots


def test_a_job_from_start_to_end(switch: ControlledSwitch, controller: ControllerProcess) -> None:
    client = controller.start()
    (seen,) = client.list_switches()
    assert (seen.target, seen.slots, seen.connected, seen.primary) == (switch.target, switch.slots, True, True)
    with ScriptedAgent(client.address) as agent, ScriptedAgent(client.address, "a2", switch_port=2):
        job = client.start_job(pb.StartJobRequest(workers=4, name="train"))
        assert (job.state, job.switches[0].slots, job.values_per_packet) == (
            pb.JOB_STATE_READY,
            switch.pool,
            seen.values_per_packet,
        )
        assert agent.wait_for("activation") == pb.Activation(job=job.id, epoch=job.epoch)
        (assignment,) = agent.messages("assignment")
        assert not assignment.one_port
        assert assignment.optional_values  # all targets can, but BMv2 with 256 values in a packet
        assert tables(client) == {"worker_table": 4, "job_table": 1, "rank_table": 4, "switch_address_table": 1}
        detail = client.show_switch()
        (group,) = detail.groups
        assert (group.id, sorted(replica.instance for replica in group.replicas)) == (job.id, [0, 1, 2, 3])
        assert len({replica.port for replica in group.replicas}) == 2
        worker = next(
            entry for entry in detail.entries if entry.table == "worker_table" and entry.match["worker"] == "2"
        )
        assert (worker.match["job"], worker.match["slot"]) == (str(job.id), f"0-{switch.pool - 1}")
        assert dict(worker.parameters) == {
            "worker_bit": "0x4", "job_mask": "0xf", "epoch": str(job.epoch), "group": str(job.id),
        }  # fmt: skip
        assert not any(client.get_job(job.id).counters.values())
        assert not any(detail.drop_reasons.values())
        last = client.stop_job(job.id)
        assert last.state == pb.JOB_STATE_STOPPED
        assert_empty(client, switch)


def test_two_jobs_share_the_switch(switch: ControlledSwitch, controller: ControllerProcess) -> None:
    client = controller.start()
    with ScriptedAgent(client.address):
        first = client.start_job(pb.StartJobRequest(workers=2, slots=32))
        second = client.start_job(pb.StartJobRequest(workers=3, slots=16))
        assert first.id != second.id
        assert first.epoch != second.epoch
        assert {job.switches[0].slot_base for job in (first, second)} == {0, 32}
        assert tables(client) == {"worker_table": 5, "job_table": 2, "rank_table": 5, "switch_address_table": 1}
        assert sorted(len(group.replicas) for group in client.show_switch().groups) == [2, 3]
        client.stop_job(first.id)
        assert tables(client) == {"worker_table": 3, "job_table": 1, "rank_table": 3, "switch_address_table": 1}
        assert [group.id for group in client.show_switch().groups] == [second.id]
        again = client.start_job(pb.StartJobRequest(workers=1, slots=32))
        assert again.switches[0].slot_base == 0
        assert again.epoch > second.epoch
        for job in (second, again):
            client.stop_job(job.id)
        assert_empty(client, switch)


def test_a_worker_is_lost(
    switch: ControlledSwitch, controller: ControllerProcess, limit: Callable[[float], float]
) -> None:
    client = controller.start()
    with ScriptedAgent(client.address) as agent, ScriptedAgent(client.address, "a2", switch_port=2) as other:
        job = client.start_job(pb.StartJobRequest(workers=4))
        attach_all(client, agent, job)
        other.event(job, 3, pb.RankEvent.KIND_LOST, detail="its process was killed")
        for each in (agent, other):
            revocation = each.wait_for("revocation", seconds=limit(2))
            assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [3])
        *_, last = client.watch_job(job.id)
        assert (last.state, last.failure) == (
            pb.JOB_STATE_FAILED,
            "rank 3 was lost: agent a2 on here says: its process was killed",
        )
        assert_empty(client, switch)


@pytest.mark.parametrize("violently", [True, False])
def test_the_controller_is_restarted(switch: ControlledSwitch, controller: ControllerProcess, violently: bool) -> None:
    client = controller.start()
    agent = ScriptedAgent(client.address).__enter__()
    job = client.start_job(pb.StartJobRequest(workers=2, name="survivor"))
    attach_all(client, agent, job)
    before_tables = sorted(map(str, client.show_switch().entries))
    controller.kill() if violently else controller.stop()
    assert agent.ended.wait(DEADLINE)
    before = len(controller.log.read_text())
    client = controller.start()
    assert client.get_job("survivor").state == pb.JOB_STATE_RUNNING
    with ScriptedAgent(client.address) as agent:
        ranks = [rank.rank for rank in job.ranks]
        agent.send(agent.ready(pb.Assignment(job=job.id, epoch=job.epoch, ranks=ranks)))
        attach_all(client, agent, job)
        log = controller.log.read_text()[before:]
        assert "is connected at" in log
        assert not [line for line in log.splitlines() if "updates written" in line or "pipeline loaded" in line]
        assert sorted(map(str, client.show_switch().entries)) == before_tables
        for rank in ranks:
            agent.event(job, rank, pb.RankEvent.KIND_CLOSED)
        *_, last = client.watch_job("survivor")
        assert last.state == pb.JOB_STATE_COMPLETED
        other = client.start_job(pb.StartJobRequest(workers=2))
        assert (other.epoch, other.switches[0].slot_base) == (job.epoch + 63, 0)


def test_the_switch_is_restarted(switch: ControlledSwitch, controller: ControllerProcess) -> None:
    switch.stop()
    client = controller.start(wait_connected=False)
    wait_until(lambda: "refused" in client.list_switches()[0].failure, "the failure is told")
    with ScriptedAgent(client.address) as agent:
        with pytest.raises(errors.SwitchUnavailable, match=r"switch s1 at .* is not available: "):
            client.start_job(pb.StartJobRequest(workers=1))
        with pytest.raises(errors.SwitchUnavailable):
            client.show_switch()
        switch.start()
        wait_until(lambda: client.list_switches()[0].connected, "the switch is connected")
        waiting, working = (client.start_job(pb.StartJobRequest(workers=1, slots=16)) for _ in range(2))
        attach_all(client, agent, working)
        switch.stop()
        wait_until(lambda: not client.list_switches()[0].connected, "the switch is gone")
        if switch.target == "tofino":  # its registers may outlive the process that controls it
            assert client.get_job(working.id).state == pb.JOB_STATE_RUNNING
            switch.start()
        revocation = agent.wait_for("revocation")
        assert (revocation.job, revocation.reason) == (working.id, pb.REVOCATION_REASON_SWITCH_LOST)
        if switch.target != "tofino":
            switch.start()
        wait_until(lambda: client.list_switches()[0].connected, "the switch is connected")
        *_, last = client.watch_job(working.id)
        why = "lost the sums in its registers" if switch.target == "tofino" else "is gone: its process has ended"
        assert why in last.failure
        assert client.get_job(waiting.id).state == pb.JOB_STATE_READY
        assert [group.id for group in client.show_switch().groups] == [waiting.id]
        # Stopping a job while the switch is disconnected also frees its slots.
        switch.stop()
        wait_until(lambda: not client.list_switches()[0].connected, "the switch is gone")
        client.stop_job(waiting.id)
        assert client.list_switches()[0].slots_free == switch.slots


def test_a_past_that_the_store_does_not_know(
    switch: ControlledSwitch, controller: ControllerProcess, tmp_path: Path
) -> None:
    client = controller.start()
    with ScriptedAgent(client.address):
        client.start_job(pb.StartJobRequest(workers=1))
        controller.kill()
    for file in tmp_path.glob("store.sqlite*"):
        file.unlink()
    client = controller.start()
    assert "s1 starts over with empty registers" in controller.log.read_text()
    assert_empty(client, switch)


def test_an_older_copy_of_the_store(switch: ControlledSwitch, controller: ControllerProcess, tmp_path: Path) -> None:
    """Its epochs are not used again: the switch keeps a nonce that the copy does not know."""
    client = controller.start()
    client.close()
    controller.stop()
    shutil.copy(tmp_path / "store.sqlite", tmp_path / "copy")
    client = controller.start()
    with ScriptedAgent(client.address):
        client.start_job(pb.StartJobRequest(workers=1))
        controller.kill()
        for file in tmp_path.glob("store.sqlite*"):
            file.unlink()
        shutil.copy(tmp_path / "copy", tmp_path / "store.sqlite")
        client = controller.start()
    assert "does not know what its registers hold" in controller.log.read_text()
    assert [event.kind for event in client.read_events() if event.switch == "s1"][-2:] == [
        "switch-restarted",
        "switch-connected",
    ]
    assert_empty(client, switch)


def test_epochs_that_are_used_up(switch: ControlledSwitch, controller: ControllerProcess, tmp_path: Path) -> None:
    client = controller.start()
    with contextlib.closing(sqlite3.connect(tmp_path / "store.sqlite", timeout=30)) as store:
        store.execute("UPDATE epochs SET last = 65534")
        store.commit()
    with ScriptedAgent(client.address):
        last = client.start_job(pb.StartJobRequest(workers=1))
        assert last.epoch == 65535
        with pytest.raises(errors.NoRoom, match="used up its 65535 epochs"):
            client.start_job(pb.StartJobRequest(workers=1))
        client.stop_job(last.id)
        assert client.start_job(pb.StartJobRequest(workers=1)).epoch == 1
    assert "starts over with empty registers" in controller.log.read_text()
