"""The native switch with frame ports: aggregation with complete headers, losses, and the sockets."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Flag, Kind, Verdict
from switchml.dataplane.softswitch._native import FramePortSpec, Switch, UdpPortSpec
from tests.loopback.softswitch_frames import (
    ARP_REQUEST,
    BROADCAST,
    DONT_FRAGMENT,
    MORE_FRAGMENTS,
    SWITCH_IP,
    SWITCH_MAC,
    TIMEOUT,
    FrameFabric,
    Ipv4,
    arp,
    checksum,
    ethernet,
    running_frames,
    udp,
    with_ip,
)
from tests.support.worker_entries import slots_of, worker_match

JOB = 5
EVERY = 0xFFFFFFFF  # the threshold at which every packet is lost


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[FrameFabric]:
    with running_frames(tmp_path) as frames:
        yield frames


def contribution(worker: int, slot: int = 0, phase: int = 0, values: tuple[int, ...] = (1, 2, 3, 4)) -> Packet:
    return Packet(JOB, worker, slot, phase, 1, values, len(values), exponent=100 + worker, chunk=9, check=worker + 1)


def plain(fabric: FrameFabric, source: int, dst: int, payload: bytes = b"ordinary") -> bytes:
    return ethernet(dst, fabric.hosts[source].mac, 0x88B5, payload)


# ---- aggregation -----------------------------------------------------------------------------------------------------


def test_a_result_has_the_headers_of_the_design(fabric: FrameFabric) -> None:
    ranks = fabric.add_job(JOB, (1, 2, 1))
    frames = [rank.frame(contribution(number)) for number, rank in enumerate(ranks)]
    for port, number in ((1, 0), (1, 2)):
        ranks[number].host.send(frames[number])
        assert fabric.settle(port) == []
    last = contribution(1)
    # DSCP and ECN come from the completing packet; the rest of its IPv4 header is replaced.
    ranks[1].host.send(
        ranks[1].frame(last, Ipv4(fabric.hosts[2].ip, SWITCH_IP, traffic_class=0xB9, fragment=DONT_FRAGMENT, ttl=1))
    )
    result = replace(last, kind=Kind.RESULT, exponent=102, check=6, values=(3, 6, 9, 12))
    expected = [rank.result(result, traffic_class=0xB9) for rank in ranks]
    assert fabric.settle(2) == [expected[1]]
    assert fabric.hosts[1].waiting() == [expected[2], expected[0]]  # in BMv2's order
    assert fabric.hosts[3].waiting() == []
    assert checksum(expected[0][14:34]) == 0
    assert fabric.drops() == {}
    assert fabric.switch.read_job_counter(JOB << 4 | Verdict.AGGREGATED) == (2, 2 * len(frames[0]))
    assert fabric.switch.worker_counter(fabric.worker_match(JOB, 2, ranks[2])) == (1, len(frames[2]))


def test_a_resend_goes_to_who_asked(fabric: FrameFabric) -> None:
    ranks = fabric.add_job(JOB, (1, 2))
    for number, rank in enumerate(ranks):
        rank.host.send(rank.frame(contribution(number)))
        fabric.settle(number + 1)
    fabric.hosts[1].waiting()
    again = replace(contribution(0, values=(7, 7, 7, 7)), flags=Flag.RETRANSMISSION, chunk=77)
    ranks[0].host.send(ranks[0].frame(again))
    result = replace(again, kind=Kind.RESULT, exponent=101, check=3, chunk=9, values=(2, 4, 6, 8))
    assert fabric.settle(1) == [ranks[0].result(result)]
    assert fabric.hosts[2].waiting() == []


def test_exponents_alone(fabric: FrameFabric) -> None:
    ranks = fabric.add_job(JOB, (1,))
    question = Packet(JOB, 0, 0, 0, 1, exponent=130, flags=Flag.WITHOUT_VALUES)
    ranks[0].host.send(ranks[0].frame(question))
    assert fabric.settle() == [ranks[0].result(replace(question, kind=Kind.RESULT))]


def test_what_follows_the_datagram_in_its_frame_travels_on(fabric: FrameFabric) -> None:
    """Check that bytes after the datagram are kept, as on BMv2, whose parser does not remove them."""
    ranks = fabric.add_job(JOB, (1, 2))
    for number, rank in enumerate(ranks):
        rank.host.send(rank.frame(contribution(number)) + bytes((number,)) * 5)
        fabric.settle(number + 1)
    fabric.hosts[1].waiting()
    fabric.switch.delete_rank(JOB, 1)
    for number, rank in enumerate(ranks):
        rank.host.send(rank.frame(contribution(number, slot=2)) + bytes((number + 1,)) * 5)
        fabric.settle(number + 1)
    result = replace(contribution(1, slot=2), kind=Kind.RESULT, check=3, values=(2, 4, 6, 8))
    assert fabric.hosts[1].waiting() == [ranks[0].result(result) + b"\2" * 5]
    size = len(ranks[0].frame(contribution(0)))
    assert fabric.switch.read_drop_counter(DropReason.NO_RANK_ADDRESS) == (1, size + 5)


def test_a_sender_is_known_by_all_of_its_addresses(fabric: FrameFabric) -> None:
    rank = fabric.add_job(JOB, (1, 2))[0]
    good = rank.frame(contribution(0))
    elsewhere = fabric.hosts[3]
    elsewhere.send(good)
    fabric.settle(3)
    for wrong in (
        good[:11] + b"\x99" + good[12:],
        with_ip(good, src=rank.host.ip + 9),
        replace(rank, udp_port=rank.udp_port + 9).frame(contribution(0)),
        rank.frame(replace(contribution(0), worker=1)),
    ):
        rank.host.send(wrong)
    fabric.settle(1)
    assert fabric.drops() == {DropReason.UNKNOWN_WORKER: 5}
    rank.host.send(good)
    fabric.settle(1)
    assert fabric.verdicts(JOB) == {Verdict.AGGREGATED: 1}


def test_checksums_of_contributions_are_not_looked_at(fabric: FrameFabric) -> None:
    rank = fabric.add_job(JOB, (1,))[0]
    frame = rank.frame(contribution(0))
    rank.host.send(frame[:24] + b"\xab\xcd" + frame[26:])
    assert fabric.settle() == [rank.result(replace(contribution(0), kind=Kind.RESULT))]


def ours(
    packet: Packet | bytes, udp_length: int | None = None, total_length: int | None = None, left: int | None = None
) -> bytes:
    """Return a frame of rank 0 with possibly wrong lengths, cut off after this many bytes behind UDP."""
    payload = packet if isinstance(packet, bytes) else packet.pack()
    datagram = udp(4000, 0xBEE0, payload, udp_length)
    ip = Ipv4(0x0A000001, SWITCH_IP, total_length=total_length)
    frame = ethernet(SWITCH_MAC, 0x020000000101, 0x0800, ip.pack(datagram))
    return frame if left is None else frame[: 14 + 20 + 8 + left]


GOOD = contribution(0)
HALF = replace(GOOD, slot=1)
EMPTY = Packet(JOB, 0, 0, 0, 1, flags=Flag.WITHOUT_VALUES)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(b"", DropReason.RUNT, id="nothing"),
        pytest.param(b"\0" * 13, DropReason.RUNT, id="shorter than Ethernet"),
        pytest.param(ours(GOOD, left=0), DropReason.RUNT, id="ends before our header"),
        pytest.param(ours(GOOD, left=31), DropReason.RUNT, id="ends in our header"),
        pytest.param(ours(replace(GOOD, version=9), left=47), DropReason.RUNT, id="ends in our values"),
        pytest.param(ours(GOOD, udp_length=39), DropReason.RUNT, id="UDP ends in our header"),
        pytest.param(ours(GOOD, total_length=59), DropReason.RUNT, id="IPv4 ends in our header"),
        pytest.param(ours(GOOD, total_length=75), DropReason.RUNT, id="IPv4 ends in our values"),
        pytest.param(ours(GOOD, udp_length=55, left=47), DropReason.BAD_LENGTH, id="short, as UDP says"),
        pytest.param(ours(GOOD, udp_length=57), DropReason.BAD_LENGTH, id="UDP is longer than its frame"),
        pytest.param(ours(GOOD, total_length=77), DropReason.BAD_LENGTH, id="IPv4 is longer than UDP"),
        pytest.param(ours(HALF, udp_length=40), DropReason.BAD_LENGTH, id="values outside UDP"),
        pytest.param(ours(GOOD.pack() + bytes(4)), DropReason.BAD_LENGTH, id="too many values"),
        pytest.param(ours(EMPTY, udp_length=56, left=32), DropReason.RUNT, id="values announced, none there"),
        pytest.param(ours(EMPTY, udp_length=41), DropReason.BAD_LENGTH, id="one byte announced, none there"),
        pytest.param(ours(replace(EMPTY, slot=1)), DropReason.BAD_HALF, id="half, without values"),
        pytest.param(ours(replace(GOOD, version=2)), DropReason.BAD_VERSION, id="version"),
        pytest.param(ours(replace(GOOD, kind=3)), DropReason.BAD_KIND, id="kind"),
        pytest.param(ours(replace(GOOD, kind=Kind.RESULT)), DropReason.FORGED_RESULT, id="RESULT"),
        pytest.param(ours(replace(GOOD, format=9)), DropReason.BAD_FORMAT, id="format"),
        pytest.param(ours(replace(GOOD, exponent=257)), DropReason.BAD_EXPONENT, id="exponent"),
        pytest.param(ours(replace(GOOD, count=5)), DropReason.BAD_COUNT, id="count"),
        pytest.param(ours(HALF), DropReason.BAD_HALF, id="half"),
        pytest.param(ours(replace(GOOD, job=6)), DropReason.UNKNOWN_JOB, id="job"),
        pytest.param(ours(replace(GOOD, slot=8)), DropReason.SLOT_OUT_OF_RANGE, id="slot"),
        pytest.param(ours(replace(GOOD, epoch=2)), DropReason.WRONG_EPOCH, id="epoch"),
    ],
)
def test_reasons_in_their_order(fabric: FrameFabric, frame: bytes, reason: DropReason) -> None:
    fabric.add_job(JOB, (1, 2))
    fabric.hosts[1].send(frame)
    assert fabric.settle() == []
    assert fabric.drops() == {reason: 1}
    assert fabric.switch.read_drop_counter(reason) == (1, len(frame))


def test_udp_that_cannot_be_read_is_ordinary(fabric: FrameFabric) -> None:
    """Check that frames that the P4 parser does not accept as SwitchML packets are forwarded unchanged."""
    rank = fabric.add_job(JOB, (1,))[0]
    fabric.switch.set_l2(SWITCH_MAC, ("forward", 2))
    good = rank.frame(contribution(0))
    frames = [
        with_ip(good, fragment=MORE_FRAGMENTS),
        with_ip(good, fragment=1),
        with_ip(good, options=b"\1" * 4),
        with_ip(good, version=6),
        with_ip(good, protocol=6),
        good[:33],  # ends in the IPv4 header
        good[:41],  # ends in the UDP header
        good[:12] + b"\x81\x00\x00\x07" + good[12:],  # in a VLAN
        good[:36] + b"\xbe\xe1" + good[38:],  # another UDP port
    ]
    for frame in frames:
        rank.host.send(frame)
    fabric.settle(1)
    assert fabric.hosts[2].waiting() == frames
    assert fabric.drops() == {}
    assert fabric.verdicts(JOB) == {}


def test_the_switchs_own_addresses_are_nobodys_source(fabric: FrameFabric) -> None:
    rank = fabric.add_job(JOB, (1, 2))[0]
    fabric.switch.set_l2_default(("forward", 2))
    good = rank.frame(contribution(0))
    other_port = good[:36] + b"\x0f\xa0" + good[38:]
    stolen = SWITCH_MAC.to_bytes(6, "big")
    forged = [
        good[:6] + stolen + good[12:],
        with_ip(good, src=SWITCH_IP),
        other_port[:6] + stolen + other_port[12:],
        with_ip(other_port, src=SWITCH_IP),
        with_ip(other_port, src=SWITCH_IP, version=5),
        ethernet(BROADCAST, SWITCH_MAC, 0x0806, arp(ARP_REQUEST, (SWITCH_MAC, 1), (0, SWITCH_IP))),
    ]
    for frame in forged:
        rank.host.send(frame)
    assert fabric.settle(1) == []
    assert fabric.hosts[2].waiting() == []
    assert fabric.drops() == {DropReason.FORGED_RESULT: len(forged)}
    assert fabric.switch.read_drop_counter(DropReason.FORGED_RESULT)[1] == sum(map(len, forged))


def test_an_address_that_is_not_set_is_nobodys(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    fabric.switch.set_switch_address(0, 0)
    frame = ethernet(BROADCAST, 0, 0x0800, Ipv4(0, 0xFFFFFFFF).pack(udp(68, 67, b"dhcp")))
    fabric.hosts[1].send(frame)
    assert fabric.hosts[2].receive() == frame


def test_ranks_at_udp_ports_and_at_frame_ports_share_a_job(fabric: FrameFabric) -> None:
    ranks = fabric.add_job(JOB, (1, 2))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker:
        worker.bind(("127.0.0.1", 0))
        worker.settimeout(TIMEOUT)
        worker.connect(("127.0.0.1", fabric.switch.add_port(9, UdpPortSpec(address="127.0.0.1"))))
        port: int = worker.getsockname()[1]
        loopback = 0x7F000001
        fabric.switch.delete_worker(fabric.worker_match(JOB, 1, ranks[1]))
        match = worker_match(9, (loopback, port), JOB, 1, slots_of(0, 4))
        fabric.switch.set_worker(match, bit=2, mask=3, epoch=1, group=JOB)
        fabric.switch.set_rank(JOB, 1, 0, loopback, port)
        fabric.switch.set_group(JOB, [(1, 0), (9, 1)])
        result = replace(contribution(0), kind=Kind.RESULT, exponent=101, check=3, values=(2, 4, 6, 8))

        worker.send(contribution(1).pack())
        fabric.wait_for(lambda: fabric.verdicts(JOB) == {Verdict.AGGREGATED: 1})
        ranks[0].host.send(
            ranks[0].frame(contribution(0), Ipv4(fabric.hosts[1].ip, SWITCH_IP, traffic_class=4)) + b"end"
        )
        assert fabric.settle(1) == [ranks[0].result(result, traffic_class=4) + b"end"]
        assert Packet.unpack(worker.recv(2000)) == result

        ranks[0].host.send(ranks[0].frame(contribution(0, slot=2)) + b"end")
        assert fabric.settle(1) == []
        worker.send(contribution(1, slot=2).pack())
        result = replace(result, worker=1, slot=2)
        assert fabric.hosts[1].receive() == ranks[0].result(result)
        assert Packet.unpack(worker.recv(2000)) == result


# ---- loss ------------------------------------------------------------------------------------------------------------


def test_ingress_loss_comes_before_all_else(fabric: FrameFabric) -> None:
    rank = fabric.add_job(JOB, (1,))[0]
    fabric.switch.set_loss(1, "ingress", EVERY)
    frames = [rank.frame(contribution(0)), plain(fabric, 1, 5), b"runt"]
    for frame in frames:
        rank.host.send(frame)
    fabric.wait_for(lambda: fabric.switch.port_counters(1)["received"] == 3)
    assert fabric.drops() == {DropReason.INJECTED_LOSS: 3}
    assert fabric.switch.read_drop_counter(DropReason.INJECTED_LOSS)[1] == sum(map(len, frames))
    fabric.switch.delete_loss(1, "ingress")
    rank.host.send(frames[0])
    assert len(fabric.settle(1)) == 1
    assert fabric.verdicts(JOB) == {Verdict.COMPLETED: 1}


def test_egress_loss_comes_after_all_else(fabric: FrameFabric) -> None:
    ranks = fabric.add_job(JOB, (1, 2, 2))
    fabric.switch.set_group(99, [(1, 0), (2, 0), (3, 0)])
    fabric.switch.set_l2_default(("flood", 99))
    fabric.switch.set_loss(2, "egress", EVERY)
    fabric.switch.delete_rank(JOB, 2)  # counted as no_rank_address, not as lost in addition
    frames = [rank.frame(contribution(number)) for number, rank in enumerate(ranks)]
    for number, rank in ((1, ranks[1]), (2, ranks[2])):
        rank.host.send(frames[number])
        fabric.wait_for(lambda: fabric.verdicts(JOB).get(Verdict.AGGREGATED) == number)  # noqa: B023
    ranks[0].host.send(frames[0])
    flooded = plain(fabric, 1, BROADCAST)
    fabric.hosts[1].send(flooded)
    result = replace(contribution(0), kind=Kind.RESULT, exponent=102, check=6, values=(3, 6, 9, 12))
    assert fabric.settle(1) == [ranks[0].result(result)]
    assert fabric.hosts[3].waiting() == [flooded]
    # A frame is not flooded to its own port 2, so it is not lost there either.
    from_two = plain(fabric, 2, BROADCAST)
    fabric.hosts[2].send(from_two)
    assert fabric.hosts[1].receive() == from_two
    assert fabric.hosts[2].waiting() == []
    assert fabric.drops() == {DropReason.INJECTED_LOSS: 2, DropReason.NO_RANK_ADDRESS: 1}
    assert fabric.switch.read_drop_counter(DropReason.INJECTED_LOSS)[1] == len(frames[0]) + len(flooded)
    assert fabric.verdicts(JOB) == {Verdict.AGGREGATED: 2, Verdict.COMPLETED: 1}


def test_each_copy_is_lost_on_its_own(tmp_path: Path) -> None:
    slots = 256
    with running_frames(tmp_path, slots=slots) as fabric:
        ranks = fabric.add_job(JOB, (1, 2, 2, 2), slots=slots)
        fabric.switch.set_loss(2, "egress", 1 << 31)
        for number in (3, 2, 1):  # from port 2, whose received frames are not lost
            for slot in range(slots):
                ranks[number].host.send(ranks[number].frame(contribution(number, slot=2 * slot)))
        fabric.wait_for(lambda: fabric.verdicts(JOB).get(Verdict.AGGREGATED) == 3 * slots)
        for slot in range(slots):
            ranks[0].host.send(ranks[0].frame(contribution(0, slot=2 * slot)))
        assert len(fabric.settle(1)) == slots
        arrived = fabric.hosts[2].waiting()
        assert 3 * slots / 2 - 80 < len(arrived) < 3 * slots / 2 + 80  # standard deviation 14
        assert len(arrived) + fabric.drops()[DropReason.INJECTED_LOSS] == 3 * slots
        of_slots = Counter(frame[50:52] for frame in arrived)
        assert {1, 2} <= set(of_slots.values())  # the copies of one result are lost independently


def test_thresholds_are_probabilities(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    for threshold, least, most in ((0, 0, 0), (1 << 30, 170, 330)):  # of 1000: 250 expected, standard deviation 14
        fabric.switch.set_loss(1, "ingress", threshold)
        before = fabric.switch.port_counters(1)["received"]
        for _ in range(1000):
            fabric.hosts[1].send(plain(fabric, 1, 5))
        fabric.wait_for(lambda: fabric.switch.port_counters(1)["received"] == before + 1000)  # noqa: B023
        lost = fabric.drops().get(DropReason.INJECTED_LOSS, 0)
        assert least <= lost <= most
        assert len(fabric.hosts[2].waiting()) == 1000 - lost


def test_a_reset_clears_forwarding_and_loss(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    fabric.switch.set_l2(9, ("forward", 3))
    fabric.switch.set_loss(1, "ingress", EVERY)
    fabric.switch.set_loss(2, "egress", EVERY)
    fabric.switch.reset(8, 4)
    fabric.switch.set_switch_address(SWITCH_MAC, SWITCH_IP)
    fabric.hosts[1].send(plain(fabric, 1, 5))
    fabric.hosts[1].send(plain(fabric, 1, 9))
    fabric.settle(1)
    fabric.settle(2)
    assert fabric.drops() == {DropReason.NO_ROUTE: 2}


# ---- injected faults -------------------------------------------------------------------------------------------------


def test_faults_of_a_frame_port(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    frames = [plain(fabric, 1, 5, struct.pack("!H", number)) for number in range(500)]
    size = len(frames[0])

    fabric.switch.set_faults(1, drop=0.25, duplicate=0, delay=0, seed=1)
    for frame in frames:
        fabric.hosts[1].send(frame)
    fabric.wait_for(lambda: fabric.switch.port_counters(1)["received"] == 500)
    lost = fabric.switch.port_counters(1)["injected_drop"]
    assert 80 < lost < 170  # 125 expected, standard deviation 10
    assert fabric.switch.read_drop_counter(DropReason.INJECTED_LOSS) == (lost, lost * size)
    assert len(fabric.hosts[2].waiting()) == 500 - lost

    fabric.switch.set_faults(1, drop=0, duplicate=1, delay=0, seed=1)
    fabric.hosts[1].send(frames[7])
    assert [fabric.hosts[2].receive() for _ in range(2)] == [frames[7]] * 2

    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=0, seed=1)
    fabric.switch.set_faults(2, drop=0, duplicate=1, delay=0.5, seed=1)
    for frame in frames:
        fabric.hosts[1].send(frame)
    arrived = [fabric.hosts[2].receive() for _ in range(1000)]
    assert Counter(arrived) == dict.fromkeys(frames, 2)
    assert arrived != sorted(arrived)
    fabric.switch.set_faults(2, drop=1, duplicate=0, delay=0, seed=1)
    fabric.hosts[1].send(frames[0])
    fabric.wait_for(lambda: fabric.switch.port_counters(2)["injected_drop"] == 1)
    assert fabric.switch.read_drop_counter(DropReason.INJECTED_LOSS)[0] == lost + 1


def test_a_held_packet_is_answered_whole(fabric: FrameFabric) -> None:
    """Test a delayed packet: its memory is freed at release, before its result has been sent."""
    rank = fabric.add_job(JOB, (1,))[0]
    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=1, seed=1)
    packets = [contribution(0, slot=slot) for slot in range(0, 8, 2)]
    for packet in packets:
        rank.host.send(rank.frame(packet) + b"trailer %d" % packet.slot)
    arrived = sorted(rank.host.receive() for _ in packets)
    assert arrived == sorted(rank.result(replace(p, kind=Kind.RESULT)) + b"trailer %d" % p.slot for p in packets)


# ---- sockets ---------------------------------------------------------------------------------------------------------


def test_frames_that_nobody_takes_are_counted(fabric: FrameFabric) -> None:
    fabric.switch.set_l2_default(("forward", 2))
    fabric.hosts[2].socket.close()
    fabric.hosts[1].send(plain(fabric, 1, 5))
    fabric.settle(1)
    counters = fabric.switch.port_counters(2)
    assert (counters["sent"], counters["send_errors"]) == (0, 1)
    assert counters["last_send_errno"] != 0


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path, peer = str(tmp_path / "switch"), str(tmp_path / "peer")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as earlier:
        earlier.bind(path)
        with pytest.raises(OSError, match="cannot bind a Unix datagram socket to"):
            Switch(1, 1).add_port(1, FramePortSpec(path=path, peer=peer))
    switch = Switch(1, 1)
    switch.add_port(1, FramePortSpec(path=path, peer=peer))
    with pytest.raises(ValueError, match="port 1 is already there"):
        switch.add_port(1, FramePortSpec(path=path + "2", peer=peer))
    del switch
    assert not Path(path).exists()
    Path(path).write_text("precious")
    with pytest.raises(OSError, match="cannot bind"):
        Switch(1, 1).add_port(1, FramePortSpec(path=path, peer=peer))
    assert Path(path).read_text() == "precious"


@pytest.mark.parametrize("path", ["", "x" * 108, "a\0b"])
def test_paths_are_checked(tmp_path: Path, path: str) -> None:
    switch = Switch(1, 1)
    with pytest.raises(ValueError, match="a socket path has 1 to 107 bytes"):
        switch.add_port(1, FramePortSpec(path=path, peer=str(tmp_path / "peer")))
    with pytest.raises(ValueError, match="a socket path has 1 to 107 bytes"):
        switch.add_port(1, FramePortSpec(path=str(tmp_path / "switch"), peer=path))
    assert not (tmp_path / "switch").exists()
    with pytest.raises(OSError, match="cannot bind"):
        switch.add_port(1, FramePortSpec(path=str(tmp_path / "nowhere" / "switch"), peer=str(tmp_path / "peer")))
