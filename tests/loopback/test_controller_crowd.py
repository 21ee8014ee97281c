"""Many connections and calls of one peer or caller: the controller still serves the others."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

import grpc
import pytest

from switchml.common.grpc_connections import peer_of
from switchml.common.tls import CONTROLLER_NAME, Security
from switchml.controller.northbound.call_limits import CALLS_OF_A_CALLER
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import events_pb2_grpc as events_grpc
from tests.loopback.tls_harness import SecuredFabric, secured_fabric
from tests.support.controller_harness import ScriptedAgent, wait_until

DESCRIPTORS = 1024
CROWD = 1500
SECONDS = 30.0


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredFabric]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with secured_fabric(tmp_path_factory.mktemp("crowd")) as made:
        assert made.controller.process is not None
        resource.prlimit(made.controller.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        yield made
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(address: str, source: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS, (source, 0))


@pytest.mark.parametrize("sources", [1, 6])
def test_others_get_through_a_crowd_of_idle_connections(fabric: SecuredFabric, sources: int) -> None:
    with (
        ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1") as agent,
        contextlib.ExitStack() as crowd,
    ):
        for number in range(CROWD):
            crowd.enter_context(connect(fabric.address, f"127.0.0.{2 + number % sources}"))
        with fabric.client("admin", SECONDS) as client:
            assert client.info().protocol_version
            assert [one.registration.name for one in client.list_agents() if one.live] == ["a1"]
            with ScriptedAgent(fabric.address, "a2", tls=fabric.certificates / "agent-a2"):
                assert len([one for one in client.list_agents() if one.live]) == 2
        assert not agent.ended.is_set()


def test_calls_of_one_caller_are_limited(fabric: SecuredFabric) -> None:
    channel = Security.of(fabric.certificates / "viewer").channel(fabric.address, CONTROLLER_NAME)
    with channel:
        stub = events_grpc.EventsStub(channel)  # type: ignore[no-untyped-call]
        streams = [stub.Read(events_pb.ReadEventsRequest(follow=True)) for _ in range(CALLS_OF_A_CALLER + 8)]
        refused: list[grpc.RpcError] = []
        for stream in streams:
            try:
                next(stream)
            except grpc.RpcError as error:  # noqa: PERF203
                refused.append(error)
        assert [error.code() for error in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 8
        assert all(f"has {CALLS_OF_A_CALLER} calls under way" in error.details() for error in refused)
        with fabric.client("admin") as client:
            assert client.info().protocol_version
        for stream in streams:
            stream.cancel()
        wait_until(lambda: answers(fabric), "the viewer may call again", SECONDS)


def answers(fabric: SecuredFabric) -> bool:
    with fabric.client("viewer") as client, contextlib.suppress(Exception):
        return bool(client.info().protocol_version)
    return False


def test_the_names_that_grpc_gives_to_peers() -> None:
    assert peer_of("ipv4:127.0.0.1:4000") == ("127.0.0.1", 4000)
    assert peer_of("ipv6:%5B::1%5D:4000") == ("::1", 4000)
    assert peer_of("ipv6:%5B::ffff:10.0.0.1%5D:4000") == ("10.0.0.1", 4000)
    assert peer_of("unix:/run/controller.sock") is None
