"""The native switch on network interfaces: veth pairs into namespaces, with the kernel's network stack as hosts."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, PROTOCOL_UDP_PORT, DropReason, Kind, Verdict
from switchml.dataplane.softswitch._native import PacketPortSpec, Switch
from tests.loopback.softswitch_frames import (
    ARP_REPLY,
    ARP_REQUEST,
    BROADCAST,
    ECHO_REPLY,
    ECHO_REQUEST,
    SWITCH_IP,
    SWITCH_MAC,
    TIMEOUT,
    Ipv4,
    arp,
    checksum,
    echo,
    ethernet,
)
from tests.support.worker_entries import slots_of, worker_match

JOB = 5
VALUES = 2048
FLOOD = 99
CLONE_NEWNET = 0x40000000
SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN = b"\x81\x00\x20\x07"  # priority 1, VLAN 7


def _why_not() -> str:
    if os.geteuid() != 0:
        return "network namespaces and packet sockets take root"
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2) to make veth pairs with"
    return ""


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "runs")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Let the sockets that this thread opens in the block belong to a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as home, Path("/run/netns", namespace).open("rb") as there:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class Host:
    """A namespace with one interface and the kernel's protocol stack, including checksum offload."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.mac = 0x020000000100 + port
        self.ip = 0x0A000000 + port

    @property
    def address(self) -> str:
        return socket.inet_ntoa(self.ip.to_bytes(4, "big"))

    def udp(self) -> socket.socket:
        with inside(self.name):
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((self.address, 0))
        opened.settimeout(TIMEOUT)
        return opened

    def frames(self) -> socket.socket:
        """Return a socket for whole frames; it sees what this host sends, too."""
        with inside(self.name):
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            opened.bind(("eth0", 3))
        opened.settimeout(TIMEOUT)
        return opened


class Fabric:
    """A switch with packet ports 1..ports, in a separate namespace, and a host at each."""

    def __init__(self, name: str, ports: int = 3) -> None:
        self.name = name
        self.hosts: dict[int, Host] = {}
        self.switch = Switch(8, VALUES)
        ip("netns", "add", name)
        for port in range(1, ports + 1):
            self._add_host(Host(f"{name}h{port}", port))
        self.switch.set_switch_address(SWITCH_MAC, SWITCH_IP)
        self.switch.set_group(FLOOD, [(port, 0) for port in self.hosts])
        self.switch.set_l2_default(("flood", FLOOD))

    def _add_host(self, host: Host) -> None:
        self.hosts[host.port] = host
        ip("netns", "add", host.name)
        ip("-n", self.name, "link", "add", f"s{host.port}", "type", "veth", "peer", "eth0", "netns", host.name)
        for namespace, interface in ((self.name, f"s{host.port}"), (host.name, "eth0")):
            with inside(namespace):  # without neighbour discovery, whose frames the test does not expect
                Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
            ip("-n", namespace, "link", "set", interface, "mtu", "9000")
        mac = host.mac.to_bytes(6, "big").hex(":")
        ip("-n", host.name, "link", "set", "eth0", "address", mac)
        ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", self.name, "link", "set", f"s{host.port}", "up")
        ip("-n", host.name, "link", "set", "eth0", "up")
        with inside(self.name):
            self.switch.add_port(host.port, PacketPortSpec(interface=f"s{host.port}"))

    def close(self) -> None:
        self.switch.stop()
        for name in (self.name, *(host.name for host in self.hosts.values())):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=30)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    name = f"swml{os.getpid()}"
    built: Fabric | None = None
    try:
        built = Fabric(name)
        built.switch.start()
        yield built
    finally:
        if built is not None:
            built.close()
        else:
            for left in (name, *(f"{name}h{port}" for port in range(1, 4))):
                subprocess.run(["ip", "netns", "delete", left], check=False, capture_output=True, timeout=30)


def receive_from(frames: socket.socket, source: int) -> bytes:
    """Return the next frame that has this Ethernet source."""
    while (frame := frames.recv(70000))[6:12] != source.to_bytes(6, "big"):
        pass
    return frame


