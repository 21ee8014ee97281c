"""The controller's additional requirements for jobs on a Tofino."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptf_tests.tofino_emulator.daemon import DEFAULT_BFRT
from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.loopback.bfrt_harness import make_device
from tests.loopback.controlled_switches import TofinoSwitch
from tests.loopback.test_bfrt_names import known
from tests.support.controller_harness import ControllerProcess, ScriptedAgent, running_controller, wait_until


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerClient]:
    directory = tmp_path_factory.mktemp("tofino")
    with TofinoSwitch(directory) as switch:
        with running_controller(directory, switch.configuration()) as (_, client):
            yield client
        switch.stop()
        used = switch.used()
    assert used  # the number depends on the tests that this process runs
    assert used - known(make_device()) == set()


@pytest.fixture(autouse=True)
def nobody_is_there(client: ControllerClient) -> Iterator[None]:
    yield
    for job in client.list_jobs():
        client.stop_job(job.id)
    wait_until(lambda: not any(agent.live for agent in client.list_agents()), "the agents are gone")


def test_it_is_listed_with_its_interface(client: ControllerClient) -> None:
    (switch,) = client.list_switches()
    assert (switch.target, switch.data_address, switch.connected) == ("tofino", "10.0.0.254", True)
    assert switch.control_address.startswith("127.0.0.1:")


def test_as_many_workers_as_the_bitmap_has_bits(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, max_ranks=64):
        assert client.start_job(pb.StartJobRequest(workers=32, slots=32)).workers == 32
        with pytest.raises(errors.NoRoom, match=r"switch s1 \(tofino\) has at most 32 workers, not 33") as caught:
            client.start_job(pb.StartJobRequest(workers=33, slots=32))
        assert caught.value.figures == {"workers": "33", "workers_maximum": "32"}


def test_ranks_that_an_agent_refuses_go_to_another_pipe(client: ControllerClient) -> None:
    with (
        ScriptedAgent(client.address, "a1", switch_port=1, max_ranks=3, refuses=True),
        ScriptedAgent(client.address, "a2", switch_port=2, max_ranks=2) as left_out,
        ScriptedAgent(client.address, "b1", switch_port=3, max_ranks=4),
    ):
        job = client.start_job(pb.StartJobRequest(workers=3, slots=32))
        assert {rank.agent for rank in job.ranks} == {"b1"}
        over = left_out.wait_for("revocation")
        (asked,) = left_out.messages("assignment")
        assert (over.job, over.epoch, over.message) == (job.id, asked.epoch, "its ranks went to other agents")
        assert asked.epoch < job.epoch


def test_ranks_go_to_one_pipe(client: ControllerClient) -> None:
    with (
        ScriptedAgent(client.address, "a1", switch_port=1, max_ranks=3),
        ScriptedAgent(client.address, "a2", switch_port=2, max_ranks=2),
        ScriptedAgent(client.address, "b1", switch_port=3, max_ranks=4),
    ):
        assert {rank.agent for rank in client.start_job(pb.StartJobRequest(workers=5, slots=32)).ranks} == {"a1", "a2"}
        assert {rank.agent for rank in client.start_job(pb.StartJobRequest(workers=2, slots=32)).ranks} == {"b1"}
        with pytest.raises(errors.NoAgent) as caught:
            client.start_job(pb.StartJobRequest(workers=3, slots=32))
        assert "one pipe of switch s1: pipe 0: room for 0 (a1, a2); pipe 1: room for 2 (b1)" in caught.value.message


def test_an_agent_on_a_port_that_is_not_configured(client: ControllerClient) -> None:
    with ScriptedAgent(client.address, switch_port=7):
        with pytest.raises(
            errors.NoAgent, match=r"port 7 of switch s1, which has no such port: give it a \[\[switches"
        ):
            client.start_job(pb.StartJobRequest(workers=1))
        with ScriptedAgent(client.address, "a2"):
            assert client.start_job(pb.StartJobRequest(workers=1)).ranks[0].agent == "a2"


def test_losses(client: ControllerClient) -> None:
    with ScriptedAgent(client.address), pytest.raises(errors.SwitchRefused, match="cannot lose packets on purpose"):
        client.set_loss(ingress=0.5)


def test_the_wrong_program(tmp_path: Path) -> None:
    with TofinoSwitch(tmp_path) as switch:
        process = ControllerProcess(tmp_path, switch.configuration(program="switch"))
        try:
            with process.start(wait_connected=False) as client:
                words = "switch s1 runs 'switchml' and not 'switch'"
                wait_until(lambda: words in client.list_switches()[0].failure, "the failure is told")
                with ScriptedAgent(client.address), pytest.raises(errors.SwitchUnavailable, match=words):
                    client.start_job(pb.StartJobRequest(workers=1))
        finally:
            process.stop()


def test_values_that_the_program_does_not_have(tmp_path: Path) -> None:
    assert "switchml_values_per_packet" in json.dumps(json.loads(DEFAULT_BFRT.read_text()))
    switch = TofinoSwitch(tmp_path)
    process = ControllerProcess(tmp_path, switch.configuration(values_per_packet=7))
    with pytest.raises(AssertionError, match="values_per_packet is 7; the P4 program for tofino is compiled for"):
        process.start()
