"""Probes: all live agents measure the paths between each two of them, in a round-robin tournament."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from switchml.common.deadline import first_of, within
from switchml.common.printable import REASON_LENGTH, printable
from switchml.common.probe_bounds import KEY_BYTES, MOST_BYTES, MOST_SECONDS
from switchml.controller.agents import Agents, AgentSession
from switchml.controller.errors import AgentTimeout, FabricInUse, InvalidRequest, NoAgent
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["FEWEST_AGENTS", "MOST_AGENTS", "Probes", "rounds"]

_LOG = logging.getLogger(__name__)

FEWEST_AGENTS: Final = 3
MOST_AGENTS: Final = 256
_OPEN_SECONDS: Final = 5.0
_ROUND_TRIP_SECONDS: Final = 10.0  # for a measurement of round trips
_SLOWEST: Final = 1_000_000  # bytes per second that a measurement has time for
_GRACE_SECONDS: Final = 2.0  # for an answer to arrive
_MOST_FAILURES: Final = 2  # of an agent, after which no partner waits for it


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of disjoint pairs, in which each two of `count` players meet once (the circle method)."""
    places = [*range(count + count % 2)]  # with an odd count, the partner of the last place has no meeting
    half = len(places) // 2
    for _ in range(len(places) - 1):
        pairs = map(sorted, zip(places[:half], reversed(places[half:]), strict=True))
        yield [(one, other) for one, other in pairs if other < count]
        places.insert(1, places.pop())


@dataclass(frozen=True)
class _Question:
    session: AgentSession
    answer: asyncio.Future[pb.ProbeAnswer]


@dataclass
class _Tournament:
    """The measurements of a probe, by pairs of numbers of its agents."""

    players: Sequence[AgentSession]
    measured: dict[tuple[int, int], pb.ProbeAnswer] = field(default_factory=dict)
    failures: dict[tuple[int, int], str] = field(default_factory=dict)

    def gives_up(self, player: int) -> bool:
        """Return whether enough measurements of this agent have failed that no partner should wait for it again."""
        return sum(player in pair for pair in self.failures) >= _MOST_FAILURES

    def leave_out(self) -> tuple[list[int], dict[int, str]]:
        """Return agents of which each two have a measurement, and the others with the reasons."""
        remaining = list(range(len(self.players)))
        left_out: dict[int, str] = {}
        while True:
            missing = [pair for pair in itertools.combinations(remaining, 2) if pair not in self.measured]
            if not missing:
                return remaining, left_out
            worst = max(remaining, key=lambda one: sum(one in pair for pair in missing))
            left_out[worst] = next(why for pair, why in self.failures.items() if worst in pair)
            remaining.remove(worst)


