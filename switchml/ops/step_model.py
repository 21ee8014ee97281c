"""A model of training steps: how long a recorded step would take over links of another speed.

All ranks have made the same collectives in the same order (`switchml.torch.recording`). What a rank computes between
its calls takes as long as it took; a collective begins when all ranks have started it and the one before has ended, and
takes the time of its bytes on a link, as do those of `switchml.benchmarks.link_rows`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import NoStepsError
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES

__all__ = ["StepCollective", "Recording", "Way", "compressed_way", "gloo_way", "network_way", "predicted"]

_VALUES: Final = 256  # of a packet
_BELOW_UDP: Final = 14 + 20 + 8  # bytes of Ethernet, IPv4 and UDP
_SEGMENT: Final = 1448  # bytes of TCP in a frame of 1514
_GLOO_LATENCY: Final = 1e-4  # seconds of a step of a ring, of which an all-reduce has 2 (N - 1)
_NETWORK_LATENCY: Final = 3e-4  # seconds of a call
_SCHEDULED_BYTES: Final = 256 << 10  # of a bucket of switchml.torch.scheduling
_ITEM_BYTES: Final = {
    **dict.fromkeys(("float64", "int64"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}
"""The bytes of an element, where these are not 4."""


@dataclasses.dataclass(frozen=True)
class StepCollective:
    """A collective of one step.

    `bytes` are those of its result at a rank, or of all parts of a reduce-scatter; `filled` is the share of its blocks
    that have values.
    """

    name: str
    bytes: int
    dtype: str
    filled: float = 1.0

    @property
    def item_bytes(self) -> int:
        """The bytes of an element."""
        return _ITEM_BYTES.get(self.dtype, 4)

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers, which can travel in fewer bits."""
        return self.dtype in ("float32", "float16", "bfloat16")

    @property
    def is_sum(self) -> bool:
        """True if values are added up."""
        return self.name.startswith(("all_reduce", "reduce_scatter"))


@dataclasses.dataclass(frozen=True)
class Load:
    """The bytes that a collective puts on each direction of a rank's link, and its other seconds."""

    up: float
    down: float
    seconds: float

    @property
    def largest(self) -> float:
        """The larger one of both."""
        return max(self.up, self.down)


@dataclasses.dataclass(frozen=True)
class Way:
    """A way in which collectives travel: the load of each, and what they need not wait for.

    With a ``depth``, that many of FSDP's modules are gathered ahead (`switchml.torch.fsdp.overlap`). Those that
    ``cross`` steps go on during the next forward pass (`switchml.torch.scheduling`).
    """

    load: Callable[[StepCollective, int], Load]
    depth: int = 0
    cross: bool = False


def gloo_way() -> Way:
    """Return that of Gloo: rings, and reduce-scatters as all-reduces."""

    def load(collective: StepCollective, ranks: int) -> Load:
        share = (ranks - 1) / ranks * (2 if collective.is_sum else 1)
        if collective.name.startswith("broadcast"):
            share = 1.0
        nbytes = share * collective.bytes * (_SEGMENT + 66) / _SEGMENT
        return Load(nbytes, nbytes, _GLOO_LATENCY * (ranks - 1) * (2 if collective.is_sum else 1))

    return Way(load)


def network_way(bits: int = 32, skips_zeros: bool = False, depth: int = 0, cross: bool = False) -> Way:
    """Return that of a switch: sums of floats in `bits`, without blocks of zeros if they are skipped."""

    def load(collective: StepCollective, ranks: int) -> Load:
        item = collective.item_bytes
        wire = 4.0 if collective.is_sum else float(item)  # bytes of an element in packets
        if collective.is_sum and collective.is_float:
            wire = min(bits, 16 if item == 2 and ranks <= 8 else 32) / 8
        filled = collective.filled if skips_zeros and collective.is_sum else 1.0
        in_packet = 1 + (PROTOCOL_HEADER_BYTES + _BELOW_UDP) / (4 * _VALUES)
        nbytes = collective.bytes / item * wire
        headers = nbytes * (in_packet - 1)
        if filled < 1:  # a rank receives the blocks of all ranks, which are taken to be at independent places
            of_all = 1 - (1 - filled) ** ranks
            return Load(filled * nbytes * in_packet, of_all * nbytes * in_packet, _NETWORK_LATENCY)
        part, rest = nbytes / ranks + headers, nbytes * (ranks - 1) / ranks + headers
        if collective.name.startswith("reduce_scatter"):
            return Load(rest, part, _NETWORK_LATENCY)
        if collective.name.startswith("all_gather"):
            return Load(part, rest, _NETWORK_LATENCY)
        return Load(nbytes + headers, nbytes + headers, _NETWORK_LATENCY)

    return Way(load, depth, cross)


