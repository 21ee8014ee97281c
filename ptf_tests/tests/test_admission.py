"""Admission: a packet is accepted only if port, MAC, IP, UDP port, job, rank and slot match one entry."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import Host
from ptf_tests.job import Job, default_host
from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Kind, Verdict


class _Impostor(SwitchMLTest):
    """Rank 1's packets come with one address changed; rank 1 itself still completes the slot."""

    changes: tuple[dict[str, int], ...]

    def impersonate(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        for change in self.changes:
            self.refuse(packets[1], job.hosts[1].moved(**change), DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class WrongPort(_Impostor):
    """From another port: one of another rank, one without a rank."""

    changes = ({"port": 1}, {"port": 8})

    def runTest(self) -> None:
        self.impersonate()


class WrongMac(_Impostor):
    """From another MAC: unknown, the other rank's, and ones that differ in the first or last bit."""

    changes = ({"mac": 0x020000000200}, {"mac": 0x020000000100}, {"mac": 0x820000000101}, {"mac": 0x020000000103})

    def runTest(self) -> None:
        self.impersonate()


class WrongIp(_Impostor):
    """From another IPv4 address."""

    changes = ({"ip": 0x0A000200}, {"ip": 0x0A000100}, {"ip": 0x8A000101}, {"ip": 0x0A000103})

    def runTest(self) -> None:
        self.impersonate()


class WrongUdpPort(_Impostor):
    """From another socket of the same host."""

    changes = ({"udp_port": 40000}, {"udp_port": 40002}, {"udp_port": 0xBEE0}, {"udp_port": 0})

    def runTest(self) -> None:
        self.impersonate()


class WrongRank(SwitchMLTest):
    """A rank cannot send as another rank, nor as one that the job does not have."""

    def runTest(self) -> None:
        job = self.job(2)
        self.contribute(job, job.packet(0), Verdict.AGGREGATED)
        for worker in (1, 2, 63, 64, 255):
            self.refuse(job.packet(0, worker=worker), job.hosts[0], DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class WrongSecret(SwitchMLTest):
    """A packet that is right except for the epoch's secret is refused, whichever bit differs."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        for secret in (0, job.secret ^ 1, job.secret ^ 1 << 31, ~job.secret & 0xFFFFFFFF, 0xFFFFFFFF):
            self.refuse(job.packet(1, secret=secret), job.hosts[1], DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class StrangersOfEveryShape(SwitchMLTest):
    """Packets from an unknown sender are counted as such for either half, with values or without."""

    def runTest(self) -> None:
        job = self.job(2)
        stranger = job.hosts[0].moved(mac=0x020000000200)
        for phase in (0, 1):
            for packet in (job.packet(0, phase=phase), job.without_values(0, phase=phase)):
                self.refuse(packet, stranger, DropReason.UNKNOWN_WORKER)
        self.expect_nothing()


_STRANGERS = {"port": 8, "mac": 0x020000000200, "ip": 0x0A000200}
_FIELDS = (*_STRANGERS, "job", "rank", "epoch")


def _wrong(job: Job) -> Iterator[tuple[set[str], Packet, Host]]:
    """Yield the packets of a job's rank 1 with each of the 63 combinations of fields that are not its own."""
    others: dict[str, Any] = {"job": job.id + 6, "worker": 0, "epoch": job.epoch + 1}
    for count in range(1, len(_FIELDS) + 1):
        for names in map(set, combinations(_FIELDS, count)):
            header = {"worker" if name == "rank" else name for name in names}
            packet = job.packet(1, **{name: value for name, value in others.items() if name in header})
            moved = {name: value for name, value in _STRANGERS.items() if name in names}
            yield names, packet, job.hosts[1].moved(**moved)


class EveryWrongCombination(SwitchMLTest):
    """Port, MAC, IP address, job, rank and epoch, each right or wrong: a packet is added only if all are right."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        for names, packet, sender in _wrong(job):
            if names == {"epoch"}:
                self.contribute(job, packet, Verdict.WRONG_EPOCH)
            else:
                reason = DropReason.UNKNOWN_JOB if "job" in names else DropReason.UNKNOWN_WORKER
                self.refuse(packet, sender, reason)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class EveryForgedResult(SwitchMLTest):
    """A RESULT from a host port is dropped as such, whether its fields are a rank's own or not."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        for _, packet, sender in _wrong(job):
            self.refuse(job.result(packets[0], packet), sender, DropReason.FORGED_RESULT)
        self.refuse(job.packet(1, kind=Kind.RESULT), job.hosts[1], DropReason.FORGED_RESULT)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


class RankOfAnotherJob(SwitchMLTest):
    """A rank of one live job cannot send to another one, in the slots of either."""

    def runTest(self) -> None:
        mine = self.job(2)
        theirs = self.job([default_host(rank) for rank in (2, 3)], job_id=2, slot_base=64)
        packets = [theirs.packet(rank) for rank in range(2)]
        self.contribute(theirs, packets[0], Verdict.AGGREGATED)
        for rank in range(2):
            self.refuse(theirs.packet(rank), mine.hosts[rank], DropReason.UNKNOWN_WORKER)
            self.refuse(mine.packet(rank, job=theirs.id), mine.hosts[rank], DropReason.SLOT_OUT_OF_RANGE)
            self.refuse(theirs.packet(rank, job=mine.id), mine.hosts[rank], DropReason.SLOT_OUT_OF_RANGE)
        self.expect_nothing()
        self.contribute(theirs, packets[1], Verdict.COMPLETED)
        self.expect_result(theirs, theirs.result(*packets))


class RefusalsInOrder(SwitchMLTest):
    """If several reasons hold: unknown job precedes slot out of range, unknown worker and wrong epoch in turn."""

    def runTest(self) -> None:
        job = self.job(2)
        stranger = job.hosts[0].moved(ip=0x0A000999)
        wrong = {"epoch": job.epoch + 1, "phase": 0}
        self.refuse(job.packet(0, slot=64, job=7, **wrong), stranger, DropReason.UNKNOWN_JOB)
        self.refuse(job.packet(0, slot=64, **wrong), stranger, DropReason.SLOT_OUT_OF_RANGE)
        self.refuse(job.packet(0, **wrong), stranger, DropReason.UNKNOWN_WORKER)
        self.contribute(job, job.packet(0, **wrong), Verdict.WRONG_EPOCH)
        self.expect_nothing()


class AnyDestinationAddress(SwitchMLTest):
    """The UDP port alone marks a SwitchML packet: the switch need not be its Ethernet or IPv4 destination."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED, eth_dst=job.hosts[1].mac, ipv4_dst=job.hosts[1].ip)
        self.contribute(job, packets[1], Verdict.COMPLETED, eth_dst=0xFFFFFFFFFFFF, ipv4_dst=0xFFFFFFFF)
        self.expect_result(job, job.result(*packets))
