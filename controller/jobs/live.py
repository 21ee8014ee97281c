"""A job that has not ended, with its tasks and pending answers."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from switchml.controller.drivers import JobTables
from switchml.controller.jobs.placed import PlacedJob
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, Rank, RankState
from switchml.controller.switches import ManagedSwitch

__all__ = ["Answers", "Attempt", "LiveJob", "Signal", "Transition"]

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

    def __init__(self, agents: Iterable[str] = ()) -> None:
        self.awaited = set(agents)
        self.taken: dict[str, _T] = {}  # by agent
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # no agent is awaited
        self.withdraw()

    def take(self, agent: str, answer: _T) -> None:
        """Store an agent's answer."""
        if agent in self.awaited:
            self.taken[agent] = answer
            self.withdraw(agent)

    def withdraw(self, *agents: str) -> None:
        """Stop waiting for agents."""
        self.awaited.difference_update(agents)
        if not self.awaited and not self.complete.done():
            self.complete.set_result(None)


class Attempt:
    """One attempt to bring a job into an epoch; ``target`` is the job as it will be there.

    ``stopped`` has the exception with which the attempt ends early, if there is one.
    """

    def __init__(self, target: PlacedJob, heeded: int = 0) -> None:
        self.target = target
        self.heeded = heeded  # the number of the job's `reasons` that it takes into account
        self.positions: Answers[pb.Positions] = Answers()
        self.fetching = False  # the agents were asked to let their ranks fetch
        self.endpoints: Answers[pb.AssignmentReady] = Answers()
        self.stopped: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def stop(self, error: Exception) -> None:
        """End the attempt; only the first call has an effect."""
        if not self.stopped.done():
            self.stopped.set_result(error)


class Transition(abc.ABC):
    """The transition of a job into an epoch, or back to its own after a restart of the controller."""

    leaves_epoch: ClassVar[bool] = True
    task: asyncio.Task[None]  # which runs it; it is set when the transition begins

    def __init__(self, live: LiveJob) -> None:
        self.live = live
        self.attempt: Attempt | None = None  # the current one, from the first plan on
        self.asked: dict[str, int] = {}  # agent -> the last epoch for which it was asked to open ranks
        self.error: Exception | None = None  # the error that has ended the transition and the job

    @abc.abstractmethod
    async def run(self) -> None:
        """Bring the job into the epoch."""

    @abc.abstractmethod
    def heed(self) -> None:
        """Handle another one of the job's `reasons` to leave its epoch."""


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
        self.reasons: list[str] = []  # the events for which it must leave its epoch, in words
        self.calls: dict[int, pb.Call] = {}  # rank -> the call in which its check failed
        self.failed_at: dict[int, int] = {}  # rank -> the chunk of that check
        self.judging: asyncio.Task[None] | None = None
        self.closed_after: dict[int, int] = {}  # rank that has closed -> the calls that it had made in this epoch
        self.ending: asyncio.Task[None] | None = None
        self.updated = Signal()

    @property
    def leaves_epoch(self) -> bool:
        """True if the job is in transition into its first epoch, or into another one."""
        return self.transition is not None and self.transition.leaves_epoch

    @property
    def attempt(self) -> Attempt | None:
        """The current attempt to bring it into an epoch."""
        return self.transition.attempt if self.transition is not None else None

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

    def ranks_in(self, state: RankState) -> list[int]:
        """Return the numbers of the ranks in this state."""
        return [rank.rank for rank in self.job.ranks if rank.state is state]
