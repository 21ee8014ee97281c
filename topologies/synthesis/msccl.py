"""Schedules as XML algorithms of MSCCL, Microsoft's NCCL with custom collectives, and a reader that checks such files.

The reader knows what MSCCL's own parser refuses. Nothing here has run on MSCCL, which needs GPUs.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

from switchml.common.errors import ScheduleError
from switchml.common.schedules import Schedule, Send

__all__ = ["algorithm", "check"]

_NAMES: Final = {
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "all-reduce": "allreduce",
    "all-to-all": "alltoall",
}
_MAX_STEPS: Final = 256  # of a thread block
_MAX_BLOCKS: Final = 216  # of a GPU
_MAX_PEERS: Final = 32  # of a channel, in each direction
_MAX_COUNT: Final = 71  # chunks of a step
_BUFFERS: Final = ("i", "o", "s")
_SENDS: Final = {"s", "rcs", "rrs", "rrcs"}
_RECEIVES: Final = {"r", "rcs", "rrs", "rrc", "rrcs"}
_READS: Final = {"s", "rrs", "rrcs", "cpy", "re", "ra"}
_WRITES: Final = {"r", "rcs", "rrcs", "cpy", "re", "ra"}
_TYPES: Final = _SENDS | _RECEIVES | _READS | {"nop"}

_Place = tuple[str, int]  # a buffer and an offset in it
_Step = tuple[int, int]  # a thread block and a step of it


def algorithm(schedule: Schedule, name: str) -> str:
    """Return the schedule as XML.

    Each GPU copies its input to its scratch buffer, sends and receives there, and copies results to its output. It has
    a thread block for each peer and direction. Steps wait for those of other blocks that they need.

    Raises ScheduleError: MSCCL cannot express the schedule, or not within its limits.
    """
    if any(len(send.sources) > 1 for send in schedule.sends):
        raise ScheduleError(
            "MSCCL has no switch that sums; synthesize the all-reduce for a topology without aggregation_switch"
        )
    ranks, parts = schedule.ranks, schedule.chunks_per_rank
    everything = ranks * parts
    inputs = parts if schedule.collective == "all-gather" else everything
    outputs = parts if schedule.collective == "reduce-scatter" else everything
    gpus = [_Gpu(rank, schedule) for rank in range(ranks)]
    for gpu in gpus:
        gpu.copy(gpu.inputs())
    moments = [(send.end, 0, index) for index, send in enumerate(schedule.sends)]
    moments += [(send.start, 1, index) for index, send in enumerate(schedule.sends)]
    for _, begins, index in sorted(moments):
        send = schedule.sends[index]
        for run in _contiguous(send, gpus):
            (gpus[send.sources[0]].send if begins else gpus[send.destinations[0]].receive)(send, run, gpus)
    for gpu in gpus:
        gpu.copy(gpu.outputs())
    root = ElementTree.Element(
        "algo", name=name, nchannels="1", nchunksperloop=str(everything), proto="Simple", ngpus=str(ranks),
        coll=_NAMES[schedule.collective], inplace="0",
    )  # fmt: skip
    for gpu in gpus:
        sizes = {"i_chunks": inputs, "o_chunks": outputs, "s_chunks": len(gpu.offsets)}
        gpu.write(
            ElementTree.SubElement(root, "gpu", {key: str(size) for key, size in ({"id": gpu.rank} | sizes).items()})
        )
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode") + "\n"
    check(text)
    return text


def _contiguous(send: Send, gpus: Sequence[_Gpu]) -> Iterator[list[int]]:
    """Yield the chunks of a send in groups that are contiguous at both ends."""
    ends = [gpus[rank].offsets for rank in (*send.sources, *send.destinations)]
    run: list[int] = []
    for chunk in send.chunks:
        if run and (len(run) == _MAX_COUNT or any(offsets[chunk] != offsets[run[-1]] + 1 for offsets in ends)):
            yield run
            run = []
        run.append(chunk)
    yield run


class _Gpu:
    """The thread blocks of a GPU."""

    def __init__(self, rank: int, schedule: Schedule) -> None:
        self.rank, self._schedule = rank, schedule
        held = {
            chunk for send in schedule.sends if rank in (*send.sources, *send.destinations) for chunk in send.chunks
        }
        held |= {chunk for chunk, _ in (*self.inputs(), *self.outputs())}
        self.offsets = {chunk: offset for offset, chunk in enumerate(sorted(held))}
        self._blocks: dict[
            tuple[int, int], list[dict[str, str]]
        ] = {}  # by the peers to which it sends, from which it receives
        self._written: dict[int, _Step] = {}  # by chunk, the last step that wrote it
        self._read: dict[int, list[_Step]] = defaultdict(list)  # those that have read it since
        self._awaited: set[_Step] = set()

    def inputs(self) -> list[tuple[int, _Place]]:
        """Return the chunks that are in the input buffer, and where."""
        ranks, parts = self._schedule.ranks, self._schedule.chunks_per_rank
        first = self.rank * ranks * parts
        if self._schedule.collective == "all-gather":
            return [(self.rank * parts + part, ("i", part)) for part in range(parts)]
        if self._schedule.collective == "all-to-all":
            return [(first + place, ("i", place)) for place in range(ranks * parts)]
        return [(chunk, ("i", chunk)) for chunk in range(ranks * parts)]

    def outputs(self) -> list[tuple[int, _Place]]:
        """Return the chunks that must be in the output buffer, and where."""
        ranks, parts = self._schedule.ranks, self._schedule.chunks_per_rank
        if self._schedule.collective == "reduce-scatter":
            return [(self.rank * parts + part, ("o", part)) for part in range(parts)]
        if self._schedule.collective == "all-to-all":
            places = [(source, part) for source in range(ranks) for part in range(parts)]
            return [((s * ranks + self.rank) * parts + part, ("o", s * parts + part)) for s, part in places]
        return [(chunk, ("o", chunk)) for chunk in range(ranks * parts)]

    def copy(self, chunks: Sequence[tuple[int, _Place]]) -> None:
        """Add copies between the scratch buffer and another one."""
        for chunk, place in chunks:
            scratch = ("s", self.offsets[chunk])
            source, destination = (place, scratch) if place[0] == "i" else (scratch, place)
            self._add((-1, -1), "cpy", source, destination, [chunk], writes=place[0] == "i")

    def send(self, send: Send, chunks: Sequence[int], gpus: Sequence[_Gpu]) -> None:
        """Add the step that sends contiguous chunks."""
        peer = send.destinations[0]
        there = ("s", gpus[peer].offsets[chunks[0]])
        self._add((peer, -1), "s", ("s", self.offsets[chunks[0]]), there, chunks, writes=False)

    def receive(self, send: Send, chunks: Sequence[int], gpus: Sequence[_Gpu]) -> None:
        """Add the step that receives them."""
        peer, here = send.sources[0], ("s", self.offsets[chunks[0]])
        source = here if send.reduces else ("s", gpus[peer].offsets[chunks[0]])
        self._add((-1, peer), "rrc" if send.reduces else "r", source, here, chunks, writes=True)

    def _add(
        self,
        peers: tuple[int, int],
        kind: str,
        source: _Place,
        destination: _Place,
        chunks: Sequence[int],
        *,
        writes: bool,
    ) -> None:
        block = self._blocks.setdefault(peers, [])
        number = list(self._blocks).index(peers)
        needed = {self._written[chunk] for chunk in chunks if chunk in self._written}
        if writes:
            needed |= {step for chunk in chunks for step in self._read[chunk]}
        latest: dict[int, int] = {}  # of each other block, the last step that is needed
        for other, step in needed:
            if other != number:
                latest[other] = max(step, latest.get(other, -1))
        self._awaited |= set(latest.items())
        *more, last = sorted(latest.items()) or [(-1, -1)]
        for wait in more:  # a step waits for one other; each further one has a step that does nothing
            block.append(_attributes(len(block), "nop", ("i", -1), ("o", -1), 0, wait))
        block.append(_attributes(len(block), kind, source, destination, len(chunks), last))
        for chunk in chunks:
            if writes:
                self._written[chunk] = (number, len(block) - 1)
                self._read[chunk].clear()
            else:
                self._read[chunk].append((number, len(block) - 1))

    def write(self, parent: ElementTree.Element) -> None:
        """Add the thread blocks to the element of the GPU."""
        for number, ((to, origin), steps) in enumerate(self._blocks.items()):
            block = ElementTree.SubElement(parent, "tb", id=str(number), send=str(to), recv=str(origin), chan="0")
            for step, attributes in enumerate(steps):
                ElementTree.SubElement(block, "step", attributes, hasdep=str(int((number, step) in self._awaited)))


def _attributes(step: int, kind: str, source: _Place, destination: _Place, count: int, wait: _Step) -> dict[str, str]:
    values = (step, kind, *source, *destination, count, *wait)
    keys = ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps")
    return {key: str(value) for key, value in zip(keys, values, strict=True)}


def check(text: str) -> None:
    """Raise ScheduleError if MSCCL's parser would refuse the text, or a GPU expects what another does not send."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 (expat limits the expansion of entities)
    except ElementTree.ParseError as error:
        raise ScheduleError(f"the algorithm is not XML: {error}") from error
    _require(root.tag == "algo", "the root is not an algo")
    _require(root.get("coll") in {*_NAMES.values(), "custom", "reduce", "broadcast"}, "coll is unknown")
    _require(root.get("proto") in ("Simple", "LL", "LL128"), "proto is unknown")
    _require(bool(root.get("name")) and _number(root, "inplace") in (0, 1), "it has no name, or inplace is not 0 or 1")
    ranks, loop = _number(root, "ngpus"), _number(root, "nchunksperloop")
    gpus = list(root.iter("gpu"))
    _require([_number(gpu, "id") for gpu in gpus] == list(range(ranks)), "the GPUs are not 0, 1, ...")
    messages: dict[tuple[int, int, int, str], list[int]] = defaultdict(list)  # by ends and channel: what passes
    for gpu in gpus:
        sizes = {buffer: _number(gpu, f"{buffer}_chunks") for buffer in _BUFFERS}
        scale = {"allgather": {"i": ranks}, "reduce_scatter": {"o": ranks}}.get(root.get("coll", ""), {})
        for buffer in "io":
            _require(sizes[buffer] * scale.get(buffer, 1) in (0, loop), f"{buffer}_chunks contradicts nchunksperloop")
        for channel, sends, peer, counts in _Blocks(
            _number(gpu, "id"), gpu, sizes, ranks, _number(root, "nchannels")
        ).messages:
            ends = (_number(gpu, "id"), peer) if sends else (peer, _number(gpu, "id"))
            messages[ends[0], ends[1], channel, "sent" if sends else "received"] += counts
    for (sender, receiver, channel, _), counts in messages.items():
        pair = [messages.get((sender, receiver, channel, way), []) for way in ("sent", "received")]
        _require(pair[0] == pair[1] == counts, f"GPU {sender} does not send to {receiver} what that receives")


