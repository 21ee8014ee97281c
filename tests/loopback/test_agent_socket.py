"""The agent's Unix socket, and its reaction to processes that break the rules."""

import asyncio
import json
import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.errors import SocketUnusable
from switchml.host_agent.socket_server import SocketServer
from tests.loopback.agent_harness import (
    RawProcess,
    RunningAgent,
    attach_message,
    expect_event,
    in_thread,
    running_agent,
)
from tests.support.collective_harness import running_fabric

DEEP = b"[" * 16_000
CHECK_FAILED = {
    "type": "check_failed",
    "position": 3,
    "call": {"sequence": 1, "operation": "all_reduce", "op": "avg", "dtype": "float32", "elements": 7, "root": 0},
}


async def raw(agent: RunningAgent) -> RawProcess:
    return await in_thread(lambda: RawProcess(agent.options.socket))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"job": "nothing"}, "UnknownJob", "its jobs: job 1 ('job-1', epoch 1)"),
        ({"job": "17"}, "UnknownJob", "'17'"),
        ({"job": "9" * 64}, "UnknownJob", "'999"),
        ({"rank": 1, "job": "1"}, "RankElsewhere", "agent agent-1 has rank 0"),
        ({"rank": 2}, "BadRequest", "ranks 0 to 1"),
        ({"world_size": 3}, "WrongWorldSize", "has 2 ranks, not 3"),
        ({"version": "0.2.0"}, "VersionMismatch", "0.2.0"),
        ({"version": "nonsense"}, "VersionMismatch", "nonsense"),
        ({"rank": "0"}, "BadRequest", "`rank`"),
        ({"rank": True}, "BadRequest", "`rank`"),
        ({"rank": -1}, "BadRequest", "`rank`"),
        ({"rank": 4096}, "BadRequest", "`rank`"),
        ({"job": 1}, "BadRequest", "`job`"),
        ({"job": "x" * 65}, "BadRequest", "`job`"),
        ({"job": "a\nb"}, "BadRequest", "`job`"),
        ({"world_size": 1.5}, "BadRequest", "`world_size`"),
        ({"pid": None}, "BadRequest", "`pid`"),
        ({"type": "close", "epoch": 0, "calls": 0}, "BadRequest", "first message"),
        ({"type": "shutdown"}, "BadRequest", "`type`"),
    ],
)
async def test_a_request_that_is_refused(tmp_path: Path, changes: dict[str, object], error: str, words: str) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2, ranks=[0])
        process = await raw(agent)
        answer = await in_thread(lambda: process.attach(**changes))
        assert answer is not None
        assert (answer["type"], answer["error"]) == ("refused", error)
        assert words in answer["message"]
        assert await in_thread(process.receive) is None  # disconnected
        await still_serves(agent)


async def test_digits_are_the_id_of_a_job_and_not_the_name_of_another(tmp_path: Path) -> None:
    """A controller of an earlier version may have assigned such a name."""
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 1, name="2")
        await agent.start_job(2, 1)
        comm = await agent.connect(0, "2")
        assert comm.name == "job-2"
        await in_thread(comm.close)
        await agent.revoke(pb.REVOCATION_REASON_JOB_STOPPED)
        with pytest.raises(switchml.ConnectError, match="has had its process"):
            await agent.connect(0, "2")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"{",
        b"null",
        b"[1]",
        DEEP,
        b'{"type": "attach"' + b" " * 20_000 + b"}",
        b'{"type":' + b"9" * 9000 + b"}",
    ],
    ids=["not UTF-8", "not JSON", "null", "list", "deep", "too long", "huge number"],
)
async def test_bytes_that_are_no_message(tmp_path: Path, data: bytes) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        process = await raw(agent)
        answer = await in_thread(lambda: process.ask(data))
        assert answer is not None
        assert (answer["type"], answer["error"]) == ("refused", "BadRequest")
        assert await in_thread(process.receive) is None
        await still_serves(agent)


async def still_serves(agent: RunningAgent) -> None:
    comm = await agent.connect(0)
    await in_thread(comm.close)


async def test_what_an_attached_process_says_wrong_costs_it_its_rank(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        process = await raw(agent)
        assert (await in_thread(process.attach) or {})["type"] == "attached"
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 0)
        answer = await in_thread(lambda: process.attach(rank=1))
        assert answer is not None
        assert "another rank needs another connection" in answer["message"]
        await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 0)


