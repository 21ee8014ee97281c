"""Malformed packets: each is dropped for exactly one reason, the first in the order of constants.toml."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import SWITCH_MAC, Host, contribution_frame
from ptf_tests.job import Job
from ptf_tests.wire import Packet
from switchml.dataplane.constants import (
    EXPONENT_UNKNOWN,
    PROTOCOL_HEADER_BYTES,
    PROTOCOL_MAX_VALUES,
    PROTOCOL_VERSION,
    DropReason,
    Flag,
    Kind,
    Verdict,
)

_HEADERS = 14 + 20 + 8  # bytes of the Ethernet, IPv4 and UDP headers


class _Malformed(SwitchMLTest):
    def refuse_all(self, reason: DropReason, packets: list[Packet], job: Job) -> None:
        for packet in packets:
            self.refuse(packet, job.hosts[packet.worker], reason)
        self.expect_nothing()
        # None of them has changed the slot.
        self.reduce(job, [job.packet(rank) for rank in range(len(job.hosts))])


class WrongVersion(_Malformed):
    """Every version except the supported one."""

    def runTest(self) -> None:
        job = self.job(2)
        self.refuse_all(
            DropReason.BAD_VERSION, [job.packet(0, version=version) for version in (0, 2, 3, 129, 255)], job
        )


class WrongKind(_Malformed):
    """Neither CONTRIBUTION nor RESULT."""

    def runTest(self) -> None:
        job = self.job(2)
        self.refuse_all(DropReason.BAD_KIND, [job.packet(0, kind=kind) for kind in (0, 3, 128, 255)], job)


class WrongFormat(_Malformed):
    """Numbers of formats that do not exist."""

    def runTest(self) -> None:
        job = self.job(2)
        self.refuse_all(DropReason.BAD_FORMAT, [job.packet(0, format=number) for number in (0, 3, 255)], job)


class WrongExponent(_Malformed):
    """An exponent above `unknown`, with values and without."""

    def runTest(self) -> None:
        job = self.job(2)
        exponents = (EXPONENT_UNKNOWN + 1, 0x8000, 0xFFFF)
        packets = [job.packet(0, exponent=exponent) for exponent in exponents]
        packets += [job.without_values(0, exponent=exponent) for exponent in exponents]
        self.refuse_all(DropReason.BAD_EXPONENT, packets, job)


@group("values")
class WrongCount(_Malformed):
    """A count above the number of values, 0 in a packet with values, or above 0 in a packet without."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(0, count=count) for count in (0, job.values + 1, PROTOCOL_MAX_VALUES, 0xFFFF)]
        packets += [job.without_values(0, count=count) for count in (1, job.values)]
        packets.append(job.packet(0, flags=Flag.WITHOUT_VALUES))
        self.refuse_all(DropReason.BAD_COUNT, packets, job)


@group("values")
class WrongLength(_Malformed):
    """A payload that is incomplete, too long, or contradicts the flag."""

    def runTest(self) -> None:
        job = self.job(2)
        whole = job.packet(0)
        lengths = (0, 1, job.values - 1, job.values + 1, 2 * job.values)
        packets = [replace(whole, values=(7,) * length) for length in lengths]
        packets.append(replace(whole, flags=Flag.WITHOUT_VALUES, count=0))
        packets += [job.without_values(0, values=(7,) * length) for length in (1, job.values)]
        self.refuse_all(DropReason.BAD_LENGTH, packets, job)


class WrongUdpOrIpLength(_Malformed):
    """UDP announces another length than the payload has, or IPv4 continues after the end of UDP."""

    def runTest(self) -> None:
        job = self.job(2)
        packet, host = job.packet(0), job.hosts[0]
        length = len(packet.pack())
        for udp_length in (8 + PROTOCOL_HEADER_BYTES + 1, 8 + length - 1, 8 + length + 1, 0xFFFF):
            self.refuse(packet, host, DropReason.BAD_LENGTH, udp_len=udp_length)
        for ip_length in (20 + 8 + length + 1, 0xFFFF):
            self.refuse(packet, host, DropReason.BAD_LENGTH, len=ip_length)
        self.refuse_all(DropReason.BAD_LENGTH, [], job)


class HalfContradictsPhase(_Malformed):
    """The lowest bit of the slot must be that of the phase."""

    def runTest(self) -> None:
        job = self.job(2)
        phases = (0, 1, 2, 0xFFFFFFFF)
        right = [make(0, phase=phase) for phase in phases for make in (job.packet, job.without_values)]
        self.refuse_all(DropReason.BAD_HALF, [replace(packet, slot=packet.slot ^ 1) for packet in right], job)