def compressed_way(density: float, seconds: float) -> Way:
    """Return that of a switch with shared Top-k, which takes this number of seconds for a byte of the gradients.

    The leader sends the places in 32 bits, and then all ranks their values there.
    """
    plain = network_way()

    def load(collective: StepCollective, ranks: int) -> Load:
        floats = dataclasses.replace(collective, dtype="float32", bytes=collective.bytes * 4 // collective.item_bytes)
        travelling = plain.load(dataclasses.replace(floats, bytes=math.ceil(2 * density * floats.bytes)), ranks)
        return dataclasses.replace(travelling, seconds=2 * travelling.seconds + seconds * collective.bytes)

    return Way(load)


@dataclasses.dataclass(frozen=True)
class RankStep:
    """One step of one rank, without the time in which it waited.

    `actions` are ("start", number) and ("wait", number) with the seconds that the rank computes before each; `rest` is
    what it computes after the last one.
    """

    actions: tuple[tuple[float, str, int], ...]
    rest: float

    @classmethod
    def of(cls, step: Mapping[str, Any]) -> RankStep:
        """Return it from a recorded step. A collective that no thread waits for must end before the optimizer steps."""
        actions: list[tuple[float, str, int]] = []
        last = 0.0
        unwaited: dict[int, float] = {}  # the ends of collectives, by number
        for event in sorted(step["events"], key=lambda event: event["at"]):
            number, at = event["number"], event["at"]
            if event["kind"] == "start":
                actions.append((max(0.0, at - last), "start", number))
                last, unwaited[number] = at, at
            elif event["kind"] == "wait":
                actions.append((max(0.0, at - last), "wait", number))
                last = at
                unwaited.pop(number, None)
            elif event["kind"] == "go on":
                last = max(last, at)
            elif number in unwaited:
                unwaited[number] = at
        if unwaited:
            computed = step["seconds"] - step["optimizer"]
            actions += [(0.0, "wait", number) for number in sorted(unwaited)]
            last = max(last, min(max(unwaited.values()), computed))
        return cls(tuple(actions), max(0.0, step["seconds"] - last))


@dataclasses.dataclass(frozen=True)
class Recording:
    """The steps of all ranks of a program, as they were recorded.

    `compressing` are the seconds that the shared Top-k of a sum of floats takes for each of its bytes.
    """

    ranks: int
    compressing: float
    seconds: tuple[float, ...]
    steps: tuple[tuple[RankStep, ...], ...]
    collectives: tuple[Mapping[int, StepCollective], ...]

    @classmethod
    def read(cls, directory: Path, warm_up: int) -> Recording:
        """Read the files of all ranks, without the first steps.

        Raises NoStepsError if the program has not made enough steps, or not the same collectives on all ranks.
        """
        files = sorted(directory.glob("rank-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        found = [json.loads(path.read_text()) for path in files]
        count = min((len(rank["steps"]) for rank in found), default=0)
        if count <= warm_up:
            raise NoStepsError(
                f"the command made {count} steps of an optimizer in a process group of torch.distributed, and advice "
                f"needs at least {warm_up + 1}"
            )
        if len(found) != found[0]["world_size"]:
            raise NoStepsError(f"{len(found)} of {found[0]['world_size']} ranks came to the end of their steps")
        chosen = range(warm_up, count)
        for number in chosen:
            _require_same_calls([rank["steps"][number]["events"] for rank in found])
        filled = _filled_by_bytes(found[0]["steps"][:warm_up])
        return cls(
            ranks=len(found),
            compressing=max(rank["compressing"] for rank in found),
            seconds=tuple(max(rank["steps"][number]["seconds"] for rank in found) for number in chosen),
            steps=tuple(tuple(RankStep.of(rank["steps"][number]) for rank in found) for number in chosen),
            collectives=tuple(_collectives_of(found[0]["steps"][number], len(found), filled) for number in chosen),
        )


def _require_same_calls(events: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Raise NoStepsError if ranks have made different collectives in a step: not all of them in groups of all ranks."""
    calls = [[(one["name"], one["bytes"]) for one in of_rank if one["kind"] == "start"] for of_rank in events]
    other = next((rank for rank, of_rank in enumerate(calls) if of_rank != calls[0]), None)
    if other is not None:
        raise NoStepsError(
            f"ranks 0 and {other} made other collectives in a step, {len(calls[0])} and {len(calls[other])} of them; "
            "advice is for programs in which all ranks make the same ones"
        )


def _filled_by_bytes(steps: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Return the largest share of blocks with values that was found in collectives of a name and size."""
    found: dict[tuple[str, int], float] = {}
    for event in (event for step in steps for event in step["events"] if "filled" in event):
        kind = event["name"], event["bytes"]
        found[kind] = max(found.get(kind, 0.0), event["filled"])
    return found


def _collectives_of(
    step: Mapping[str, Any], ranks: int, filled: Mapping[tuple[str, int], float]
) -> dict[int, StepCollective]:
    found = {}
    for event in (event for event in step["events"] if event["kind"] == "start"):
        whole = event["bytes"] * (ranks if event["name"].startswith("reduce_scatter") else 1)
        share = filled.get((event["name"], event["bytes"]), 1.0)
        found[event["number"]] = StepCollective(event["name"], whole, event["dtype"], share)
    return found


def predicted(recording: Recording, way: Way, bytes_per_second: float) -> list[float]:
    """Return the seconds of each step over links of this speed."""
    seconds = _seconds_across_steps if way.cross else _seconds_of_step
    return [
        seconds(steps, collectives, way, bytes_per_second)
        for steps, collectives in zip(recording.steps, recording.collectives, strict=True)
    ]


def _seconds_of_step(
    steps: Sequence[RankStep], collectives: Mapping[int, StepCollective], way: Way, bytes_per_second: float
) -> float:
    return _StepSimulation(steps, collectives, way, bytes_per_second).run()


def _seconds_across_steps(
    steps: Sequence[RankStep], collectives: Mapping[int, StepCollective], way: Way, bytes_per_second: float
) -> float:
    """Return the seconds of one of many steps, of which each computes while the gradients of the last one travel.

    The links are busy all the time; or else a step computes, and then waits for what the next forward pass needs first,
    which the backward pass has made last.
    """
    ranks = len(steps)
    loads = [way.load(collectives[number], ranks) for number in sorted(collectives)]
    last = collectives[max(collectives)]
    bucket = dataclasses.replace(last, bytes=min(last.bytes, _SCHEDULED_BYTES))
    computing = _StepSimulation(steps, collectives, Way(lambda *_: Load(0.0, 0.0, 0.0)), bytes_per_second).run()
    travelling = sum(load.largest for load in loads) / bytes_per_second
    first = way.load(bucket, ranks)
    return max(travelling, computing + first.largest / bytes_per_second + first.seconds)


class _StepSimulation:
    """One step of all ranks."""

    def __init__(
        self, steps: Sequence[RankStep], collectives: Mapping[int, StepCollective], way: Way, bytes_per_second: float
    ) -> None:
        self._steps = steps
        self._collectives = [collectives[number] for number in sorted(collectives)]
        self._way = way
        self._kept = self._gather_of_kept_module() if way.depth else None
        self._ends: list[float] = []
        self._up, self._down = _Direction(bytes_per_second), _Direction(bytes_per_second)

    def run(self) -> float:
        """Return the seconds until the last rank has ended the step."""
        ranks = [self._rank(step) for step in self._steps]
        issued = [next(rank) for rank in ranks]
        for collective in self._collectives:
            self._ends.append(self._end(collective, max(issued)))
            issued = [next(rank) for rank in ranks]
        return max(issued)

    def _rank(self, step: RankStep) -> Iterator[float]:
        """Yield the time at which the rank starts each collective, and at last that of the step's end."""
        now = 0.0
        order: dict[int, int] = {}  # the index of each collective, by its number
        waited_gathers: list[float] = []
        late: list[int] = []
        for seconds, kind, number in step.actions:
            now += seconds
            if kind == "start":
                index = order[number] = len(order)
                gather = self._way.depth and self._is_gather(index)
                ahead = len(waited_gathers) - self._way.depth
                yield (waited_gathers[ahead] if ahead >= 0 else 0.0) if gather else now
            elif number in order:
                index = order[number]
                if self._way.depth and self._collectives[index].is_sum:
                    late.append(index)
                    continue
                now = max(now, self._ends[index])
                if self._is_gather(index):
                    waited_gathers.append(now)
        now = max([now, *(self._ends[index] for index in late)])
        yield now + step.rest

    def _is_gather(self, index: int) -> bool:
        return self._collectives[index].name.startswith("all_gather")

    def _gather_of_kept_module(self) -> int | None:
        """Return the gather that overlap saves: the first one of the backward pass, if modules are gathered twice."""
        gathers = [index for index in range(len(self._collectives)) if self._is_gather(index)]
        sums = len(self._collectives) - len(gathers)
        return gathers[sums] if sums and len(gathers) == 2 * sums else None

    def _end(self, collective: StepCollective, issued: float) -> float:
        if len(self._ends) == self._kept:
            return issued
        load = self._way.load(collective, len(self._steps))
        if not self._way.depth:  # one collective at a time
            issued = max([issued, *self._ends[-1:]])
        return max(self._up.take(load.up, load.largest, issued), self._down.take(load.down, load.largest, issued)) + (
            load.seconds
        )


class _Direction:
    """One direction of the links, and the time until which it is busy.

    Collectives of two groups share it packet by packet. So a gather need not wait for a scatter because of the small
    part that it sends; it only makes the scatter longer by that part.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self._speed = bytes_per_second
        self._busy = 0.0

    def take(self, nbytes: float, most: float, issued: float) -> float:
        """Return when a collective with `nbytes` here, and `most` in one direction, may end as far as this one goes."""
        if 2 * nbytes <= most:
            self._busy += nbytes / self._speed
            return issued
        self._busy = max(self._busy, issued) + nbytes / self._speed
        return self._busy
