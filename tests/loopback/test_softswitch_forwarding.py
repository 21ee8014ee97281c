"""The native switch with frame ports: ordinary traffic, and packets to the switch's own address."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Kind
from switchml.dataplane.softswitch._native import UdpPortSpec
from tests.loopback.softswitch_frames import (
    ARP_REPLY,
    ARP_REQUEST,
    BROADCAST,
    DONT_FRAGMENT,
    ECHO_REPLY,
    ECHO_REQUEST,
    MORE_FRAGMENTS,
    SWITCH_IP,
    SWITCH_MAC,
    FrameFabric,
    Ipv4,
    arp,
    echo,
    ethernet,
    running_frames,
)

JOB = 5


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[FrameFabric]:
    with running_frames(tmp_path) as frames:
        yield frames


def contribution(worker: int, slot: int = 0, phase: int = 0, values: tuple[int, ...] = (1, 2, 3, 4)) -> Packet:
    return Packet(JOB, worker, slot, phase, 1, values, len(values), exponent=100 + worker, chunk=9, check=worker + 1)


def plain(fabric: FrameFabric, source: int, dst: int, payload: bytes = b"ordinary") -> bytes:
    return ethernet(dst, fabric.hosts[source].mac, 0x88B5, payload)


# ---- ordinary traffic ------------------------------------------------------------------------------------------------


def test_forwarding(fabric: FrameFabric) -> None:
    hosts = fabric.hosts
    fabric.switch.set_l2(hosts[2].mac, ("forward", 2))
    frames = [plain(fabric, 1, hosts[2].mac, size * b"x") for size in (0, 1, 46, 1500, 9000, 65000)]
    for frame in frames:
        hosts[1].send(frame)
    fabric.settle(1)
    assert hosts[2].waiting() == frames
    assert hosts[3].waiting() == []
    lost = plain(fabric, 1, hosts[3].mac)
    hosts[1].send(lost)
    back = plain(fabric, 2, hosts[2].mac)
    hosts[2].send(back)  # its destination is on the same link
    assert fabric.settle(1) == []
    assert fabric.settle(2) == []
    assert fabric.switch.read_drop_counter(DropReason.NO_ROUTE) == (2, len(lost) + len(back))
    fabric.switch.delete_l2(hosts[2].mac)
    hosts[1].send(frames[0])
    fabric.settle(1)
    assert fabric.drops() == {DropReason.NO_ROUTE: 3}


def test_flooding_goes_everywhere_but_back(fabric: FrameFabric) -> None:
    fabric.switch.set_group(99, [(1, 0), (2, 0), (3, 0), (3, 1)])
    fabric.switch.set_l2(BROADCAST, ("flood", 99))
    frame = plain(fabric, 2, BROADCAST)
    fabric.hosts[2].send(frame)
    assert fabric.settle(2) == []
    assert fabric.hosts[1].waiting() == [frame]
    assert fabric.hosts[3].waiting() == [frame, frame]  # once for each replica
    assert fabric.drops() == {}


def test_the_default_is_for_addresses_without_an_entry(fabric: FrameFabric) -> None:
    fabric.switch.set_group(99, [(1, 0), (2, 0), (3, 0)])
    fabric.switch.set_l2_default(("flood", 99))
    fabric.switch.set_l2(fabric.hosts[2].mac, ("drop_no_route",))
    unknown, known = plain(fabric, 1, 0x020000009999), plain(fabric, 1, fabric.hosts[2].mac)
    fabric.hosts[1].send(unknown)
    fabric.hosts[1].send(known)
    fabric.settle(1)
    assert fabric.hosts[2].waiting() == [unknown]
    assert fabric.drops() == {DropReason.NO_ROUTE: 1}
    fabric.switch.set_l2_default(("drop_no_route",))
    fabric.hosts[1].send(unknown)
    fabric.settle(1)
    assert fabric.drops() == {DropReason.NO_ROUTE: 2}


def test_ports_and_groups_that_are_not_there_take_frames_silently(fabric: FrameFabric) -> None:
    """Check that nothing is counted as dropped: BMv2's program cannot know that there is no port or group."""
    rank = fabric.add_job(JOB, (1,))[0]
    fabric.switch.set_l2(1, ("forward", 77))
    fabric.switch.set_l2(2, ("flood", 77))
    fabric.switch.set_l2(3, ("flood", 78))
    fabric.switch.set_group(78, [(77, 0), (2, 0)])
    fabric.switch.set_group(JOB, [(77, 0)])
    for dst in (1, 2, 3):
        fabric.hosts[1].send(plain(fabric, 1, dst))
    rank.host.send(rank.frame(contribution(0)))
    fabric.switch.delete_group(78)  # taken now or later, that changes nothing for port 1
    assert fabric.settle(1) == []
    rank.host.send(rank.frame(contribution(0, slot=2)))
    fabric.switch.delete_group(JOB)
    rank.host.send(rank.frame(contribution(0, slot=4)))
    assert fabric.settle(1) == []
    assert fabric.drops() == {}


def test_a_udp_port_takes_no_frames(fabric: FrameFabric) -> None:
    fabric.switch.add_port(9, UdpPortSpec(address="127.0.0.1"))
    fabric.switch.set_l2_default(("forward", 9))
    fabric.hosts[1].send(plain(fabric, 1, 7))
    fabric.settle(1)
    assert fabric.drops() == {DropReason.NO_ROUTE: 1}


