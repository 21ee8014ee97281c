"""A job that has not ended, with its tasks and pending answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from switchml.controller.drivers import JobTables
from switchml.controller.errors import ControllerError
from switchml.controller.jobs.placed import PlacedJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, Rank, RankState
from switchml.controller.switches import ManagedSwitch

__all__ = ["Answers", "LiveJob", "Signal", "Transition"]

_T = TypeVar("_T")


class Signal:
    """Wakes the tasks that wait for it."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake all waiting tasks."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, seconds: float) -> None:
        """Wait for the next notification, at most `seconds`."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._next}, timeout=seconds)


class Answers(Generic[_T]):
    """The answers of several agents to one request; later answers of the same agent are ignored."""

    def __init__(self, agents: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        self.futures: dict[str, asyncio.Future[_T]] = {agent: loop.create_future() for agent in agents}

    def awaits(self, agent: str) -> bool:
        """Return whether this agent was asked and has not answered yet."""
        return agent in self.futures and not self.futures[agent].done()

    def take(self, agent: str, answer: _T) -> None:
        """Store an agent's answer."""
        if self.awaits(agent):
            self.futures[agent].set_result(answer)

    def withdraw(self, agent: str) -> None:
        """Stop waiting for an agent, and cancel its future."""
        if self.awaits(agent):
            self.futures[agent].cancel()

    def fail(self, agent: str, error: ControllerError) -> None:
        """Store the reason why an agent fails the request; the task that waits for the answers raises it."""
        if self.awaits(agent):
            self.futures[agent].set_exception(error)
            self.futures[agent].exception()  # marks it as retrieved: if the job has ended, no task waits for it


class Transition:
    """The transition of a job into an epoch; ``target`` is the job as it will be there.

    ``past`` is false only for the start of a job; otherwise the switches have entries and processes may have attached.
    After a restart of the controller the agents are ``returning`` to their current epoch.
    """

    def __init__(self, past: bool, returning: bool = False) -> None:
        self.past = past
        self.returning = returning
        self.target: PlacedJob | None = None
        self.joined: list[int] = []  # ranks of the target whose processes replace lost ones
        self.reason = ""  # the events that the current attempt takes into account, in words
        self.lost: list[int] = []  # lost ranks of the old epoch that the current attempt takes into account
        self.refused: dict[str, ControllerError] = {}  # agents that refuse ranks, and their reasons
        self.asked: dict[str, int] = {}  # agent -> the last epoch for which it was asked to open ranks
        self.positions: Answers[pb.Positions] | None = None
        self.fetching = False  # the agents were asked to let their ranks fetch
        self.endpoints: Answers[pb.AssignmentReady] | None = None
        self.interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None  # the error that has ended the transition and the job
        self.task: asyncio.Task[None] | None = None
        self._why: list[str] = []
        self._losses: list[int] = []
        self._heeded = 0  # the number of entries of `_why` that the current attempt takes into account

    def begin_attempt(self) -> None:
        """Take all events so far into account; losses during the start of a job are left to the next transition."""
        if self.past:
            self.reason, self.lost, self._heeded = "; ".join(self._why), list(self._losses), len(self._why)
        self.target = self.positions = self.endpoints = None
        self.interrupted = asyncio.get_running_loop().create_future()

    def add(self, ranks: Sequence[int], why: str) -> None:
        """Add a loss, or another reason to leave the epoch."""
        self._why.append(why)
        self._losses += [rank for rank in ranks if rank not in self._losses]
        if self.past:
            self.interrupt()

    def interrupt(self) -> None:
        """Make the transition begin again, with all events so far."""
        if not self.interrupted.done():
            self.interrupted.set_result(None)

    def awaits_endpoints(self, agent: str) -> bool:
        """Return whether this agent was asked to open ranks and has not answered yet."""
        return self.endpoints is not None and self.endpoints.awaits(agent)

    @property
    def unheeded(self) -> str:
        """The events that the current attempt does not take into account, in words."""
        return "; ".join(self._why[self._heeded :])

    @property
    def all_reasons(self) -> str:
        """All events so far, in words."""
        return "; ".join(self._why)

    @property
    def all_losses(self) -> list[int]:
        """The ranks that are known to be lost."""
        return self._losses


class LiveJob(PlacedJob):
    """A job with its tasks and pending answers.

    ``job`` is the only copy in memory while this exists. ``written`` has the tables that each switch must hold, which
    differ from those of the job while it changes its epoch; the switch's lock is held while an item changes.
    """

    def __init__(self, job: Job, switches: Sequence[ManagedSwitch]) -> None:
        super().__init__(job, switches)
        self.first_epoch = job.epoch  # the first epoch that this controller knows
        self.written: dict[str, JobTables] = {}  # by switch
        self.transition: Transition | None = None  # the current transition into an epoch
        self.calls: dict[int, pb.Call] = {}  # rank -> the call in which its check failed
        self.failed_at: dict[int, int] = {}  # rank -> the chunk of that check
        self.judging: asyncio.Task[None] | None = None
        self.closed_after: dict[int, int] = {}  # rank that has closed -> the calls that it had made in this epoch
        self.ending: asyncio.Task[None] | None = None
        self.updated = Signal()

    @property
    def leaves_epoch(self) -> bool:
        """True if the job is in transition into its first epoch, or into another one."""
        return self.transition is not None and not self.transition.returning

    def vacant(self, number: int) -> Rank | None:
        """Return the rank, if it waits for a new process after the loss of its process."""
        job = self.job
        if self.leaves_epoch or not job.epoch_changes or number not in job.epoch_changes[-1].joined:
            return None
        rank = job.ranks[number]
        return rank if rank.state is RankState.ASSIGNED else None

    def ranks_closed(self) -> pb.ControllerMessage | None:
        """Return the message that names the ranks that have closed after the fewest calls; None if none has closed."""
        if not self.closed_after:
            return None
        calls = min(self.closed_after.values())
        ranks = sorted(rank for rank, made in self.closed_after.items() if made == calls)
        message = pb.RanksClosed(job=self.job.id, epoch=self.job.epoch, ranks=ranks, calls=calls)
        return pb.ControllerMessage(ranks_closed=message)

    def lost_workers(self) -> set[int]:
        """Return the workers whose ranks were lost."""
        return {rank.worker for rank in self.job.ranks if rank.state is RankState.LOST}
