"""RESULTs that some ranks read: only the copies that go to these have the values, and all copies complete the phase."""

from __future__ import annotations

from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import contribution_frame, result_frame
from ptf_tests.job import Job, default_host
from switchml.dataplane.constants import OWNER_EXCEPT, OWNER_FIRST, DropReason, Flag, Verdict


class _OwnedResults(SwitchMLTest):
    def setUp(self) -> None:
        super().setUp()
        if not self.target.owned_results:
            self.skipTest(f"{self.target.name} sends the values in every copy of a RESULT")


@group("values")
class ValuesForTheOwner(_OwnedResults):
    """Each rank in turn is the owner, and each in turn completes the phase."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, (owner, last) in enumerate((owner, last) for owner in range(3) for last in range(3)):
            order = [rank for rank in range(3) if rank != last] + [last]
            packets = [job.packet(rank, phase=phase, owner=OWNER_FIRST + owner) for rank in order]
            result = self.reduce(job, packets)
            self.assertEqual([bool(result.copy_for([rank]).values) for rank in range(3)].index(True), owner)


@group("values")
class ValuesForAllButOne(_OwnedResults):
    """Each rank in turn has no use for the values, and each in turn completes the phase."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, (giver, last) in enumerate((giver, last) for giver in range(3) for last in range(3)):
            order = [rank for rank in range(3) if rank != last] + [last]
            packets = [job.packet(rank, phase=phase, owner=OWNER_EXCEPT + OWNER_FIRST + giver) for rank in order]
            result = self.reduce(job, packets)
            self.assertEqual([bool(result.copy_for([rank]).values) for rank in range(3)].index(False), giver)


@group("values")
class ResendByOwner(_OwnedResults):
    """A resend has the values if a rank asks for it that reads them, and none if another rank does."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, owner in enumerate((OWNER_FIRST + 1, OWNER_EXCEPT + OWNER_FIRST + 1)):
            packets = [job.packet(rank, phase=phase, owner=owner) for rank in range(3)]
            self.reduce(job, packets)
            for rank in (0, 1, 2, 1, 0):
                again = replace(packets[rank], flags=Flag.RETRANSMISSION)
                self.contribute(job, again, Verdict.RESENT)
                self.expect_resend(job, job.result(*packets, asked_by=again))


@group("values")
class HighestOwners(_OwnedResults):
    """The last rank that a bitmap has can be named; with a number above it, no copy has values, or all have."""

    def runTest(self) -> None:
        ranks = self.target.max_workers
        job = self.job(ranks)
        owners = (OWNER_FIRST + ranks - 1, OWNER_FIRST + ranks, 0x7F)
        for phase, owner in enumerate((*owners, *(OWNER_EXCEPT + owner for owner in owners))):
            self.reduce(job, [job.packet(rank, phase=phase, owner=owner) for rank in range(ranks)])


class OwnerOfPhaseWithoutValues(_OwnedResults):
    """Without values there is nothing to remove: all copies are alike."""

    def runTest(self) -> None:
        job = self.job(2)
        self.reduce(job, [job.without_values(rank, owner=OWNER_FIRST) for rank in range(2)])


class OwnerOfTheTrigger(_OwnedResults):
    """The packet that completes the phase names the owner of all copies, that of a resend its own."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank, owner=owner) for rank, owner in enumerate((0, OWNER_FIRST + 2, OWNER_FIRST + 1))]
        self.reduce(job, packets)
        for packet in packets:
            self.contribute(job, packet, Verdict.RESENT)
            self.expect_resend(job, job.result(*packets, asked_by=packet))


class RanksAtOneAddress(_OwnedResults):
    """A copy that goes to several ranks has the values if one of these reads them, whichever entry addresses it."""

    def runTest(self) -> None:
        job = self.job(3)
        places = ([0], [1, 2], [1, 2])
        self.control.modify(*(job.rank_entry(rank, places[rank]) for rank in (1, 2)))
        owners = [first + rank for first in (OWNER_FIRST, OWNER_EXCEPT + OWNER_FIRST) for rank in range(3)]
        for phase, owner in enumerate(owners):
            packets = [job.packet(rank, phase=phase, owner=owner) for rank in range(3)]
            for packet in packets[:2]:
                self.contribute(job, packet, Verdict.AGGREGATED)
            self.contribute(job, packets[2], Verdict.COMPLETED)
            result = job.result(*packets)
            copies = [result_frame(result.copy_for(places[rank]), job.hosts[rank]) for rank in range(3)]
            self.expect({host.port: [copy] for host, copy in zip(job.hosts, copies, strict=True)})


@group("values")
class EmptyCopyWithTrailer(_OwnedResults):
    """Bytes behind the IPv4 packet stay behind a copy without values."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank, owner=OWNER_FIRST) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED, trailer=7)
        self.expect_result(job, job.result(*packets), trailer=7)


class OwnerWithoutAddress(_OwnedResults):
    """The owner's copy is dropped if the owner has no address; the others get theirs."""

    def runTest(self) -> None:
        job = Job(1, next(self._epochs), tuple(map(default_host, range(2))), self.target.values)
        self.insert(*(entity for entity in job.entities() if entity != job.rank_entry(0)))
        packets = [job.packet(rank, owner=OWNER_FIRST) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.count_drop(DropReason.NO_RANK_ADDRESS, len(contribution_frame(packets[1], job.hosts[1])))
        self.expect_resend(job, job.result(*packets))


class ValuesInEveryCopy(SwitchMLTest):
    """A target that cannot remove values leaves the owner in the RESULT, and the values in every copy."""

    def runTest(self) -> None:
        if self.target.owned_results:
            self.skipTest(f"{self.target.name} sends the values to the owner alone")
        job = self.job(3)
        for phase, owner in enumerate((OWNER_FIRST, OWNER_FIRST + 2, 0xFF)):
            packets = [job.packet(rank, phase=phase, owner=owner) for rank in range(3)]
            for packet in packets[:2]:
                self.contribute(job, packet, Verdict.AGGREGATED)
            self.contribute(job, packets[2], Verdict.COMPLETED)
            result = job.result(*packets)
            self.expect({host.port: [result_frame(result, host)] for host in job.hosts})
            again = replace(packets[0], flags=Flag.RETRANSMISSION)
            self.contribute(job, again, Verdict.RESENT)
            self.expect({job.hosts[0].port: [result_frame(job.result(*packets, asked_by=again), job.hosts[0])]})
