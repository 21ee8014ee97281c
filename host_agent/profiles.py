"""Report to the controller how this agent's ranks spend their time, as the engine has counted it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from switchml.common.counter_table import PATH, PROCESS, RANK, THREAD
from switchml.common.counters import Counter
from switchml.controller.proto import switchml_pb2 as pb

if TYPE_CHECKING:
    from switchml.host_agent._engine import CallTimes, RankProfile, RankStatus

__all__ = ["MOST_CALLS", "add_profile", "rank_counters"]

MOST_CALLS: Final = 63  # of each rank in one answer; its memory holds no more at any time

# The dtype of the elements, by the kind of a sum. Two kinds are the sum and the average of the same elements.
_DTYPES: Final = {
    **dict.fromkeys((1, 2), "float32"),
    **dict.fromkeys((3, 4), "float16"),
    **dict.fromkeys((5, 6), "bfloat16"),
    7: "int32",
    10: "int16",
    11: "int8",
    12: "uint8",
    13: "bool",
    14: "int64",
}
_SCATTERED: Final = 256  # more than the kind of the same sum whose result all ranks get
_OPERATIONS: Final = {
    **dict.fromkeys(_DTYPES, "all_reduce"),
    **dict.fromkeys((_SCATTERED + kind for kind in _DTYPES), "reduce_scatter"),
    8: "broadcast",
    9: "barrier",
    2 * _SCATTERED + 8: "all_gather",
}


def rank_counters(status: RankStatus) -> pb.RankCounters:
    """Return the engine's counters of a rank in the controller's form."""
    return pb.RankCounters(round_trip_seconds=status["round_trip_seconds"], **_values(RANK, status))


def add_profile(profile: RankProfile, answer: pb.RankProfile) -> None:
    """Add the engine's profile of an open rank, which it has just taken, to the answer for the controller."""
    since_1970 = _monotonic_clock_zero()
    answer.MergeFrom(pb.RankProfile(**_values((*THREAD, *PROCESS, *PATH), profile)))
    answer.latest.extend(_call_profiles(profile["latest"], since_1970))
    answer.taken_at_ns = profile["taken_at"] + since_1970 if profile["taken_at"] else time.time_ns()


def _monotonic_clock_zero() -> int:
    """Return the nanoseconds since 1970 at which the monotonic clock was 0."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(5)]
    # Between two of these calls the thread may have lost its CPU for milliseconds; hardly between all.
    begin, now, end = min(readings, key=lambda reading: reading[2] - reading[0])
    return now - (begin + end) // 2


def _values(counters: Iterable[Counter], values: Mapping[str, Any]) -> dict[str, Any]:
    return {counter.name: values[counter.name] for counter in counters}


def _call_profiles(calls: Iterable[CallTimes], since_1970: int) -> Iterable[pb.CallProfile]:
    for call in calls:
        yield pb.CallProfile(
            sequence=call["sequence"],
            operation=_OPERATIONS.get(call["kind"], "unknown"),
            dtype=_DTYPES.get(call["kind"] % _SCATTERED, ""),
            bytes=call["bytes"],
            submitted_ns=call["submitted"] + since_1970,
            begun_ns=call["begun"] + since_1970,
            answered_ns=call["answered"] + since_1970,
            ended_ns=call["ended"] + since_1970,
            **_values(THREAD, call),
        )
