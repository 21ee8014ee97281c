"""Reduction: the sum of all ranks' values returns to all of them."""

from __future__ import annotations

import itertools

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import EXPONENT_MAX_FINITE, EXPONENT_NON_FINITE, EXPONENT_UNKNOWN, Flag, Verdict


class _Reduction(SwitchMLTest):
    ranks: int

    def reduce_one(self) -> None:
        job = self.job(self.ranks)
        self.reduce(job, [job.packet(rank) for rank in range(self.ranks)])


@group("values")
class TwoWorkers(_Reduction):
    """The first contribution waits; the second completes the slot and both ranks get the sum."""

    ranks = 2

    def runTest(self) -> None:
        job = self.job(2)
        one, two = job.packet(0), job.packet(1)
        self.contribute(job, one, Verdict.AGGREGATED)
        self.expect_nothing()
        self.contribute(job, two, Verdict.COMPLETED)
        result = job.result(one, two)
        assert result.values[:2] == (3 * 1_000_003, 6 * 1_000_003)
        self.expect_result(job, result)


class OneWorker(_Reduction):
    """A job of one rank completes with every packet."""

    ranks = 1

    def runTest(self) -> None:
        self.reduce_one()


class ThreeWorkers(_Reduction):
    """Neither one nor two of three contributions suffice."""

    ranks = 3

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank) for rank in range(3)]
        for packet in packets[:2]:
            self.contribute(job, packet, Verdict.AGGREGATED)
            self.expect_nothing()
        self.contribute(job, packets[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


@group("values")
class ThirtyTwoWorkers(_Reduction):
    """A job with as many ranks as a Tofino's bitmap has bits."""

    ranks = 32

    def runTest(self) -> None:
        self.reduce_one()


class AllWorkers(_Reduction):
    """A job with as many ranks as the target's bitmap has bits: the highest bit works too."""

    def runTest(self) -> None:
        self.ranks = self.target.max_workers
        self.reduce_one()


class AnyOrder(SwitchMLTest):
    """The sum does not depend on the order; the header is that of the last packet."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, order in enumerate(itertools.permutations(range(3))):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in order])


@group("values")
class SumsWrapAround(SwitchMLTest):
    """Sums are modulo 2^32 in every lane, for overflow and underflow."""

    def runTest(self) -> None:
        job = self.job(2)
        edges = (2**31 - 1, -(2**31), -1, 1, 0, 0x55555555)
        for phase, (left, right) in enumerate(itertools.product(edges, repeat=2)):
            values = [tuple([left] * job.values), tuple([right] * job.values)]
            self.reduce(job, [job.packet(rank, phase=phase, values=values[rank]) for rank in range(2)])


class CheckIsCarriedThrough(SwitchMLTest):
    """The check is summed modulo 2^32 whatever the values are: a wrong check stays wrong."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase, (left, right) in enumerate([(0xFFFFFFFF, 1), (0x80000000, 0x80000001), (0, 0), (123, 456)]):
            self.reduce(job, [job.packet(0, phase=phase, check=left), job.packet(1, phase=phase, check=right)])


class MaximumExponent(SwitchMLTest):
    """Every rank gets the largest exponent, whichever rank sends it."""

    def runTest(self) -> None:
        job = self.job(4)
        exponents = (0, EXPONENT_MAX_FINITE, EXPONENT_NON_FINITE, EXPONENT_UNKNOWN)
        for phase, order in enumerate(itertools.permutations(exponents)):
            packets = [job.packet(rank, phase=phase, exponent=order[rank]) for rank in range(4)]
            result = self.reduce(job, packets)
            assert result.exponent == EXPONENT_UNKNOWN
        for slot, exponent in enumerate(exponents, 1):
            packets = [job.packet(rank, slot, exponent=0) for rank in range(3)]
            result = self.reduce(job, [*packets, job.packet(3, slot, exponent=exponent)])
            assert result.exponent == exponent


@group("values")
class ExponentOnlyPhase(SwitchMLTest):
    """A phase without values: header, exponent and check are reduced, and the next phase sums values again."""

    def runTest(self) -> None:
        job = self.job(3)
        self.reduce(job, [job.without_values(rank, exponent=EXPONENT_UNKNOWN - rank) for rank in range(3)])
        self.reduce(job, [job.packet(rank, phase=1) for rank in range(3)])
        self.reduce(job, [job.without_values(rank, phase=2, exponent=rank) for rank in range(3)])
        self.reduce(job, [job.packet(rank, phase=3) for rank in range(3)])


@group("values")
class TailChunk(SwitchMLTest):
    """The last chunk of a tensor has fewer values: payload and result have full length, padded with zeros."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase, count in enumerate((1, job.values - 1, job.values)):
            values = [tuple([rank + 5] * count + [0] * (job.values - count)) for rank in range(2)]
            fields = {"count": count, "flags": Flag.LAST_CHUNK}
            result = self.reduce(job, [job.packet(n, phase=phase, values=values[n], **fields) for n in range(2)])
            assert result.values == tuple([11] * count + [0] * (job.values - count))


class HighestSlot(SwitchMLTest):
    """The last entry of the registers is usable."""

    def runTest(self) -> None:
        slots = 4
        job = self.job(2, slot_base=self.target.slots - slots, slots=slots)
        for phase in range(2):
            self.reduce(job, [job.packet(rank, slot=slots - 1, phase=phase) for rank in range(2)])
