"""RDMA cards: a contribution is one UD SEND, and a RESULT for a queue pair is one with a right ICRC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ptf.testutils import group
from scapy.contrib.roce import BTH, cnp
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, contribution_frame, result_frame
from ptf_tests.job import Job, default_host
from switchml.dataplane.codes import CODED_FORMATS
from switchml.dataplane.constants import (
    OWNER_EXCEPT,
    OWNER_FIRST,
    ROCEV2_OPCODE,
    ROCEV2_QUEUE_PAIR,
    ROCEV2_UDP_PORT,
    DropReason,
    Flag,
    Kind,
    Verdict,
)

_BTH, _DETH, _HEADER, _ICRC = 12, 8, 32, 4
_AT_BTH = 14 + 20 + 8
_AT_HEADER = _AT_BTH + _BTH + _DETH


def card(rank: int) -> Host:
    """Return the location of a rank with an RDMA card."""
    return default_host(rank).moved(queue_pair=0x100 + rank)


class _RoCEv2(SwitchMLTest):
    def setUp(self) -> None:
        super().setUp()
        if not self.target.rocev2:
            self.skipTest(f"{self.target.name} takes no packets of RDMA cards")

    def cards(self, ranks: int = 2) -> Job:
        return self.job([card(rank) for rank in range(ranks)])

    def sums_up(self, job: Job, phase: int = 0) -> None:
        """Reduce one phase, which shows that nothing has changed the slot."""
        self.reduce(job, [job.packet(rank, phase=phase) for rank in range(len(job.hosts))])


class SumsOfQueuePairs(_RoCEv2):
    """Three ranks with RDMA cards; each in turn completes a phase, with values and without."""

    def runTest(self) -> None:
        job = self.cards(3)
        for phase in range(6):
            order = [(first + phase) % 3 for first in range(3)]
            make = job.packet if phase < 3 else job.without_values
            self.reduce(job, [make(rank, phase=phase) for rank in order])


class MixedRanks(_RoCEv2):
    """Ranks with RDMA cards and with UDP in one job: what completes a phase does not change what each one gets."""

    def runTest(self) -> None:
        job = self.job([card(0), default_host(1), card(2), default_host(3)])
        for last in range(4):
            order = [rank for rank in range(4) if rank != last] + [last]
            packets = [job.packet(rank, phase=last) for rank in order]
            self.reduce(job, packets)
            for rank in range(4):
                again = replace(packets[order.index(rank)], flags=Flag.RETRANSMISSION)
                self.contribute(job, again, Verdict.RESENT)
                self.expect_resend(job, job.result(*packets, asked_by=again))


@group("values")
class GrownResults(_RoCEv2):
    """A contribution without values is answered by a RESULT with values, and the reverse."""

    def runTest(self) -> None:
        if not self.target.results_grow:
            self.skipTest(f"{self.target.name} answers a packet without values by one without")
        job = self.job([card(0), default_host(1)])
        for phase, (first, last) in enumerate(((0, 1), (1, 0))):
            self.reduce(job, [job.packet(first, phase=phase), job.without_values(last, phase=phase)])


@group("values")
class OwnedResults(_RoCEv2):
    """Copies for queue pairs that do not read the values end after the header, with lengths and ICRCs to match."""

    def runTest(self) -> None:
        if not self.target.owned_results:
            self.skipTest(f"{self.target.name} sends the values in every copy of a RESULT")
        job = self.job([card(0), default_host(1), card(2)])
        for phase, owner in enumerate((OWNER_FIRST, OWNER_FIRST + 1, OWNER_EXCEPT + OWNER_FIRST + 2)):
            self.reduce(job, [job.packet(rank, phase=phase, owner=owner) for rank in range(3)])


@group("values")
class CodesOfAQueuePair(_RoCEv2):
    """Values of one byte: a third length of well-formed packets."""

    def runTest(self) -> None:
        if not self.target.expands_codes:
            self.skipTest(f"{self.target.name} does not expand codes in packets of {self.target.values} values")
        job = self.cards()
        codes = tuple(lane % 256 for lane in range(job.values))
        for phase, coded in enumerate(CODED_FORMATS):
            self.reduce(job, [job.packet(rank, phase=phase, format=coded, values=codes) for rank in range(2)])


class IgnoredFields(_RoCEv2):
    """Fields that a card chooses, or that may have changed on the way, do not matter."""

    def runTest(self) -> None:
        job = self.cards()
        ignored: list[dict[str, Any]] = [
            {"bth": {"psn": 0xFFFFFF}},
            {"bth": {"pkey": 0x1234}},
            {"bth": {"solicited": 1}},
            {"bth": {"migreq": 1}},
            {"bth": {"ackreq": 1}},
            {"bth": {"resv7": 0x7F}},
            {"bth": {"fecn": 1, "becn": 1, "resv6": 0x3F}},
            {"queue_key": 0xFFFFFFFF},
            {"udp_chksum": 0xFFFF},
            {"udp_chksum": 0},
            {"id": 7},
            {"ttl": 1},
        ]
        for phase, fields in enumerate(ignored):
            packets = [job.packet(rank, phase=phase) for rank in range(2)]
            self.contribute(job, packets[0], Verdict.AGGREGATED, **fields)
            self.contribute(job, packets[1], Verdict.COMPLETED, **fields)
            self.expect_result(job, job.result(*packets))


class AnySourcePort(_RoCEv2):
    """The UDP source port says nothing about the sender, not even SwitchML's own."""

    def runTest(self) -> None:
        job = self.cards()
        for phase, port in enumerate((0, 0xC000, 0xBEE0, 4791)):
            packets = [job.packet(rank, phase=phase) for rank in range(2)]
            for packet, verdict in zip(packets, (Verdict.AGGREGATED, Verdict.COMPLETED), strict=True):
                host = job.hosts[packet.worker]
                frame = contribution_frame(packet, host.moved(udp_port=port))
                self.send_admitted(job.worker_entry(packet.worker), host.port, frame, verdict)
            self.expect_result(job, job.result(*packets))


