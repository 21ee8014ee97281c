"""An agent in this event loop, with a real gRPC server as its controller and a real switch for its packets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import switchml
from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.softswitch._native import Switch, UdpPortSpec
from switchml.host_agent.daemon import AgentOptions, serve
from tests.loopback.agents_server import DEADLINE, AgentsServer, free_port, serving
from tests.support.worker_entries import worker_match

T = TypeVar("T")
LOCALHOST = 0x7F000001
VALUES = 64
SLOTS = 16


@dataclass
class RunningAgent:
    controller: AgentsServer
    options: AgentOptions
    task: asyncio.Task[None]
    switch: Switch
    switch_udp_port: int
    stop_controller: Callable[[], Awaitable[None]]

    def assignment(self, job: int = 1, world_size: int = 2, epoch: int = 1, **changes: Any) -> pb.Assignment:
        fields: dict[str, Any] = {
            "job": job,
            "epoch": epoch,
            "name": f"job-{job}",
            "world_size": world_size,
            "ranks": range(world_size),
            "slot_base": SLOTS * job,
            "slots": SLOTS,
            "values_per_packet": VALUES,
            "switch_address": "127.0.0.1",
            "switch_udp_port": self.switch_udp_port,
            "check_key": bytes(16),
        }
        return pb.Assignment(**{**fields, **changes})

    async def assign(self, assignment: pb.Assignment) -> pb.AssignmentReady:
        await self.controller.send(assignment=assignment)
        ready: pb.AssignmentReady = await self.controller.next("assignment_ready")
        return ready

    async def start_job(self, job: int = 1, world_size: int = 2, **changes: Any) -> None:
        """Assign the ranks, install the switch's tables, activate the ranks."""
        assignment = self.assignment(job, world_size, **changes)
        ready = await self.assign(assignment)
        value, mask = assignment.slot_base << 1, ~(2 * SLOTS - 1) & 0xFFFF
        self.switch.set_group(job, [(1, rank) for rank in range(world_size)])
        self.switch.set_job(job, value, mask)
        for endpoint in ready.endpoints:
            rank, port = endpoint.rank, endpoint.udp_port
            self.switch.set_rank(job, rank, 0, LOCALHOST, port)
            match = worker_match(1, (LOCALHOST, port), job, rank, (value, mask))
            everyone = (1 << world_size) - 1
            self.switch.set_worker(match, bit=1 << rank, mask=everyone, epoch=assignment.epoch, group=job)
        await self.controller.send(activation=pb.Activation(job=job, epoch=assignment.epoch))

    async def revoke(self, reason: pb.RevocationReason, job: int = 1, **fields: Any) -> None:
        await self.controller.send(revocation=pb.Revocation(job=job, epoch=1, reason=reason, **fields))

    async def connect(self, rank: int, job: int | str = 1, **options: Any) -> switchml.Communicator:
        return await in_thread(lambda: switchml.connect(agent=self.options.socket, job=job, rank=rank, **options))


async def in_thread(function: Callable[[], T]) -> T:
    return await asyncio.wait_for(asyncio.to_thread(function), 2 * DEADLINE)


async def expect_event(controller: AgentsServer, kind: pb.RankEvent.Kind, rank: int) -> pb.RankEvent:
    event: pb.RankEvent = await controller.next("rank_event")
    assert (event.kind, event.rank) == (kind, rank), event
    return event


@asynccontextmanager
async def running_agent(directory: Path, **changes: Any) -> AsyncIterator[RunningAgent]:
    """Run an agent that is registered; its controller listens on a fixed port, so that it can be restarted."""
    switch = Switch(256, VALUES)
    switch_udp_port = switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
    switch.set_switch_address(0x020000000001, LOCALHOST)
    switch.start()
    controller = AgentsServer()
    options = AgentOptions(f"127.0.0.1:{free_port()}", "agent-1", "127.0.0.1", directory / "agent.sock")
    stop = asyncio.Event()
    async with AsyncExitStack() as services:
        await services.enter_async_context(serving(controller, int(options.controller.rpartition(":")[2])))
        task = asyncio.create_task(serve(replace(options, **changes), stop))
        try:
            await first(controller.wait_for(lambda: controller.registrations), task)
            yield RunningAgent(controller, replace(options, **changes), task, switch, switch_udp_port, services.aclose)
        finally:
            stop.set()
            await asyncio.gather(task, return_exceptions=True)
            switch.stop()


async def first(awaitable: Awaitable[object], agent: asyncio.Task[None]) -> None:
    """Wait for something while the agent runs."""
    waiting = asyncio.ensure_future(awaitable)
    await asyncio.wait([waiting, agent], return_when=asyncio.FIRST_COMPLETED)
    if agent.done():
        waiting.cancel()
        agent.result()
    await waiting


class RawProcess:
    """A training process that sends the messages of the test."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(str(path))

    def send(self, message: object) -> None:
        self.socket.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None if the agent has disconnected."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 2)
        for descriptor in descriptors:
            socket.close(descriptor)
        return json.loads(data) if data else None

    def ask(self, message: object) -> dict[str, Any] | None:
        self.send(message)
        return self.receive()

    def attach(self, **changes: object) -> dict[str, Any] | None:
        return self.ask(attach_message(**changes))


def attach_message(**changes: object) -> dict[str, object]:
    message = {"type": "attach", "version": VERSION, "job": "job-1", "rank": 0, "world_size": 2, "pid": 1}
    return {**message, **changes}
