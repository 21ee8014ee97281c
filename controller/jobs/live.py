"""A job that has not ended, with what is going on about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from switchml.controller.errors import ControllerError
from switchml.controller.jobs.placed import PlacedJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, Rank, RankState
from switchml.controller.switches import ManagedSwitch

__all__ = ["Answers", "LiveJob", "Signal", "Transition"]

_T = TypeVar("_T")


class Signal:
    """Wakes those who wait for it."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake all."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, seconds: float) -> None:
        """Return at the next notification, and at the latest after `seconds`."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._next}, timeout=seconds)


class Answers(Generic[_T]):
    """The answers of several agents to one question; the first answer of each counts."""

    def __init__(self, agents: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        self.futures: dict[str, asyncio.Future[_T]] = {agent: loop.create_future() for agent in agents}

    def awaits(self, agent: str) -> bool:
        """Return whether this agent has still to answer."""
        return agent in self.futures and not self.futures[agent].done()

    def take(self, agent: str, answer: _T) -> None:
        """Take an agent's answer."""
        if self.awaits(agent):
            self.futures[agent].set_result(answer)

    def withdraw(self, agent: str) -> None:
        """Wait no longer for an agent; its future is cancelled."""
        if self.awaits(agent):
            self.futures[agent].cancel()

    def fail(self, agent: str, error: ControllerError) -> None:
        """Note why an agent does not do what it was asked; whoever waits for the answers raises it."""
        if self.awaits(agent):
            self.futures[agent].set_exception(error)
            self.futures[agent].exception()  # marks it as seen: the job may have ended, so that nobody waits


class Transition:
    """A job on its way into an epoch; ``target`` is the job as it will be there.

    It has a ``past`` unless the job starts: then entries stand in the switches and processes may have attached. After a
    restart of the controller the agents are ``returning`` to the epoch in which they are.
    """

    def __init__(self, past: bool, returning: bool = False) -> None:
        self.past = past
        self.returning = returning
        self.target: PlacedJob | None = None
        self.joined: list[int] = []  # ranks of the target whose processes take the place of lost ones
        self.reason = ""  # what the present attempt takes account of, in words
        self.lost: list[int] = []  # ranks of the epoch that is left, those that the present attempt takes account of
        self.refused: dict[str, ControllerError] = {}  # agents that take no ranks, and why
        self.asked: dict[str, int] = {}  # agent -> the epoch in which it was asked to open ranks last
        self.positions: Answers[pb.Positions] | None = None
        self.fetching = False  # the agents were asked to let their ranks fetch
        self.endpoints: Answers[pb.AssignmentReady] | None = None
        self.interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None  # that has ended it, and the job
        self.task: asyncio.Task[None] | None = None
        self._why: list[str] = []
        self._losses: list[int] = []
        self._heeded = 0  # how many of `_why` the present attempt takes account of

    def begin_attempt(self) -> None:
        """Take account of all that is known now; the losses of a job that starts are for the next transition."""
        if self.past:
            self.reason, self.lost, self._heeded = "; ".join(self._why), list(self._losses), len(self._why)
        self.target = self.positions = self.endpoints = None
        self.interrupted = asyncio.get_running_loop().create_future()

    def add(self, ranks: Sequence[int], why: str) -> None:
        """Note a loss, or another reason to leave the epoch."""
        self._why.append(why)
        self._losses += [rank for rank in ranks if rank not in self._losses]
        if self.past:
            self.interrupt()

    def interrupt(self) -> None:
        """Begin again, with what is known now."""
        if not self.interrupted.done():
            self.interrupted.set_result(None)

    def awaits_endpoints(self, agent: str) -> bool:
        """Return whether this agent was asked to open ranks, and has still to answer."""
        return self.endpoints is not None and self.endpoints.awaits(agent)

    @property
    def unheeded(self) -> str:
        """What the present attempt does not take account of, in words."""
        return "; ".join(self._why[self._heeded :])

    @property
    def all_reasons(self) -> str:
        """All that is known, in words."""
        return "; ".join(self._why)

    @property
    def all_losses(self) -> list[int]:
        """The ranks that are known to be lost."""
        return self._losses


class LiveJob(PlacedJob):
    """A job with the tasks and answers that belong to it.

    ``job`` is the only copy in memory while this exists. Tables may stand in the switches once ``installed`` is set.
    """

    def __init__(self, job: Job, switches: Sequence[ManagedSwitch]) -> None:
        super().__init__(job, switches)
        self.first_epoch = job.epoch  # that this controller knows
        self.installed = False
        self.transition: Transition | None = None  # into another epoch, while that is under way
        self.calls: dict[int, pb.Call] = {}  # rank -> the call in which its check failed
        self.failed_at: dict[int, int] = {}  # rank -> at which chunk that was
        self.judging: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self.updated = Signal()

    @property
    def leaves_epoch(self) -> bool:
        """Whether it is on its way into its first epoch, or into another one."""
        return self.transition is not None and not self.transition.returning

    def vacant(self, number: int) -> Rank | None:
        """Return a rank that waits for a process in the place of a lost one."""
        job = self.job
        if self.leaves_epoch or not job.epoch_changes or number not in job.epoch_changes[-1].joined:
            return None
        rank = job.ranks[number]
        return rank if rank.state is RankState.ASSIGNED else None

    def lost_workers(self) -> set[int]:
        """Return the workers whose ranks were lost."""
        return {rank.worker for rank in self.job.ranks if rank.state is RankState.LOST}
