"""The event log: what happened, when, to which job, rank, agent or switch, and at whose request.

It is part of the store, which keeps the latest events; they are written a moment later, several at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Final

from switchml.common.printable import printable
from switchml.controller.errors import InvalidRequest, StoreError
from switchml.controller.records import Job

__all__ = ["ACTOR", "ALL_EVENTS", "EVENTS_KEPT", "Event", "EventKind", "EventLog", "Level", "Selection"]
__all__ += ["requested_by"]

_LOG = logging.getLogger(__name__)

EVENTS_KEPT: Final = 20_000
"""The number of events that the log holds.

If there are more, the oldest event of the most frequent kind is deleted, so that a flood of one kind, such as refused
starts, does not displace the others.
"""
_WRITE_SECONDS: Final = 0.25
_MAX_TEXT: Final = 500


ACTOR: ContextVar[str] = ContextVar("actor", default="")
"""The caller that requested the current operation: set when a request arrives, and inherited by its tasks."""


@contextlib.contextmanager
def requested_by(actor: str) -> Iterator[None]:
    """Let `actor` be the caller that has requested what happens in the context."""
    token = ACTOR.set(actor)
    try:
        yield
    finally:
        ACTOR.reset(token)


class Level(str, Enum):
    """The importance of an event."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_LEVELS: Final = tuple(level.value for level in Level)  # the least important first


class EventKind(Enum):
    """The kinds of events; the value is the name in the log, and the level."""

    CONTROLLER_STARTED = ("controller-started", Level.INFO)
    CONTROLLER_STOPPED = ("controller-stopped", Level.INFO)
    JOB_STARTED = ("job-started", Level.INFO)  # admitted
    JOB_READY = ("job-ready", Level.INFO)
    JOB_RUNNING = ("job-running", Level.INFO)  # its first rank attached
    JOB_COMPLETED = ("job-completed", Level.INFO)
    JOB_FAILED = ("job-failed", Level.ERROR)
    JOB_STOPPED = ("job-stopped", Level.INFO)
    JOB_REFUSED = ("job-refused", Level.WARNING)
    JOB_TAKEN_OVER = ("job-taken-over", Level.INFO)  # by a controller that was restarted
    RANK_ATTACHED = ("rank-attached", Level.INFO)
    RANK_CLOSED = ("rank-closed", Level.INFO)
    RANK_LOST = ("rank-lost", Level.ERROR)
    RANK_EXITED = ("rank-exited", Level.INFO)  # reported by its launcher
    CHECK_FAILED = ("check-failed", Level.ERROR)
    AGENT_CONNECTED = ("agent-connected", Level.INFO)
    AGENT_LOST = ("agent-lost", Level.WARNING)
    AGENT_REFUSED = ("agent-refused", Level.WARNING)
    SWITCH_CONNECTED = ("switch-connected", Level.INFO)
    SWITCH_RESTARTED = ("switch-restarted", Level.WARNING)  # connected, and its registers were lost
    SWITCH_LOST = ("switch-lost", Level.ERROR)
    EPOCH_CHANGED = ("epoch-changed", Level.WARNING)  # a job continues after a loss
    SWITCH_DRAINED = ("switch-drained", Level.WARNING)  # no new jobs are placed on it
    SWITCH_UNDRAINED = ("switch-undrained", Level.INFO)
    ACCESS_REFUSED = ("access-refused", Level.WARNING)  # the caller's certificate does not allow the call
    CONFIGURATION_CHANGED = ("configuration-changed", Level.WARNING)  # since the controller's last start
    LOSS_SET = ("loss-set", Level.WARNING)  # packets are lost on purpose, or no longer

    @property
    def word(self) -> str:
        """Its name in the log."""
        return self.value[0]

    @property
    def level(self) -> Level:
        """Its level."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the log. Numbers increase; `time` is in seconds since 1970; fields that do not apply are empty."""

    number: int
    time: float
    kind: str
    level: str
    job_key: int = 0
    job: int = 0
    job_name: str = ""
    epoch: int = 0
    rank: int | None = None
    agent: str = ""
    switch: str = ""
    actor: str = ""  # the caller that requested it, if known
    detail: str = ""

    def concerns(self, job: int | str | None) -> bool:
        """Return whether it is about the job of this id or name; None means any job, or none."""
        return job is None or job == (self.job if isinstance(job, int) else self.job_name)


@dataclass(frozen=True)
class Selection:
    """The events that a reader asks for: those since a time, of some kinds, of at least a level, about a switch.

    A field that is empty selects all.

    Raises:
        InvalidRequest: no event has such a kind or level.

    """

    since: float = 0.0
    kinds: frozenset[str] = frozenset()
    level: str = ""
    switch: str = ""

    def __post_init__(self) -> None:
        """Refuse what no event has."""
        unknown = sorted(self.kinds - {kind.word for kind in EventKind})
        if unknown:
            known = ", ".join(sorted(kind.word for kind in EventKind))
            raise InvalidRequest(f"events have no kind {', '.join(unknown)[:100]}; the kinds are {known}")
        if self.level and self.level not in _LEVELS:
            raise InvalidRequest(f"events have no level {self.level!r}; the levels are {', '.join(_LEVELS)}")

    def has(self, event: Event) -> bool:
        """Return whether an event is selected."""
        return (
            event.time >= self.since
            and (not self.kinds or event.kind in self.kinds)
            and (not self.level or _LEVELS.index(event.level) >= _LEVELS.index(self.level))
            and (not self.switch or self.switch in re.findall(r"[\w.-]+", event.switch))
        )