class RuntLengths(_Malformed):
    """UDP or IPv4 ends inside the SwitchML header, or IPv4 inside the values that UDP announces."""

    def runTest(self) -> None:
        job = self.job(2)
        packet, host = job.packet(0), job.hosts[0]
        length = len(packet.pack())
        for udp_length in (0, 1, 7, 8, 8 + PROTOCOL_HEADER_BYTES - 1):
            self.refuse(packet, host, DropReason.RUNT, udp_len=udp_length)
        for ip_length in (0, 19, 20, 28, 20 + 8 + PROTOCOL_HEADER_BYTES - 1, 20 + 8 + PROTOCOL_HEADER_BYTES):
            self.refuse(packet, host, DropReason.RUNT, len=ip_length)
        self.refuse(packet, host, DropReason.RUNT, len=20 + 8 + length - 1)
        self.refuse_all(DropReason.RUNT, [], job)


@group("values")
class TruncatedFrames(_Malformed):
    """A contribution truncated at every byte: after the UDP header it is a runt, before it an ordinary frame."""

    def runTest(self) -> None:
        job = self.job(2)
        for packet in (job.packet(0), job.without_values(0)):
            frame = contribution_frame(packet, job.hosts[0])
            for length in range(self.target.shortest_frame, len(frame)):
                # Without an Ethernet header there is no destination; without a UDP header nothing marks a SwitchML
                # packet.
                ordinary = 14 <= length < _HEADERS
                self.send(1, frame[:length], DropReason.NO_ROUTE if ordinary else DropReason.RUNT)
            self.expect_nothing()
        self.refuse_all(DropReason.RUNT, [], job)


@dataclass(frozen=True)
class _Defect:
    reason: DropReason
    packet: Callable[[Packet], Packet] = lambda packet: packet
    host: Callable[[Host], Host] = lambda host: host


_DEFECTS = (
    _Defect(DropReason.BAD_VERSION, lambda packet: replace(packet, version=PROTOCOL_VERSION + 1)),
    _Defect(DropReason.BAD_KIND, lambda packet: replace(packet, kind=7)),
    _Defect(DropReason.FORGED_RESULT, host=lambda host: host.moved(mac=SWITCH_MAC)),
    _Defect(DropReason.BAD_FORMAT, lambda packet: replace(packet, format=9)),
    _Defect(DropReason.BAD_EXPONENT, lambda packet: replace(packet, exponent=EXPONENT_UNKNOWN + 1)),
    _Defect(DropReason.BAD_COUNT, lambda packet: replace(packet, count=0xFFFF)),
    _Defect(DropReason.BAD_LENGTH, lambda packet: replace(packet, values=packet.values[1:])),
    _Defect(DropReason.BAD_HALF, lambda packet: replace(packet, slot=packet.slot ^ 1)),
    _Defect(DropReason.UNKNOWN_JOB, lambda packet: replace(packet, job=7)),
)


class FirstReasonCounts(SwitchMLTest):
    """If two or all defects occur together, the one with the lowest number is counted."""

    def runTest(self) -> None:
        job = self.job(2)
        for first, second in itertools.combinations(_DEFECTS, 2):
            packet = second.packet(first.packet(job.packet(0)))
            self.refuse(packet, second.host(first.host(job.hosts[0])), first.reason)
        packet, host = job.packet(0), job.hosts[0]
        for defect in reversed(_DEFECTS):
            packet, host = defect.packet(packet), defect.host(host)
            self.refuse(packet, host, defect.reason)
        self.refuse(packet, host, DropReason.RUNT, udp_len=8)
        self.expect_nothing()


class Garbage(SwitchMLTest):
    """Random bytes after a UDP header with SwitchML's port, and completely random frames, are dropped one by one."""

    def runTest(self) -> None:
        source = random.Random(20240229)
        job = self.job(2)
        for _ in range(150):
            payload = source.randbytes(source.choice((source.randrange(60), source.randrange(1400))))
            self.refuse(payload, job.hosts[0], _reason_for(payload))
        for _ in range(50):
            self.send(2, source.randbytes(source.randrange(15, 200)), DropReason.NO_ROUTE)
        self.expect_nothing()
        self.reduce(job, [job.packet(rank) for rank in range(2)])


def _reason_for(payload: bytes) -> DropReason:
    if len(payload) < PROTOCOL_HEADER_BYTES:
        return DropReason.RUNT
    version, kind = payload[:2]
    if version != PROTOCOL_VERSION:
        return DropReason.BAD_VERSION
    if kind == Kind.RESULT:
        return DropReason.FORGED_RESULT
    return DropReason.BAD_FORMAT if kind == Kind.CONTRIBUTION else DropReason.BAD_KIND


class EthernetTrailer(SwitchMLTest):
    """Bytes after the IPv4 packet are ignored; those of the completing packet follow the result."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase, make in enumerate((job.packet, job.without_values)):
            packets = [make(rank, phase=phase) for rank in range(2)]
            self.contribute(job, packets[0], Verdict.AGGREGATED, trailer=9)
            self.contribute(job, packets[1], Verdict.COMPLETED, trailer=4)
            self.expect_result(job, job.result(*packets), trailer=4)
