"""Report to the controller how this agent's ranks spend their time, as the engine has counted it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from switchml.controller.proto import switchml_pb2 as pb

if TYPE_CHECKING:
    from switchml.host_agent._engine import CallTimes, Engine, RankStatus

__all__ = ["MOST_CALLS", "rank_counters", "rank_profile"]

MOST_CALLS: Final = 63  # of each rank in one answer; its memory holds no more at any time

_OPERATIONS: Final = dict.fromkeys(range(1, 8), "all_reduce") | {8: "broadcast", 9: "barrier"}


def rank_counters(status: RankStatus) -> pb.RankCounters:
    """Return the engine's counters of a rank in the controller's form."""
    return pb.RankCounters(
        sent=status["sent"],
        received=status["received"],
        retransmissions=status["retransmissions"],
        fast_retransmissions=status["fast_retransmissions"],
        ignored=status["ignored"],
        round_trip_seconds=status["round_trip_seconds"],
    )


def rank_profile(engine: Engine, handle: int, calls: int, answer: pb.RankProfile) -> None:
    """Add what the engine knows of an open rank, with up to `calls` of its latest calls."""
    profile = engine.profile(handle, min(calls, MOST_CALLS))
    since_1970 = time.time_ns() - time.monotonic_ns()
    answer.calls, answer.bytes, answer.call_ns = profile["calls"], profile["bytes"], profile["call_time"]
    answer.calls_by_duration.extend(profile["calls_took"])
    answer.quantize_ns, answer.wait_ns, answer.dequantize_ns = (
        profile["quantize"],
        profile["waiting"],
        profile["dequantize"],
    )
    answer.sleeps = profile["sleeps"]
    answer.send_ns, answer.receive_ns, answer.sum_ns = profile["sending"], profile["receiving"], profile["summing"]
    answer.sent_bytes, answer.received_bytes = profile["sent_bytes"], profile["received_bytes"]
    answer.round_trips_by_duration.extend(profile["round_trips"])
    answer.round_trip_ns = profile["round_trip_time"]
    answer.latest.extend(_call_profiles(profile["latest"], since_1970))
    answer.taken_at_ns = profile["taken_at"] + since_1970 if profile["taken_at"] else time.time_ns()


def _call_profiles(calls: Iterable[CallTimes], since_1970: int) -> Iterable[pb.CallProfile]:
    for call in calls:
        yield pb.CallProfile(
            sequence=call["sequence"],
            operation=_OPERATIONS.get(call["kind"], "unknown"),
            bytes=call["bytes"],
            submitted_ns=call["submitted"] + since_1970,
            begun_ns=call["begun"] + since_1970,
            answered_ns=call["answered"] + since_1970,
            ended_ns=call["ended"] + since_1970,
            quantize_ns=call["quantize"],
            wait_ns=call["waiting"],
            dequantize_ns=call["dequantize"],
        )
