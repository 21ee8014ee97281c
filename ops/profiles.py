"""Profiles of a job's ranks: the time that each spent on what, since it began or over some seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobEnded
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["CallTimes", "JobTimes", "MissingRanks", "RankTimes", "profile_job"]


@dataclass(frozen=True)
class CallTimes:
    """One call that has ended. Times are seconds since 1970 by the clock of the rank's host, durations are seconds.

    The last three are the time that the rank's thread spent on each activity between `begun` and `ended`; calls that
    overlap
    share it.
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
    """One rank's totals; durations are in seconds.

    `quantize`, `wait` and `dequantize` are of the process's own thread and do not overlap. `send` and `receive` are of
    the
    agent's thread, and `sum` of the switch's if it shares the rank's memory; these run at the same time.
    """

    rank: int
    agent: str
    calls: int  # number of calls that ended
    bytes: int  # total size of their tensors
    call_time: float  # from submission to end, summed over all calls
    quantize: float
    wait: float
    dequantize: float
    sleeps: int
    send: float
    receive: float
    sum: float
    sent_bytes: int  # UDP payload
    received_bytes: int
    packets_sent: int
    retransmissions: int
    latest: tuple[CallTimes, ...]  # oldest first

    @property
    def busy(self) -> float:
        """Seconds in which at least one call was active."""
        return self.quantize + self.wait + self.dequantize


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
        return asdict(self)


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
        tuple(_rank_times(rank, earlier.get(rank.rank)) for rank in after.ranks),
        tuple(MissingRanks(missing.agent, tuple(missing.ranks), missing.reason) for missing in after.missing),
    )


def _rank_times(after: pb.RankProfile, before: pb.RankProfile | None) -> RankTimes:
    def count(name: str) -> int:
        earlier = getattr(before, name) if before is not None else 0
        return max(0, int(getattr(after, name)) - int(earlier))  # a process can report any numbers

    def seconds(name: str) -> float:
        return count(f"{name}_ns") / 1e9

    sent = [(one.counters.sent, one.counters.retransmissions + one.counters.fast_retransmissions) for one in
            ((after, before) if before is not None else (after, pb.RankProfile()))]  # fmt: skip
    since = before.taken_at_ns if before is not None else 0
    return RankTimes(
        rank=after.rank,
        agent=after.agent,
        calls=count("calls"),
        bytes=count("bytes"),
        call_time=seconds("call"),
        quantize=seconds("quantize"),
        wait=seconds("wait"),
        dequantize=seconds("dequantize"),
        sleeps=count("sleeps"),
        send=seconds("send"),
        receive=seconds("receive"),
        sum=seconds("sum"),
        sent_bytes=count("sent_bytes"),
        received_bytes=count("received_bytes"),
        packets_sent=sent[0][0] - sent[1][0],
        retransmissions=sent[0][1] - sent[1][1],
        latest=_calls([call for call in after.latest if call.ended_ns >= since]),
    )


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