class TrafficClass(_RoCEv2):
    """RESULTs have the DSCP and ECN of the contribution that they answer, which the ICRC does not cover."""

    def runTest(self) -> None:
        job = self.cards()
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED, tos=0xBA)
        self.expect_result(job, job.result(*packets), tos=0xBA)


@group("values")
class WrongIcrc(_RoCEv2):
    """A bit flipped in the headers of RDMA, in the values, or in the ICRC itself."""

    def runTest(self) -> None:
        job = self.cards()
        host = job.hosts[0]
        for packet in (job.packet(0), job.without_values(0)):
            frame = contribution_frame(packet, host)
            first_of_values = _AT_HEADER + _HEADER
            places = [_AT_BTH + 1, _AT_BTH + 2, _AT_BTH + 8, _AT_BTH + 9, _AT_HEADER - _DETH, _AT_HEADER - 4]
            places += [14 + 4, 14 + 5, 14 + 16, _AT_BTH - 8]  # identification, destination, source port
            places += [*range(first_of_values, len(frame) - _ICRC, 61), *range(len(frame) - _ICRC, len(frame))]
            for place in places:
                flipped = frame[:place] + bytes([frame[place] ^ 0x80]) + frame[place + 1 :]
                self.send(host.port, flipped, DropReason.BAD_ICRC)
        self.expect_nothing()
        self.sums_up(job)


class PaddingAndVersion(_RoCEv2):
    """A BTH with padding, or of another version, although its ICRC is right."""

    def runTest(self) -> None:
        job = self.cards()
        for bth in ({"padcount": 1}, {"padcount": 3}, {"version": 1}, {"version": 15}):
            self.refuse(job.packet(0), job.hosts[0], DropReason.BAD_ICRC, bth=bth)
        self.expect_nothing()
        self.sums_up(job)


