"""Ordinary traffic: frames that are not SwitchML packets are forwarded by Ethernet destination, byte for byte."""

from __future__ import annotations

import finsy as fy
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import contribution_frame, mac_text
from ptf_tests.job import default_host
from switchml.dataplane.constants import DropReason, Verdict

_A, _B = default_host(0), default_host(1)
_ETHERNET = Ether(src=mac_text(_A.mac), dst=mac_text(_B.mac))
_IP = {"src": "10.0.1.0", "dst": "10.0.1.1"}
_GROUP = 900
_BROADCAST = 0xFFFFFFFFFFFF


class KnownDestination(SwitchMLTest):
    """Frames of all kinds to a MAC in the table leave through its port, unchanged, and through no other."""

    def runTest(self) -> None:
        self.insert(self.l2_forward(_B.mac, _B.port))
        layers = [
            _ETHERNET / IP(**_IP) / UDP(sport=1, dport=2) / b"text",
            _ETHERNET / IP(**_IP) / UDP(sport=0xBEE0, dport=0xBEE1) / bytes(300),
            _ETHERNET / IP(**_IP) / TCP(sport=0xBEE0, dport=0xBEE0) / bytes(100),
            _ETHERNET / IP(ttl=1, id=9, chksum=0x1234, **_IP) / UDP(dport=53, chksum=1) / bytes(20),
            _ETHERNET / IP(**_IP) / ICMP() / b"echo",
            _ETHERNET / IP(**_IP, proto=47) / bytes(64),
            _ETHERNET / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=1, dport=0xBEE0) / bytes(64),
            _ETHERNET / Dot1Q(vlan=100) / IP(**_IP) / UDP(dport=0xBEE0) / bytes(300),
            _ETHERNET / ARP(hwsrc=mac_text(_A.mac), psrc="10.0.1.0", pdst="10.0.1.1"),
            Ether(src=mac_text(_A.mac), dst=mac_text(_B.mac), type=0x88CC) / bytes(8900),
        ]
        for layer in layers:
            frame = bytes(layer)
            self.send(_A.port, frame)
            self.expect({_B.port: [frame]})


class NotOurs(SwitchMLTest):
    """Packets to SwitchML's UDP port that are fragments or have IPv4 options are ordinary traffic."""

    def runTest(self) -> None:
        job = self.job(2)
        packet, mac = job.packet(0), {"eth_dst": _B.mac}
        self.insert(self.l2_forward(_B.mac, _B.port))
        frames = [
            contribution_frame(packet, _A, flags="MF", **mac),
            contribution_frame(packet, _A, frag=100, **mac),
            contribution_frame(packet, _A, dport=0xBEE1, **mac),
            bytes(_ETHERNET / IP(options=b"\x01\x01\x01\x00", **_IP) / UDP(dport=0xBEE0) / packet.pack()),
            bytes(_ETHERNET / IP(version=5, **_IP) / UDP(dport=0xBEE0) / packet.pack()),
            bytes(_ETHERNET / IP(ihl=4, **_IP) / UDP(dport=0xBEE0) / packet.pack()),
        ]
        for frame in frames:
            self.send(_A.port, frame)
            self.expect({_B.port: [frame]})


class UnknownDestination(SwitchMLTest):
    """Frames to a MAC that is not in the table are dropped and counted, unless a default action is set."""

    def runTest(self) -> None:
        self.insert(self.l2_forward(_B.mac, _B.port))
        for destination in (_A.mac, _B.mac + 1, _BROADCAST, 0):
            frame = Ether(src=mac_text(_A.mac), dst=mac_text(destination), type=0x1234) / bytes(50)
            self.send(_A.port, bytes(frame), DropReason.NO_ROUTE)
        self.expect_nothing()


class EntryThatDrops(SwitchMLTest):
    """An entry may drop frames to a MAC, while all others are flooded."""

    def runTest(self) -> None:
        match = fy.Match(eth_dst=_B.mac)
        self.insert(fy.P4TableEntry("l2_table", match=match, action=fy.Action("drop_no_route")))
        self.set_l2_default(fy.Action("forward", port=5))
        self.send(_A.port, bytes(_ETHERNET / bytes(50)), DropReason.NO_ROUTE)
        self.expect_nothing()


class BackToItsOwnPort(SwitchMLTest):
    """A frame whose destination is on the port that it came from is dropped and counted."""

    def runTest(self) -> None:
        self.insert(self.l2_forward(_B.mac, _A.port))
        self.send(_A.port, bytes(_ETHERNET / bytes(50)), DropReason.NO_ROUTE)
        self.expect_nothing()
        frame = bytes(_ETHERNET / bytes(51))
        self.send(4, frame)
        self.expect({_A.port: [frame]})


class Flooding(SwitchMLTest):
    """A flooded frame leaves through every port of the group except its ingress port; that is not counted as a drop."""

    def runTest(self) -> None:
        ports = (1, 2, 5, 8)
        self.insert(fy.P4MulticastGroupEntry(_GROUP, replicas=tuple((port, 0) for port in ports)))
        self.insert(self.l2_flood(_BROADCAST, _GROUP))
        frame = bytes(Ether(src=mac_text(_A.mac), dst="ff:ff:ff:ff:ff:ff", type=0x1234) / bytes(200))
        for port in (1, 8, 3):
            self.send(port, frame)
            self.expect({out: [frame] for out in ports if out != port})


class FloodByDefault(SwitchMLTest):
    """The default action may flood unknown destinations; known ones are still forwarded to one port."""

    def runTest(self) -> None:
        ports = (1, 2, 3)
        self.insert(fy.P4MulticastGroupEntry(_GROUP, replicas=tuple((port, 0) for port in ports)))
        self.insert(self.l2_forward(_B.mac, _B.port))
        self.set_l2_default(fy.Action("flood", group=_GROUP))
        known = bytes(_ETHERNET / bytes(60))
        unknown = bytes(Ether(src=mac_text(_A.mac), dst="02:12:34:56:78:9a", type=0x1234) / bytes(60))
        self.send(1, known)
        self.expect({_B.port: [known]})
        self.send(1, unknown)
        self.expect({2: [unknown], 3: [unknown]})


class ForwardByDefault(SwitchMLTest):
    """The default action may forward to one port, an uplink; frames from there are dropped."""

    def runTest(self) -> None:
        self.set_l2_default(fy.Action("forward", port=8))
        frame = bytes(_ETHERNET / bytes(60))
        self.send(1, frame)
        self.expect({8: [frame]})
        self.send(8, frame, DropReason.NO_ROUTE)
        self.expect_nothing()


class BesideAJob(SwitchMLTest):
    """Ordinary traffic between a job's ranks is forwarded while a slot collects, and does not change it."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.insert(self.l2_forward(_B.mac, _B.port), self.l2_forward(_A.mac, _A.port))
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        frame = bytes(_ETHERNET / IP(**_IP) / UDP(dport=5001) / packets[1].pack())
        self.send(_A.port, frame)
        self.expect({_B.port: [frame]})
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))
