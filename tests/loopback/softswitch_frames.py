"""Hand-made Ethernet frames, and a native soft switch with hosts at frame ports."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_UDP_PORT, DropReason, Verdict
from switchml.dataplane.softswitch._native import FramePortSpec, Switch, WorkerMatch
from tests.support.worker_entries import slots_of, worker_match

TIMEOUT = 30.0  # seconds; every wait ends
SWITCH_MAC = 0x020000000001
SWITCH_IP = 0x0A0000FE
BROADCAST = 0xFFFFFFFFFFFF
DONT_FRAGMENT = 0x4000
MORE_FRAGMENTS = 0x2000
ARP_REQUEST, ARP_REPLY = 1, 2
ECHO_REQUEST, ECHO_REPLY = 8, 0


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071): 0 for data that contain their checksum."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return total ^ 0xFFFF


def ethernet(dst: int, src: int, ethertype: int, payload: bytes) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + struct.pack("!H", ethertype) + payload


@dataclass(frozen=True)
class Ipv4:
    """The fields of an IPv4 header; None: computed from the payload."""

    src: int
    dst: int
    protocol: int = 17
    traffic_class: int = 0
    identification: int = 0x1234
    fragment: int = 0
    ttl: int = 32
    total_length: int | None = None
    options: bytes = b""
    version: int = 4

    def pack(self, payload: bytes) -> bytes:
        length = 20 + len(self.options)
        header = struct.pack(
            "!BBHHHBBHII",
            self.version << 4 | length // 4,
            self.traffic_class,
            length + len(payload) if self.total_length is None else self.total_length,
            self.identification,
            self.fragment,
            self.ttl,
            self.protocol,
            0,
            self.src,
            self.dst,
        )
        header += self.options
        return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def udp(src: int, dst: int, payload: bytes, length: int | None = None, check: int = 0) -> bytes:
    return struct.pack("!HHHH", src, dst, 8 + len(payload) if length is None else length, check) + payload


def arp(operation: int, sender: tuple[int, int], target: tuple[int, int]) -> bytes:
    """Return an ARP message about (MAC, IPv4) pairs."""
    message = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    for mac, ip in (sender, target):
        message += mac.to_bytes(6, "big") + ip.to_bytes(4, "big")
    return message


def echo(kind: int, data: bytes, check: int | None = None) -> bytes:
    """Return an ICMP echo request or reply, with the right checksum or a given one."""
    message = struct.pack("!BBHHH", kind, 0, 0, 0x1111, 7) + data
    return message[:2] + struct.pack("!H", checksum(message) if check is None else check) + message[4:]


class Host:
    """The host at the other end of a frame port."""

    def __init__(self, number: int, path: Path, switch_path: Path) -> None:
        self.number = number  # of the port
        self.mac = 0x020000000100 + number
        self.ip = 0x0A000000 + number
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.connect(str(switch_path))  # so that any number of frames may wait here
        self.socket.settimeout(TIMEOUT)

    def send(self, frame: bytes) -> None:
        self.socket.send(frame)

    def receive(self) -> bytes:
        return self.socket.recv(70000)

    def waiting(self) -> list[bytes]:
        """Return what has already arrived."""
        frames = []
        self.socket.setblocking(False)
        try:
            while True:
                frames.append(self.receive())
        except BlockingIOError:
            return frames
        finally:
            self.socket.settimeout(TIMEOUT)


@dataclass(frozen=True)
class Rank:
    """A worker of a job: its place, and the addresses in its packets."""

    host: Host
    udp_port: int

    def frame(self, packet: Packet, ip: Ipv4 | None = None) -> bytes:
        header = Ipv4(self.host.ip, SWITCH_IP) if ip is None else ip
        datagram = udp(self.udp_port, PROTOCOL_UDP_PORT, packet.pack(), check=0xBEEF)
        return ethernet(SWITCH_MAC, self.host.mac, 0x0800, header.pack(datagram))

    def result(self, packet: Packet, traffic_class: int = 0) -> bytes:
        """Return the frame in which this RESULT reaches the rank."""
        ip = Ipv4(SWITCH_IP, self.host.ip, 17, traffic_class, identification=0, fragment=DONT_FRAGMENT, ttl=64)
        datagram = udp(PROTOCOL_UDP_PORT, self.udp_port, packet.pack())
        return ethernet(self.host.mac, SWITCH_MAC, 0x0800, ip.pack(datagram))


class FrameFabric:
    """A switch with frame ports 1..ports and a host at each."""

    def __init__(self, directory: Path, ports: int = 3, slots: int = 8, values: int = 4) -> None:
        self.values = values
        self.switch = Switch(slots, values)
        self.hosts: dict[int, Host] = {}
        for port in range(1, ports + 1):
            path, peer = directory / f"switch{port}", directory / f"host{port}"
            self.switch.add_port(port, FramePortSpec(path=str(path), peer=str(peer)))
            self.hosts[port] = Host(port, peer, path)
        self.switch.set_switch_address(SWITCH_MAC, SWITCH_IP)
        self._questions = itertools.count(0x0B000000)

    def add_job(
        self, job: int, ports: tuple[int, ...], base: int = 0, slots: int = 4, epoch: int = 1, udp_port: int = 4000
    ) -> list[Rank]:
        """Write the controller's entries for a job; rank r is attached to ports[r]."""
        ranks = [Rank(self.hosts[port], udp_port + rank) for rank, port in enumerate(ports)]
        self.switch.set_job(job, base << 1, ~(2 * slots - 1) & 0xFFFF)
        self.switch.set_group(job, [(port, rank) for rank, port in enumerate(ports)])
        for number, rank in enumerate(ranks):
            self.switch.set_rank(job, number, rank.host.mac, rank.host.ip, rank.udp_port)
            match = self.worker_match(job, number, rank, base, slots)
            mask = (1 << len(ranks)) - 1
            self.switch.set_worker(match, bit=1 << number, mask=mask, epoch=epoch, group=job)
        return ranks

    @staticmethod
    def worker_match(job: int, number: int, rank: Rank, base: int = 0, slots: int = 4) -> WorkerMatch:
        host = rank.host
        source = (host.ip, rank.udp_port)
        return worker_match(host.number, source, job, number, slots_of(base, slots), eth_src=host.mac)

    def settle(self, port: int = 1) -> list[bytes]:
        """Wait until every frame sent so far to `port` was processed; return the frames that its host got."""
        host = self.hosts[port]
        asker = (host.mac, next(self._questions))
        host.send(ethernet(BROADCAST, host.mac, 0x0806, arp(ARP_REQUEST, asker, (0, SWITCH_IP))))
        reply = ethernet(host.mac, SWITCH_MAC, 0x0806, arp(ARP_REPLY, (SWITCH_MAC, SWITCH_IP), asker))
        frames = []
        while (frame := host.receive()) != reply:
            frames.append(frame)
        self.switch.port_counters(port)  # comes after the burst, and so after frames through other ports
        return frames

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; fail after TIMEOUT."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f"{condition} did not hold within {TIMEOUT} s"
            time.sleep(0.001)

    def drops(self) -> dict[DropReason, int]:
        counted = {reason: self.switch.read_drop_counter(reason)[0] for reason in DropReason}
        return {reason: packets for reason, packets in counted.items() if packets}

    def verdicts(self, job: int) -> dict[Verdict, int]:
        counted = {verdict: self.switch.read_job_counter(job << 4 | verdict)[0] for verdict in Verdict}
        return {verdict: packets for verdict, packets in counted.items() if packets}

    def close(self) -> None:
        self.switch.stop()
        for host in self.hosts.values():
            host.socket.close()


@contextmanager
def running_frames(directory: Path, ports: int = 3, slots: int = 8, values: int = 4) -> Iterator[FrameFabric]:
    """Run a switch whose sockets are in `directory`."""
    fabric = FrameFabric(directory, ports, slots, values)
    fabric.switch.start()
    try:
        yield fabric
    finally:
        fabric.close()


def with_ip(frame: bytes, **fields: int | bytes | None) -> bytes:
    """Return a SwitchML frame with other IPv4 fields and the right checksum for them."""
    src, dst = struct.unpack_from("!II", frame, 26)
    header = replace(Ipv4(src, dst), **fields)  # type: ignore[arg-type]
    return frame[:14] + header.pack(frame[34:])