class ReasonsBeforeTheIcrc(_RoCEv2):
    """A wrong ICRC is counted after all that is wrong with the packet, before what depends on its sender."""

    def runTest(self) -> None:
        job = self.cards()
        host, wrong = job.hosts[0], {"icrc": 0x12345678}
        cases = {
            DropReason.BAD_VERSION: job.packet(0, version=2),
            DropReason.BAD_KIND: job.packet(0, kind=7),
            DropReason.BAD_EXPONENT: job.packet(0, exponent=257),
            DropReason.BAD_HALF: job.packet(0, phase=1, slot=0, flags=Flag.LAST_CHUNK),
            DropReason.UNKNOWN_JOB: job.packet(0, job=7),
            DropReason.SLOT_OUT_OF_RANGE: job.packet(0, slot=job.slots),
            DropReason.BAD_ICRC: job.packet(0, secret=1),
        }
        cases[DropReason.BAD_HALF] = replace(cases[DropReason.BAD_HALF], slot=job.slot_base << 1)
        for reason, packet in cases.items():
            self.refuse(packet, host, reason, bth=wrong)
        self.refuse(job.packet(0, epoch=job.epoch + 1), host, DropReason.BAD_ICRC, bth=wrong)
        self.refuse(job.packet(0), host.moved(ip=SWITCH_IP), DropReason.FORGED_RESULT, bth=wrong)
        self.expect_nothing()
        self.sums_up(job)


