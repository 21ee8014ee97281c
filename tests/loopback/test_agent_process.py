"""switchml-agent as a process: its options, its files and how it ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from tests.loopback.agent_harness import RawProcess, attach_message, expect_event, in_thread
from tests.loopback.agents_server import DEADLINE, AgentsServer, free_port, serving

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def agent_process(directory: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ["--socket", str(directory / "agent.sock"), "--ready-file", str(directory / "ready.json"), *options]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "switchml.host_agent.daemon",
        *arguments,
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("SWITCHML_")},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def end_of(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Return the exit status and standard error."""
    _, errors = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode is not None
    return process.returncode, errors.decode()


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def appears(path: Path) -> None:
    end = asyncio.get_running_loop().time() + DEADLINE
    while not await in_thread(path.exists):
        assert asyncio.get_running_loop().time() < end, f"{path} does not appear"
        await asyncio.sleep(0.01)


async def test_from_start_to_sigterm(tmp_path: Path) -> None:
    controller = AgentsServer()
    (tmp_path / "ready.json").write_text("of an earlier run")
    async with (
        serving(controller) as address,
        agent_process(tmp_path, "--controller", address, "--name", "a1") as process,
    ):
        await controller.wait_for(lambda: controller.registrations)
        await appears(tmp_path / "ready.json")
        assert json.loads((tmp_path / "ready.json").read_text()) == {
            "socket": str(tmp_path / "agent.sock"),
            "pid": process.pid,
            "name": "a1",
            "version": VERSION,
        }
        assert controller.registrations[0].pid == process.pid
        await controller.send(
            assignment=pb.Assignment(
                job=1,
                epoch=1,
                name="job-1",
                world_size=2,
                ranks=[0],
                slots=4,
                values_per_packet=64,
                switch_address="127.0.0.1",
                switch_udp_port=9,
                check_key=bytes(16),
            )
        )
        await controller.next("assignment_ready")
        await controller.send(activation=pb.Activation(job=1, epoch=1))
        trainer = RawProcess(tmp_path / "agent.sock")
        assert (await in_thread(lambda: trainer.ask(attach_message())) or {})["type"] == "attached"
        await expect_event(controller, pb.RankEvent.KIND_ATTACHED, 0)

        process.send_signal(signal.SIGTERM)
        status, _ = await end_of(process)
        assert status == 0
        failed = await in_thread(trainer.receive)
        assert failed is not None
        assert (failed["type"], failed["error"]) == ("failed", "AgentLost")
        assert "agent a1 was stopped" in failed["message"]
        assert await in_thread(trainer.receive) is None
        assert not entries(tmp_path)


async def test_a_killed_agent_leaves_a_socket_that_the_next_one_replaces(tmp_path: Path) -> None:
    controller = AgentsServer()
    async with serving(controller) as address:
        async with agent_process(tmp_path, "--controller", address) as process:
            await appears(tmp_path / "ready.json")
            process.kill()
            await process.wait()
        assert (tmp_path / "agent.sock").is_socket()
        async with agent_process(tmp_path, "--controller", address) as process:
            await controller.wait_for(lambda: len(controller.registrations) == 2)
            first, second = controller.registrations
            assert first.name == second.name
            assert first.instance != second.instance
            async with agent_process(tmp_path, "--controller", address) as third:
                status, errors = await end_of(third)
                assert status == 1
                assert f"another process listens at {tmp_path / 'agent.sock'}" in errors.splitlines()[-1]
            assert process.returncode is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "agent a1 is version 0.1.0 and this controller 0.2.0"),
        (grpc.StatusCode.ALREADY_EXISTS, "the name a1 is taken by another process"),
    ],
)
async def test_a_refusal_ends_it_with_one_line(tmp_path: Path, code: grpc.StatusCode, words: str) -> None:
    controller = AgentsServer()
    controller.refusal = (code, words)
    async with serving(controller) as address, agent_process(tmp_path, "--controller", address) as process:
        status, errors = await end_of(process)
        assert status == 1
        assert errors.splitlines() == [f"Error: the controller at {address} refused this agent: {words}"]
        assert not entries(tmp_path)


async def test_it_waits_for_a_controller(tmp_path: Path) -> None:
    port = free_port()
    async with agent_process(tmp_path, "--controller", f"127.0.0.1:{port}") as process:
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), DEADLINE)
        assert f"no controller at 127.0.0.1:{port}".encode() in line
        controller = AgentsServer()
        async with serving(controller, port):
            await controller.wait_for(lambda: controller.registrations)
        process.send_signal(signal.SIGINT)
        assert (await end_of(process))[0] == 0
