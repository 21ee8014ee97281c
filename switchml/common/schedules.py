"""Schedules of collectives: which rank sends which chunk to which rank, and when.

`switchml-ctl synthesize` writes them, and `switchml.torch.schedules` runs them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ScheduleError

__all__ = ["COLLECTIVES", "Schedule", "Send", "check_conditions", "chunk_count", "load"]

COLLECTIVES: Final = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")

_VERSION: Final = 1


@dataclasses.dataclass(frozen=True)
class Send:
    """A transfer of one or several chunks, in one message, from `start` to `end`, in microseconds.

    Args:
        chunks: the chunks.
        sources: the ranks that send. Several only if an aggregation switch sums what they send.
        destinations: the ranks that receive it.
        start: when the transfer begins; the sources have the chunks then.
        end: when all destinations have them.
        reduces: whether a destination adds what it receives to its own chunk, instead of replacing it.
    """

    chunks: tuple[int, ...]
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    start: float
    end: float
    reduces: bool = False


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The sends of a collective, in the order in which they start.

    A chunk of an all-gather, a reduce-scatter or an all-reduce has the number OWNER * chunks_per_rank + PART, where its
    owner is the rank that contributes it or keeps its sum. One of an all-to-all has the number
    (SOURCE * ranks + DESTINATION) * chunks_per_rank + PART.
    """

    collective: str
    ranks: int
    chunks_per_rank: int
    sends: tuple[Send, ...]

    @property
    def makespan(self) -> float:
        """The time when the last send ends, in microseconds."""
        return max((send.end for send in self.sends), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"version": _VERSION, "makespan": self.makespan, **dataclasses.asdict(self)}


def chunk_count(collective: str, ranks: int, chunks_per_rank: int) -> int:
    """Return the number of chunks of a collective."""
    return ranks * chunks_per_rank * (ranks if collective == "all-to-all" else 1)


def load(path: Path) -> Schedule:
    """Return the schedule of a file. Raises ScheduleError: the file is not one, or its sends do not do what it says."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            raise ScheduleError(f"{path}: version {content['version']} of schedules is unknown; synthesize it again")
        sends = tuple(_send(one) for one in content["sends"])
        schedule = Schedule(content["collective"], int(content["ranks"]), int(content["chunks_per_rank"]), sends)
    except OSError as error:
        raise ScheduleError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{path} is not a schedule of `switchml-ctl synthesize`: {error!r}") from error
    check_conditions(schedule)
    return schedule


def _send(content: dict[str, Any]) -> Send:
    chunks, sources, destinations = (tuple(map(int, content[key])) for key in ("chunks", "sources", "destinations"))
    return Send(chunks, sources, destinations, float(content["start"]), float(content["end"]), bool(content["reduces"]))


def check_conditions(schedule: Schedule) -> None:
    """Follow the sends from the state before the collective to that after it.

    Raises ScheduleError: a rank sends what it does not have, a contribution is summed twice or lost, or a rank lacks
    something in the end.
    """
    _check_fields(schedule)
    held = {place: 1 << rank for place, rank in _initial(schedule)}  # by rank and chunk: the ranks that contributed
    on_the_way: dict[int, list[int]] = {}
    moments = [(send.end, 0, index) for index, send in enumerate(schedule.sends)]
    moments += [(send.start, 1, index) for index, send in enumerate(schedule.sends)]
    for time, begins, index in sorted(moments):  # what arrives at a time can be sent at that time
        send = schedule.sends[index]
        if begins:
            on_the_way[index] = [_summed(held, send.sources, chunk, time) for chunk in send.chunks]
            continue
        for chunk, sent in zip(send.chunks, on_the_way[index], strict=True):
            for rank in send.destinations:
                held[rank, chunk] = _received(held.get((rank, chunk), 0), sent, send.reduces, f"{rank} at {time} us")
    for (rank, chunk), wanted in _final(schedule):
        if held.get((rank, chunk), 0) != wanted:
            raise ScheduleError(f"at the end, rank {rank} does not have chunk {chunk}, or only a part of its sum")


def _check_fields(schedule: Schedule) -> None:
    if schedule.collective not in COLLECTIVES:
        raise ScheduleError(f"{schedule.collective!r} is not a collective; these are: {', '.join(COLLECTIVES)}")
    if schedule.ranks < 1 or schedule.chunks_per_rank < 1:
        raise ScheduleError("a schedule has at least one rank and one chunk for each")
    count = chunk_count(schedule.collective, schedule.ranks, schedule.chunks_per_rank)
    for send in schedule.sends:
        ranks = (*send.sources, *send.destinations)
        if not send.chunks or not send.sources or not send.destinations or send.end <= send.start or send.start < 0:
            raise ScheduleError(f"{send} is empty, or ends before it starts")
        if any(not 0 <= rank < schedule.ranks for rank in ranks) or any(not 0 <= one < count for one in send.chunks):
            raise ScheduleError(f"{send} is not between {schedule.ranks} ranks, or of the {count} chunks")


def _initial(schedule: Schedule) -> Iterator[tuple[tuple[int, int], int]]:
    ranks, parts = schedule.ranks, schedule.chunks_per_rank
    for chunk in range(chunk_count(schedule.collective, ranks, parts)):
        if schedule.collective == "all-gather":
            yield (chunk // parts, chunk), chunk // parts
        elif schedule.collective == "all-to-all":
            yield (chunk // parts // ranks, chunk), chunk // parts // ranks
        else:
            yield from (((rank, chunk), rank) for rank in range(ranks))


def _final(schedule: Schedule) -> Iterator[tuple[tuple[int, int], int]]:
    ranks, parts, everyone = schedule.ranks, schedule.chunks_per_rank, (1 << schedule.ranks) - 1
    for chunk in range(chunk_count(schedule.collective, ranks, parts)):
        owner = chunk // parts
        if schedule.collective == "all-gather":
            yield from (((rank, chunk), 1 << owner) for rank in range(ranks))
        elif schedule.collective == "all-to-all":
            yield (owner % ranks, chunk), 1 << owner // ranks
        elif schedule.collective == "reduce-scatter":
            yield (owner, chunk), everyone
        else:
            yield from (((rank, chunk), everyone) for rank in range(ranks))


def _summed(held: dict[tuple[int, int], int], sources: Sequence[int], chunk: int, time: float) -> int:
    total = 0
    for rank in sources:
        mine = held.get((rank, chunk), 0)
        if not mine:
            raise ScheduleError(f"rank {rank} sends chunk {chunk} at {time} us, which it does not have")
        if total & mine:
            raise ScheduleError(f"the switch sums a contribution to chunk {chunk} twice at {time} us")
        total |= mine
    return total


def _received(own: int, sent: int, reduces: bool, place: str) -> int:
    if reduces:
        if own & sent or not own:
            raise ScheduleError(f"rank {place} adds a contribution twice, or adds to a chunk that it does not have")
        return own | sent
    if own & ~sent:
        raise ScheduleError(f"rank {place} receives a chunk in place of one with more contributions")
    return sent