ALL_EVENTS: Final = Selection()


class EventLog:
    """The latest events, oldest first. All methods except `run` and `read` return at once; one event loop uses it.

    `stored` are those of earlier runs; `write` stores new ones, deletes those with given numbers, and raises
    StoreError.
    """

    def __init__(
        self,
        stored: Iterable[Event],
        write: Callable[[Sequence[Event], Sequence[int]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events: dict[int, Event] = {}  # by number, oldest first
        self._numbers: dict[str, deque[int]] = {}  # by kind
        self._write = write
        self._clock = clock
        self._next = 1
        self._unwritten: dict[int, Event] = {}
        self._forgotten: list[int] = []  # those that are still in the store
        for event in stored:
            self._keep(event)
        self._followers: set[asyncio.Event] = set()
        self._failing = False
        self.counts: dict[str, int] = {}  # of this process, by word

    def record(
        self,
        kind: EventKind,
        detail: str = "",
        *,
        job: Job | None = None,
        rank: int | None = None,
        agent: str = "",
        switch: str = "",
    ) -> Event:
        """Record an event that ACTOR has requested.

        Nothing is raised: a log that cannot be written must not stop any operation.
        """
        event = Event(
            number=self._next,
            time=self._clock(),
            kind=kind.word,
            level=kind.level.value,
            job_key=job.key if job is not None else 0,
            job=job.id if job is not None else 0,
            job_name=job.name if job is not None else "",
            epoch=job.epoch if job is not None else 0,
            rank=rank,
            agent=agent,
            switch=printable(switch, _MAX_TEXT) or (job.switch_names if job is not None else ""),
            actor=printable(ACTOR.get(), _MAX_TEXT),
            detail=printable(detail, _MAX_TEXT),
        )
        self._unwritten[event.number] = event
        self._keep(event)
        self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
        for follower in self._followers:
            follower.set()
        return event

    def _keep(self, event: Event) -> None:
        """Add the newest event, and delete one if there are too many."""
        self._next = event.number + 1
        self._events[event.number] = event
        self._numbers.setdefault(event.kind, deque()).append(event.number)
        if len(self._events) > EVENTS_KEPT:
            number = max(self._numbers.values(), key=len).popleft()
            del self._events[number]
            if self._unwritten.pop(number, None) is None:
                self._forgotten.append(number)

    def latest(
        self,
        job: int | str | None = None,
        most: int = EVENTS_KEPT,
        after: int = 0,
        selection: Selection = ALL_EVENTS,
    ) -> list[Event]:
        """Return the newest `most` selected events with a number above `after` that concern a job, oldest first."""
        found: list[Event] = []
        for event in reversed(self._events.values()):
            if event.number <= after or len(found) >= most:
                break
            if event.concerns(job) and selection.has(event):
                found.append(event)
        return found[::-1]

    def recent(self, kind: EventKind, seconds: float, most: int) -> list[Event]:
        """Return the newest `most` events of a kind that are at most this old, newest first."""
        earliest = self._clock() - seconds
        found: list[Event] = []
        for event in reversed(self._events.values()):
            if event.time < earliest or len(found) >= most:
                break
            if event.kind == kind.word:
                found.append(event)
        return found

    async def read(
        self,
        job: int | str | None = None,
        after: int = 0,
        latest: int = 0,
        follow: bool = False,
        selection: Selection = ALL_EVENTS,
    ) -> AsyncIterator[Event]:
        """Yield the kept events that are selected and concern a job, and with `follow` each new one until cancelled.

        It yields only those with a number above `after`, and only the `latest` of these unless that is 0. A reader that
        is too slow misses events that are deleted before it reads them.
        """
        news = asyncio.Event()
        self._followers.add(news)
        try:
            seen = after
            most = latest or EVENTS_KEPT
            while True:
                newest = self._next - 1
                for event in self.latest(job, most, seen, selection):
                    yield event
                seen, most = max(seen, newest), EVENTS_KEPT
                if not follow:
                    return
                if self._next - 1 == seen:
                    news.clear()
                    await news.wait()
        finally:
            self._followers.discard(news)

    async def run(self) -> None:
        """Write new events to the store periodically, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(_WRITE_SECONDS)
                self.flush()
        finally:
            self.flush()

    def flush(self) -> None:
        """Write new events to the store; those that cannot be written are kept for the next time."""
        if not self._unwritten:
            return
        try:
            self._write(list(self._unwritten.values()), self._forgotten)
        except StoreError as error:
            if not self._failing:
                _LOG.error("events are not in the store, and kept in memory until they can be: %s", error)
            self._failing = True
            return
        self._failing = False
        self._unwritten.clear()
        self._forgotten.clear()
