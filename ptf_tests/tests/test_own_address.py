"""The switch as a host: it answers ARP requests and ICMP echo requests for its own address, and nothing else."""

from __future__ import annotations

import random

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet as Layer

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, mac_text
from ptf_tests.job import default_host
from switchml.dataplane.constants import DropReason

_HOST = default_host(0)
_HOST_MAC, _HOST_IP = mac_text(_HOST.mac), "10.0.1.0"
_SWITCH_MAC, _SWITCH_IP = mac_text(SWITCH_MAC), "10.0.0.254"
_BROADCAST = "ff:ff:ff:ff:ff:ff"


def _request(**fields: object) -> Layer:
    ethernet = Ether(src=_HOST_MAC, dst=fields.pop("dst", _BROADCAST))
    return ethernet / ARP(**{"op": 1, "hwsrc": _HOST_MAC, "psrc": _HOST_IP, "pdst": _SWITCH_IP, **fields})


def _echo(data: bytes, **fields: object) -> Layer:
    icmp = {name: fields.pop(name) for name in ("type", "code", "id", "seq") if name in fields}
    ethernet = Ether(src=_HOST_MAC, dst=fields.pop("eth_dst", _SWITCH_MAC))
    return ethernet / IP(**{"src": _HOST_IP, "dst": _SWITCH_IP, **fields}) / ICMP(**icmp) / data


class ArpReply(SwitchMLTest):
    """A request, broadcast or to the switch itself, is answered through the port that it came from."""

    def runTest(self) -> None:
        for port, destination in ((1, _BROADCAST), (6, _SWITCH_MAC)):
            self.send(port, bytes(_request(dst=destination)))
            reply = Ether(src=_SWITCH_MAC, dst=_HOST_MAC) / ARP(
                op=2, hwsrc=_SWITCH_MAC, psrc=_SWITCH_IP, hwdst=_HOST_MAC, pdst=_HOST_IP
            )
            self.expect({port: [bytes(reply)]})


class ArpProbe(SwitchMLTest):
    """A host without an address asks (RFC 5227); it is answered too, and so learns that the address is in use."""

    def runTest(self) -> None:
        self.send(2, bytes(_request(psrc="0.0.0.0")))
        reply = Ether(src=_SWITCH_MAC, dst=_HOST_MAC) / ARP(
            op=2,
            hwsrc=_SWITCH_MAC,
            psrc=_SWITCH_IP,
            hwdst=_HOST_MAC,
            pdst="0.0.0.0",
        )
        self.expect({2: [bytes(reply)]})


class OtherArp(SwitchMLTest):
    """Requests for other hosts, replies, other address families and truncated ones are forwarded like any frame."""

    def runTest(self) -> None:
        self.insert(self.l2_forward(0xFFFFFFFFFFFF, 8))
        layers = [
            _request(pdst="10.0.0.253"),
            _request(op=2),
            _request(op=3),
            _request(hwtype=6),
            _request(ptype=0x86DD),
            _request(hwlen=8, hwsrc=bytes(8), hwdst=bytes(8)),
            _request(plen=16, psrc=bytes(16), pdst=bytes(16)),
        ]
        for frame in [*map(bytes, layers), bytes(_request())[:41]]:
            self.send(1, frame)
            self.expect({8: [frame]})


class IcmpEcho(SwitchMLTest):
    """An echo request is answered with its data, identifier and sequence number, and with correct checksums."""

    def runTest(self) -> None:
        for length in (0, 1, 56, 1400, 8000):
            data = random.Random(length).randbytes(length)
            self.send(3, bytes(_echo(data, ttl=7, id=4711, seq=length, tos=0x28)))
            # scapy assigns `id` to ICMP, because _echo passes it so; the reply keeps the request's IPv4 identification.
            reply = Ether(src=_SWITCH_MAC, dst=_HOST_MAC) / IP(src=_SWITCH_IP, dst=_HOST_IP, ttl=64, tos=0x28)
            self.expect({3: [bytes(reply / ICMP(type=0, id=4711, seq=length) / data)]})


class IcmpChecksumCarries(SwitchMLTest):
    """The incremental checksum is correct for every carry (RFC 1624), including a request of zeros except its type."""

    def runTest(self) -> None:
        edges = (0x0000, 0x07FE, 0x07FF, 0x0800, 0xF7FE, 0xF7FF, 0xF800, 0xFFFE, 0xFFFF)
        for number in edges:
            for data in (b"", bytes(8), b"\xff" * 8):
                self.send(1, bytes(_echo(data, id=number, seq=0)))
        received = self.receive()
        self.assertEqual({port: len(frames) for port, frames in received.items()}, {1: 3 * len(edges)})
        for frame in received[1]:
            self.assertEqual(_ones_complement_sum(frame[34:]), 0xFFFF, frame.hex())


class OtherIcmp(SwitchMLTest):
    """Echo requests for others, echo replies, fragments, IPv4 options and truncated ones are forwarded."""

    def runTest(self) -> None:
        self.insert(self.l2_forward(SWITCH_MAC, 8), self.l2_forward(0xFFFFFFFFFFFF, 8))
        layers = [
            _echo(b"data", dst="10.0.0.253"),
            _echo(b"data", eth_dst=_BROADCAST),
            _echo(b"data", type=0),
            _echo(b"data", type=13),
            _echo(b"data", code=1),
            _echo(b"data", flags="MF"),
            _echo(b"data", frag=10),
            _echo(b"data", options=b"\x01\x01\x01\x00"),
            _echo(b"data", proto=17),
        ]
        for frame in [*map(bytes, layers), bytes(_echo(b""))[:41]]:
            self.send(1, frame)
            self.expect({8: [frame]})


class NothingElseIsAnswered(SwitchMLTest):
    """Frames to the switch itself other than ARP and echo have no route unless there is an entry."""

    def runTest(self) -> None:
        frame = Ether(src=_HOST_MAC, dst=_SWITCH_MAC) / IP(src=_HOST_IP, dst=_SWITCH_IP) / UDP(dport=7) / b"anybody?"
        self.send(1, bytes(frame), DropReason.NO_ROUTE)
        self.expect_nothing()


class NoAddressNoAnswer(SwitchMLTest):
    """A switch whose addresses are not set answers no requests, not even those for 0.0.0.0."""

    def runTest(self) -> None:
        for mac, ip in ((0, 0), (SWITCH_MAC, 0), (0, SWITCH_IP)):
            self.set_switch_address(mac, ip)
            zero = {"pdst": "0.0.0.0"}
            frames = [_request(), _request(**zero), _echo(b"data"), _echo(b"", dst=zero["pdst"], eth_dst=mac_text(0))]
            for frame in frames:
                self.send(1, bytes(frame), DropReason.NO_ROUTE)
            self.expect_nothing()


def _ones_complement_sum(message: bytes) -> int:
    message += bytes(len(message) % 2)
    total = sum(int.from_bytes(message[place : place + 2], "big") for place in range(0, len(message), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
