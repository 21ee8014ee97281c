"""Retransmission: a rank that asks again gets the stored result alone, and no rank is added twice."""

from __future__ import annotations

from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import Flag, Verdict


@group("values")
class ResendToThatWorkerAlone(SwitchMLTest):
    """After completion, each rank that asks again gets the result, and no other rank receives it."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank) for rank in range(3)]
        self.reduce(job, packets)
        for rank in (1, 0, 2, 1):
            again = replace(packets[rank], flags=Flag.RETRANSMISSION)
            self.contribute(job, again, Verdict.RESENT)
            self.expect_resend(job, job.result(*packets, asked_by=again))


class ResendOfWhatIsStored(SwitchMLTest):
    """A resend contains what the slot holds, whatever values, exponent, check and chunk the asking packet has."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank, chunk=50 - rank) for rank in range(2)]
        self.reduce(job, packets)
        for chunk in (77, 3):
            other = job.packet(0, values=tuple([-1] * job.values), exponent=254, check=99, chunk=chunk)
            self.contribute(job, other, Verdict.RESENT)
            self.expect_resend(job, job.result(*packets, asked_by=other))
        # The asking packet has changed nothing.
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[1]))


class ResendOfExponentOnlyPhase(SwitchMLTest):
    """The result of a phase without values is also resent."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.without_values(rank) for rank in range(2)]
        self.reduce(job, packets)
        self.contribute(job, packets[0], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[0]))


class ResendFromPreviousHalf(SwitchMLTest):
    """A rank that lost the result of phase p gets it while the others are already in p+1."""

    def runTest(self) -> None:
        job = self.job(3)
        first = [job.packet(rank) for rank in range(3)]
        second = [job.packet(rank, phase=1) for rank in range(3)]
        self.reduce(job, first)
        for rank in (0, 1):
            self.contribute(job, second[rank], Verdict.AGGREGATED)
        self.contribute(job, first[2], Verdict.RESENT)
        self.expect_resend(job, job.result(*first, asked_by=first[2]))
        self.contribute(job, second[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(*second))


class DuplicateBeforeCompletion(SwitchMLTest):
    """A retransmission into an incomplete slot is dropped; the sum contains the contribution once."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank) for rank in range(3)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[0], Verdict.DUPLICATE)
        self.contribute(job, packets[1], Verdict.AGGREGATED)
        for rank in (0, 1, 0):
            self.contribute(job, replace(packets[rank], flags=Flag.RETRANSMISSION), Verdict.DUPLICATE)
        # Its exponent and check, which would be larger, do not count either.
        self.contribute(job, replace(packets[0], exponent=256, check=1), Verdict.DUPLICATE)
        self.expect_nothing()
        self.contribute(job, packets[2], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class DuplicateOfExponentOnly(SwitchMLTest):
    """The same holds in a phase without values."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.without_values(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, replace(packets[0], exponent=256), Verdict.DUPLICATE)
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class ResendInJobOfOne(SwitchMLTest):
    """A job of one rank completes with its first packet; the second asks for a resend."""

    def runTest(self) -> None:
        job = self.job(1)
        packet = job.packet(0)
        self.reduce(job, [packet])
        self.contribute(job, packet, Verdict.RESENT)
        self.expect_resend(job, job.result(packet))
