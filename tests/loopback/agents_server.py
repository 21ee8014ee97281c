"""The controller's side of Agents.Session on a real gRPC server, controlled by the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from switchml.common.grpc_stop import stop_server
from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc

DEADLINE = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class AgentsServer(pb_grpc.AgentsServicer, pb_grpc.JobsServicer):
    def __init__(self, heartbeat_seconds: float = 0.05) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.positions: dict[int, int] = {}  # of ranks, for Jobs.Get
        self.gets = 0
        self.may_answer_gets = asyncio.Event()
        self.may_answer_gets.set()
        self.registrations: list[pb.Register] = []
        self.messages: list[pb.AgentMessage] = []  # all but heartbeats
        self.heartbeats: list[pb.Heartbeat] = []
        self.sessions = 0
        self.answers = True  # to heartbeats
        self._unanswered = 0
        self._writing = asyncio.Lock()
        self._context: Any = None
        self._changed = asyncio.Condition()

    async def Session(self, _requests: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        register = (await context.read()).register
        if self.refusal is not None:
            await context.abort(*self.refusal)
        self._context = context
        await context.write(
            pb.ControllerMessage(welcome=pb.Welcome(version=VERSION, heartbeat_seconds=self.heartbeat_seconds))
        )
        async with self._changed:
            self.registrations.append(register)
            self.sessions += 1
            self._changed.notify_all()
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                async with self._changed:
                    if message.WhichOneof("message") == "heartbeat":
                        self.heartbeats.append(message.heartbeat)
                        self._unanswered += 1
                    else:
                        self.messages.append(message)
                    self._changed.notify_all()
                await self._answer()
        finally:
            self.sessions -= 1

    async def Get(self, _reference: pb.JobReference, _context: Any) -> pb.Job:  # noqa: N802 - the name of the RPC
        self.gets += 1
        await self.may_answer_gets.wait()
        return pb.Job(ranks=[pb.Rank(rank=rank, position=position) for rank, position in self.positions.items()])

    async def _answer(self) -> None:
        while self.answers and self._unanswered:
            self._unanswered -= 1
            await self.send(alive=pb.Alive())

    async def set_answers(self, answers: bool) -> None:
        """Answer heartbeats, including earlier ones, or stop answering them."""
        self.answers = answers
        await self._answer()

    async def send(self, **message: Any) -> None:
        async with self._writing:
            await self._context.write(pb.ControllerMessage(**message))

    async def wait_for(self, condition: Callable[[], object]) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(condition), DEADLINE)

    async def next(self, kind: str) -> Any:
        """Wait for the first message of a kind and remove it."""

        def found() -> pb.AgentMessage | None:
            return next((message for message in self.messages if message.WhichOneof("message") == kind), None)

        await self.wait_for(found)
        message = found()
        assert message is not None
        self.messages.remove(message)
        return getattr(message, kind)

    async def next_heartbeat(self) -> pb.Heartbeat:
        seen = len(self.heartbeats)
        await self.wait_for(lambda: len(self.heartbeats) > seen)
        return self.heartbeats[-1]


@asynccontextmanager
async def serving(agents: AgentsServer, port: int = 0) -> AsyncIterator[str]:
    """Serve at 127.0.0.1 and yield HOST:PORT."""
    server = grpc.aio.server()
    pb_grpc.add_AgentsServicer_to_server(agents, server)  # type: ignore[no-untyped-call]
    pb_grpc.add_JobsServicer_to_server(agents, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await stop_server(server, 0)
