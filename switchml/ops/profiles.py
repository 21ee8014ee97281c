"""Profiles of a job's ranks: the time that each spent on what, since it began or over some seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.common.counters import Counter, read_counters
from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobEnded
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["LATEST_CALLS", "RECORDED_CALLS", "CallTimes", "JobTimes", "MissingRanks", "RankTimes", "profile_job"]

LATEST_CALLS: Final = 63  # that a rank's memory holds at any time
RECORDED_CALLS: Final = 50_000  # the most that a profile has, of all ranks together
_READ_EVERY: Final = 0.1  # seconds between two readings where each call is wanted

_COUNTED: Final = tuple(counter for counter in (*THREAD, *PROCESS, *PATH) if not counter.is_histogram)


@dataclass(frozen=True)
class CallTimes:
    """One call that has ended. Times are seconds since 1970 by the clock of the rank's host, durations are seconds.

    The last three are the time that the rank's thread spent on each activity between `begun` and `ended`; calls that
    overlap share it.
    """

    sequence: int
    operation: str
    dtype: str  # empty where bytes are moved, and for a barrier
    bytes: int
    submitted: float
    begun: float
    answered: float
    ended: float
    quantize: float
    wait: float
    dequantize: float


@dataclass(frozen=True)
class RankTimes:
    """The counters of one rank, by their names.

    The states of the process's own thread do not overlap. The agent's threads, and the switch's if it shares the rank's
    memory, run at the same time.
    """

    rank: int
    agent: str
    counted: dict[str, int]
    packets: dict[str, int]
    latest: tuple[CallTimes, ...]  # oldest first
    retransmitted: tuple[tuple[float, int], ...] = ()  # of each reading: its time, and the packets since the one before

    @property
    def busy(self) -> float:
        """Seconds in which at least one call was active."""
        return sum(state.in_units(self.counted[state.name]) for state in THREAD)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON, with durations in seconds."""
        counted = {counter.quantity: counter.in_units(self.counted[counter.name]) for counter in _COUNTED}
        latest = [asdict(call) for call in self.latest]
        return {"rank": self.rank, "agent": self.agent, **counted, "packets": self.packets, "latest": latest}


