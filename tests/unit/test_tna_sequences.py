"""For random sequences of packets with full-width values, the TNA program and the reference agree."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Flag, Verdict
from tests.unit.tna_harness import Chip, Job, result_of, unsigned
from tests.unit.tna_reference import WORD, Contribution, Decision, Half, contribute

CHIP = Chip()
JOBS = (Job(1, 2, 0, base=0, slots=2), Job(2, 3, 0, base=2, slots=2))
words = st.one_of(st.sampled_from((0, 1, 0x7FFFFFFF, 0x80000000, WORD)), st.integers(0, WORD))


@dataclass(frozen=True)
class Step:
    """A packet; ``age`` is the age of its epoch."""

    job: int
    rank: int
    slot: int
    phase: int
    empty: bool
    exponent: int
    check: int
    base: int
    stride: int
    age: int

    def packet(self, job: Job, values: int) -> Packet:
        pattern = () if self.empty else tuple((self.base + lane * self.stride) & WORD for lane in range(values))
        return Packet(
            job=job.id,
            worker=self.rank % job.ranks,
            slot=(job.base + self.slot) << 1 | self.phase & 1,
            phase=self.phase,
            epoch=job.epoch - self.age,
            values=pattern,
            count=len(pattern),
            exponent=self.exponent,
            chunk=self.check ^ WORD,
            check=self.check,
            flags=Flag.WITHOUT_VALUES if self.empty else Flag.RETRANSMISSION,
        )


steps = st.builds(
    Step,
    job=st.integers(0, 1),
    rank=st.integers(0, 2),
    slot=st.integers(0, 1),
    phase=st.integers(0, 4),
    empty=st.integers(0, 3).map(lambda n: n == 0),
    exponent=st.integers(0, 256),
    check=words,
    base=words,
    stride=words,
    age=st.integers(0, 9).map(lambda n: int(n == 0)),
)


@dataclass
class Beside:
    """The reference that runs alongside the model of the chip, with the packets that it expects."""

    halves: dict[int, Half] = field(default_factory=dict)
    verdicts: dict[int, dict[Verdict, int]] = field(default_factory=dict)
    drops: dict[DropReason, int] = field(default_factory=dict)

    def take(self, job: Job, packet: Packet) -> tuple[Half, Decision | None]:
        """Return the half after the packet, and the decision if the packet has the job's epoch."""
        stored = self.halves.get(packet.slot, Half(values=(0,) * CHIP.values))
        decision, drop = None, None
        if packet.epoch != job.epoch:
            verdict, drop = Verdict.WRONG_EPOCH, DropReason.WRONG_EPOCH
        else:
            values = unsigned(packet).values if packet.values else None
            combined = (packet.exponent, packet.check, packet.chunk)
            contribution = Contribution(packet.epoch, packet.phase, 1 << packet.worker, *combined, values)
            stored, decision = contribute(stored, contribution, job.mask)
            self.halves[packet.slot] = stored
            verdict, drop = decision.verdict, decision.drop
        of_job = self.verdicts.setdefault(job.id, {})
        of_job[verdict] = of_job.get(verdict, 0) + 1
        if drop is not None:
            self.drops[drop] = self.drops.get(drop, 0) + 1
        return stored, decision


def check_frames(job: Job, packet: Packet, half: Half, decision: Decision | None) -> None:
    """Compare the packets that have come out with those that must come out at once."""
    receivers: list[int] = []
    if decision is not None and decision.verdict is Verdict.COMPLETED:
        receivers = list(range(job.ranks))
    elif decision is not None and decision.verdict is Verdict.RESENT:
        receivers = [packet.worker]
    result = result_of(packet, half, half.values)
    assert CHIP.out == [CHIP.result(job, rank, result) for rank in receivers]


@settings(max_examples=60)
@given(st.lists(steps, max_size=30), st.integers(1, 0xFFF0), st.lists(steps, max_size=10))
def test_the_program_follows_the_reference(before: list[Step], epoch: int, after: list[Step]) -> None:
    beside = Beside()
    for index in range(8):
        CHIP.store(index, Half(values=(0,) * CHIP.values))
    # The second job keeps its epoch when the first job gets a new one.
    for part, jobs in (
        (before, [replace(job, epoch=epoch) for job in JOBS]),
        (after, [replace(JOBS[0], epoch=epoch + 1), replace(JOBS[1], epoch=epoch)]),
    ):
        for job in jobs:
            CHIP.add_job(job)
            if part is before:
                CHIP.clear_counters(job)
        for step in part:
            job = jobs[step.job]
            packet = step.packet(job, CHIP.values)
            CHIP.send(job, packet)
            check_frames(job, packet, *beside.take(job, packet))
    for job in JOBS:
        assert CHIP.verdicts(job) == beside.verdicts.get(job.id, {})
    assert CHIP.drops() == beside.drops
    for index, half in beside.halves.items():
        assert CHIP.load(index) == half


@dataclass
class Rank:
    """A worker that enters a phase only after it has the result of the previous phase."""

    phase: int = 0
    results: dict[int, Packet] = field(default_factory=dict)

    def take(self, result: Packet) -> None:
        """Take a RESULT, and ignore it unless it is of the current phase."""
        if result.phase == self.phase:
            self.results[self.phase] = result
            self.phase += 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=120), st.integers(1, 0xFFFF))
def test_late_recirculation_never_changes_a_result(events: list[tuple[int, int]], epoch: int) -> None:
    """Ranks send, retransmit and proceed in any order, and recirculations take any amount of time."""
    job = CHIP.add_job(Job(3, 3, epoch, base=4, slots=1))
    for index in (8, 9):
        CHIP.store(index, Half(values=(0,) * CHIP.values))
    ranks = [Rank() for _ in range(3)]
    pipeline = CHIP.pipeline

    def contribution(rank: int, phase: int) -> Packet:
        values = tuple(((rank + 1) * 0x1234567 + phase * 0x9E3779B1 + lane) & WORD for lane in range(CHIP.values))
        packet = Packet(3, rank, 8 | phase & 1, phase, epoch, values, len(values), 100 + rank)
        return replace(packet, check=zlib.crc32(packet.pack()))

    def deliver() -> None:
        for port, frame in CHIP.out:
            ranks[port - 1].take(Packet.unpack(frame[42:]))
        CHIP.out.clear()

    CHIP.out.clear()
    for rank, kind in [*events, *((rank, kind) for _ in range(4) for kind in (0, 4) for rank in range(3))]:
        if kind == 4:
            if pipeline.recirculating:
                pipeline.recirculate()
        else:
            phase = ranks[rank].phase - (1 if kind == 3 and ranks[rank].phase else 0)  # 3: the previous phase
            pipeline.admit(rank + 1, CHIP.frame(job, contribution(rank, phase)))
        deliver()
    while pipeline.recirculating:
        pipeline.recirculate()
        deliver()
    assert max(one.phase for one in ranks) >= 1
    for one in ranks:
        for phase, result in one.results.items():
            everyone = [contribution(other, phase) for other in range(3)]
            lanes = zip(*(unsigned(part).values for part in everyone), strict=True)
            assert unsigned(result).values == tuple(sum(lane) & WORD for lane in lanes)
            assert result.check == sum(part.check for part in everyone) & WORD
            assert result.exponent == 102
