"""A real switch, engine and agent socket in this process, with the ranks of a job as threads that use the library.

Only the controller is missing: the harness takes its part.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar

import switchml
from switchml.controller.drivers.p4tables import MULTICAST_RANK
from switchml.controller.jobs.verdict import judge
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_UDP_PORT, Format, Verdict
from switchml.dataplane.softswitch._native import ShmPortSpec, Switch, UdpPortSpec
from switchml.host_agent._engine import Engine
from switchml.host_agent.agent import Agent
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports
from switchml.host_agent.socket_server import SocketServer
from tests.support.worker_entries import slots_of, worker_match

ADDRESS = "127.0.0.1"
ADDRESS_NUMBER = 0x7F000001
PORT = 1
SHM_PORT = 2
PORTS = {"udp": PORT, "shm": SHM_PORT, "direct": SHM_PORT}  # by transport
DEADLINE = 60.0
T = TypeVar("T")


class NoSession:
    """Takes the place of an agent's session with a controller."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def missing_ranks(self, job: LocalJob, rank: int) -> list[int]:
        return self._reports.stalled(job, rank, {})

    async def delivered(self) -> None:
        pass


@dataclass
class AgentOnSocket:
    socket: Path
    agent: Agent
    server: SocketServer
    port: int  # of the switch


