"""Contributions with and without values in one phase: the first values overwrite; a RESULT has values if its phase has.

Before each of these tests the slots are dirty, with values in every lane.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.job import Job
from ptf_tests.wire import Packet
from switchml.dataplane.constants import NEXT_EXPONENT_BITS, NEXT_NONE, Flag, Verdict


class _DirtySlot(SwitchMLTest):
    """Begin with a slot whose half holds sums of an earlier job."""

    def setUp(self) -> None:
        super().setUp()
        if not self.target.results_grow:
            self.skipTest(f"{self.target.name} answers a contribution without values by a RESULT without values")

    def dirty_job(self, ranks: int) -> Job:
        """Return a job in a new epoch, whose slot 0 still holds the sums of another one."""
        with self.undone():
            old = self.job(ranks)
            self.reduce(old, [old.packet(rank) for rank in range(ranks)])
        return self.job(ranks)


@group("values")
class EmptyThenValues(_DirtySlot):
    """Values that follow a packet without any are not added to the slot's old contents."""

    def runTest(self) -> None:
        job = self.dirty_job(3)
        self.reduce(job, [job.without_values(0), job.packet(1), job.packet(2)])
        # The same within one epoch: phase 2 uses the half of phase 0.
        self.reduce(job, [job.without_values(0, phase=2), job.without_values(1, phase=2), job.packet(2, phase=2)])


@group("values")
class EmptyThenZeros(_DirtySlot):
    """The sums of a slot's earlier job cannot be obtained by adding zeros to them."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        result = self.reduce(job, [job.without_values(0), job.packet(1, values=(0,) * job.values)])
        self.assertEqual(set(result.values), {0})


@group("values")
class ValuesThenEmptyCompletes(_DirtySlot):
    """The rank that completes the phase has no values; the RESULT has, and its lengths, count and flags say so."""

    def runTest(self) -> None:
        job = self.dirty_job(3)
        self.reduce(job, [job.packet(0), job.packet(1), job.without_values(2, flags=Flag(0xFF))])


class EmptyInTheMiddle(_DirtySlot):
    """A packet without values does not change the sums."""

    def runTest(self) -> None:
        job = self.dirty_job(3)
        self.reduce(job, [job.packet(0), job.without_values(1), job.packet(2)])


class OneOwner(_DirtySlot):
    """One rank has values, at each place in the order; the RESULT has those values."""

    def runTest(self) -> None:
        ranks = self.target.max_workers
        job = self.dirty_job(ranks)
        for phase, owner in enumerate((0, 1, ranks - 1)):
            packets = [
                (job.packet if rank == owner else job.without_values)(rank, phase=phase) for rank in range(ranks)
            ]
            result = self.reduce(job, packets)
            self.assertEqual(result.values, tuple(value & 0xFFFFFFFF for value in packets[owner].values))


class AllEmpty(_DirtySlot):
    """A phase without any values has a RESULT without values, whatever the slot holds."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        packets = [job.without_values(rank) for rank in range(2)]
        self.assertEqual(self.reduce(job, packets).values, ())
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[1]))


class ResendToEmptyAsker(_DirtySlot):
    """A rank that had no values gets those of the others when it asks again."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        packets = [job.without_values(0), job.packet(1)]
        self.reduce(job, packets)
        for packet in packets:
            self.contribute(job, packet, Verdict.RESENT)
            self.expect_resend(job, job.result(*packets, asked_by=packet))


class DuplicateEmpty(_DirtySlot):
    """A duplicate without values changes nothing, before and after others have sent theirs."""

    def runTest(self) -> None:
        job = self.dirty_job(3)
        packets = [job.without_values(0), job.packet(1), job.packet(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[0], Verdict.DUPLICATE)
        self.contribute(job, packets[1], Verdict.AGGREGATED)
        self.contribute(job, packets[0], Verdict.DUPLICATE)
        self.contribute(job, packets[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class SecondThoughts(_DirtySlot):
    """A rank that sends values after it has contributed without any: they are the phase's first values."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        empty, late, other = job.without_values(0), job.packet(0), job.packet(1, values=(0,) * job.values)
        self.contribute(job, empty, Verdict.AGGREGATED)
        self.contribute(job, late, Verdict.DUPLICATE)
        self.contribute(job, other, Verdict.COMPLETED)
        # Its first check counts, so that no rank accepts the sum.
        self.expect_result(job, replace(job.result(empty, other), values=late.values))


class AskerWithValuesOfEmptyPhase(_DirtySlot):
    """A rank that asks with values for the RESULT of a phase without any gets its own back, and nothing older."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        packets = [job.without_values(rank) for rank in range(2)]
        self.reduce(job, packets)
        asking = job.packet(0)
        self.contribute(job, asking, Verdict.RESENT)
        self.expect_resend(job, replace(job.result(*packets, asked_by=asking), values=asking.values))


class EmptyTriggerWithTrailer(_DirtySlot):
    """An Ethernet trailer of the completing packet follows the RESULT, even if that is longer than the packet was."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        packets: list[Packet] = [job.packet(0), job.without_values(1)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED, trailer=6)
        self.expect_result(job, job.result(*packets), trailer=6)


class ColumnOfASparseCall(_DirtySlot):
    """Ranks send only the blocks that they have; each RESULT has one block's sum and names the next block."""

    def runTest(self) -> None:
        job = self.dirty_job(3)
        blocks = ({0, 3}, {3}, {3, 5})  # of each rank

        def named_after(rank: int, block: int) -> int:
            return min((other << NEXT_EXPONENT_BITS for other in blocks[rank] if other > block), default=NEXT_NONE)

        packets = [job.without_values(rank, chunk=named_after(rank, -1)) for rank in range(3)]
        result = self.reduce(job, packets)
        summed = []
        for phase in itertools.count(1):
            if result.chunk == NEXT_NONE:
                break
            block = result.chunk >> NEXT_EXPONENT_BITS
            packets = [
                (job.packet if block in blocks[rank] else job.without_values)(
                    rank, phase=phase, chunk=named_after(rank, block)
                )
                for rank in range(3)
            ]
            result = self.reduce(job, packets)
            self.assertTrue(result.values)
            summed.append(block)
        self.assertEqual(summed, [0, 3, 5])


class LargerExponentWithoutValues(_DirtySlot):
    """The exponent and check of a packet without values count like any other's."""

    def runTest(self) -> None:
        job = self.dirty_job(2)
        packets = [job.packet(0, exponent=3, check=5), replace(job.without_values(1), exponent=200, check=0xFFFFFFFF)]
        result = self.reduce(job, packets)
        self.assertEqual((result.exponent, result.check), (200, 4))