class ForeignQueuePairs(_RoCEv2):
    """The number of another rank's queue pair, numbers that no card uses, and the same rank's UDP port."""

    def runTest(self) -> None:
        job = self.cards()
        host = job.hosts[0]
        for queue_pair in (0x101, 0, 1, 0xFFFFFF, ROCEV2_QUEUE_PAIR, host.udp_port):
            self.refuse(job.packet(0), host.moved(queue_pair=queue_pair), DropReason.UNKNOWN_WORKER)
        self.refuse(job.packet(0), replace(host, queue_pair=None), DropReason.UNKNOWN_WORKER)
        self.refuse(job.packet(0), replace(host, queue_pair=None, udp_port=0x100), DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        self.sums_up(job)


class QueuePairOfAUdpPort(_RoCEv2):
    """A rank with UDP is not one with a queue pair of the same number."""

    def runTest(self) -> None:
        job = self.job(2)
        host = job.hosts[0]
        self.refuse(job.packet(0), host.moved(queue_pair=host.udp_port), DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        self.sums_up(job)


class OwnSource(_RoCEv2):
    """A RESULT, or the switch's own addresses, from a host."""

    def runTest(self) -> None:
        job = self.cards()
        host = job.hosts[0]
        self.refuse(job.packet(0, kind=Kind.RESULT), host, DropReason.FORGED_RESULT)
        self.refuse(job.packet(0), host.moved(ip=SWITCH_IP), DropReason.FORGED_RESULT)
        self.refuse(job.packet(0), host.moved(mac=SWITCH_MAC), DropReason.FORGED_RESULT)
        result = Ether(result_frame(job.packet(0, kind=Kind.RESULT), host))
        result[Ether].dst = "02:00:00:00:01:77"
        self.send(host.port, bytes(result), DropReason.FORGED_RESULT)
        self.expect_nothing()
        self.sums_up(job)


class Repeated(_RoCEv2):
    """A repeated packet with a new sequence number is a duplicate, and after completion gets the RESULT again."""

    def runTest(self) -> None:
        job = self.cards()
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED, bth={"psn": 1})
        self.contribute(job, packets[0], Verdict.DUPLICATE, bth={"psn": 2})
        self.contribute(job, packets[1], Verdict.COMPLETED, bth={"psn": 1})
        self.expect_result(job, job.result(*packets))
        self.contribute(job, packets[0], Verdict.RESENT, bth={"psn": 3})
        self.expect_resend(job, job.result(*packets, asked_by=packets[0]))


class Trailer(_RoCEv2):
    """Bytes behind the ICRC are not part of the packet; the RESULT has them behind its own."""

    def runTest(self) -> None:
        job = self.job([card(0), default_host(1)])
        for phase in range(2):
            packets = [job.packet(rank, phase=phase) for rank in ((0, 1), (1, 0))[phase]]
            self.contribute(job, packets[0], Verdict.AGGREGATED, trailer=5)
            self.contribute(job, packets[1], Verdict.COMPLETED, trailer=9)
            self.expect_result(job, job.result(*packets), trailer=9)


@group("values")
class Truncated(_RoCEv2):
    """Frames that end in DETH, header, values or ICRC, and lengths that end before them."""

    def runTest(self) -> None:
        job = self.cards()
        host = job.hosts[0]
        for packet in (job.packet(0), job.without_values(0)):
            frame = contribution_frame(packet, host)
            ends = [
                _AT_BTH + _BTH,
                _AT_HEADER - 1,
                _AT_HEADER,
                _AT_HEADER + _HEADER - 1,
                len(frame) - 4,
                len(frame) - 1,
            ]
            for end in ends:
                self.send(host.port, frame[:end], DropReason.RUNT)
            for length in (0, 8, 8 + 24, 8 + 24 + _HEADER - 1):
                self.refuse(packet, host, DropReason.RUNT, udp_len=length)
            for length in (0, 20, 28 + 24, len(frame) - 14 - 1):
                self.refuse(packet, host, DropReason.RUNT, len=length)
            for length in (*([len(frame) - 34 - 1] if packet.values else []), len(frame) - 34 + 1, 0xFFFF):
                self.refuse(packet, host, DropReason.BAD_LENGTH, udp_len=length)
            self.refuse(packet, host, DropReason.BAD_LENGTH, len=len(frame) - 14 + 1)
        self.expect_nothing()
        self.sums_up(job)


class OtherRdmaTraffic(_RoCEv2):
    """Packets that are not UD SENDs to the switch are forwarded unchanged, as is a frame that ends in its BTH."""

    def runTest(self) -> None:
        job = self.cards()
        host, other = job.hosts[0], default_host(1)
        self.insert(self.l2_forward(other.mac, other.port))
        to_other = {"eth_dst": other.mac, "ipv4_dst": other.ip}
        frames = [
            contribution_frame(job.packet(0), host, **to_other, bth=bth)
            for bth in (
                {"opcode": 0x65},
                *({"opcode": opcode} for opcode in (0x04, 0x24, 0x0A, 0x2B, 0x44)),
                *({"dqpn": queue_pair} for queue_pair in (0, 1, ROCEV2_QUEUE_PAIR ^ 1, ROCEV2_QUEUE_PAIR ^ 0x800000)),
            )
        ]
        whole = contribution_frame(job.packet(0), host, **to_other)
        frames += [whole[:end] for end in (_AT_BTH, _AT_BTH + 1, _AT_BTH + _BTH - 1)]
        frames.append(contribution_frame(job.packet(0), host, **to_other, frag=1))
        frames.append(contribution_frame(job.packet(0), host, **to_other, flags="MF"))
        headers = Ether(whole)
        congestion = headers[Ether].copy()
        congestion[UDP].remove_payload()
        congestion[UDP].len = congestion[IP].len = congestion[IP].chksum = None
        frames.append(bytes(congestion / cnp(ROCEV2_QUEUE_PAIR)))
        options = IP(src=headers[IP].src, dst=headers[IP].dst, options=[IPOption_NOP()] * 4)
        udp = UDP(sport=5, dport=ROCEV2_UDP_PORT)
        bth = BTH(opcode=ROCEV2_OPCODE, dqpn=ROCEV2_QUEUE_PAIR)
        frames.append(
            bytes(Ether(src=headers[Ether].src, dst=headers[Ether].dst) / options / udp / bth / Raw(bytes(40)))
        )
        for frame in frames:
            self.send(host.port, frame)
            self.expect({other.port: [frame]})
        self.sums_up(job)
