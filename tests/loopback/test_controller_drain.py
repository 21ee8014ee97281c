"""Draining a switch: it gets no new jobs, running ones continue, and a restart preserves the setting."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import DEADLINE, ScriptedAgent, configuration, running_controller, wait_until
from tests.support.soft_switch import running_switch


def attach_and_close(client: ControllerClient, agent: ScriptedAgent, job: pb.Job) -> None:
    for kind in (pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_CLOSED):
        for rank in job.ranks:
            agent.event(job, rank.rank, kind)
    wait_until(lambda: client.get_job(job.id).state == pb.JOB_STATE_COMPLETED, "the job has ended")


def test_a_switch_is_drained(tmp_path: Path) -> None:
    with (
        running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as switch,
        running_controller(tmp_path, configuration(switch)) as (process, client),
    ):
        with ScriptedAgent(client.address) as agent:
            running = client.start_job(pb.StartJobRequest(workers=2, name="running"))
            drained = client.drain_switch("s1")
            assert (drained.drained, drained.jobs) == (True, 1)
            with pytest.raises(errors.SwitchUnavailable, match=r"s1 is drained; `switchml-ctl switch undrain s1`"):
                client.start_job(pb.StartJobRequest(workers=2))
            waiting = threading.Thread(target=client.wait_without_jobs, args=("s1",))
            waiting.start()
            attach_and_close(client, agent, running)
            waiting.join(DEADLINE)
            assert not waiting.is_alive()
            assert client.list_switches()[0].jobs == 0

        process.stop()
        client = process.start()
        with ScriptedAgent(client.address) as agent:
            assert client.list_switches()[0].drained
            with pytest.raises(errors.SwitchUnavailable, match="is drained"):
                client.start_job(pb.StartJobRequest(workers=2))
            assert not client.drain_switch("s1", drained=False).drained
            attach_and_close(client, agent, client.start_job(pb.StartJobRequest(workers=2)))
        with pytest.raises(errors.SwitchNotFound):
            client.drain_switch("s2")
        kinds = [event.kind for event in client.read_events()]
        assert kinds.count("switch-drained") == kinds.count("switch-undrained") == 1
