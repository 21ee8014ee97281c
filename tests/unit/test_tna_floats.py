"""The TNA program for floats (studies/fpisa/p4) adds them as `sum_fpisa_a` does, in every state of a slot."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptf_tests.tofino_emulator.program import load_program
from ptf_tests.wire import Packet
from studies.fpisa.compile import BUILD
from switchml.dataplane.constants import DropReason, Flag, Format, Kind, Verdict
from switchml.dataplane.floats import HEADROOM, sum_fpisa_a
from tests.unit.tna_harness import Chip, Job

Floats = npt.NDArray[np.float32]

LANES = 6
SIGN, INFINITY, FRACTION = 1 << 31, 0x7F800000, (1 << 23) - 1


@cache
def chip() -> Chip:
    """Return a chip with the program."""
    return Chip(load_program(BUILD / "fpisa.ir.json"))


def bits(words: Iterable[int]) -> Floats:
    """Return the floats with these bits."""
    return np.array(list(words), np.uint32).view(np.float32)


def contribution(job: Job, rank: int, values: Floats, phase: int = 0) -> Packet:
    """Return a rank's contribution with a value for each lane; with no values, one without values."""
    return Packet(
        job=job.id,
        worker=rank,
        format=Format.FLOAT32,
        slot=job.base << 1 | phase & 1,
        phase=phase,
        epoch=job.epoch,
        values=tuple(values.view(np.int32).tolist()),
        count=values.size,
        check=5 + rank,
        flags=Flag(0) if values.size else Flag.WITHOUT_VALUES,
    )


def fresh_job(ranks: int) -> Job:
    """Return a job of an epoch that the slots do not hold."""
    fresh_job.epoch = fresh_job.epoch % 60_000 + 1  # type: ignore[attr-defined]
    return chip().add_job(Job(ranks, ranks, fresh_job.epoch))  # type: ignore[attr-defined]


fresh_job.epoch = 0  # type: ignore[attr-defined]


def summed(values: Floats) -> Floats:
    """Return what the ranks of a job get if they contribute the rows of an array in their order."""
    job = fresh_job(len(values))
    for rank, row in enumerate(values):
        frames = chip().send(job, contribution(job, rank, row))
    assert [port for port, _ in frames] == [rank + 1 for rank in range(job.ranks)]
    (payload,) = {frame[42:] for _, frame in frames}
    return np.array(Packet.unpack(payload).values, np.int32).view(np.float32)


def require_sums(columns: Sequence[Sequence[int]]) -> None:
    """Test the sums of lanes, given as the bits of their values in the order in which they are added."""
    spare = -len(columns) % LANES
    every = bits(word for column in [*columns, *[columns[0]] * spare] for word in column)
    for block in every.reshape(-1, LANES, len(columns[0])):
        rows = np.ascontiguousarray(block.T)
        expected, found = sum_fpisa_a(rows).sums.view(np.uint32), summed(rows).view(np.uint32)
        assert (found == expected).all(), f"{rows.view(np.uint32)} gave {found}, expected {expected}"


def float_of(exponent: int, fraction: int, negative: bool = False) -> int:
    """Return the bits of a float."""
    return exponent << 23 | fraction | SIGN * negative


def test_a_value_alone_comes_back() -> None:
    """The leading bit of the mantissa is at every place, above and below those of normal floats."""
    fractions = [0, FRACTION, *(1 << place for place in range(23)), 0x2AAAAA]
    every = itertools.product(range(256), fractions, (False, True))
    require_sums([(float_of(*one),) for one in every])


@pytest.mark.parametrize("base", [0, 1, 2, 20, 127, 200, 246, 254])
def test_every_distance_of_two_values(base: int) -> None:
    fractions = (0, 1, FRACTION)
    signs = (False, True)
    columns = []
    for exponent in range(max(base - 40, 0), min(base + HEADROOM + 4, 255) + 1):
        for one, other in itertools.product(itertools.product(fractions, signs), repeat=2):
            columns.append((float_of(base, *one), float_of(exponent, *other)))
    require_sums(columns)


