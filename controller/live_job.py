"""A job that has not ended, with what is going on about it."""

from __future__ import annotations

import asyncio

from controller.agents import Agents
from controller.drivers import JobTables
from controller.jobs import Job
from controller.proto import switchml_pb2 as pb
from controller.switches import ManagedSwitch

__all__ = ["Changes", "LiveJob"]


class Changes:
    """Wakes those who wait for something to change."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake all."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, seconds: float) -> None:
        """Return at the next change, and at the latest after `seconds`."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._next}, timeout=seconds)


class LiveJob:
    """A job with the tasks and answers that belong to it.

    ``job`` is the only copy in memory while this exists. Tables may stand in the switch once ``installed`` is set.
    """

    def __init__(self, job: Job, switch: ManagedSwitch) -> None:
        self.job = job
        self.switch = switch
        self.installed = False
        self.announcements: dict[int, int] = {}  # rank -> the announcement that it answers, after a rendezvous
        self.ready: dict[str, asyncio.Future[None]] = {}  # agent -> it has opened sockets for its ranks
        self.unconfirmed: set[str] = set()  # agents that have not come back since the controller started
        self.calls: dict[int, pb.Call] = {}  # rank -> the call in which its check failed
        self.judging: asyncio.Task[None] | None = None
        self.bring_up: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self.changes = Changes()

    def assignment(self, agent: str) -> pb.Assignment:
        """Return what one agent is to do for the job."""
        job = self.job
        ranks = [rank.rank for rank in job.ranks_by_agent()[agent]]
        return pb.Assignment(
            job=job.id,
            epoch=job.epoch,
            name=job.name,
            world_size=job.workers,
            ranks=ranks,
            slot_base=job.slot_base,
            slots=job.slots,
            values_per_packet=job.values_per_packet,
            switch_address=self.switch.config.address,
            switch_udp_port=self.switch.config.udp_port,
            multicast_address=self._multicast(),
            announcements=[self.announcements[rank] for rank in ranks] if self.announcements else [],
        )

    def tables(self) -> JobTables:
        """Return what the switch must hold for the job; every rank's endpoint must be known."""
        return self.job.tables(self._multicast())

    def _multicast(self) -> str:
        """The group that the job's agents join, if all are on its segment. One alone gets one copy anyway."""
        config = self.switch.config
        together = all(rank.switch_port == config.multicast_port for rank in self.job.ranks)
        several = len(self.job.ranks_by_agent()) > 1
        return config.multicast_address(self.job.id) if several and together else ""

    def activation(self) -> pb.ControllerMessage:
        """Return what lets ranks attach."""
        return pb.ControllerMessage(activation=pb.Activation(job=self.job.id, epoch=self.job.epoch))

    def tell_agents(self, agents: Agents, message: pb.ControllerMessage) -> None:
        """Send a message to all agents of the job that are live."""
        for name in self.job.ranks_by_agent():
            session = agents.live_session(name)
            if session is not None:
                session.send(message)
