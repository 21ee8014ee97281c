"""Profiles of jobs, collected from their agents on request."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from typing import Any, Final

from switchml.common.printable import WORD_LENGTH, printable
from switchml.common.shared_readings import SharedReadings
from switchml.controller.agents import Agents, AgentSession
from switchml.controller.errors import JobEnded, NoRoom
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, Rank, RankState

__all__ = ["ANSWER_SECONDS", "MOST_BUCKETS", "MOST_CALLS", "Profiles"]

_LOG = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 8.0
"""The time that the agents have to answer."""
MOST_CALLS: Final = 63
"""The limit of latest calls in a rank's profile."""
MOST_BUCKETS: Final = 64
"""The limit of buckets of a histogram."""
_ANSWER_BYTES: Final = 3 * 1024 * 1024  # of the 4 MiB of a message
_TOTALS_BYTES: Final = 1200  # of one rank
_CALL_BYTES: Final = 120
_MOST_QUESTIONS: Final = 1024  # requests that wait for answers at the same time


@dataclass(frozen=True)
class _Question:
    """One request to one agent; only ranks that the agent carries are accepted in its answer."""

    session: AgentSession
    ranks: frozenset[int]
    answer: asyncio.Future[list[pb.RankProfile]]


class Profiles:
    """Requests profiles from agents over their sessions; profiles that were not requested are ignored."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._readings: SharedReadings[pb.JobProfile] = SharedReadings()

    async def collect(self, job: Job, calls: int) -> pb.JobProfile:
        """Return the profile of a live job's ranks, with up to `calls` of the latest calls of each.

        It takes at most twice ANSWER_SECONDS, because those who ask at one time get the same answers. Ranks without a
        profile are listed with the reason.

        Raises:
            JobEnded: the job has ended.
            NoRoom: too many such requests wait for answers.

        """
        if not job.live:
            raise JobEnded(f"job {job.name} is {job.state.name}, and only a live job's ranks can be profiled")
        profile = pb.JobProfile()
        profile.CopyFrom(await self._readings.get((job.key, calls > 0), lambda: self._collect(job, calls > 0)))
        for rank in profile.ranks:
            del rank.latest[: max(0, len(rank.latest) - calls)]
        return profile

    async def _collect(self, job: Job, with_calls: bool) -> pb.JobProfile:
        held = job.ranks_by_agent()
        if len(self._questions) + len(held) > _MOST_QUESTIONS:
            raise NoRoom("too many profiles are being collected; try again", questions=len(self._questions))
        profile = pb.JobProfile(job=job.id, name=job.name, epoch=job.epoch)
        asked: dict[int, _Question] = {}
        for agent, ranks in held.items():
            asked |= self._ask(job, agent, frozenset(rank.rank for rank in ranks if not rank.ended), with_calls)
        self._questions |= asked
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        try:
            for question in asked.values():
                either: set[asyncio.Future[Any]] = {question.answer, question.session.ended}
                left = max(0.0, deadline - loop.time())
                await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for number in asked:
                del self._questions[number]
        for question in asked.values():
            if question.answer.done():
                profile.ranks.extend(question.answer.result())
        profile.ranks.sort(key=lambda rank: rank.rank)
        self._name_missing(job, profile)
        return profile

    def take(self, session: AgentSession, profiles: pb.RankProfiles) -> None:
        """Store an agent's answer; ranks that were not requested from it are ignored."""
        question = self._questions.get(profiles.number)
        if question is None or question.session is not session or question.answer.done():
            _LOG.info("agent %s sent a profile that was not requested", session.name)
            return
        found: dict[int, pb.RankProfile] = {}
        for rank in profiles.ranks:
            if rank.rank not in question.ranks:
                _LOG.warning("agent %s sent a profile of rank %d, which it does not carry", session.name, rank.rank)
                continue
            rank.agent = session.name
            for call in rank.latest:
                call.operation = printable(call.operation, WORD_LENGTH)
            found[rank.rank] = rank
        question.answer.set_result([found[number] for number in sorted(found)])

    def _ask(self, job: Job, agent: str, ranks: frozenset[int], with_calls: bool) -> dict[int, _Question]:
        """Send the request to an agent if it is connected, and return it by its number.

        The more ranks an agent has, the fewer calls of each fit into its answer.
        """
        session = self._agents.live_session(agent)
        if session is None or not ranks:
            return {}
        number = next(self._numbers)
        calls = max(0, _ANSWER_BYTES // len(ranks) - _TOTALS_BYTES) // _CALL_BYTES if with_calls else 0
        order = pb.ProfileOrder(number=number, job=job.id, epoch=job.epoch, calls=min(calls, MOST_CALLS))
        session.send(pb.ControllerMessage(profile_order=order))
        return {number: _Question(session, ranks, asyncio.get_running_loop().create_future())}

    def _name_missing(self, job: Job, profile: pb.JobProfile) -> None:
        known = {rank.rank for rank in profile.ranks}
        for agent, ranks in job.ranks_by_agent().items():
            reasons: dict[str, list[int]] = {}
            live = self._agents.live_session(agent) is not None
            for rank in ranks:
                if rank.rank not in known:
                    reasons.setdefault(_why_missing(rank, live), []).append(rank.rank)
            for reason, numbers in reasons.items():
                profile.missing.add(agent=agent, ranks=numbers, reason=reason)


def _why_missing(rank: Rank, agent_is_live: bool) -> str:
    if rank.state is RankState.CLOSED:
        return "its process has closed its communicator"
    if rank.state is RankState.LOST:
        return "it was lost"
    return f"no answer within {ANSWER_SECONDS:g} s" if agent_is_live else "the agent is not connected"
