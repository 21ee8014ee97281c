"""Late packets: a copy of an old packet, however late it arrives, is never added to a sum."""

from __future__ import annotations

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import Verdict


class LateDuplicateAfterNextPhase(SwitchMLTest):
    """A copy from phase p arrives after its sender entered p+1: it only asks for a resend."""

    def runTest(self) -> None:
        job = self.job(3)
        first = [job.packet(rank) for rank in range(3)]
        second = [job.packet(rank, phase=1) for rank in range(3)]
        self.reduce(job, first)
        self.contribute(job, second[0], Verdict.AGGREGATED)
        self.contribute(job, first[0], Verdict.RESENT)
        self.expect_resend(job, job.result(*first, asked_by=first[0]))
        for rank in (1, 2):
            self.contribute(job, second[rank], Verdict.AGGREGATED if rank == 1 else Verdict.COMPLETED)
        self.expect_result(job, job.result(*second))


class LateDuplicateIsNoContributionToPhaseAfterNext(SwitchMLTest):
    """The flaw of the one-bit version: the copy from p must not count as its sender's contribution to p+2."""

    def runTest(self) -> None:
        job = self.job(3)
        first = [job.packet(rank) for rank in range(3)]
        second = [job.packet(rank, phase=1) for rank in range(3)]
        third = [job.packet(rank, phase=2) for rank in range(3)]
        self.reduce(job, first)
        self.reduce(job, second)
        # Phase p+2 has not begun: the half still holds p, and the copy is answered with it.
        self.contribute(job, first[0], Verdict.RESENT)
        self.expect_resend(job, job.result(*first, asked_by=first[0]))
        # It has begun: the copy is stale, even if p+2 still waits for its sender.
        self.contribute(job, third[1], Verdict.AGGREGATED)
        for rank in (0, 1, 2):
            self.contribute(job, first[rank], Verdict.STALE)
        self.contribute(job, third[2], Verdict.AGGREGATED)
        self.contribute(job, first[0], Verdict.STALE)
        self.expect_nothing()
        self.contribute(job, third[0], Verdict.COMPLETED)
        self.expect_result(job, job.result(third[1], third[2], third[0]))


class LateDuplicateAfterCompletionOfPhaseAfterNext(SwitchMLTest):
    """When p+2 is complete, the copy from p is stale: it is neither added nor answered."""

    def runTest(self) -> None:
        job = self.job(2)
        first = [job.packet(rank) for rank in range(2)]
        for phase in range(3):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in range(2)])
        for packet in first:
            self.contribute(job, packet, Verdict.STALE)
        self.expect_nothing()
        third = [job.packet(rank, phase=2) for rank in range(2)]
        self.contribute(job, third[1], Verdict.RESENT)
        self.expect_resend(job, job.result(*third, asked_by=third[1]))


class Stale(SwitchMLTest):
    """Packets of any earlier phase of the half, including those without values, are dropped and counted."""

    def runTest(self) -> None:
        job = self.job(2)
        self.contribute(job, job.packet(0, phase=10), Verdict.AGGREGATED)
        for phase in (8, 2, 0):
            self.contribute(job, job.packet(1, phase=phase), Verdict.STALE)
            self.contribute(job, job.without_values(0, phase=phase), Verdict.STALE)
        self.expect_nothing()
        packets = [job.packet(rank, phase=10) for rank in range(2)]
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))