class Probes:
    """Runs one probe at a time; answers of agents that were not asked are ignored."""

    def __init__(self, agents: Agents, jobs: JobRegister) -> None:
        self._agents = agents
        self._jobs = jobs
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._running = False

    async def run(self, size: int) -> pb.ProbeResult:
        """Return the round trips between all live agents and, unless `size` is 0, their rates for that many bytes.

        Raises:
            InvalidRequest: the size is too large.
            FabricInUse: jobs live, or another probe runs; a job that starts during the probe ends it.
            NoAgent: fewer than 3 agents are live or answer, or there are too many.
            AgentTimeout: it takes too long.

        """
        if size > MOST_BYTES:
            raise InvalidRequest(f"two agents of a probe send each other at most {MOST_BYTES} bytes, not {size}")
        if self._running:
            raise FabricInUse("another probe runs, and two would measure each other; try again when it has ended")
        self._require_no_jobs("", "wait until they have ended (`switchml-ctl job wait`), or stop them")
        sessions = [session for session in self._agents.sessions() if session.live]
        if not FEWEST_AGENTS <= len(sessions) <= MOST_AGENTS:
            raise NoAgent(
                f"a probe needs {FEWEST_AGENTS} to {MOST_AGENTS} live agents, and there are {len(sessions)};"
                " `switchml-ctl agent list` shows them",
                agents=len(sessions),
            )
        self._running = True
        try:
            return await within(MOST_SECONDS, self._run(sessions, size))
        except asyncio.TimeoutError:
            raise AgentTimeout(
                f"the probe of {len(sessions)} agents has not ended within {MOST_SECONDS:g} s; send fewer bytes"
            ) from None
        finally:
            self._running = False
            for session in sessions:
                session.send(pb.ControllerMessage(probe_order=pb.ProbeOrder(close=pb.ProbeOrder.Close())))

    def take(self, session: AgentSession, answer: pb.ProbeAnswer) -> None:
        """Store the answer of an agent."""
        question = self._questions.get(answer.number)
        if question is None or question.session is not session or question.answer.done():
            _LOG.info("agent %s sent a measurement that was not requested", session.name)
        else:
            question.answer.set_result(answer)

    async def _run(self, sessions: Sequence[AgentSession], size: int) -> pb.ProbeResult:
        open_order = pb.ProbeOrder(open=pb.ProbeOrder.Open(key=secrets.token_bytes(KEY_BYTES)))
        opened = await asyncio.gather(*(self._ask(session, open_order, _OPEN_SECONDS) for session in sessions))
        answers = dict(zip(sessions, opened, strict=True))
        refused = {session.name: answer.failure for session, answer in answers.items() if answer.failure}
        tournament = _Tournament([session for session in sessions if session.name not in refused])
        for pairs in rounds(len(tournament.players)):
            meetings = [pair for pair in pairs if not any(map(tournament.gives_up, pair))]
            await asyncio.gather(*(self._measure(tournament, answers, pair, size) for pair in meetings))
            self._require_no_jobs(" since the probe began, which has ended", "probe again when no job lives")
        remaining, left_out = tournament.leave_out()
        refused |= {tournament.players[number].name: why for number, why in left_out.items()}
        if len(remaining) < FEWEST_AGENTS:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items()))
            raise NoAgent(f"fewer than {FEWEST_AGENTS} agents could measure the paths between each other: {why}")
        return _result(tournament, remaining, refused)

    async def _measure(
        self,
        tournament: _Tournament,
        opened: dict[AgentSession, pb.ProbeAnswer],
        pair: tuple[int, int],
        size: int,
    ) -> None:
        """Let the first of a pair measure the path to the other one."""
        one, other = (tournament.players[number] for number in pair)
        seconds = _ROUND_TRIP_SECONDS + size / _SLOWEST
        address, port = other.registration.address, opened[other].port
        measure = pb.ProbeOrder.Measure(address=address, port=port, bytes=size, seconds=seconds)
        answer = await self._ask(one, pb.ProbeOrder(measure=measure), seconds + _GRACE_SECONDS)
        numbers = (answer.round_trip, *((answer.bytes_per_second, answer.bytes_per_second_back) if size else ()))
        if answer.failure:
            tournament.failures[pair] = f"{one.name} could not reach {other.name} at {address}: {answer.failure}"
        elif not all(math.isfinite(number) and number > 0 for number in numbers):
            tournament.failures[pair] = f"{one.name} has measured the path to {other.name} as {numbers}"
        else:
            tournament.measured[pair] = answer

    async def _ask(self, session: AgentSession, order: pb.ProbeOrder, seconds: float) -> pb.ProbeAnswer:
        """Return the answer of an agent; without one, an answer whose `failure` has the reason."""
        number = next(self._numbers)
        question = _Question(session, asyncio.get_running_loop().create_future())
        self._questions[number] = question
        try:
            mine = pb.ProbeOrder(number=number)
            mine.MergeFrom(order)
            session.send(pb.ControllerMessage(probe_order=mine))
            await first_of(question.answer, session.ended, seconds)
        finally:
            del self._questions[number]
        if question.answer.done():
            answer = question.answer.result()
            answer.failure = printable(answer.failure, REASON_LENGTH)
            return answer
        lost = "the agent was lost"
        silent = f"no answer within {seconds:g} s; if the agent is of an earlier version, update it"
        return pb.ProbeAnswer(failure=silent if session.live else lost)

    def _require_no_jobs(self, when: str, remedy: str) -> None:
        names = [live.job.name for live in self._jobs.live_jobs()]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise FabricInUse(
                f"jobs live{when} ({', '.join(names[:3])}{more}), and a probe would measure their packets: {remedy}",
                jobs=len(names),
            )


def _result(tournament: _Tournament, remaining: Sequence[int], left_out: dict[str, str]) -> pb.ProbeResult:
    result = pb.ProbeResult(time=time.time())
    for number in remaining:
        session = tournament.players[number]
        result.agents.add(name=session.name, host=session.registration.host, address=session.registration.address)
    for place, one in enumerate(remaining):
        for other_place, other in enumerate(remaining[place + 1 :], start=place + 1):
            answer = tournament.measured[one, other]
            values: dict[str, Any] = {"round_trip": answer.round_trip, "bytes_per_second": answer.bytes_per_second}
            values["bytes_per_second_back"] = answer.bytes_per_second_back
            result.pairs.add(one=place, other=other_place, **values)
    for name, reason in sorted(left_out.items()):
        result.left_out.add(name=name, reason=reason)
    return result
