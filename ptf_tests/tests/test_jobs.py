"""Several jobs on one switch: each has its own slots, which no other job can change."""

from __future__ import annotations

from ptf_tests.base import SwitchMLTest
from ptf_tests.job import default_host
from switchml.dataplane.constants import DropReason, Verdict


class TwoJobsOnNeighbouringSlots(SwitchMLTest):
    """Jobs with adjacent slot ranges run interleaved: sums, exponents and results stay separate."""

    def runTest(self) -> None:
        left = self.job(2, job_id=1, slot_base=16, slots=16)
        right = self.job([default_host(rank) for rank in (4, 5, 6)], job_id=2, slot_base=32, slots=16)
        for phase in range(3):
            ours = [left.packet(rank, slot=15, phase=phase) for rank in range(2)]
            theirs = [right.packet(rank, slot=0, phase=phase) for rank in range(3)]
            self.contribute(left, ours[0], Verdict.AGGREGATED)
            self.contribute(right, theirs[0], Verdict.AGGREGATED)
            self.contribute(right, theirs[1], Verdict.AGGREGATED)
            self.contribute(left, ours[1], Verdict.COMPLETED)
            self.expect_result(left, left.result(*ours))
            self.contribute(right, theirs[2], Verdict.COMPLETED)
            self.expect_result(right, right.result(*theirs))


class SameHostsInTwoJobs(SwitchMLTest):
    """One host has a rank of each of two jobs, on one socket: the job in the header distinguishes them."""

    def runTest(self) -> None:
        one = self.job(2, job_id=1, slot_base=0, slots=8)
        two = self.job(2, job_id=2, slot_base=8, slots=8)
        self.contribute(one, one.packet(0), Verdict.AGGREGATED)
        self.reduce(two, [two.packet(rank) for rank in range(2)])
        packets = [one.packet(rank) for rank in range(2)]
        self.contribute(one, packets[1], Verdict.COMPLETED)
        self.expect_result(one, one.result(*packets))


class SlotOutOfRange(SwitchMLTest):
    """The slot before the first and the one after the last are refused, and so is a neighbour's."""

    def runTest(self) -> None:
        job = self.job(2, job_id=1, slot_base=32, slots=16)
        neighbour = self.job(2, job_id=2, slot_base=48, slots=16)
        self.contribute(neighbour, neighbour.packet(0), Verdict.AGGREGATED)
        for slot in (-1, 16, -32, 17, self.target.slots - 1 - 32, 0x7FFF - 32):
            for phase in (0, 1):
                packet = job.packet(0, slot=slot, phase=phase)
                self.refuse(packet, job.hosts[0], DropReason.SLOT_OUT_OF_RANGE)
        self.expect_nothing()
        packets = [neighbour.packet(rank) for rank in range(2)]
        self.contribute(neighbour, packets[1], Verdict.COMPLETED)
        self.expect_result(neighbour, neighbour.result(*packets))


class UnknownJob(SwitchMLTest):
    """A job that is not in the tables is refused, whatever the rest of the packet contains."""

    def runTest(self) -> None:
        job = self.job(2, job_id=3)
        for number in (0, 2, 4, 1023, 1024, 0xFFFF):
            self.refuse(job.packet(0, job=number), job.hosts[0], DropReason.UNKNOWN_JOB)
        self.refuse(job.packet(0, slot=100, job=4), job.hosts[1], DropReason.UNKNOWN_JOB)
        self.expect_nothing()


class EndedJob(SwitchMLTest):
    """When a job's entries are deleted, its ranks are unknown, and its slots serve the next job."""

    def runTest(self) -> None:
        with self.undone():
            ended = self.job(2, job_id=1)
            self.contribute(ended, ended.packet(0), Verdict.AGGREGATED)
        self.refuse(ended.packet(1), ended.hosts[1], DropReason.UNKNOWN_JOB)
        self.expect_nothing()
        following = self.job(2, job_id=2)
        self.reduce(following, [following.packet(rank) for rank in range(2)])