def test_results_and_forwarded_frames_keep_their_order(fabric: FrameFabric) -> None:
    rank = fabric.add_job(JOB, (2,))[0]
    fabric.switch.set_l2_default(("forward", 1))
    fabric.switch.set_group(JOB, [(1, 0)])
    fabric.switch.stop()  # so that all frames are one burst
    frames = []
    for slot in (0, 2, 4):
        rank.host.send(rank.frame(contribution(0, slot=slot)))
        frames.append(rank.result(replace(contribution(0, slot=slot), kind=Kind.RESULT)))
        frames.append(plain(fabric, 2, 0x1234, bytes((slot,))))
        rank.host.send(frames[-1])
    fabric.switch.start()
    fabric.settle(2)
    assert fabric.hosts[1].waiting() == frames


# ---- the switch's own address ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dst", [BROADCAST, SWITCH_MAC])
def test_arp_requests_for_the_switch_are_answered(fabric: FrameFabric, dst: int) -> None:
    host = fabric.hosts[2]
    padding = bytes(18)
    host.send(ethernet(dst, host.mac, 0x0806, arp(ARP_REQUEST, (host.mac, host.ip), (7, SWITCH_IP))) + padding)
    answer = arp(ARP_REPLY, (SWITCH_MAC, SWITCH_IP), (host.mac, host.ip))
    assert fabric.settle(2) == [ethernet(host.mac, SWITCH_MAC, 0x0806, answer) + padding]
    assert fabric.drops() == {}


def test_other_arp_is_ordinary(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    host = fabric.hosts[1]
    request = arp(ARP_REQUEST, (host.mac, host.ip), (0, SWITCH_IP))
    messages = [
        arp(ARP_REQUEST, (host.mac, host.ip), (0, SWITCH_IP + 1)),
        arp(ARP_REPLY, (host.mac, host.ip), (0, SWITCH_IP)),
        request[:-1],
        *(request[:at] + b"\x09" + request[at + 1 :] for at in (1, 3, 4, 5)),
    ]
    frames = [ethernet(BROADCAST, host.mac, 0x0806, message) for message in messages]
    frames.append(ethernet(BROADCAST, host.mac, 0x0807, request))
    for frame in frames:
        host.send(frame)
    assert fabric.settle(1) == []
    assert fabric.hosts[2].waiting() == frames


def echo_frame(fabric: FrameFabric, message: bytes, dst: int = SWITCH_MAC, ip: Ipv4 | None = None) -> bytes:
    host = fabric.hosts[1]
    header = ip or Ipv4(host.ip, SWITCH_IP, 1, 0x2E, fragment=DONT_FRAGMENT)
    return ethernet(dst, host.mac, 0x0800, header.pack(message))


@pytest.mark.parametrize("size", [0, 1, 56, 8000])
def test_pings_are_answered(fabric: FrameFabric, size: int) -> None:
    host = fabric.hosts[1]
    data = bytes(i % 251 for i in range(size))
    host.send(echo_frame(fabric, echo(ECHO_REQUEST, data)))
    ip = Ipv4(SWITCH_IP, host.ip, 1, 0x2E, fragment=DONT_FRAGMENT, ttl=64)
    assert fabric.settle(1) == [ethernet(host.mac, SWITCH_MAC, 0x0800, ip.pack(echo(ECHO_REPLY, data)))]


@pytest.mark.parametrize(("given", "updated"), [(0, 0x0800), (0xF7FF, 0xFFFF), (0xF800, 1), (0xFFFF, 0x0800)])
def test_the_checksum_of_an_echo_is_updated_whatever_it_was(fabric: FrameFabric, given: int, updated: int) -> None:
    fabric.hosts[1].send(echo_frame(fabric, echo(ECHO_REQUEST, b"data", given)))
    reply = fabric.settle(1)[0]
    assert reply[34:38] == struct.pack("!BBH", 0, 0, updated)


def test_other_icmp_is_ordinary(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    host = fabric.hosts[1]
    message = echo(ECHO_REQUEST, b"data")
    to_switch = Ipv4(host.ip, SWITCH_IP, 1)
    frames = [
        echo_frame(fabric, echo(ECHO_REPLY, b"data")),
        echo_frame(fabric, message[:1] + b"\1" + message[2:]),
        echo_frame(fabric, message, dst=0x020000009999),
        echo_frame(fabric, message, ip=replace(to_switch, dst=SWITCH_IP + 1)),
        echo_frame(fabric, message, ip=replace(to_switch, fragment=MORE_FRAGMENTS)),
        echo_frame(fabric, message, ip=replace(to_switch, fragment=8)),
        echo_frame(fabric, message, ip=replace(to_switch, options=b"\1" * 4)),
        echo_frame(fabric, message, ip=replace(to_switch, total_length=27)),
        echo_frame(fabric, message, ip=replace(to_switch, protocol=2)),
        echo_frame(fabric, message)[: 14 + 20 + 7],
    ]
    for frame in frames:
        host.send(frame)
    assert fabric.settle(1) == []
    assert fabric.hosts[2].waiting() == frames


@pytest.mark.parametrize(("mac", "ip"), [(0, 0), (SWITCH_MAC, 0), (0, SWITCH_IP)])
def test_without_an_address_nothing_is_answered(fabric: FrameFabric, mac: int, ip: int) -> None:
    fabric.switch.set_switch_address(mac, ip)
    fabric.switch.set_l2_default(("forward", 2))
    host = fabric.hosts[1]
    frames = [
        ethernet(mac, host.mac, 0x0806, arp(ARP_REQUEST, (host.mac, host.ip), (0, ip))),
        echo_frame(fabric, echo(ECHO_REQUEST, b"data"), mac, Ipv4(host.ip, ip, 1)),
    ]
    for frame in frames:
        host.send(frame)
    assert [fabric.hosts[2].receive() for _ in frames] == frames
