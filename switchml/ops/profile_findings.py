"""Conclusions from a job's profile: the most that a faster network could gain, and the rank that others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from switchml.ops.profiles import CallTimes, JobTimes

__all__ = ["Findings", "findings"]


@dataclass(frozen=True)
class Findings:
    """The shares of a job's time.

    Attributes:
        in_calls: the share of the interval in which a rank had a call, on average; None if there was no interval.
        waiting: the share of the latest calls' time in which ranks waited for the last one to begin; None without
            calls that all ranks have ended.
        last_rank: the rank that was most often the last to begin.
        last_share: in which share of these calls it was.

    """

    in_calls: float | None
    waiting: float | None
    last_rank: int | None
    last_share: float

    @property
    def most_gain(self) -> float | None:
        """The factor by which the job would be faster if calls took no time, and none overlapped with computing."""
        if self.in_calls is None or self.in_calls == 1:
            return None
        return 1 / (1 - self.in_calls)


def findings(times: JobTimes) -> Findings:
    """Return what a profile says.

    All ranks have the result of a call at about the same time, so the rank with the shortest call was the last to
    begin, whatever the hosts' clocks say.
    """
    in_calls = None
    if times.seconds and times.ranks:
        in_calls = min(1.0, sum(rank.busy for rank in times.ranks) / (times.seconds * len(times.ranks)))
    durations = _durations(times)
    if not durations:
        return Findings(in_calls, None, None, 0.0)
    waited = total = 0.0
    last: Counter[int] = Counter()
    for by_rank in durations:
        shortest = min(by_rank, key=lambda rank: by_rank[rank])
        last[shortest] += 1
        total += sum(by_rank.values())
        waited += sum(by_rank.values()) - len(by_rank) * by_rank[shortest]
    [(rank, count)] = last.most_common(1)
    return Findings(in_calls, waited / total if total else 0.0, rank, count / len(durations))


def _durations(times: JobTimes) -> list[Mapping[int, float]]:
    """Return the seconds of each of the latest calls by rank, if several ranks have ended it."""
    calls: dict[int, dict[int, CallTimes]] = {}
    for rank in times.ranks:
        for call in rank.latest:
            calls.setdefault(call.sequence, {})[rank.rank] = call
    whole = [by_rank for by_rank in calls.values() if len(by_rank) == len(times.ranks) > 1]
    return [{rank: call.ended - call.submitted for rank, call in by_rank.items()} for by_rank in whole]
