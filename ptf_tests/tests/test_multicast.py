"""Multicast of results: to exactly the job's ranks, once each, to each rank's own address."""

from __future__ import annotations

from dataclasses import replace

import finsy as fy

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import Host, contribution_frame, result_frame
from ptf_tests.job import Job, default_host
from switchml.dataplane.constants import DropReason, Verdict


class ExactlyTheRanks(SwitchMLTest):
    """Ranks on some of the ports: those ports get one copy each, including the sender's; the others get none."""

    def runTest(self) -> None:
        job = self.job([default_host(number) for number in (1, 4, 6)])
        self.assertEqual([host.port for host in job.hosts], [2, 5, 7])
        for phase, order in enumerate([(0, 1, 2), (2, 1, 0)]):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in order])


class TwoRanksOnOnePort(SwitchMLTest):
    """Ranks of one host share its port, MAC and IP address: each gets its copy, distinguished by the UDP port."""

    def runTest(self) -> None:
        first = default_host(0)
        job = self.job([first, first.moved(udp_port=41000), default_host(3)])
        for phase in range(2):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in range(3)])
        packets = [job.packet(rank, phase=1) for rank in range(3)]
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[1]))


class AllRanksOnOnePort(SwitchMLTest):
    """A whole job on one port."""

    def runTest(self) -> None:
        job = self.job([default_host(rank).moved(port=3) for rank in range(8)])
        self.reduce(job, [job.packet(rank) for rank in range(8)])


class RankWithoutAddress(SwitchMLTest):
    """A rank that is not in the rank table gets nothing, which is counted; the others get their copies."""

    def runTest(self) -> None:
        job = self._job_without_address_of(1)
        packets = [job.packet(rank) for rank in range(3)]
        for packet in packets[:2]:
            self.contribute(job, packet, Verdict.AGGREGATED)
        self.contribute(job, packets[2], Verdict.COMPLETED)
        length = len(contribution_frame(packets[2], job.hosts[2]))
        self.count_drop(DropReason.NO_RANK_ADDRESS, length)
        result = job.result(*packets)
        self.expect({job.hosts[rank].port: [result_frame(result, job.hosts[rank])] for rank in (0, 2)})
        # A resend to it cannot be addressed either.
        self.contribute(job, packets[1], Verdict.RESENT)
        self.count_drop(DropReason.NO_RANK_ADDRESS, length)
        self.expect_nothing()

    def _job_without_address_of(self, rank: int) -> Job:
        job = Job(1, next(self._epochs), tuple(map(default_host, range(3))), self.target.values)
        left_out = job.rank_entry(rank)
        self.insert(*(entity for entity in job.entities() if entity != left_out))
        return job


class GroupWithoutReplicas(SwitchMLTest):
    """A result to an empty group, or to one that does not exist, goes nowhere; a rank can still ask for it."""

    def runTest(self) -> None:
        job = Job(1, next(self._epochs), tuple(map(default_host, range(2))), self.target.values)
        self.insert(*(entity for entity in job.entities() if entity != job.group_entry()))
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_nothing()
        self.insert(fy.P4MulticastGroupEntry(job.id))
        again = [job.packet(rank, phase=1) for rank in range(2)]
        self.contribute(job, again[0], Verdict.AGGREGATED)
        self.contribute(job, again[1], Verdict.COMPLETED)
        self.expect_nothing()
        self.contribute(job, packets[0], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[0]))


class GroupOfTheEntry(SwitchMLTest):
    """The group is the one in the worker's entry, not the one with the job's id: that group gets nothing."""

    def runTest(self) -> None:
        job = Job(1, next(self._epochs), tuple(map(default_host, range(2))), self.target.values, group=700)
        self.insert(*job.entities(), fy.P4MulticastGroupEntry(job.id, replicas=((5, 0), (6, 1))))
        self.reduce(job, [job.packet(rank) for rank in range(2)])


class AddressesChange(SwitchMLTest):
    """Changes of a group and of a rank's address take effect with the next result."""

    def runTest(self) -> None:
        job = self.job(2)
        self.reduce(job, [job.packet(rank) for rank in range(2)])
        moved = Host(7, 0x0200000007AA, 0x0A00AA07, 45000)
        after = replace(job, hosts=(job.hosts[0], moved))
        self.insert(after.worker_entry(1))
        self.control.modify(after.rank_entry(1), after.group_entry())
        self.reduce(after, [after.packet(rank, phase=1) for rank in range(2)])
