"""Profiles of a job's ranks: the time that each spent on what, since it began or over some seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.common.counters import Counter, read_counters
from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobEnded
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["CallTimes", "JobTimes", "MissingRanks", "RankTimes", "profile_job"]

_COUNTED: Final = tuple(counter for counter in (*THREAD, *PROCESS, *PATH) if not counter.is_histogram)


@dataclass(frozen=True)
class CallTimes:
    """One call that has ended. Times are seconds since 1970 by the clock of the rank's host, durations are seconds.

    The last three are the time that the rank's thread spent on each activity between `begun` and `ended`; calls that
    overlap share it.
    """

    sequence: int
    operation: str
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


def profile_job(client: ControllerClient, job: int | str, seconds: float | None = None, calls: int = 8) -> JobTimes:
    """Return how a live job spends its time: within the next `seconds`, or up to now.

    `calls` is the number of latest calls to return for each rank, at most 63.

    Raises:
        JobNotFound, JobEnded: there is no such job, it has ended, or it changed its epoch during the interval.
        ControllerError: the controller cannot be reached.

    """
    if seconds is None:
        return _times(client.profile_job(job, calls), None, None)
    before, began = client.profile_job(job), time.monotonic()
    time.sleep(seconds)
    after, passed = client.profile_job(job, calls), time.monotonic() - began
    if (after.job, after.epoch) != (before.job, before.epoch):
        raise JobEnded(f"job {after.name} changed to epoch {after.epoch} while it was profiled; profile it again")
    return _times(after, before, passed)


def _times(after: pb.JobProfile, before: pb.JobProfile | None, seconds: float | None) -> JobTimes:
    earlier = {rank.rank: rank for rank in before.ranks} if before is not None else {}
    return JobTimes(
        after.job,
        after.name,
        after.epoch,
        seconds,
        tuple(_rank_times(rank, earlier.get(rank.rank, pb.RankProfile())) for rank in after.ranks),
        tuple(MissingRanks(missing.agent, tuple(missing.ranks), missing.reason) for missing in after.missing),
    )


def _rank_times(after: pb.RankProfile, before: pb.RankProfile) -> RankTimes:
    return RankTimes(
        rank=after.rank,
        agent=after.agent,
        counted=_since(_COUNTED, after, before),
        packets=_since(RANK, after.counters, before.counters),
        latest=_calls([call for call in after.latest if call.ended_ns >= before.taken_at_ns]),
    )


def _since(counters: Sequence[Counter], after: object, before: object) -> dict[str, int]:
    earlier = read_counters(counters, before)
    # A process can report any numbers.
    return {name: max(0, count - earlier[name]) for name, count in read_counters(counters, after).items()}


def _calls(calls: Sequence[pb.CallProfile]) -> tuple[CallTimes, ...]:
    return tuple(
        CallTimes(
            sequence=call.sequence,
            operation=call.operation,
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
