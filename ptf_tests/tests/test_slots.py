"""Slots and their halves: their contents are independent, and a half is reused without being cleared."""

from __future__ import annotations

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import Verdict


class OtherHalf(SwitchMLTest):
    """Phase 1 uses the other half; its sum contains nothing of phase 0."""

    def runTest(self) -> None:
        job = self.job(2)
        self.reduce(job, [job.packet(rank) for rank in range(2)])
        self.reduce(job, [job.packet(rank, phase=1) for rank in range(2)])


@group("values")
class BothHalvesInFlight(SwitchMLTest):
    """One rank is a phase ahead: both halves of a slot collect at the same time."""

    def runTest(self) -> None:
        job = self.job(3)
        first = [job.packet(rank) for rank in range(3)]
        second = [job.packet(rank, phase=1) for rank in range(3)]
        for packet in (first[0], second[0], second[1], first[1]):
            self.contribute(job, packet, Verdict.AGGREGATED)
        self.contribute(job, second[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(second[0], second[1], second[2]))
        self.contribute(job, first[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(*first))


@group("values")
class SlotReuse(SwitchMLTest):
    """A slot is used phase after phase; each phase overwrites what the half held two phases earlier."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase in range(8):
            order = (0, 1) if phase % 3 else (1, 0)
            self.reduce(job, [job.packet(rank, phase=phase) for rank in order])


class SlotReuseAndResend(SwitchMLTest):
    """After reuse, a resend contains the new phase, not the one before."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase in (0, 2):
            packets = [job.packet(rank, phase=phase) for rank in range(2)]
            self.reduce(job, packets)
            self.contribute(job, packets[0], Verdict.RESENT)
            self.expect_resend(job, job.result(*packets, asked_by=packets[0]))


class ReuseOverIncompletePhase(SwitchMLTest):
    """A newer phase overwrites even a half that was never completed: the sum contains nothing of it."""

    def runTest(self) -> None:
        job = self.job(2)
        self.contribute(job, job.packet(0, exponent=256), Verdict.AGGREGATED)
        self.reduce(job, [job.packet(rank, phase=2) for rank in range(2)])


class ValuesAfterExponentOnly(SwitchMLTest):
    """Values of a half do not return after an exponent-only phase has used it in between."""

    def runTest(self) -> None:
        job = self.job(2)
        self.reduce(job, [job.packet(rank) for rank in range(2)])
        self.reduce(job, [job.without_values(rank, phase=2) for rank in range(2)])
        self.reduce(job, [job.packet(rank, phase=4) for rank in range(2)])


class ManySlotsInFlight(SwitchMLTest):
    """All slots of a job collect at the same time and complete in another order."""

    def runTest(self) -> None:
        job = self.job(2)
        for slot in range(job.slots):
            self.contribute(job, job.packet(0, slot), Verdict.AGGREGATED)
        self.expect_nothing()
        for slot in reversed(range(job.slots)):
            self.contribute(job, job.packet(1, slot), Verdict.COMPLETED)
            self.expect_result(job, job.result(job.packet(0, slot), job.packet(1, slot)))


class HighestPhase(SwitchMLTest):
    """Phases are compared as unsigned numbers, up to the largest 32-bit value."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase in (1, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in range(2)])
        self.contribute(job, job.packet(0, phase=0x7FFFFFFF), Verdict.STALE)
        self.expect_nothing()
