"""Jobs that begin by rendezvous: ranks attach with the same key, and their job begins when all have come."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from switchml.common.names import NAME_LENGTH
from switchml.common.printable import REASON_LENGTH, shortened
from switchml.controller.admission.placement import Placement
from switchml.controller.admission.request import JobRequest, validate
from switchml.controller.agents import AgentSession
from switchml.controller.errors import ControllerError, InternalError, InvalidRequest, JobExists, NoRoom
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.lifecycle import Lifecycle
from switchml.controller.jobs.live import LiveJob, Signal
from switchml.controller.jobs.register import JobRegister
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.controller.records import Job, printed_ranks
from switchml.controller.store.events import EventKind, EventLog

__all__ = [
    "MAX_KEY",
    "MAX_KEYS_OF_AGENT",
    "MAX_KEYS_OF_TENANT",
    "MAX_SECONDS",
    "MAX_WAITING_OF_AGENT",
    "Rendezvous",
    "job_name",
]

_LOG = logging.getLogger(__name__)

MAX_KEY = 200
"""Characters of a key."""
MAX_KEYS_OF_TENANT = 1024
"""The most keys of one tenant whose ranks have not all come."""
MAX_KEYS_OF_AGENT = 256
"""The most of these keys whose first rank came from one agent."""
MAX_WAITING_OF_AGENT = 4096
"""The most ranks that wait at one agent, with all of its keys."""
MAX_SECONDS = 86400.0
"""The longest that a rank may wait for the others."""

_DIGEST_LENGTH = 8


def job_name(key: str, tenant: str = "") -> str:
    """Return the name of the job of a tenant's key: the key's label, else its printable part, and a digest of both.

    A key's label is what comes before the first " @ ".
    """
    told = f"{tenant}\0{key}" if tenant else key
    digest = hashlib.sha256(told.encode()).hexdigest()[:_DIGEST_LENGTH]
    label, _, _ = key.partition(" @ ")
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", label)[: NAME_LENGTH - _DIGEST_LENGTH - 1].strip("-")
    return f"{readable or 'job'}-{digest}"


@dataclass(frozen=True)
class _Waiting:
    """A rank that has announced itself."""

    session: AgentSession
    announcement: int
    deadline: float  # time.monotonic()

    @property
    def process(self) -> tuple[str, str]:
        """The process of the agent at which it waits, whose stream may have been opened again."""
        return _process(self.session)


class _Meeting:
    """The ranks that have come with one key of a tenant, and the options of their job."""

    def __init__(self, key: str, options: pb.StartJobRequest, first: AgentSession) -> None:
        self.key = key
        self.options = options
        self.tenant = first.tenant
        self.opened_by = first.name
        self.ranks: dict[int, _Waiting] = {}
        self.updated = Signal()
        self._gives_up = math.inf  # the first rank does so then, or later

    def is_of(self, job: Job) -> bool:
        """Return whether this is the job of its ranks."""
        return (job.name, job.tenant) == (self.options.name, self.tenant)

    def add(self, rank: int, waiting: _Waiting) -> None:
        """Add a rank, or replace it by itself after its stream was opened again."""
        self.ranks[rank] = waiting
        self._gives_up = min(self._gives_up, waiting.deadline)

    @property
    def complete(self) -> bool:
        """True if no rank is missing."""
        return len(self.ranks) == self.options.workers and not self.missing()

    def missing(self) -> list[int]:
        """Return the missing ranks, also those of an agent whose stream has broken: it announces them again."""
        live = {rank for rank, waiting in self.ranks.items() if waiting.session.live}
        return [rank for rank in range(self.options.workers) if rank not in live]

    def remaining(self) -> float:
        """Return the seconds until the first rank gives up; negative once it has."""
        now = time.monotonic()
        if now >= self._gives_up:  # it may have gone before
            self._gives_up = min(waiting.deadline for waiting in self.ranks.values())
        return self._gives_up - now


class Rendezvous:
    """The keys that ranks wait with; the keys of different tenants are independent.

    They are not stored: after a restart of the controller the agents announce the waiting ranks again.
    """

    def __init__(
        self, jobs: JobRegister, lifecycle: Lifecycle, transitions: Transitions, endings: JobEndings, events: EventLog
    ) -> None:
        self._jobs = jobs
        self._lifecycle = lifecycle
        self._events = events
        self._meetings: dict[tuple[str, str], _Meeting] = {}  # by tenant and key
        # The meeting and the rank of each announcement, by the process of the agent and its number.
        self._places: dict[tuple[str, str], dict[int, tuple[_Meeting, int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        endings.on_freed = self._freed
        transitions.on_new_epoch = self._came_into_epoch

    async def close(self) -> None:
        """Stop; the ranks continue to wait at their agents."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- messages of agents ----------------------------------------------------------------------------------------

    def announce(self, session: AgentSession, announcement: pb.RankAnnouncement) -> None:
        """Make a rank wait for the others. If it contradicts them, all ranks that wait with the key are refused."""
        number = announcement.announcement
        try:
            options = _options(announcement, session.tenant)
            self._require_place(session, announcement)
            key = announcement.key
            meeting = self._meetings.get((session.tenant, key)) or self._open(session, key, options)
        except ControllerError as error:
            _refuse(session, number, type(error).__name__, error.message)
            return
        waiting = _Waiting(session, number, time.monotonic() + announcement.wait_seconds)
        contradiction = _contradiction(meeting, waiting, announcement.rank, options)
        if contradiction is not None:
            _refuse(session, number, *contradiction)
            self._note_refusal(meeting, contradiction)
            self._refuse_all(meeting, *contradiction)
            return
        meeting.add(announcement.rank, waiting)
        self._places.setdefault(waiting.process, {})[number] = (meeting, announcement.rank)
        for live in self._jobs.live_jobs():
            if meeting.is_of(live.job):
                self._return(live, meeting)
        meeting.updated.notify()

    def _require_place(self, session: AgentSession, announcement: pb.RankAnnouncement) -> None:
        """Check that a rank is new at its agent, or was announced there with this number before."""
        own = self._places.get(_process(session), {})
        if announcement.announcement in own:
            meeting, rank = own[announcement.announcement]
            if (meeting.key, rank) != (announcement.key, announcement.rank):
                raise InvalidRequest(f"announcement {announcement.announcement} is of another rank already")
        elif len(own) >= MAX_WAITING_OF_AGENT:
            raise NoRoom(f"{len(own)} ranks wait at agent {session.name} already; end some of them", ranks=len(own))

    def withdraw(self, session: AgentSession, announcement: int) -> None:
        """Forget a rank whose process does not wait any more."""
        place = self._places.get(_process(session), {}).get(announcement)
        if place is not None:
            self._remove(*place)

    def lost(self, session: AgentSession) -> None:
        """Forget the announcements of a session that has ended."""
        for meeting, rank in list(self._places.get(_process(session), {}).values()):
            if meeting.ranks[rank].session is session:
                self._remove(meeting, rank)

    def _remove(self, meeting: _Meeting, rank: int) -> None:
        self._take(meeting, rank)
        if not meeting.ranks:
            self._forget(meeting)
        meeting.updated.notify()

    def _take(self, meeting: _Meeting, rank: int) -> None:
        """Remove a rank from its meeting."""
        waiting = meeting.ranks.pop(rank)
        own = self._places[waiting.process]
        del own[waiting.announcement]
        if not own:
            del self._places[waiting.process]

    # ---- processes that take the place of lost ones ------------------------------------------------------------------

    def _came_into_epoch(self, live: LiveJob) -> None:
        for meeting in list(self._meetings.values()):
            if meeting.is_of(live.job):
                self._return(live, meeting)

    def _return(self, live: LiveJob, meeting: _Meeting) -> None:
        """Give the ranks of a live job that wait for a process to the processes that have announced them."""
        for number, waiting in list(meeting.ranks.items()):
            vacant = live.vacant(number) if meeting.options.workers == live.job.workers else None
            if vacant is None or not waiting.session.live:
                continue
            if vacant.agent == waiting.session.name:
                answer = pb.RendezvousReturn(
                    announcement=waiting.announcement, job=live.job.id, epoch=live.job.epoch, rank=number
                )
                waiting.session.send(pb.ControllerMessage(rendezvous_return=answer))
            else:
                why = f"rank {number} of job {live.job.name} is to come back at agent {vacant.agent} on {vacant.host}"
                _refuse(waiting.session, waiting.announcement, "RankElsewhere", f"{why}; start its process there")
            self._take(meeting, number)
        if not meeting.ranks:
            self._forget(meeting)

    # ---- until they are complete -----------------------------------------------------------------------------------

    def _open(self, session: AgentSession, key: str, options: pb.StartJobRequest) -> _Meeting:
        tenants = [meeting for meeting in self._meetings.values() if meeting.tenant == session.tenant]
        agents = sum(meeting.opened_by == session.name for meeting in tenants)
        for whose, count, most in (
            (f"agent {session.name}", agents, MAX_KEYS_OF_AGENT),
            (f"tenant {session.tenant}" if session.tenant else "agents of no tenant", len(tenants), MAX_KEYS_OF_TENANT),
        ):
            if count >= most:
                raise NoRoom(f"ranks of {count} jobs of {whose} wait for others already; end some of them", keys=most)
        meeting = self._meetings[session.tenant, key] = _Meeting(key, options, session)
        task = asyncio.create_task(self._meet(meeting), name=f"rendezvous {options.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        _LOG.info("key %r: the first of %d ranks waits", key, options.workers)
        return meeting

    async def _meet(self, meeting: _Meeting) -> None:
        """Wait for all ranks, and for an earlier job of the key to hold nothing any more; then start the job."""
        while meeting.ranks:
            remaining = meeting.remaining()
            before = self._jobs.holder(meeting.options.name)
            if before is not None and not meeting.is_of(before):
                name = meeting.options.name
                taken = f"a job of another tenant has the name of this key's job, {name}; use another key"
                self._refuse_all(meeting, JobExists.__name__, taken)
            elif remaining <= 0:
                refusal = _too_late(meeting, meeting.missing(), before.name if before is not None else "")
                self._note_refusal(meeting, refusal)
                self._refuse_all(meeting, *refusal)
            elif not meeting.complete or before is not None:
                await meeting.updated.wait(remaining)
            elif await self._jobs.drain(remaining, meeting.tenant) and meeting.complete:
                # Ranks that start again may come before the end of their previous job, which had another key.
                await self._start(meeting)

    async def _start(self, meeting: _Meeting) -> None:
        options = meeting.options
        ranks = [meeting.ranks[rank] for rank in range(options.workers)]
        self._end(meeting)  # ranks that come from now on meet for another job
        placement = Placement([rank.session for rank in ranks], [rank.announcement for rank in ranks])
        switches = {session.switch for session in placement.sessions}
        if len(switches) == 1 and not options.aggregators:
            options.switch = switches.pop()
        try:
            await self._lifecycle.start(JobRequest(options, meeting.tenant, placement))
        except ControllerError as error:
            _refuse_ranks(meeting.key, ranks, type(error).__name__, error.message)
        except Exception as error:
            _LOG.exception("the start of job %s failed", options.name)
            why = f"internal error in the controller, see its log: {error!r}"
            _refuse_ranks(meeting.key, ranks, InternalError.__name__, why)

    def _refuse_all(self, meeting: _Meeting, error: str, message: str) -> None:
        _refuse_ranks(meeting.key, meeting.ranks.values(), error, message)
        self._end(meeting)

    def _end(self, meeting: _Meeting) -> None:
        """Forget a meeting and its ranks."""
        for rank in list(meeting.ranks):
            self._take(meeting, rank)
        self._forget(meeting)
        meeting.updated.notify()

    def _note_refusal(self, meeting: _Meeting, refusal: tuple[str, str]) -> None:
        what = f"job {meeting.options.name!r} with {meeting.options.workers} workers"
        self._events.record(EventKind.JOB_REFUSED, f"{what}: {refusal[1]}")

    def _forget(self, meeting: _Meeting) -> None:
        if self._meetings.get((meeting.tenant, meeting.key)) is meeting:
            del self._meetings[meeting.tenant, meeting.key]

    def _freed(self, name: str) -> None:
        for meeting in self._meetings.values():
            if meeting.options.name == name:
                meeting.updated.notify()


def _process(session: AgentSession) -> tuple[str, str]:
    return session.name, session.registration.instance


def _options(announcement: pb.RankAnnouncement, tenant: str) -> pb.StartJobRequest:
    """Return the options of the job that a rank of a tenant announces.

    Raises:
        InvalidRequest: a value of the announcement is not allowed.

    """
    key = announcement.key
    if not (0 < len(key) <= MAX_KEY and key.isprintable()):
        raise InvalidRequest(f"the key of a job must be 1 to {MAX_KEY} printable characters, not {key[:MAX_KEY]!r}")
    options = pb.StartJobRequest(
        workers=announcement.world_size,
        name=job_name(key, tenant),
        slots=announcement.slots,
        on_failure=announcement.on_failure or pb.ON_FAILURE_ABORT,
        priority=announcement.priority,
        aggregators=announcement.aggregators,
    )
    validate(options)
    if announcement.rank >= announcement.world_size:
        raise InvalidRequest(f"a job of {announcement.world_size} ranks has no rank {announcement.rank}")
    if not (math.isfinite(announcement.wait_seconds) and announcement.wait_seconds <= MAX_SECONDS):
        raise InvalidRequest(f"a rank waits at most {MAX_SECONDS:g} s, not {announcement.wait_seconds:g}")
    return options


def _contradiction(
    meeting: _Meeting, waiting: _Waiting, rank: int, options: pb.StartJobRequest
) -> tuple[str, str] | None:
    """Return why a rank cannot be of the job that the others wait for: an error's name, and a message for all."""
    session, agreed = waiting.session, meeting.options
    if options.workers != agreed.workers:
        others = printed_ranks(sorted(meeting.ranks))
        return "WrongWorldSize", (
            f"rank {rank} at agent {session.name} says that the job has {options.workers} ranks,"
            f" {others} said {agreed.workers}; start all with the same world size, and two jobs with two keys"
        )
    held = meeting.ranks.get(rank)
    if held is not None and (held.process, held.announcement) != (waiting.process, waiting.announcement):
        return "RankTaken", (
            f"two processes are rank {rank}, at agent {held.session.name} and at agent {session.name};"
            " give each process its own rank, and two jobs two keys"
        )
    if options.slots != agreed.slots:
        return "InvalidRequest", (
            f"rank {rank} at agent {session.name} asks for {options.slots} slots,"
            f" {printed_ranks(sorted(meeting.ranks))} for {agreed.slots} (0: the switch's default);"
            " set SWITCHML_SLOTS alike for all ranks"
        )
    if options.aggregators != agreed.aggregators:
        return "InvalidRequest", (
            f"rank {rank} at agent {session.name} names the aggregators {_listed(options.aggregators)},"
            f" {printed_ranks(sorted(meeting.ranks))} named {_listed(agreed.aggregators)}; set SWITCHML_AGGREGATORS"
            " alike for all ranks"
        )
    if options.on_failure != agreed.on_failure:
        asked, others = (enum_word(pb.OnFailure, one.on_failure).lower() for one in (options, agreed))
        return "InvalidRequest", (
            f"rank {rank} at agent {session.name} asks for {asked} on a failure,"
            f" {printed_ranks(sorted(meeting.ranks))} for {others}; set SWITCHML_ON_FAILURE alike for all ranks"
        )
    if options.priority != agreed.priority:
        return "InvalidRequest", (
            f"rank {rank} at agent {session.name} asks for priority {options.priority},"
            f" {printed_ranks(sorted(meeting.ranks))} for {agreed.priority}; give all ranks the same priority"
        )
    return None


def _listed(names: Sequence[str]) -> str:
    return ",".join(names) or "(none)"


def _too_late(meeting: _Meeting, missing: list[int], before: str) -> tuple[str, str]:
    workers = meeting.options.workers
    if missing:
        return "MissingRanks", (
            f"{printed_ranks(missing)} of {workers} did not come in time; check whether their processes run."
            f" Those who did came with the key {meeting.key!r}"
        )
    return JobExists.__name__, (
        f"all {workers} ranks are there, but job {before}, which began with the same key, has not ended in"
        f" time; stop it with `switchml-ctl job stop {before}`, or use another key"
    )


def _refuse_ranks(key: str, ranks: Iterable[_Waiting], error: str, message: str) -> None:
    _LOG.warning("key %r: %s", key, message)
    for waiting in ranks:
        _refuse(waiting.session, waiting.announcement, error, message)


def _refuse(session: AgentSession, announcement: int, error: str, message: str) -> None:
    text = shortened(message, REASON_LENGTH)
    refusal = pb.RendezvousRefusal(announcement=announcement, error=error, message=text)
    session.send(pb.ControllerMessage(rendezvous_refusal=refusal))
