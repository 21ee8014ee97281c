"""A job that has not ended, with what is going on about it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address
from typing import TYPE_CHECKING

from switchml.common.opening_time import seconds_to_open
from switchml.common.printable import printable
from switchml.controller.agents import Agents
from switchml.controller.drivers import JobTables
from switchml.controller.errors import ControllerError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, JobSwitch, Rank, RankState
from switchml.controller.switches import ManagedSwitch, Switches

if TYPE_CHECKING:
    from switchml.controller.jobs.epoch_change import Change

__all__ = ["Changes", "LiveJob", "revocation", "why_not_taken_over"]

_MAX_ADDRESS = 64  # characters of one that is not an address


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

    ``job`` is the only copy in memory while this exists; ``switches`` are those of ``job.switches``, in the same order.
    Tables may stand in the switches once ``installed`` is set.
    """

    def __init__(self, job: Job, switches: Sequence[ManagedSwitch]) -> None:
        self.job = job
        self.switches = list(switches)
        self.first_epoch = job.epoch  # that this controller knows
        self.installed = False
        self.announcements: dict[int, int] = {}  # rank -> the announcement that it answers, after a rendezvous
        self.ready: dict[str, asyncio.Future[None]] = {}  # agent -> it has opened sockets for its ranks
        self.lost_early: list[tuple[list[int], str]] = []  # ranks that were lost while it was PENDING, and how
        self.unconfirmed: set[str] = set()  # agents that have not come back since the controller started
        self.calls: dict[int, pb.Call] = {}  # rank -> the call in which its check failed
        self.failed_at: dict[int, int] = {}  # rank -> at which chunk that was
        self.judging: asyncio.Task[None] | None = None
        self.bring_up: asyncio.Task[None] | None = None
        self.change: Change | None = None  # to another epoch, while that is under way
        self.ending: asyncio.Task[None] | None = None
        self.changes = Changes()

    def is_on(self, switch: str) -> bool:
        """Return whether this switch is one of those that sum the job."""
        return any(place.switch == switch for place in self.job.switches)

    def places(self) -> Iterator[tuple[JobSwitch, ManagedSwitch]]:
        """Yield what the job has on each switch, with that switch."""
        yield from zip(self.job.switches, self.switches, strict=True)

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the locks of all its switches, taken in one order by everybody."""
        async with contextlib.AsyncExitStack() as stack:
            for switch in sorted(self.switches, key=lambda switch: switch.name):
                await stack.enter_async_context(switch.lock)
            yield

    def assignment(self, agent: str) -> pb.Assignment:
        """Return what one agent is to do for the job."""
        job = self.job
        carried = job.ranks_by_agent()[agent]
        [(place, switch)] = (both for both in self.places() if both[0].switch == carried[0].switch)
        ranks = [rank.rank for rank in carried]
        return pb.Assignment(
            job=job.id,
            epoch=place.epoch,
            name=job.name,
            world_size=job.workers,
            ranks=ranks,
            slot_base=place.slot_base,
            slots=place.slots,
            values_per_packet=job.values_per_packet,
            switch_address=switch.config.address,
            switch_udp_port=switch.config.udp_port,
            multicast_address=self._multicast(switch),
            announcements=[self.announcements[rank] for rank in ranks] if self.announcements else [],
            on_failure=f"ON_FAILURE_{job.on_failure.name}",
            generation=job.generation,
            secret=job.secret,
            workers=[rank.worker for rank in carried],
        )

    def seconds_to_open(self) -> float:
        """Return how long its agents may take to open their ranks."""
        job = self.job
        most = max(len(ranks) for ranks in job.ranks_by_agent().values())
        return seconds_to_open(most, job.slots, job.values_per_packet)

    def endpoints(self, agent: str, ready: pb.AssignmentReady) -> list[tuple[Rank, tuple[str, int]]]:
        """Return an agent's ranks with the addresses that it gives them.

        Raises:
            ValueError: they are not exactly the assigned ranks, or an address cannot be one.

        """
        mine = self.job.ranks_by_agent()[agent]
        if sorted(endpoint.rank for endpoint in ready.endpoints) != [rank.rank for rank in mine]:
            raise ValueError(f"ranks {[e.rank for e in ready.endpoints]} instead of {[rank.rank for rank in mine]}")
        found = []
        for endpoint in ready.endpoints:
            try:
                usable = not IPv4Address(endpoint.address).is_unspecified
            except AddressValueError:
                usable = False
            if not usable or not 1 <= endpoint.udp_port <= 65535:
                address = printable(endpoint.address, _MAX_ADDRESS)
                raise ValueError(f"{address}:{endpoint.udp_port}, which packets cannot be sent to")
            found.append((self.job.ranks[endpoint.rank], (endpoint.address, endpoint.udp_port)))
        return found

    def take_endpoints(self, agent: str, ready: pb.AssignmentReady) -> None:
        """Fill in the addresses of an agent's ranks. Raises as `endpoints`."""
        for rank, endpoint in self.endpoints(agent, ready):
            rank.address, rank.udp_port = endpoint

    def vacant(self, number: int) -> Rank | None:
        """Return a rank that waits for a process in the place of a lost one."""
        job = self.job
        if self.change is not None or not job.changes or number not in job.changes[-1].joined:
            return None
        rank = job.ranks[number]
        return rank if rank.state is RankState.ASSIGNED else None

    def tables(self) -> list[tuple[ManagedSwitch, JobTables]]:
        """Return each switch with what it must hold for the job; every rank's endpoint must be known."""
        return [(switch, self.job.tables(place, self._multicast(switch))) for place, switch in self.places()]

    def _multicast(self, switch: ManagedSwitch) -> str:
        """The group that the agents of a switch join, if all are on its segment. One alone gets one copy anyway."""
        config, ranks = switch.config, self.job.ranks_on(switch.name)
        together = all(rank.switch_port == config.multicast_port for rank in ranks)
        several = len({rank.agent for rank in ranks}) > 1
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


def revocation(
    job: int, epoch: int, reason: pb.RevocationReason, message: str, ranks: Sequence[int] = ()
) -> pb.ControllerMessage:
    """Return what tells an agent that a job is over."""
    return pb.ControllerMessage(
        revocation=pb.Revocation(job=job, epoch=epoch, reason=reason, ranks=ranks, message=message)
    )


def why_not_taken_over(job: Job, switches: Switches) -> str | None:
    """Reserve the slots of a job that lived when the controller ended, or say why it cannot go on."""
    if job.state is JobState.PENDING:
        return "the controller was restarted while the job started"
    if job.changing:
        return "the controller was restarted while the job changed to another epoch"
    try:
        switches.reserve(job.switches, job.values_per_packet)
    except ControllerError as error:
        return f"{error}, since the controller was restarted"
    return None
