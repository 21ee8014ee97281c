"""Fuzz the controller's gRPC services: structured messages of agents and clients with arbitrary fields, in any order.

The controller's own objects run with a store and without a network; the switch is a table in memory. Each call must
succeed or be refused with a ControllerError, no task may fail, live jobs may never overlap, and the switch must hold
the tables of live jobs only. When all jobs have ended, nothing may be held. tests/fuzz/run.py runs this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import atheris

import tests.fuzz.our_sources  # noqa: F401 - before the modules of SwitchML

with atheris.instrument_imports(include=["switchml.controller"]):
    from switchml.controller.admission.quotas import Quotas
    from switchml.controller.admission.request import JobRequest
    from switchml.controller.agents import AgentSession
    from switchml.controller.config import SwitchConfig
    from switchml.controller.controller import Controller
    from switchml.controller.drivers import Capabilities, Driver, JobTables, JobTraffic, PortLoss, SwitchContents
    from switchml.controller.errors import ControllerError
    from switchml.controller.northbound.views import referred_job
    from switchml.controller.store.database import Store
    from switchml.controller.switches import ManagedSwitch, Switches

from google.protobuf.message import DecodeError, Message

from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_VERSION, Verdict
from switchml.dataplane.targets import SOFT
from tests.fuzz.changed_messages import change

logging.disable()
SLOTS = 64
MOST_SESSIONS = 4
TURNS = 10  # of the event loop between two messages
LOOP = asyncio.new_event_loop()
UNEXPECTED: list[str] = []
LOOP.set_exception_handler(lambda _, context: UNEXPECTED.append(str(context.get("exception") or context["message"])))


class TablesInMemory(Driver):
    """Records what a switch would hold."""

    capabilities = Capabilities(4, SLOTS)

    def __init__(self) -> None:
        self._connected = self.primary = True
        self.jobs: dict[int, JobTables] = {}
        self.nonce = 0

    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        await prepare(False)

    def prepare_again(self) -> None:
        """Do nothing: the tables are always as they should be."""

    async def reload(self) -> None:
        self.jobs.clear()
        self.nonce = 0

    async def read_nonce(self) -> int:
        return self.nonce

    async def write_nonce(self, nonce: int) -> None:
        self.nonce = nonce

    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        self.jobs = {job.job: job for job in jobs}
        return len(jobs)

    async def install_job(self, job: JobTables) -> None:
        assert job.job not in self.jobs
        assert not any(job.slot_value & other.slot_mask == other.slot_value for other in self.jobs.values())
        self.jobs[job.job] = job

    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        assert self.jobs[old.job] == old
        self.jobs[new.job] = new

    async def remove_job(self, job: JobTables) -> None:
        self.jobs.pop(job.job, None)

    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        del job_ids
        return dict.fromkeys(Verdict, 0)

    async def read_traffic(self, job: JobTables, children: Sequence[int]) -> JobTraffic:
        del job, children
        return JobTraffic(dict.fromkeys(Verdict, 0), {}, 0)

    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        raise NotImplementedError

    async def read_contents(self) -> SwitchContents:
        raise NotImplementedError


class Bench:
    """A controller, its switch and the sessions of agents."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "store.sqlite")
        self.driver = TablesInMemory()
        config = SwitchConfig(name="switch-0", target=SOFT, address="127.0.0.1", p4runtime="127.0.0.1:1", slots=SLOTS)
        self.switch = ManagedSwitch(config, self.driver)
        self.controller = Controller(self.store, Switches([self.switch], self.store), Quotas(()))
        self.sessions: list[AgentSession] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def check(self) -> None:
        live = self.controller.jobs.live_jobs()
        taken: set[int] = set()
        for job in (one.job for one in live):
            slots = set(job.slot_range)
            assert slots <= set(range(SLOTS))
            assert not slots & taken
            taken |= slots
        assert len({one.job.id for one in live}) == len(live)
        assert not UNEXPECTED, UNEXPECTED

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Start a call that continues while further messages arrive."""

        async def call() -> None:
            with contextlib.suppress(ControllerError):
                await coroutine

        self.tasks.append(LOOP.create_task(call()))

    async def end(self) -> None:
        for session in self.sessions:
            session.end("the end")
            self.controller.messages.lost(session, "the end")
        for live in self.controller.jobs.live_jobs():
            self.begin(self.controller.lifecycle.stop(live.job))
        await asyncio.wait_for(asyncio.gather(*self.tasks), 60)
        await self.controller.jobs.drain()
        await self.controller.rendezvous.close()
        self.check()
        assert not self.driver.jobs
        assert self.controller.pools.of(self.switch).free_slots == SLOTS
        self.store.close()


def as_it_travels(message: Message) -> Any:
    """Return the message as the other side would read it, or None if it cannot be sent."""
    try:
        return type(message).FromString(message.SerializeToString())
    except (DecodeError, ValueError):
        return None


def changed(message: Message, data: atheris.FuzzedDataProvider) -> Any:
    for _ in range(data.ConsumeIntInRange(0, 3) if data.ConsumeBool() else 0):
        change(message, data)
    return as_it_travels(message)


def registration(data: atheris.FuzzedDataProvider) -> pb.Register:
    name = data.PickValueInList(["a", "b"])
    return pb.Register(
        version=VERSION,
        protocol_version=PROTOCOL_VERSION,
        name=name,
        host="host",
        address="127.0.0.1",
        mac="00:00:00:00:00:00",
        socket="/socket",
        switch_port=1,
        max_ranks=4,
        instance=data.PickValueInList(["1", "2"]),
    )


def answers(session: AgentSession, data: atheris.FuzzedDataProvider) -> list[pb.AgentMessage]:
    """Return an agent's answers to the messages that it was sent; most of them are right."""
    said = []
    while not session.outgoing.empty():
        order = session.outgoing.get_nowait()
        kind = order.WhichOneof("message")
        if kind == "assignment":
            ready = pb.AssignmentReady(job=order.assignment.job, epoch=order.assignment.epoch)
            for rank in order.assignment.ranks:
                ready.endpoints.add(rank=rank, address="127.0.0.1", udp_port=1000 + rank)
            said.append(pb.AgentMessage(assignment_ready=ready))
        elif kind == "activation":
            event = pb.RankEvent(
                job=order.activation.job, epoch=order.activation.epoch, kind=pb.RankEvent.KIND_ATTACHED
            )
            event.rank = data.ConsumeIntInRange(0, 3)
            said.append(pb.AgentMessage(rank_event=event))
        elif kind == "quiesce":
            positions = pb.Positions(
                job=order.quiesce.job, epoch=order.quiesce.epoch, fetched=bool(order.quiesce.targets)
            )
            positions.ranks.add(rank=data.ConsumeIntInRange(0, 3), phases=list(order.quiesce.targets) or [1, 1])
            said.append(pb.AgentMessage(positions=positions))
    return said


