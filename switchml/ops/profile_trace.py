"""Write a job's profile as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open.

Each rank is a process of the trace. A call is a slice from its submission to its end, with its phases below it:

- queued: other calls come first;
- waits for rank R: the last rank, R, has not yet submitted the call. Results reach all ranks at about the same time, so
  this is how much longer the call took here than at R, whatever the hosts' clocks say;
- exchange: values travel, from the first chunk to the answer for the last one;
- finish: the last answer is converted.

The clocks of several hosts need not agree: each agent's times are shifted so that in the median call its ranks have
their last answer when those of the first agent have it.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from switchml.common.errors import DrawingError
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD
from switchml.ops.profile_drawing import lanes
from switchml.ops.profiles import CallTimes, JobTimes, RankTimes

__all__ = ["trace", "write_trace"]

_SHORTEST: Final = 1e-6  # seconds of a phase that is shown: what the times, as floating-point numbers, tell apart

_THREAD: Final = ("quantize", "wait", "dequantize")

Event = dict[str, Any]


class _Wait(NamedTuple):
    """The rank that submitted a call last, and how many seconds before the answer."""

    rank: int
    seconds: float


class _Phase(NamedTuple):
    name: str
    begin: float
    end: float


def write_trace(times: JobTimes, path: Path) -> None:
    """Write the trace as JSON.

    Raises DrawingError if no call has ended, or if the file cannot be written.
    """
    content = json.dumps(trace(times), separators=(",", ":"))
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise DrawingError(f"{path} cannot be written: {error.strerror}") from error


def trace(times: JobTimes) -> dict[str, Any]:
    """Return the trace as an object for JSON; DrawingError if no call has ended.

    Its times are microseconds since `baseTimeNanoseconds`, which is a time since 1970, as in PyTorch's traces.
    """
    shifts = _shifts(times)
    aligned = [_shifted(rank, shifts[rank.agent]) for rank in times.ranks]
    calls = [call for rank in aligned for call in rank.latest]
    if not calls:
        raise DrawingError(f"no call of job {times.name} ended in that time: there is nothing to draw")
    began = min(call.submitted for call in calls)
    writer = _Writer(began, _last_ranks(aligned))
    missing = {
        f"rank {rank.rank}": rank.counted["calls"] - len(rank.latest)
        for rank in times.ranks
        if rank.counted["calls"] > len(rank.latest)
    }
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": round(began * 1e9),
        "otherData": {
            "job": times.name,
            "epoch": times.epoch,
            "calls not in this trace": missing,
            "microseconds added to the times of an agent": {agent: shift * 1e6 for agent, shift in shifts.items()},
        },
        "traceEvents": [event for rank in aligned for event in writer.rank(rank)],
    }


def _shifts(times: JobTimes) -> dict[str, float]:
    """Return the seconds to add to the times of each agent's ranks."""
    answered: dict[str, dict[int, float]] = {}
    for rank in times.ranks:
        of_agent = answered.setdefault(rank.agent, {})
        for call in rank.latest:
            of_agent[call.sequence] = min(call.answered, of_agent.get(call.sequence, call.answered))
    shifts: dict[str, float] = {}
    first: Mapping[int, float] = {}
    for agent, its in answered.items():
        first = first or its
        differences = [first[sequence] - its[sequence] for sequence in first.keys() & its.keys()]
        shifts[agent] = statistics.median(differences) if differences else 0.0
    return shifts


def _shifted(rank: RankTimes, shift: float) -> RankTimes:
    calls = (
        replace(
            call,
            submitted=call.submitted + shift,
            begun=call.begun + shift,
            answered=call.answered + shift,
            ended=call.ended + shift,
        )
        for call in rank.latest
    )
    again = ((time + shift, packets) for time, packets in rank.retransmitted)
    return replace(rank, latest=tuple(calls), retransmitted=tuple(again))


def _last_ranks(ranks: list[RankTimes]) -> dict[int, _Wait]:
    """Return for each call that all ranks have ended which of them had submitted it last."""
    durations: dict[int, dict[int, float]] = {}
    for rank in ranks:
        for call in rank.latest:
            durations.setdefault(call.sequence, {})[rank.rank] = call.answered - call.submitted
    return {
        sequence: _Wait(*min(by_rank.items(), key=lambda each: each[1]))
        for sequence, by_rank in durations.items()
        if len(by_rank) == len(ranks) > 1
    }


class _Writer:
    """Makes the events of one rank after the other."""

    def __init__(self, began: float, last_ranks: Mapping[int, _Wait]) -> None:
        self._began = began
        self._last_ranks = last_ranks
        # Perfetto wants numbers that no process has, each once in the trace.
        self._threads = itertools.count(PROTOCOL_MAX_WORLD + 1)

    def rank(self, rank: RankTimes) -> Iterator[Event]:
        process = rank.rank + 1  # Perfetto takes number 0 for the idle process
        yield _name("process_name", process, 0, f"rank {rank.rank} on {rank.agent}")
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": rank.rank}}
        for number, lane in enumerate(lanes(rank.latest)):
            thread = next(self._threads)
            yield _name("thread_name", process, thread, f"calls {number + 1}" if number else "calls")
            for call in lane:
                yield from self._call(call, rank.rank, {"pid": process, "tid": thread})
        if any(packets for _, packets in rank.retransmitted):
            for time, packets in rank.retransmitted:
                yield {
                    "ph": "C", "name": "retransmitted", "pid": process, "ts": max(0.0, self._at(time)),
                    "args": {"packets": packets},
                }  # fmt: skip

    def _call(self, call: CallTimes, rank: int, track: Event) -> Iterator[Event]:
        last = self._last_ranks.get(call.sequence)
        waits = last is not None and last.rank != rank
        phases = list(_phases(call, last if waits else None))
        arguments = {
            "sequence": call.sequence,
            "bytes": call.bytes,
            **({"dtype": call.dtype} if call.dtype else {}),
            **{f"{phase.name} (us)": round((phase.end - phase.begin) * 1e6, 3) for phase in phases},
            # The rank's thread did this from the first chunk to the end, also for calls that overlap with this one.
            **{f"thread: {state} (us)": round(getattr(call, state) * 1e6, 3) for state in _THREAD},
        }
        name = f"{call.operation} {_size(call.bytes)}" if call.bytes else call.operation
        yield self._slice(name, call.submitted, call.ended, track) | {"args": arguments}
        for phase in phases:
            yield self._slice(phase.name, phase.begin, phase.end, track)

    def _slice(self, name: str, begin: float, end: float, track: Event) -> Event:
        at = self._at(begin)
        return {"ph": "X", "cat": "switchml", "name": name, "ts": at, "dur": round(self._at(end) - at, 3), **track}

    def _at(self, time: float) -> float:
        return round((time - self._began) * 1e6, 3)


def _phases(call: CallTimes, last: _Wait | None) -> Iterator[_Phase]:
    ends = [("queued", call.begun), ("exchange", call.answered), ("finish", call.ended)]
    if last is not None:
        all_here = min(max(call.answered - last.seconds, call.begun), call.answered)
        ends.insert(1, (f"waits for rank {last.rank}", all_here))
    begin = call.submitted
    for name, end in ends:
        if end - begin >= _SHORTEST:
            yield _Phase(name, begin, end)
            begin = end


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _size(count: int) -> str:
    """Return a number of bytes in the unit in which it has at most four digits."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} B"
