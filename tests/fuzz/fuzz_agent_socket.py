"""Fuzz the agent's socket: framing, unrequested descriptors, and processes that disconnect at any time.

The agent is a real one without a controller; its jobs are assigned, activated and revoked in between. For any input,
every answer must be well-formed, only BadMessage and AttachRefused may be raised, and no descriptor may be left when
all processes have disconnected. tests/fuzz/run.py runs this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

import tests.fuzz.our_sources  # noqa: F401 - before the modules of SwitchML

with atheris.instrument_imports(include=["host_agent"]):
    from switchml.host_agent._engine import Engine
    from switchml.host_agent.agent import Agent
    from switchml.host_agent.errors import AssignmentRefused
    from switchml.host_agent.local_job import LocalJob
    from switchml.host_agent.messages import MESSAGE_BYTES, JobFailure
    from switchml.host_agent.ranks import EngineRanks
    from switchml.host_agent.reports import Reports
    from switchml.host_agent.socket_server import SocketServer

from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from tests.fuzz.process_messages import message

logging.disable()
DIRECTORY = tempfile.TemporaryDirectory(prefix="swml-fuzz-")
SOCKET = Path(DIRECTORY.name, "agent.sock")
ENGINE = Engine(1)
ENGINE.start()
LOOP = asyncio.new_event_loop()
MOST_PROCESSES = 5
MOST_DESCRIPTORS = 8
TURNS = 12  # of the event loop, until sent messages have been handled


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only the number is needed


def well_formed(data: bytes) -> dict[str, Any]:
    assert len(data) <= MESSAGE_BYTES
    answer = json.loads(data)
    assert answer["type"] in {"attached", "moved", "refused", "failed", "closed", "missing"}, answer
    return dict(answer)


class Process:
    """A training process that sends arbitrary messages."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self.socket.connect(os.fspath(SOCKET))

    def say(self, data: bytes, extra: int) -> None:
        with contextlib.suppress(OSError):  # the agent has disconnected, or has not read yet
            socket.send_fds(self.socket, [data], [self.socket.fileno()] * extra, socket.MSG_NOSIGNAL)

    def listen(self) -> None:
        """Receive all answers, and close the descriptors that come with them."""
        with contextlib.suppress(OSError):
            while True:
                data, given, flags, _ = socket.recv_fds(self.socket, MESSAGE_BYTES + 1, MOST_DESCRIPTORS)
                for descriptor in given:
                    os.close(descriptor)
                if not data:
                    return
                answer = well_formed(data)
                assert not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
                assert bool(given) == (answer["type"] in {"attached", "moved"})


def assignment(data: atheris.FuzzedDataProvider, announcements: list[pb.RankAnnouncement]) -> pb.Assignment:
    size = data.ConsumeIntInRange(1, 3)
    order = pb.Assignment(
        job=data.ConsumeIntInRange(1, 2),
        epoch=data.ConsumeIntInRange(1, 3),
        name="name",
        world_size=size,
        ranks=range(size),
        slot_base=8,
        slots=data.PickValueInList([2, 8]),
        values_per_packet=4,
        switch_address="127.0.0.1",
        switch_udp_port=9,
        check_key=bytes(16),
        on_failure=data.ConsumeIntInRange(0, 2),
    )
    if announcements and data.ConsumeBool():
        chosen = announcements[-1]
        del order.ranks[:]
        order.ranks.append(chosen.rank)
        order.world_size = max(chosen.world_size, 1)
        order.announcements.append(chosen.announcement)
    return order


class NoSession:
    """Takes the place of the agent's session with a controller."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def missing_ranks(self, job: LocalJob, rank: int) -> list[int]:
        if job.failure is not None or job.ranks[rank].handle is None:
            return []
        return self._reports.stalled(job, rank, {})

    async def delivered(self) -> None:
        pass


async def converse(data: atheris.FuzzedDataProvider) -> None:
    reported: list[pb.AgentMessage] = []
    agent = Agent("agent", EngineRanks(ENGINE, "127.0.0.1", None, {}), 8, reported.append)
    server = SocketServer(SOCKET, agent.attachments, NoSession(agent.reports))
    server.start()
    processes: list[Process] = []
    try:
        for _ in range(60):
            if data.remaining_bytes() == 0:
                break
            step = data.ConsumeIntInRange(0, 11)
            if step == 0 and len(processes) < MOST_PROCESSES:
                processes.append(Process())
            elif step == 1:
                announced = [m.rank_announcement for m in reported if m.HasField("rank_announcement")]
                with contextlib.suppress(AssignmentRefused):
                    await agent.assignments.open(assignment(data, announced))
            elif step == 2:
                order = pb.Activation(job=data.ConsumeIntInRange(1, 2), epoch=data.ConsumeIntInRange(1, 3))
                agent.orders.activate(order)
            elif step == 3:
                gone = pb.Revocation(job=data.ConsumeIntInRange(1, 2), epoch=data.ConsumeIntInRange(1, 3))
                gone.MergeFrom(pb.Revocation(reason=pb.REVOCATION_REASON_WORKER_LOST, ranks=[1], message="gone"))
                agent.orders.revoke(gone)
            elif processes and step == 4:
                processes.pop(data.ConsumeIntInRange(0, len(processes) - 1)).socket.close()
            elif processes:
                process = data.PickValueInList(processes)
                said = message(data)
                if data.ConsumeBool():
                    attach = {"type": "attach", "version": VERSION, "job": "name", "pid": 1}
                    said = json.dumps(attach | {"rank": data.ConsumeIntInRange(0, 3)}).encode()
                process.say(said, data.ConsumeIntInRange(0, 3) if data.ConsumeIntInRange(0, 3) == 0 else 0)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            for process in processes:
                process.listen()
    finally:
        for process in processes:
            process.socket.close()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await agent.stop(JobFailure("AgentLost", (), "the end"))
        assert not agent.reports.statuses()
        await server.close()


def complain(_: object, context: dict[str, Any]) -> None:
    UNEXPECTED.append(str(context.get("exception") or context["message"]))


UNEXPECTED: list[str] = []
LOOP.set_exception_handler(complain)
LOOP.run_until_complete(asyncio.sleep(0))
BEFORE = descriptors()


def one_input(raw: bytes) -> None:
    LOOP.run_until_complete(converse(atheris.FuzzedDataProvider(raw)))
    assert not UNEXPECTED, UNEXPECTED
    assert descriptors() <= BEFORE, os.listdir("/proc/self/fd")  # noqa: PTH208


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