@dataclass(frozen=True)
class MissingRanks:
    """Ranks of one agent without data, and the reason."""

    agent: str
    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class JobTimes:
    """All ranks of a job; `seconds` is the interval, or None for the whole time since the ranks began."""

    job: int
    name: str
    epoch: int
    seconds: float | None
    ranks: tuple[RankTimes, ...]
    missing: tuple[MissingRanks, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {**asdict(self), "ranks": [rank.as_dict() for rank in self.ranks]}


def profile_job(
    client: ControllerClient, job: int | str, seconds: float | None = None, calls: int | None = 8
) -> JobTimes:
    """Return how a live job spends its time: within the next `seconds`, or up to now.

    `calls` is the number of latest calls to return for each rank, at most LATEST_CALLS. With None each call that ends
    within the `seconds` is returned, up to RECORDED_CALLS of all ranks, the latest ones; for that the agents are asked
    ten times a second, and calls are missing if a rank has ended more than LATEST_CALLS from one reading to the next.
    If the job ends during the interval, the calls up to then are returned.

    Raises:
        JobNotFound, JobEnded: there is no such job, it has ended, or it changed its epoch during the interval.
        ControllerError: the controller cannot be reached.

    """
    most = LATEST_CALLS if calls is None else calls
    if seconds is None:
        return _times(client.profile_job(job, most), None, None)
    before, began = client.profile_job(job), time.monotonic()
    recorded, after, passed = _Recorded(before), before, 0.0
    while passed < seconds:
        left = seconds - passed
        time.sleep(min(_READ_EVERY, left) if calls is None else left)
        try:
            reading = client.profile_job(job, most)
        except JobEnded:
            if calls is not None or after is before:
                raise
            break
        after, passed = reading, time.monotonic() - began
        if (after.job, after.epoch) != (before.job, before.epoch):
            raise JobEnded(f"job {after.name} changed to epoch {after.epoch} while it was profiled; profile it again")
        recorded.add(after)
    return _times(after, before, passed, recorded)


class _Recorded:
    """The calls of each rank that ended in an interval, and its retransmissions, from one reading after the other."""

    def __init__(self, first: pb.JobProfile) -> None:
        self._most = max(1, RECORDED_CALLS // max(1, len(first.ranks)))
        self._began = {rank.rank: rank.taken_at_ns for rank in first.ranks}
        self._sent_again = {
            rank.rank: rank.counters.retransmissions + rank.counters.fast_retransmissions for rank in first.ranks
        }
        self._seen: dict[int, set[int]] = {}
        self._calls: dict[int, deque[pb.CallProfile]] = {}
        self._retransmitted: dict[int, deque[tuple[float, int]]] = {}

    def add(self, reading: pb.JobProfile) -> None:
        for rank in reading.ranks:
            # A rank's memory lists its calls in the order in which they end, so the reading before has all older ones.
            seen = self._seen.get(rank.rank, set())
            self._seen[rank.rank] = {call.sequence for call in rank.latest}
            began = self._began.get(rank.rank, 0)
            self._calls.setdefault(rank.rank, deque(maxlen=self._most)).extend(
                call for call in rank.latest if call.ended_ns >= began and call.sequence not in seen
            )
            again = rank.counters.retransmissions + rank.counters.fast_retransmissions
            earlier = self._sent_again.get(rank.rank, 0)
            self._sent_again[rank.rank] = again
            times = self._retransmitted.setdefault(rank.rank, deque(maxlen=self._most))
            times.append((rank.taken_at_ns / 1e9, max(0, again - earlier)))

    def calls(self, rank: int) -> Iterable[pb.CallProfile]:
        """Return the calls of a rank, oldest first."""
        return self._calls.get(rank, ())

    def retransmitted(self, rank: int) -> tuple[tuple[float, int], ...]:
        """Return the time of each reading, and the packets that the rank has sent again since the one before."""
        return tuple(self._retransmitted.get(rank, ()))


def _times(
    after: pb.JobProfile, before: pb.JobProfile | None, seconds: float | None, recorded: _Recorded | None = None
) -> JobTimes:
    earlier = {rank.rank: rank for rank in before.ranks} if before is not None else {}
    return JobTimes(
        after.job,
        after.name,
        after.epoch,
        seconds,
        tuple(_rank_times(rank, earlier.get(rank.rank, pb.RankProfile()), recorded) for rank in after.ranks),
        tuple(MissingRanks(missing.agent, tuple(missing.ranks), missing.reason) for missing in after.missing),
    )


def _rank_times(after: pb.RankProfile, before: pb.RankProfile, recorded: _Recorded | None) -> RankTimes:
    return RankTimes(
        rank=after.rank,
        agent=after.agent,
        counted=_since(_COUNTED, after, before),
        packets=_since(RANK, after.counters, before.counters),
        latest=_calls(after.latest if recorded is None else recorded.calls(after.rank)),
        retransmitted=() if recorded is None else recorded.retransmitted(after.rank),
    )


def _since(counters: Sequence[Counter], after: object, before: object) -> dict[str, int]:
    earlier = read_counters(counters, before)
    # A process can report any numbers.
    return {name: max(0, count - earlier[name]) for name, count in read_counters(counters, after).items()}


def _calls(calls: Iterable[pb.CallProfile]) -> tuple[CallTimes, ...]:
    return tuple(
        CallTimes(
            sequence=call.sequence,
            operation=call.operation,
            dtype=call.dtype,
            bytes=call.bytes,
            submitted=call.submitted_ns / 1e9,
            begun=call.begun_ns / 1e9,
            answered=call.answered_ns / 1e9,
            ended=call.ended_ns / 1e9,
            quantize=call.quantize_ns / 1e9,
            wait=call.wait_ns / 1e9,
            dequantize=call.dequantize_ns / 1e9,
        )
        for call in calls
    )