def test_kernel_sockets_aggregate(fabric: Fabric) -> None:
    """Check that hosts find the switch by ARP, and that it accepts UDP with checksums left to the interface."""
    workers = [host.udp() for host in fabric.hosts.values()]
    fabric.switch.set_job(JOB, 0, 0xFFF8)
    fabric.switch.set_group(JOB, [(host.port, host.port - 1) for host in fabric.hosts.values()])
    for rank, (worker, host) in enumerate(zip(workers, fabric.hosts.values(), strict=True)):
        udp_port: int = worker.getsockname()[1]
        fabric.switch.set_rank(JOB, rank, host.mac, host.ip, udp_port)
        match = worker_match(host.port, (host.ip, udp_port), JOB, rank, slots_of(0, 4), eth_src=host.mac)
        fabric.switch.set_worker(match, bit=1 << rank, mask=(1 << len(workers)) - 1, epoch=1, group=JOB)
    switch = (socket.inet_ntoa(SWITCH_IP.to_bytes(4, "big")), PROTOCOL_UDP_PORT)
    for slot in (0, 2, 4):
        for rank, worker in enumerate(workers):
            packet = Packet(JOB, rank, slot, 0, 1, tuple(range(VALUES)), VALUES, exponent=rank, check=1)
            worker.sendto(packet.pack(), switch)
        # Packets of different hosts may be reordered, so the rank that completes a slot is not known.
        for worker in workers:
            data, source = worker.recvfrom(70000)
            result = Packet.unpack(data)
            assert source == switch
            assert result == replace(
                packet, kind=Kind.RESULT, worker=result.worker, exponent=result.exponent, check=3, values=result.values
            )
            assert result.values == tuple(3 * value for value in range(VALUES))
    counted = {v: fabric.switch.read_job_counter(JOB << 4 | v) for v in Verdict}
    frame = 14 + 20 + 8 + PROTOCOL_HEADER_BYTES + 4 * VALUES
    assert counted[Verdict.AGGREGATED] == (6, 6 * frame)
    assert counted[Verdict.COMPLETED] == (3, 3 * frame)
    assert [fabric.switch.read_drop_counter(reason)[0] for reason in DropReason] == [0] * len(DropReason)
    for worker in workers:
        worker.close()


def test_hosts_talk_through_the_switch(fabric: Fabric) -> None:
    """Check the checksums, which the receiving kernel verifies, although the sender left them to its interface."""
    with fabric.hosts[1].udp() as one, fabric.hosts[2].udp() as two:
        for size in (0, 1, 8, 1000, 8000):
            one.sendto(bytes(size), two.getsockname())
            assert two.recvfrom(70000) == (bytes(size), one.getsockname())
            two.sendto(bytes(size), one.getsockname())
            assert one.recvfrom(70000) == (bytes(size), two.getsockname())


def test_tcp_through_the_switch(fabric: Fabric) -> None:
    with inside(fabric.hosts[1].name):
        server = socket.create_server((fabric.hosts[1].address, 0))
    with inside(fabric.hosts[2].name):
        client = socket.create_connection(server.getsockname(), timeout=TIMEOUT)
    accepted = server.accept()[0]
    accepted.settimeout(TIMEOUT)
    with server, client, accepted:
        client.sendall(b"question")
        assert accepted.recv(100) == b"question"
        accepted.sendall(b"answer")
        assert client.recv(100) == b"answer"


def test_arp_and_ping_from_the_host(fabric: Fabric) -> None:
    host = fabric.hosts[2]
    with host.frames() as frames:
        frames.send(ethernet(BROADCAST, host.mac, 0x0806, arp(ARP_REQUEST, (host.mac, host.ip), (0, SWITCH_IP))))
        answer = arp(ARP_REPLY, (SWITCH_MAC, SWITCH_IP), (host.mac, host.ip))
        assert receive_from(frames, SWITCH_MAC) == ethernet(host.mac, SWITCH_MAC, 0x0806, answer)
    with inside(host.name):
        pinger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with pinger:
        pinger.settimeout(TIMEOUT)
        pinger.sendto(echo(ECHO_REQUEST, b"data"), (socket.inet_ntoa(SWITCH_IP.to_bytes(4, "big")), 0))
        reply = pinger.recv(1000)
    assert reply[20:] == echo(ECHO_REPLY, b"data")
    assert reply[8] == 64
    assert checksum(reply[:20]) == 0


def test_vlan_tags_travel_untouched(fabric: Fabric) -> None:
    one, two = fabric.hosts[1], fabric.hosts[2]
    payload = Ipv4(one.ip, two.ip).pack(b"x" * 100)
    tagged = ethernet(two.mac, one.mac, 0x0800, payload)
    tagged = tagged[:12] + VLAN + tagged[12:]
    fabric.switch.set_l2(two.mac, ("forward", 2))
    with one.frames() as sender, two.frames() as receiver:
        receiver.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        sender.send(tagged)
        frame, ancillary, _, _ = receiver.recvmsg(2000, 100)
        # The kernel removes the tag for this socket, as it did for the switch's.
        assert frame == tagged[:12] + tagged[16:]
        assert [(level, kind) for level, kind, _ in ancillary] == [(SOL_PACKET, PACKET_AUXDATA)]
        *_, tci, tpid = struct.unpack("=IIIHHHH", ancillary[0][2])
        assert (tpid, tci) == struct.unpack("!HH", VLAN)
    assert fabric.switch.read_drop_counter(DropReason.NO_ROUTE) == (0, 0)


