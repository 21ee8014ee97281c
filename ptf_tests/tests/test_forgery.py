"""Forgery: only the switch sends RESULTs and uses the switch's addresses; from a host port they are dropped."""

from __future__ import annotations

from dataclasses import replace

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, mac_text, result_frame
from switchml.dataplane.constants import DropReason, Kind, Verdict


class ForgedResult(SwitchMLTest):
    """A RESULT sent by a rank or an unknown sender reaches no rank, through the switch's port or an agent's."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        forged = job.result(*packets)
        self.refuse(forged, job.hosts[0], DropReason.FORGED_RESULT)
        self.refuse(replace(forged, job=6), job.hosts[1].moved(port=7), DropReason.FORGED_RESULT)
        self.refuse(job.without_values(0, kind=Kind.RESULT), job.hosts[0], DropReason.FORGED_RESULT)
        # As the switch would send it, to an agent's UDP port.
        self.insert(self.l2_forward(job.hosts[1].mac, job.hosts[1].port))
        self.send(1, result_frame(forged, job.hosts[1]), DropReason.FORGED_RESULT)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, forged)


class OwnMac(SwitchMLTest):
    """Frames with the switch's MAC address as their source: contributions, IPv4, ARP and anything else."""

    def runTest(self) -> None:
        job = self.job(2)
        self.refuse(job.packet(0), job.hosts[0].moved(mac=SWITCH_MAC), DropReason.FORGED_RESULT)
        host = job.hosts[1]
        self.insert(self.l2_forward(host.mac, host.port))
        for ethertype in (0x0800, 0x0806, 0x86DD, 0x1234):
            frame = Ether(src=mac_text(SWITCH_MAC), dst=mac_text(host.mac), type=ethertype) / bytes(46)
            self.send(1, bytes(frame), DropReason.FORGED_RESULT)
        self.expect_nothing()


class OwnIp(SwitchMLTest):
    """IPv4 packets with the switch's address as their source: contributions and ordinary ones."""

    def runTest(self) -> None:
        job = self.job(2)
        self.refuse(job.packet(0), job.hosts[0].moved(ip=SWITCH_IP), DropReason.FORGED_RESULT)
        host = job.hosts[1]
        self.insert(self.l2_forward(host.mac, host.port))
        frame = Ether(src=mac_text(job.hosts[0].mac), dst=mac_text(host.mac)) / IP(src="10.0.0.254", dst="10.0.1.1")
        for packet in (frame / UDP(sport=0xBEE0, dport=5000) / bytes(30), frame / bytes(30)):
            self.send(1, bytes(packet), DropReason.FORGED_RESULT)
        self.expect_nothing()


class AddressNotSet(SwitchMLTest):
    """Addresses of 0 mean not set: hosts without an address (DHCP) are not taken for forgers."""

    def runTest(self) -> None:
        self.set_switch_address(0, 0)
        self.insert(self.l2_forward(0x020000000107, 8))
        frame = bytes(
            Ether(src="00:00:00:00:00:00", dst=mac_text(0x020000000107))
            / IP(src="0.0.0.0", dst="255.255.255.255")
            / UDP(sport=68, dport=67)
            / bytes(30)
        )
        self.send(1, frame)
        self.expect({8: [frame]})
        nobody = self.job(2).hosts[0].moved(mac=0, ip=0)
        self.refuse(self.job(2, job_id=2, slot_base=64).packet(0), nobody, DropReason.UNKNOWN_WORKER)
