"""Losses on purpose on a soft switch, set through the controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ScriptedAgent, configuration, running_controller
from tests.support.soft_switch import running_switch


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerClient]:
    ports = ("--udp-port", "1=127.0.0.1:0", "--udp-port", "2=127.0.0.1:0")
    with (
        running_switch(tmp_path_factory.mktemp("switch"), *ports) as switch,
        running_controller(tmp_path_factory.mktemp("controller"), configuration(switch)) as (_, connected),
    ):
        yield connected


@pytest.fixture(autouse=True)
def no_losses_before(client: ControllerClient) -> None:
    client.set_loss(ports=[1, 2], ingress=0, egress=0)
    assert losses(client) == {}


def losses(client: ControllerClient) -> dict[int, Any]:
    return {loss.port: (loss.ingress, loss.egress) for loss in client.show_switch().losses}


def test_each_direction_of_each_port_is_set_on_its_own(client: ControllerClient) -> None:
    client.set_loss("s1", [1, 2], ingress=0.25)
    assert losses(client) == {1: (pytest.approx(0.25), 0), 2: (pytest.approx(0.25), 0)}
    client.set_loss("s1", [2], egress=1)
    assert losses(client)[2] == (pytest.approx(0.25), 1)
    client.set_loss("s1", [2], ingress=0.5)  # modified, not inserted again
    assert losses(client) == {1: (pytest.approx(0.25), 0), 2: (pytest.approx(0.5), 1)}
    left = client.set_loss("s1", [2], ingress=0, egress=0)
    assert [loss.port for loss in left] == [1]
    assert losses(client) == {1: (pytest.approx(0.25), 0)}


def test_all_ports_are_those_of_agents_and_those_that_lose_packets(client: ControllerClient) -> None:
    with pytest.raises(errors.InvalidRequest, match="no agent is attached to switch s1"):
        client.set_loss(ingress=0.5)
    client.set_loss(ports=[2], egress=0.5)
    with ScriptedAgent(client.address):  # on port 1
        client.set_loss(ingress=1)
    assert losses(client) == {1: (1, 0), 2: (1, pytest.approx(0.5))}
    client.set_loss(ingress=0, egress=0)  # the agent has disconnected, but its port is still included
    assert losses(client) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give the share"),
        ({"ingress": 1.5}, "ingress loss 1.5 is not a share from 0 to 1"),
        ({"egress": float("nan")}, "egress loss nan"),
        ({"ingress": 0.5, "ports": [0]}, "port 0 is not one of 1 to 511"),
        ({"ingress": 0.5, "ports": [512]}, "port 512 is not one of 1 to 511"),
        ({"ingress": 0.5, "ports": [-1]}, "1 to 511"),
    ],
)
def test_what_cannot_be_set_is_said(arguments: dict[str, Any], words: str, client: ControllerClient) -> None:
    with pytest.raises(errors.InvalidRequest, match=words):
        client.set_loss(**arguments)


def test_another_switch_is_not_known(client: ControllerClient) -> None:
    with pytest.raises(errors.SwitchNotFound, match="'s2'"):
        client.set_loss("s2", [1], ingress=0.5)


def test_losses_neither_count_as_tables_of_jobs_nor_go_with_them(client: ControllerClient) -> None:
    client.set_loss(ports=[1], ingress=0.5)
    with ScriptedAgent(client.address):
        job = client.start_job(pb.StartJobRequest(workers=2))
        client.stop_job(job.id)
    assert job.state == pb.JOB_STATE_READY
    assert losses(client) == {1: (pytest.approx(0.5), 0)}
