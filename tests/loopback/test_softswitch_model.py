"""Random packets through the native switch and through a model of the protocol, which must agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptf_tests.wire import Packet
from switchml.dataplane.constants import OWNER_EVERYONE, OWNER_FIRST, DropReason, Flag, Format, Kind, Verdict
from tests.loopback.softswitch_harness import Harness, Worker, running

WORD = 0xFFFFFFFF
VALUES = 4
JOBS = {3: 2, 4: 3}  # id: workers
SLOTS = 4  # of each job
BASE = {3: 0, 4: SLOTS}
EPOCHS = (7, 8)


@dataclass
class Half:
    epoch: int = 0
    phase: int = 0
    bitmap: int = 0
    exponent: int = 0
    check: int = 0
    next: int = 0
    values: list[int] = field(default_factory=lambda: [0] * VALUES)
    filled: bool = False


@dataclass
class Outcome:
    """The effect of one packet: how it is counted, and the ranks of its job that get the result."""

    verdict: Verdict | None = None
    drop: DropReason | None = None
    result: Packet | None = None
    receivers: tuple[int, ...] = ()


_DROPPING = {
    Verdict.WRONG_EPOCH: DropReason.WRONG_EPOCH,
    Verdict.STALE: DropReason.STALE,
    Verdict.DUPLICATE: DropReason.DUPLICATE,
}


class Model:
    """The protocol, written as clearly as possible after its specification."""

    def __init__(self) -> None:
        self.epoch = dict.fromkeys(JOBS, EPOCHS[0])
        self.halves = [Half() for _ in range(2 * SLOTS * len(JOBS))]

    def handle(self, sender: tuple[int, int], packet: Packet) -> Outcome:
        reason = self._refusal(sender, packet)
        if reason is not None:
            return Outcome(drop=reason)
        verdict = self._aggregate(packet)
        half = self.halves[packet.slot]
        # A RESULT has values exactly when its phase has, whether or not the packet that it answers did.
        values = tuple((v ^ 0x80000000) - 0x80000000 for v in half.values) if half.filled else ()
        flags = packet.flags & ~Flag.WITHOUT_VALUES if half.filled else packet.flags
        count = (packet.count or VALUES) if half.filled else 0
        result = replace(
            packet,
            kind=Kind.RESULT,
            exponent=half.exponent,
            check=half.check,
            chunk=half.next,
            count=count,
            flags=flags,
            values=values,
        )
        if verdict is Verdict.COMPLETED:
            return Outcome(verdict, None, result, tuple(range(JOBS[packet.job])))
        if verdict is Verdict.RESENT:
            return Outcome(verdict, None, result, (packet.worker,))
        return Outcome(verdict, _DROPPING.get(verdict))

    def _refusal(self, sender: tuple[int, int], packet: Packet) -> DropReason | None:
        without_values = bool(packet.flags & Flag.WITHOUT_VALUES)
        known = packet.job in JOBS
        in_range = known and packet.slot >> 1 in range(BASE[packet.job], BASE[packet.job] + SLOTS)
        rules = [
            (packet.version != 1, DropReason.BAD_VERSION),
            (packet.kind not in (Kind.CONTRIBUTION, Kind.RESULT), DropReason.BAD_KIND),
            (packet.kind == Kind.RESULT, DropReason.FORGED_RESULT),
            (packet.format != Format.INT32, DropReason.BAD_FORMAT),
            (packet.exponent > 256, DropReason.BAD_EXPONENT),
            (packet.count > VALUES or (packet.count == 0) != without_values, DropReason.BAD_COUNT),
            (len(packet.values) != (0 if without_values else VALUES), DropReason.BAD_LENGTH),
            (packet.slot & 1 != packet.phase & 1, DropReason.BAD_HALF),
            (not known, DropReason.UNKNOWN_JOB),
            (not in_range, DropReason.SLOT_OUT_OF_RANGE),
            ((packet.job, packet.worker) != sender, DropReason.UNKNOWN_WORKER),
        ]
        return next((reason for holds, reason in rules if holds), None)

    def _aggregate(self, packet: Packet) -> Verdict:
        if packet.epoch != self.epoch[packet.job]:
            return Verdict.WRONG_EPOCH
        half = self.halves[packet.slot]
        bit = 1 << packet.worker
        full = (1 << JOBS[packet.job]) - 1
        words = [v & WORD for v in packet.values]
        if half.epoch != packet.epoch or packet.phase > half.phase:
            stored = words or half.values  # a packet without values changes none
            half = Half(
                packet.epoch, packet.phase, bit, packet.exponent, packet.check, packet.chunk, stored, bool(words)
            )
            self.halves[packet.slot] = half
        elif packet.phase < half.phase:
            return Verdict.STALE
        elif not half.bitmap & bit:
            half.bitmap |= bit
            half.exponent = max(half.exponent, packet.exponent)
            half.check = (half.check + packet.check) & WORD
            half.next = min(half.next, packet.chunk)
            if words and half.filled:
                half.values = [(a + b) & WORD for a, b in zip(half.values, words, strict=True)]
            elif words:
                half.values, half.filled = words, True
        else:
            if words and not half.filled:  # it had contributed without values
                half.values, half.filled = words, True
            return Verdict.RESENT if half.bitmap == full else Verdict.DUPLICATE
        return Verdict.COMPLETED if half.bitmap == full else Verdict.AGGREGATED


SENDERS = [(job, rank) for job, size in JOBS.items() for rank in range(size)]
words = st.one_of(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]), st.integers(-(2**31), 2**31 - 1))


@st.composite
def good_packets(draw: st.DrawFn) -> tuple[tuple[int, int], Packet]:
    """Draw a valid packet of the sender; few slots and phases, so that packets often refer to the same slot."""
    job, rank = draw(st.sampled_from(SENDERS))
    phase = draw(st.integers(0, 3))
    slot = (BASE[job] + draw(st.integers(0, 1))) << 1 | phase & 1
    without_values = draw(st.integers(0, 3)) == 0
    packet = Packet(
        job,
        rank,
        slot,
        phase,
        draw(st.sampled_from((EPOCHS[0], EPOCHS[0], EPOCHS[0], EPOCHS[1]))),
        values=() if without_values else draw(st.tuples(*[words] * VALUES)),
        count=0 if without_values else draw(st.integers(1, VALUES)),
        exponent=draw(st.integers(0, 256)),
        chunk=draw(st.integers(0, WORD)),
        check=draw(st.integers(0, WORD)),
        flags=Flag.WITHOUT_VALUES if without_values else draw(st.sampled_from([Flag(0), Flag.LAST_CHUNK])),
        owner=draw(st.sampled_from((OWNER_EVERYONE, OWNER_EVERYONE, OWNER_FIRST, OWNER_FIRST + 1, 0xFF))),
    )
    return (job, rank), packet


@st.composite
def bad_packets(draw: st.DrawFn) -> tuple[tuple[int, int], Packet]:
    """Draw a packet with up to three fields that may be wrong."""
    sender, packet = draw(good_packets())
    faults: dict[str, st.SearchStrategy[Any]] = {
        "version": st.integers(0, 255),
        "kind": st.integers(0, 3),
        "format": st.sampled_from([0, Format.INT32, 3, 6, 255]),  # those of other sums have their own tests
        "exponent": st.integers(255, 300),
        "count": st.integers(0, VALUES + 2),
        "values": st.lists(words, max_size=VALUES + 2).map(tuple),
        "slot": st.integers(0, 4 * SLOTS * len(JOBS)),
        "phase": st.sampled_from([0, 1, 2, 3, WORD]),
        "job": st.sampled_from([0, 3, 4, 5, 1024, 0xFFFF]),
        "worker": st.integers(0, 255),
        "epoch": st.integers(0, 0xFFFF),
        "flags": st.integers(0, 7).map(Flag),
    }
    names = draw(st.lists(st.sampled_from(sorted(faults)), min_size=1, max_size=3, unique=True))
    return sender, replace(packet, **{name: draw(faults[name]) for name in names})


packets = st.integers(0, 9).flatmap(lambda kind: bad_packets() if kind == 0 else good_packets())


class Run:
    """Compare one switch with one model."""

    def __init__(self, fabric: Harness) -> None:
        self.fabric = fabric
        self.model = Model()
        self.sockets: dict[tuple[int, int], Worker] = {}
        for job, size in JOBS.items():
            for rank, worker in enumerate(fabric.add_job(job, size, BASE[job], SLOTS, EPOCHS[0])):
                self.sockets[job, rank] = worker
        self.expected: dict[tuple[int, int], list[Packet]] = {sender: [] for sender in SENDERS}
        self.drops: dict[DropReason, int] = {}
        self.verdicts: dict[int, dict[Verdict, int]] = {job: {} for job in JOBS}

    def send(self, sender: tuple[int, int], packet: Packet) -> None:
        self.sockets[sender].send(packet)
        outcome = self.model.handle(sender, packet)
        for rank in outcome.receivers:
            assert outcome.result is not None
            self.expected[packet.job, rank].append(outcome.result.copy_for([rank]))
        if outcome.drop is not None:
            self.drops[outcome.drop] = self.drops.get(outcome.drop, 0) + 1
        if outcome.verdict is not None:
            counted = self.verdicts[packet.job]
            counted[outcome.verdict] = counted.get(outcome.verdict, 0) + 1

    def change_epoch(self) -> None:
        self.fabric.settle()
        for job, size in JOBS.items():
            self.model.epoch[job] = EPOCHS[1]
            for rank in range(size):
                match = self.fabric.worker_match(job, rank, self.sockets[job, rank], BASE[job], SLOTS)
                mask = (1 << size) - 1
                self.fabric.switch.set_worker(match, bit=1 << rank, mask=mask, epoch=EPOCHS[1], group=job)

    def compare(self) -> None:
        self.fabric.settle()
        for sender, worker in self.sockets.items():
            # The copies of a burst that have values leave before those without.
            assert Counter(worker.waiting()) == Counter(self.expected[sender])
        assert self.fabric.drops() == self.drops
        for job in JOBS:
            assert self.fabric.verdicts(job) == self.verdicts[job]
        read = self.fabric.switch.read_register
        for index, half in enumerate(self.model.halves):
            assert read("slot_epoch", index) == half.epoch
            assert read("slot_phase", index) == half.phase
            assert read("slot_bitmap", index) == half.bitmap
            assert read("slot_filled", index) == half.filled
            assert read("slot_exponent", index) == half.exponent
            assert read("slot_check", index) == half.check
            assert read("slot_next", index) == half.next
            assert [read(f"lane_{lane}", index) for lane in range(VALUES)] == half.values


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(packets, max_size=60), st.lists(packets, max_size=40), st.booleans())
def test_the_switch_follows_the_model(
    before: list[tuple[tuple[int, int], Packet]], after: list[tuple[tuple[int, int], Packet]], bursts: bool
) -> None:
    with running(slots=2 * SLOTS + 2, values=VALUES) as fabric:
        run = Run(fabric)
        for part in (before, after):
            if bursts:
                fabric.switch.stop()  # packets that wait in the socket are received as bursts
            for sender, packet in part:
                run.send(sender, packet)
            if bursts:
                fabric.switch.start()
            if part is before:
                run.change_epoch()
        run.compare()