async def test_a_rank_is_attached_to_once(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        first, second, third = await raw(agent), await raw(agent), await raw(agent)
        assert (await in_thread(first.attach) or {})["type"] == "attached"
        taken = await in_thread(second.attach) or {}
        assert taken["error"] == "RankTaken"
        assert f"process {os.getpid()}" in taken["message"]
        assert await in_thread(lambda: first.ask({"type": "close", "epoch": 1, "calls": 0})) == {"type": "closed"}
        gone = await in_thread(third.attach) or {}
        assert gone["error"] == "RankTaken"
        assert "which has ended" in gone["message"]


async def test_a_process_may_come_before_the_tables_are_installed(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.assign(agent.assignment())
        process = await raw(agent)
        attaching = asyncio.create_task(in_thread(process.attach))
        done, _ = await asyncio.wait([attaching], timeout=0.1)
        assert not done
        await agent.controller.send(activation=pb.Activation(job=1, epoch=1))
        assert (await attaching or {})["type"] == "attached"


async def test_a_job_that_ends_before_it_is_active(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.assign(agent.assignment())
        process = await raw(agent)
        process.send(attach_message())
        await agent.revoke(pb.REVOCATION_REASON_JOB_FAILED, message="another agent had no room")
        answer = await in_thread(process.receive) or {}
        assert answer["error"] == "JobEnded"
        assert "another agent had no room" in answer["message"]


async def test_a_failed_check_goes_to_the_controller_once(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        process = await raw(agent)
        await in_thread(process.attach)
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 0)
        for _ in range(20):
            await in_thread(lambda: process.send(CHECK_FAILED))
        event = await expect_event(agent.controller, pb.RankEvent.KIND_CHECK_FAILED, 0)
        assert event.position == 3
        assert event.call == pb.Call(sequence=1, operation="all_reduce", op="avg", dtype="float32", elements=7, root=0)
        process.send({**CHECK_FAILED, "call": {**CHECK_FAILED["call"], "elements": -1}})  # type: ignore[dict-item]
        answer = await in_thread(process.receive) or {}
        assert "`elements`" in answer["message"]
        await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 0)  # without a second CHECK_FAILED before it


async def test_who_does_not_read_is_disconnected_and_others_are_served(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        process = await raw(agent)
        await in_thread(process.attach)
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, 0)

        def flood() -> None:
            for _ in range(100_000):
                process.send({"type": "missing"})

        agent.controller.positions = dict.fromkeys(range(64), 2**63)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await in_thread(flood)
        await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 0)
        other = await raw(agent)
        assert (await in_thread(lambda: other.attach(rank=1)) or {})["type"] == "attached"


async def test_descriptors_that_a_process_sends_are_not_kept(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        await agent.start_job(1, 2)
        before = open_descriptors()
        process = await raw(agent)
        socket.send_fds(process.socket, [json.dumps({"type": "close"}).encode()], [process.socket.fileno()] * 50)
        assert (await in_thread(process.receive) or {})["error"] == "BadRequest"
        process.socket.close()
        assert open_descriptors() <= before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_only_this_user_may_open_the_socket(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        assert stat.S_IMODE(agent.options.socket.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_another_user_is_refused_even_when_the_file_lets_it_in() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # noqa: PTH101 - pathlib is not better
        async with running_agent(Path(directory)) as agent:
            agent.options.socket.chmod(0o666)
            os.seteuid(65534)
            try:
                process = RawProcess(agent.options.socket)  # the kernel records the user who connects
            finally:
                os.seteuid(0)
            answer = await in_thread(process.receive) or {}
            assert answer["error"] == "BadRequest"
            assert "user 65534" in answer["message"]


async def start_server(path: Path) -> None:
    server = SocketServer(path, None, None)  # type: ignore[arg-type]  # no process connects
    server.start()
    await server.close()


async def test_the_socket_of_an_ended_agent_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left_behind:
        left_behind.bind(str(path))
    await start_server(path)
    assert not path.exists()


def test_the_socket_of_a_live_agent_is_not_taken(tmp_path: Path) -> None:
    with running_fabric(tmp_path) as fabric:
        with pytest.raises(SocketUnusable, match=f"another process listens at {fabric.socket}"):
            asyncio.run(start_server(fabric.socket))
        fabric.add_job(1, 1)
        fabric.connect(0).close()


async def test_a_socket_of_something_else_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(SocketUnusable, match="another process listens"):
            await start_server(path)
        assert path.exists()


async def test_paths_that_cannot_be_a_socket(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(SocketUnusable, match="is not a socket"):
        await start_server(file)
    assert file.read_text() == "precious"
    with pytest.raises(SocketUnusable, match="No such file or directory"):
        await start_server(tmp_path / "nowhere" / "agent.sock")
    with pytest.raises(SocketUnusable, match="107 bytes"):
        await start_server(tmp_path / ("x" * 108))
