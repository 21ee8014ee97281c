"""The RESULT on the wire: every field that the switch emits, as docs/understand/protocol.md specifies."""

from __future__ import annotations

from dataclasses import replace

from ptf.testutils import group
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import Host, mac_text
from ptf_tests.wire import Packet
from switchml.dataplane.constants import Flag, Kind, Verdict


class _Fields(SwitchMLTest):
    def check(self, frame: bytes, host: Host, tos: int, expected: Packet) -> None:
        """Check one frame field by field: elsewhere one library builds both the expected frames and the sent ones."""
        ethernet = Ether(frame)
        self.assertEqual(ethernet.src, "02:00:00:00:00:fe")
        self.assertEqual(ethernet.dst, mac_text(host.mac))
        self.assertEqual(ethernet.type, 0x0800)
        ip, udp = ethernet[IP], ethernet[UDP]
        self.assertEqual((ip.version, ip.ihl, ip.tos, ip.proto), (4, 5, tos, 17))
        self.assertEqual((ip.id, ip.flags.value, ip.frag, ip.ttl), (0, 2, 0, 64))
        self.assertEqual((ip.src, int.from_bytes(frame[30:34], "big")), ("10.0.0.254", host.ip))
        self.assertEqual(_ones_complement_sum(frame[14:34]), 0xFFFF)
        self.assertEqual((udp.sport, udp.dport, udp.chksum), (0xBEE0, host.udp_port, 0))
        payload = expected.pack()
        self.assertEqual((ip.len, udp.len), (28 + len(payload), 8 + len(payload)))
        self.assertEqual(frame[42:], payload)


@group("values")
class Multicast(_Fields):
    """The fields of a multicast RESULT: those of the rank, of the triggering packet and of the switch."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, tos in enumerate((0, 46 << 2, 0xFF, 1)):
            packets = [
                job.packet(rank, phase=phase, flags=Flag(0xFE), count=1 + rank, chunk=0xFFFFFFF0 + rank)
                for rank in range(3)
            ]
            for packet in packets[:2]:
                self.contribute(job, packet, Verdict.AGGREGATED, tos=0x20)
            # Fields that the switch must not copy: time to live, identification, odd flags, UDP checksum.
            odd = {"ttl": 1 + phase, "id": 0xBEEF, "flags": (0, 2, 4, 6)[phase], "udp_chksum": 0x1234 + phase}
            self.contribute(job, packets[2], Verdict.COMPLETED, tos=tos, **odd)
            expected = replace(packets[2], kind=Kind.RESULT, worker=2, flags=Flag(0xFE), count=3, chunk=0xFFFFFFF0)
            sums = job.result(*packets)
            expected = replace(expected, values=sums.values, exponent=sums.exponent, check=sums.check)
            received = self.receive()
            self.assertEqual({port: len(frames) for port, frames in received.items()}, {1: 1, 2: 1, 3: 1})
            for rank, host in enumerate(job.hosts):
                self.check(received[host.port][0], job.hosts[rank], tos, expected)


class Resend(_Fields):
    """The fields of a RESULT to one rank: the header is that of the packet that asked, but for the slot's chunk."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank, chunk=9 - rank) for rank in range(2)]
        self.reduce(job, packets)
        asking = replace(packets[0], flags=Flag.RETRANSMISSION | Flag.LAST_CHUNK, chunk=5, count=7)
        fields = {"tos": 0x48, "ttl": 3, "id": 77, "udp_chksum": 0xFFFF}
        self.contribute(job, asking, Verdict.RESENT, **fields)
        received = self.receive()
        self.assertEqual({port: len(frames) for port, frames in received.items()}, {1: 1})
        self.check(received[1][0], job.hosts[0], 0x48, replace(job.result(*packets, asked_by=asking), chunk=8))


class ExponentOnly(_Fields):
    """The fields of a RESULT without values: the same, and shorter."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.without_values(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.COMPLETED, tos=0x88)
        received = self.receive()
        for host in job.hosts:
            (frame,) = received[host.port]
            self.check(frame, host, 0x88, job.result(*packets))


class ChecksumsAreNotVerified(_Fields):
    """A wrong IPv4 or UDP checksum does not matter: the values are covered by an end-to-end check."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED, chksum=0x1111, udp_chksum=0x2222)
        self.contribute(job, packets[1], Verdict.COMPLETED, chksum=0, udp_chksum=0)
        self.expect_result(job, job.result(*packets))


def _ones_complement_sum(header: bytes) -> int:
    total = sum(int.from_bytes(header[place : place + 2], "big") for place in range(0, len(header), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