@dataclasses.dataclass
class _Blocks:
    """The thread blocks of a GPU, checked; `messages` has the channel, direction, peer and counts of each."""

    rank: int
    gpu: ElementTree.Element
    sizes: dict[str, int]
    ranks: int
    channels: int

    def __post_init__(self) -> None:
        blocks = list(self.gpu.iter("tb"))
        self._lengths = [len(list(block.iter("step"))) for block in blocks]
        _require(
            [_number(block, "id") for block in blocks] == list(range(len(blocks))), "thread blocks are not 0, 1, ..."
        )
        _require(len(blocks) <= _MAX_BLOCKS, f"GPU {self.rank} has more than {_MAX_BLOCKS} thread blocks")
        self.messages: list[tuple[int, bool, int, list[int]]] = []
        self._awaited: set[_Step] = set()
        self._announced: set[_Step] = set()
        for block in blocks:
            self._check_block(block)
        _require(self._awaited <= self._announced, f"GPU {self.rank}: a step that others wait for has no hasdep")
        for way in (False, True):
            passing = [(channel, sends) for channel, sends, _, _ in self.messages if sends == way]
            most = max((passing.count(one) for one in passing), default=0)
            _require(most <= _MAX_PEERS, f"GPU {self.rank} has more than {_MAX_PEERS} peers on a channel")

    def _check_block(self, block: ElementTree.Element) -> None:
        number, channel = _number(block, "id"), _number(block, "chan")
        peers = {"send": _number(block, "send"), "recv": _number(block, "recv")}
        place = f"GPU {self.rank}, thread block {number}"
        _require(0 <= channel < self.channels, f"{place}: chan is not a channel")
        _require(
            all(-1 <= p < self.ranks and p != self.rank for p in peers.values()), f"{place}: a peer is not another GPU"
        )
        steps = list(block.iter("step"))
        _require([_number(step, "s") for step in steps] == list(range(len(steps))), f"{place}: steps are not 0, 1, ...")
        _require(len(steps) <= _MAX_STEPS, f"{place}: it has more than {_MAX_STEPS} steps")
        waits = False  # whether the step before only waits
        for step in steps:
            kind, wait = step.get("type", ""), (_number(step, "depid"), _number(step, "deps"))
            _require(kind in _TYPES, f"{place}: the type {kind!r} is unknown")
            _require(not (waits and wait[0] < 0 and kind != "nop"), f"{place}: the step after a nop does not wait")
            waits = kind == "nop"
            if wait[0] >= 0:
                known = wait[0] < len(self._lengths) and 0 <= wait[1] < self._lengths[wait[0]]
                _require(
                    known and wait[0] != number, f"{place}: it waits for step {wait}, which is not of another block"
                )
                self._awaited.add(wait)
            if _number(step, "hasdep"):
                self._announced.add((number, _number(step, "s")))
            _require(kind == "nop" or 0 < _number(step, "cnt") <= _MAX_COUNT, f"{place}: cnt is not 1..{_MAX_COUNT}")
            _require(kind not in _SENDS or peers["send"] >= 0, f"{place}: it sends without a peer")
            _require(kind not in _RECEIVES or peers["recv"] >= 0, f"{place}: it receives without a peer")
            for end, kinds in (("src", _READS), ("dst", _WRITES)):
                buffer, first = step.get(f"{end}buf", ""), _number(step, f"{end}off")
                _require(buffer in _BUFFERS, f"{place}: the buffer {buffer!r} is unknown")
                inside = first >= 0 and first + _number(step, "cnt") <= self.sizes.get(buffer, 0)
                _require(kind not in kinds or inside, f"{place}: {end}off is outside of its buffer")
        for way, kinds in (("send", _SENDS), ("recv", _RECEIVES)):
            counts = [_number(step, "cnt") for step in steps if step.get("type") in kinds]
            if counts:
                self.messages.append((channel, way == "send", peers[way], counts))


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ScheduleError(f"the algorithm is not one of MSCCL: {text}")


def _number(element: ElementTree.Element, key: str) -> int:
    try:
        return int(element.attrib[key])
    except (KeyError, ValueError) as error:
        raise ScheduleError(f"the algorithm is not one of MSCCL: {element.tag} lacks a whole number {key}") from error