class Fabric:
    """Jobs of this fabric are numbered from 1; all ranks are on this one agent, unless `add_agent` was called.

    `transport` is udp, shm or direct, which is shm with direct calls; `threads` are the data threads of each agent,
    `shards` those of the switch, `shm_shards` those of its shm port.
    """

    def __init__(
        self,
        directory: Path,
        values: int = 64,
        pool: int = 512,
        transport: str = "udp",
        threads: int = 1,
        shards: int = 1,
        shm_shards: int = 1,
    ) -> None:
        self.directory = directory
        self.values = values
        self.port = PORTS[transport]
        self.one_port = transport == "direct"
        self.switch = Switch(pool, values, shards)
        self._threads = threads
        self.switch_udp_port = self.switch.add_port(PORT, UdpPortSpec(address=ADDRESS))
        self.switch_socket = directory / "switch.sock"
        if shards == 1:
            self.switch.add_port(SHM_PORT, ShmPortSpec(path=str(self.switch_socket), threads=shm_shards))
        self.switch.set_switch_address(0x020000000001, ADDRESS_NUMBER)
        self.switch.start()
        self.engines: list[Engine] = []
        self.events: list[pb.RankEvent] = []
        self.seen_port: Callable[[int], int] = lambda port: port  # at which the switch sees an agent's
        self.held_back: set[int] = set()  # kinds of events that this controller ignores
        self.optional_values = True  # what agents are told of the pipeline
        self.owned_results = True
        self.formats = list(Format)
        self._next_base = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agent-loop", daemon=True)
        self._thread.start()
        self.agents: list[AgentOnSocket] = []
        first = self.add_agent(transport)
        self.socket, self.agent = first.socket, first.agent

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function on the agent's event loop."""

        async def run() -> T:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(DEADLINE)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE)

    def add_agent(self, transport: str) -> AgentOnSocket:
        """Add an agent; later jobs distribute their ranks over the agents in turn."""
        switch_socket = self.switch_socket if PORTS[transport] == SHM_PORT else None
        engine = Engine(self._threads)
        engine.start()
        self.engines.append(engine)
        agent = Agent("agent-under-test", EngineRanks(engine, ADDRESS, switch_socket, {}), 4096, self._control)
        socket = self.directory / f"agent-{len(self.agents)}.sock"
        server = SocketServer(socket, agent.attachments, NoSession(agent.reports))
        added = AgentOnSocket(socket, agent, server, PORTS[transport])
        self.agents.append(added)
        self.call(server.start)
        return added

    def agent_of(self, rank: int) -> AgentOnSocket:
        return self.agents[rank % len(self.agents)]

    def add_job(
        self, job: int, world_size: int, slots: int = 64, epoch: int = 1, multicast: str = "", priority: int = 0
    ) -> None:
        """Open the ranks, install the tables, activate. Results go to the IPv4 group `multicast`, if given."""
        base = (self._next_base + slots - 1) // slots * slots
        self._next_base = base + slots
        self.switch.set_job(job, base << 1, ~(2 * slots - 1) & 0xFFFF)
        check_key = os.urandom(16)
        listeners: dict[tuple[int, int], list[int]] = {}  # one copy of a result to each place: to its first rank
        for one in self.agents[:world_size]:
            assignment = pb.Assignment(
                job=job,
                epoch=epoch,
                name=f"job-{job}",
                world_size=world_size,
                ranks=[rank for rank in range(world_size) if self.agent_of(rank) is one],
                slot_base=base,
                slots=slots,
                values_per_packet=self.values,
                switch_address=ADDRESS,
                switch_udp_port=self.switch_udp_port,
                multicast_address=multicast,
                optional_values=self.optional_values,
                owned_results=self.owned_results,
                formats=self.formats,
                one_port=self.one_port,
                priority=priority,
                check_key=check_key,
            )
            ready = self.wait(one.agent.assignments.open(assignment))
            for endpoint in ready.endpoints:
                rank, udp_port = endpoint.rank, self.seen_port(endpoint.udp_port)
                listeners.setdefault((one.port, udp_port), []).append(rank)
                match = worker_match(one.port, (ADDRESS_NUMBER, udp_port), job, rank, slots_of(base, slots))
                self.switch.set_worker(match, bit=1 << rank, mask=(1 << world_size) - 1, epoch=epoch, group=job)
        for (_, udp_port), ranks in listeners.items():
            for rank in ranks:
                self.switch.set_rank(job, rank, 0, ADDRESS_NUMBER, udp_port, sum(1 << each for each in ranks))
        replicas = [(port, ranks[0]) for (port, _), ranks in listeners.items()]
        if multicast:
            replicas = [(PORT, MULTICAST_RANK)]
            self.switch.set_rank(
                job, MULTICAST_RANK, 0, int(IPv4Address(multicast)), PROTOCOL_UDP_PORT, (1 << world_size) - 1
            )
        self.switch.set_group(job, replicas)
        for one in self.agents[:world_size]:
            self.call(one.agent.orders.activate, pb.Activation(job=job, epoch=epoch))

    def connect(self, rank: int, job: int = 1, world_size: int | None = None) -> switchml.Communicator:
        return switchml.connect(agent=self.agent_of(rank).socket, job=job, rank=rank, world_size=world_size)

    def revoke(self, job: int, reason: pb.RevocationReason, ranks: tuple[int, ...] = (), message: str = "") -> None:
        revocation = pb.Revocation(job=job, epoch=1, reason=reason, ranks=ranks, message=message)
        for one in self.agents:
            self.call(one.agent.orders.revoke, revocation)

    def run_ranks(
        self, world_size: int, function: Callable[[switchml.Communicator], T], job: int = 1, deadline: float = DEADLINE
    ) -> list[T]:
        """Run `function` for every rank, each in a separate thread, and return the results by rank."""
        results: dict[int, T] = {}
        errors: dict[int, BaseException] = {}

        def run(rank: int) -> None:
            try:
                with self.connect(rank, job, world_size) as comm:
                    results[rank] = function(comm)
            except BaseException as error:
                errors[rank] = error

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline)
        assert not any(thread.is_alive() for thread in threads), f"not every rank ended within {deadline} s: {errors}"
        for error in errors.values():
            raise error
        return [results[rank] for rank in range(world_size)]

    def verdicts(self, job: int = 1) -> dict[Verdict, int]:
        return {verdict: self.switch.read_job_counter(job << 4 | verdict)[0] for verdict in Verdict}

    def _control(self, message: pb.AgentMessage) -> None:
        """Handle an event of a rank as the controller does."""
        if message.WhichOneof("message") != "rank_event":
            return
        event = message.rank_event
        self.events.append(event)
        if event.kind in self.held_back:
            return
        if event.kind == pb.RankEvent.KIND_LOST:
            self._revoke(event, pb.REVOCATION_REASON_WORKER_LOST, [event.rank], event.detail)
        elif event.kind == pb.RankEvent.KIND_CHECK_FAILED:
            of_job = [e for e in self.events if (e.job, e.epoch) == (event.job, event.epoch)]
            failed = {e.rank: e for e in of_job if e.kind == pb.RankEvent.KIND_CHECK_FAILED}
            if failed.keys() == {e.rank for e in of_job if e.kind == pb.RankEvent.KIND_ATTACHED}:
                calls = {rank: e.call for rank, e in failed.items()}
                judgement = judge(calls, [], {rank: e.position for rank, e in failed.items()}, range(1 << 15))
                self._revoke(event, judgement.reason, judgement.ranks, judgement.message)

    def _revoke(self, event: pb.RankEvent, reason: pb.RevocationReason, ranks: list[int], message: str) -> None:
        revocation = pb.Revocation(job=event.job, epoch=event.epoch, reason=reason, ranks=ranks, message=message)
        for one in self.agents:
            one.agent.orders.revoke(revocation)

    def close(self) -> None:
        for one in self.agents:
            self.wait(one.agent.stop(JobFailure("AgentLost", (), "the test is over")))
            self.wait(one.server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        for engine in self.engines:
            engine.stop()
        self.switch.stop()


@contextmanager
def running_fabric(
    directory: Path,
    values: int = 64,
    pool: int = 512,
    transport: str = "udp",
    threads: int = 1,
    shards: int = 1,
    shm_shards: int = 1,
) -> Iterator[Fabric]:
    fabric = Fabric(directory, values, pool, transport, threads, shards, shm_shards)
    try:
        yield fabric
    finally:
        fabric.close()