def unasked(bench: Bench, data: atheris.FuzzedDataProvider) -> pb.AgentMessage:
    """Return a message that an agent may send at any time, about jobs that may exist."""
    job, epoch, rank = data.ConsumeIntInRange(1, 4), data.ConsumeIntInRange(1, 6), data.ConsumeIntInRange(0, 4)
    for live in bench.controller.jobs.live_jobs():
        if data.ConsumeBool():
            job, epoch = live.job.id, live.job.epoch
    kinds = [
        pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[pb.RankStatus(job=job, epoch=epoch, rank=rank, position=7)])),
        pb.AgentMessage(assignment_failed=pb.AssignmentFailed(job=job, epoch=epoch, reason="no room")),
        pb.AgentMessage(assignment_ready=pb.AssignmentReady(job=job, epoch=epoch)),
        pb.AgentMessage(positions=pb.Positions(job=job, epoch=epoch)),
        pb.AgentMessage(rank_withdrawal=pb.RankWithdrawal(announcement=rank)),
        pb.AgentMessage(rank_profiles=pb.RankProfiles(number=1)),
        *[
            pb.AgentMessage(
                rank_event=pb.RankEvent(job=job, epoch=epoch, rank=rank, kind=kind, detail="why", position=1)
            )
            for kind, _ in pb.RankEvent.Kind.items()
        ],
        *[
            pb.AgentMessage(
                rank_announcement=pb.RankAnnouncement(
                    announcement=rank, key="key", rank=rank, world_size=2, wait_seconds=0.01, on_failure=rank % 3
                )
            )
            for _ in range(3)
        ],
    ]
    message: pb.AgentMessage = data.PickValueInList(kinds)
    if message.HasField("rank_event") and message.rank_event.kind == pb.RankEvent.KIND_CHECK_FAILED:
        message.rank_event.call.operation = "sum"
    return message


def from_client(bench: Bench, data: atheris.FuzzedDataProvider) -> None:
    kind = data.ConsumeIntInRange(0, 3)
    if kind <= 1:
        request = pb.StartJobRequest(
            workers=data.ConsumeIntInRange(1, 4), slots=data.PickValueInList([0, 2, 4, 16]), on_failure=kind
        )
        sent = changed(request, data)
        if sent is not None:
            bench.begin(bench.controller.lifecycle.start(JobRequest(sent)))
        return
    reference = changed(pb.JobReference(id=data.ConsumeIntInRange(1, 4)), data)
    if reference is None:
        return
    wanted = referred_job(reference)
    if wanted is None:
        return
    with contextlib.suppress(ControllerError):
        job = bench.controller.jobs.find(wanted)
        if kind == 2:
            bench.begin(bench.controller.lifecycle.stop(job))
        else:
            bench.controller.lifecycle.report_exit(job, data.ConsumeIntInRange(0, 4), data.ConsumeIntInRange(0, 2))


async def serve(data: atheris.FuzzedDataProvider, directory: Path) -> None:
    bench = Bench(directory)
    try:
        for _ in range(60):
            if data.remaining_bytes() == 0:
                break
            kind = data.ConsumeIntInRange(0, 9)
            if kind == 0 or not bench.sessions:
                sent = changed(registration(data), data)
                if sent is not None and len(bench.sessions) < MOST_SESSIONS:
                    with contextlib.suppress(ControllerError):
                        bench.sessions.append(bench.controller.agents.register(sent))
                        bench.controller.messages.registered(bench.sessions[-1])
            elif kind == 1 and data.ConsumeBool():
                session = bench.sessions.pop(data.ConsumeIntInRange(0, len(bench.sessions) - 1))
                session.end("gone")
                bench.controller.messages.lost(session, "gone")
            elif kind <= 4:
                from_client(bench, data)
            else:
                session = data.PickValueInList(bench.sessions)
                said = answers(session, data) if kind <= 7 else [unasked(bench, data)]
                for message in said:
                    sent = changed(message, data)
                    if sent is not None and session.live:
                        bench.controller.messages.take(session, sent)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            bench.check()
    finally:
        await bench.end()


def one_input(raw: bytes) -> None:
    directory = Path(tempfile.mkdtemp(prefix="swml-fuzz-", dir="/dev/shm"))
    try:
        LOOP.run_until_complete(serve(atheris.FuzzedDataProvider(raw), directory))
    finally:
        shutil.rmtree(directory)
    assert not UNEXPECTED, UNEXPECTED


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