SPECIAL = [
    *(0, SIGN, 1, FRACTION, float_of(1, 0), float_of(254, FRACTION), float_of(254, FRACTION, True)),
    *(INFINITY, INFINITY | SIGN, INFINITY | 1, 0x7FC00000, 0xFFC00000),
    *(float_of(127 + distance, fraction) for distance in (-25, -8, -1, 0, 7, 8) for fraction in (0, FRACTION)),
    *(float_of(127, FRACTION, True), float_of(134, FRACTION, True), float_of(135, 1, True)),
]


def test_every_order_of_three_special_values() -> None:
    require_sums(list(itertools.product(SPECIAL, repeat=3)))


def test_sums_that_do_not_fit_are_nan_for_good() -> None:
    large = float_of(127 + HEADROOM, FRACTION)
    small = float_of(127, 0)
    overflowed = [small, large, large, *[large | SIGN] * 2]
    require_sums([overflowed, [one ^ SIGN for one in overflowed]])
    assert np.isnan(sum_fpisa_a(bits(overflowed).reshape(-1, 1)).sums).all()


ranks_and_exponents = st.tuples(st.integers(2, 8), st.integers(0, 240), st.integers(0, 14))


@settings(max_examples=80, deadline=None)
@given(data=st.data(), shape=ranks_and_exponents)
def test_random_values_of_up_to_eight_ranks(data: st.DataObject, shape: tuple[int, int, int]) -> None:
    ranks, lowest, spread = shape
    one = st.builds(float_of, st.integers(lowest, lowest + spread), st.integers(0, FRACTION), st.booleans())
    require_sums(data.draw(st.lists(st.tuples(*[one] * ranks), min_size=LANES, max_size=LANES)))


# ---- every state of a slot -------------------------------------------------------------------------------------------

VALUES = {0: 0x3FC00000, 1: 0xC2F60001}  # of each rank, in all lanes
OTHER_VALUE = 0x7F000000  # of a rank that sends something else when it sends again


class Slot:
    """A model of half a slot (docs/understand/protocol.md), with the values of its phase in order of arrival."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.phase = -1
        self.come: set[int] = set()
        self.added: list[int] = []

    def receive(self, rank: int, phase: int, value: int | None) -> tuple[Verdict, list[int]]:
        """Return the verdict on a packet, and the values that are in the sum."""
        if phase < self.phase:
            return Verdict.STALE, []
        if phase > self.phase:
            self.phase, self.come, self.added = phase, set(), []
        seen = rank in self.come
        if value is not None and (not seen or not self.added):
            self.added.append(value)
        self.come.add(rank)
        full = len(self.come) == self.ranks
        if seen:
            return (Verdict.RESENT if full else Verdict.DUPLICATE), self.added
        return (Verdict.COMPLETED if full else Verdict.AGGREGATED), self.added


def events(ranks: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the packets of two phases of one half: rank, phase, whether it has values."""
    return itertools.product(range(ranks), (0, 2), (True, False))


@pytest.mark.parametrize(("ranks", "length"), [(1, 3), (2, 4)])
def test_every_sequence_of_packets(ranks: int, length: int) -> None:
    for sequence in itertools.product(events(ranks), repeat=length):
        job, slot = fresh_job(ranks), Slot(ranks)
        for number, (rank, phase, has_values) in enumerate(sequence):
            again = rank in (one for one, _, _ in sequence[:number])
            value = OTHER_VALUE if again else VALUES[rank]
            values = [value] * LANES if has_values else []
            packet = contribution(job, rank, bits(values), phase)
            chip().clear_counters(job)
            frames = chip().send(job, packet)
            verdict, added = slot.receive(rank, phase, value if has_values else None)
            case = f"{sequence}: {rank, phase, has_values}"
            assert chip().verdicts(job) == {verdict: 1}, case
            receivers = {Verdict.COMPLETED: list(range(ranks)), Verdict.RESENT: [rank]}.get(verdict, [])
            assert [port - 1 for port, _ in frames] == receivers, case
            for _, frame in frames:
                result = Packet.unpack(frame[42:])
                expected = sum_fpisa_a(bits(added).reshape(-1, 1)).sums.view(np.int32).tolist() if added else []
                assert (result.kind, list(result.values)) == (Kind.RESULT, expected * LANES), case


def test_integers_are_refused() -> None:
    job = fresh_job(1)
    chip().clear_counters(job)
    assert chip().send(job, replace(contribution(job, 0, bits([1] * LANES)), format=Format.INT32)) == []
    assert chip().drops() == {DropReason.BAD_FORMAT: 1}