def test_frames_for_anyone_come_in_and_none_that_go_out(fabric: Fabric) -> None:
    stranger = 0x02AAAAAAAAAA
    fabric.switch.set_l2(stranger, ("forward", 2))
    frame = ethernet(stranger, fabric.hosts[1].mac, 0x88B5, b"x" * 46)
    with fabric.hosts[1].frames() as sender, fabric.hosts[2].frames() as receiver:
        for _ in range(200):
            sender.send(frame)
            assert receiver.recv(2000) == frame
    assert fabric.switch.port_counters(1)["received"] == 200
    with inside(fabric.name):
        beside = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # the switch's own host uses the interface, too
        beside.bind(("s2", 3))
    with beside, fabric.hosts[2].frames() as receiver:
        beside.send(frame)
        assert receiver.recv(2000) == frame
    counters = fabric.switch.port_counters(2)
    assert (counters["received"], counters["sent"], counters["send_errors"]) == (0, 200, 0)


def test_the_interface_is_promiscuous(fabric: Fabric) -> None:
    shown = subprocess.run(
        ["ip", "-n", fabric.name, "-json", "-details", "link", "show", "s1"],
        check=True,
        capture_output=True,
        timeout=30,
    )
    assert json.loads(shown.stdout)[0]["promiscuity"] == 1


def test_faults_and_loss_apply(fabric: Fabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    fabric.switch.set_faults(1, drop=0, duplicate=1, delay=0, seed=1)
    frame = ethernet(5, fabric.hosts[1].mac, 0x88B5, b"x" * 46)
    with fabric.hosts[1].frames() as sender, fabric.hosts[2].frames() as receiver:
        sender.send(frame)
        assert [receiver.recv(2000) for _ in range(2)] == [frame, frame]
        fabric.switch.set_loss(1, "ingress", 0xFFFFFFFF)
        sender.send(frame)
        fabric.switch.set_faults(1, drop=0, duplicate=0, delay=0, seed=1)
        deadline = time.monotonic() + TIMEOUT
        while fabric.switch.port_counters(1)["received"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        fabric.switch.delete_loss(1, "ingress")
        sender.send(frame)
        assert receiver.recv(2000) == frame


def test_a_frame_above_the_mtu_is_lost_and_counted(fabric: Fabric) -> None:
    ip("-n", fabric.name, "link", "set", "s2", "mtu", "1500")
    fabric.switch.set_l2_default(("forward", 2))
    with fabric.hosts[1].frames() as sender, fabric.hosts[2].frames() as receiver:
        sender.send(ethernet(5, fabric.hosts[1].mac, 0x88B5, b"x" * 3000))
        small = ethernet(5, fabric.hosts[1].mac, 0x88B5, b"x" * 1500)
        sender.send(small)
        assert receiver.recv(9000) == small
    counters = fabric.switch.port_counters(2)
    assert (counters["sent"], counters["send_errors"]) == (1, 1)


def test_an_interface_may_go_down_and_come_up_again(fabric: Fabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    ip("-n", fabric.name, "link", "set", "s1", "down")
    ip("-n", fabric.name, "link", "set", "s1", "up")
    frame = ethernet(5, fabric.hosts[1].mac, 0x88B5, b"x" * 46)
    with fabric.hosts[1].frames() as sender, fabric.hosts[2].frames() as receiver:
        sender.send(frame)
        assert receiver.recv(2000) == frame


def test_interfaces_that_cannot_be_had(fabric: Fabric) -> None:
    with inside(fabric.name):
        with pytest.raises(OSError, match="there is no interface nowhere0"):
            fabric.switch.add_port(9, PacketPortSpec(interface="nowhere0"))
        with pytest.raises(OSError, match="frames are not Ethernet at lo"):
            fabric.switch.add_port(9, PacketPortSpec(interface="lo"))
        with pytest.raises(ValueError, match="port 1 is already there"):
            fabric.switch.add_port(1, PacketPortSpec(interface="s1"))
