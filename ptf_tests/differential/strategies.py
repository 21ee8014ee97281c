"""Random sequences: hypothesis strategies over small domains, so that packets often meet the same slot."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import finsy as fy
from hypothesis import strategies as st

from ptf_tests.control import Entity
from ptf_tests.differential.sequence import Burst, Put, Remove, Sequence, SetDefault, Step
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, icrc
from ptf_tests.job import Job, default_host
from ptf_tests.leaf_job import LeafJob
from ptf_tests.wire import Packet
from switchml.controller.drivers.p4tables import replicas
from switchml.dataplane.codes import CODED_FORMATS
from switchml.dataplane.constants import (
    PROTOCOL_MAX_WORKERS,
    ROCEV2_OPCODE,
    ROCEV2_QUEUE_PAIR,
    ROCEV2_UDP_PORT,
    TREE_FIRST_PARENT_INSTANCE,
    TREE_NO_RANK,
    TREE_PARENT_GROUP,
    Flag,
    Format,
    Kind,
)

__all__ = ["Abilities", "sequences"]

# A burst must not exceed what a Unix datagram socket holds (barrier.py).
_MAX_BURST = 3
_MAX_REPLICAS = 3
_HOSTS = tuple(map(default_host, range(4)))
_QUEUE_PAIRS = 0x100  # that of rank 0, if the hosts of a job have RDMA cards
_PORTS = (1, 2, 3, 4)
_JOBS = (1, 2)
_GROUPS = (1, 2, 3)
_MACS = (SWITCH_MAC, 0xFFFFFFFFFFFF, *(host.mac for host in _HOSTS))
_SLOTS = 4  # slots of each job
_REGISTERS = 4096  # entries of a slot register
_PARENT_INSTANCES = (2, TREE_FIRST_PARENT_INSTANCE, TREE_FIRST_PARENT_INSTANCE + 2)


@dataclass(frozen=True)
class Abilities:
    """The abilities of a pipeline that not all have.

    ``lose``: it has loss tables. ``grow``: its RESULTs can have values although the packets that they answer have none.
    ``own``: it removes the values from copies of a RESULT that do not go to its owner. ``expand``: it takes codes of
    one byte as values. ``floats``: it adds floats. ``contradict``: a RESULT of the
    parent that comes again changes nothing, even if it differs from the first one. ``rocev2``: it takes the packets of
    RDMA cards.
    """

    lose: bool = True
    grow: bool = True
    own: bool = True
    expand: bool = True
    floats: bool = False
    contradict: bool = True
    rocev2: bool = True


class _Draw:
    """Draw the fields of one frame: usual values, except for a few wrong ones."""

    def __init__(self, draw: st.DrawFn, wrong: frozenset[str]) -> None:
        self._draw = draw
        self._wrong = wrong

    def __call__(self, name: str, usual: Any, *others: Any) -> Any:
        """Return ``usual``, or another value if the field ``name`` should be wrong."""
        return self._draw(st.sampled_from(others)) if name in self._wrong else usual

    def any(self, *values: Any) -> Any:
        """Return one of several valid values."""
        return self._draw(st.sampled_from(values))


def _wrong(names: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    """Draw the names of wrong fields: in three of four cases an empty set, else one or two names."""
    none = st.just(frozenset[str]())
    return st.one_of(none, none, none, st.frozensets(st.sampled_from(names), min_size=1, max_size=2))


# ---- tables ----------------------------------------------------------------------------------------------------------


def _put(table: str, match: dict[str, Any], action: str, priority: int = 0, **parameters: int) -> Put:
    return Put(table, tuple(match.items()), priority, action, tuple(parameters.items()))


def _group(number: int, replicas: tuple[tuple[int, int], ...]) -> Put:
    return Put("group", (("id", number),), replicas=replicas)


@st.composite
def _jobs(draw: st.DrawFn, values: int, can: Abilities) -> Job:
    number = draw(st.sampled_from(_JOBS))
    hosts = _HOSTS[: draw(st.integers(1, _MAX_REPLICAS))]
    if can.rocev2:
        cards = draw(st.sampled_from((0, 0, 1, 2, 7)))  # a bitmap
        hosts = tuple(
            host.moved(queue_pair=_QUEUE_PAIRS + rank) if cards >> rank & 1 else host for rank, host in enumerate(hosts)
        )
    epoch = draw(st.sampled_from((1, 2)))
    kind = draw(st.sampled_from((Job, LeafJob)))
    return kind(number, epoch, hosts, values, slot_base=(number - 1) * _SLOTS, slots=_SLOTS)


def _job_writes(job: Job) -> list[Step]:
    """Return the writes by which the controller creates a job."""
    return list(map(_written, job.entities()))


def _written(entity: Entity) -> Put:
    if isinstance(entity, fy.P4MulticastGroupEntry):
        return _group(entity.multicast_group_id, tuple(replicas(entity)))
    assert isinstance(entity.action, fy.P4TableAction)
    match: dict[str, Any] = dict(entity.match or {})
    priority = _priority(match["slot"]) if entity.table_id == "worker_table" else 0
    return _put(entity.table_id, match, entity.action.name, priority, **entity.action.args)


def _priority(slot: tuple[int, int]) -> int:
    """Return a priority that two overlapping entries never share: it would be undefined which of them matches."""
    return 1 + slot[1].bit_count()


def _any_group(draw: st.DrawFn) -> Put:
    copies = st.lists(st.tuples(st.sampled_from(_PORTS), st.integers(0, 3)), max_size=_MAX_REPLICAS, unique=True)
    return _group(draw(st.sampled_from(_GROUPS)), tuple(draw(copies)))


def _any_parent_group(draw: st.DrawFn) -> Put:
    copies = st.lists(st.tuples(st.sampled_from(_PORTS), st.sampled_from(_PARENT_INSTANCES)), max_size=1)
    return _group(draw(st.sampled_from(_GROUPS)) | TREE_PARENT_GROUP, tuple(draw(copies)))


def _any_slots(draw: st.DrawFn, job: int) -> tuple[int, int]:
    low_bits = draw(st.sampled_from((0, 1, 3, 7, 15, _REGISTERS - 1)))
    return (job - 1) * 2 * _SLOTS & ~low_bits & 0xFFFF, ~low_bits & 0xFFFF


def _any_job(draw: st.DrawFn) -> Put:
    job = draw(st.sampled_from(_JOBS))
    value, mask = _any_slots(draw, job)
    return _put("job_table", {"job": job}, "describe_job", slot_value=value, slot_mask=mask)


def _any_rank(draw: st.DrawFn, can: Abilities) -> Put:
    rank = draw(st.sampled_from((*range(_MAX_REPLICAS + 1), *_PARENT_INSTANCES)))
    match = {"job": draw(st.sampled_from(_JOBS)), "rank": rank}
    mac, udp_port = draw(st.sampled_from((0, 0x020000000155))), draw(st.sampled_from((0, 0xBEE0, 0xFFFF)))
    ranks = draw(st.sampled_from((0, 1, 6, 0xFFFFFFFF)))
    place = {"eth_dst": mac, "ipv4_dst": 0x0A000155, "ranks": ranks}
    if can.rocev2 and draw(st.booleans()):
        queue_pair = draw(st.sampled_from((0, _QUEUE_PAIRS, 0xFFFFFF)))
        return _put("rank_table", match, "address_queue_pair", queue_pair=queue_pair, **place)
    return _put("rank_table", match, "address_rank", udp_dst=udp_port, **place)


def _any_worker(draw: st.DrawFn, max_workers: int, can: Abilities) -> Put:
    job = draw(st.sampled_from(_JOBS))
    host = draw(st.sampled_from(_HOSTS))
    slot = _any_slots(draw, job)
    senders = [host.udp_port, *([host.moved(queue_pair=0x101).sender] if can.rocev2 else [])]
    match: dict[str, Any] = {
        "ingress_port": host.port,
        "eth_src": host.mac,
        "ipv4_src": host.ip,
        "udp_src": draw(st.sampled_from(senders)),
        "kind": draw(st.sampled_from(Kind)),
        "job": job,
        "worker": draw(st.sampled_from((0, 1, 2, 63, 255))),
        "secret": draw(st.sampled_from((Job.secret, Job.secret, 0, 1))),
        "slot": slot,
    }
    action = draw(st.sampled_from(("admit", "admit", "admit_below", *(("admit_parent",) if can.contradict else ()))))
    bits, masks = [1, 2, 4, 0, 3], [1, 3, 7, 0]
    if action == "admit":
        # The last bit of a smaller bitmap than the soft switch's is the parent's there, but not in the soft switch.
        bits += [1 << (max_workers - 1)] if max_workers == PROTOCOL_MAX_WORKERS else []
        masks += [(1 << max_workers) - 1]
    if action == "admit_parent":
        own: dict[str, Any] = {"completed_here": draw(st.integers(0, 1))}
    else:
        own = {"worker_bit": draw(st.sampled_from(bits))}
    return _put(
        *("worker_table", match, action, _priority(slot)),
        **own,
        job_mask=draw(st.sampled_from(masks)),
        epoch=draw(st.sampled_from((1, 2, 0, 0xFFFF))),
        group=draw(st.sampled_from((*_GROUPS, 0, 77))),
    )


def _any_l2(draw: st.DrawFn) -> Put:
    match = {"eth_dst": draw(st.sampled_from(_MACS))}
    action = draw(st.sampled_from(("forward", "flood", "drop_no_route")))
    if action == "forward":
        return _put("l2_table", match, action, port=draw(st.sampled_from((*_PORTS, 20))))
    if action == "flood":
        return _put("l2_table", match, action, group=draw(st.sampled_from((*_GROUPS, 77))))
    return _put("l2_table", match, action)


def _any_loss(draw: st.DrawFn) -> Put:
    table = draw(st.sampled_from(("loss_ingress_table", "loss_egress_table")))
    threshold = draw(st.sampled_from((0, 0xFFFFFFFF)))
    return _put(table, {"port": draw(st.sampled_from(_PORTS))}, "lose", threshold=threshold)


_ANY = (_any_group, _any_parent_group, _any_job, _any_l2, _any_l2, _any_l2)


@st.composite
def _writes(draw: st.DrawFn, max_workers: int, can: Abilities) -> list[Step]:
    """Draw a write to any table, of an entry that may exist or not."""
    if draw(st.integers(0, 9)) == 9:
        return [_switch_address(draw(st.sampled_from((0, SWITCH_MAC))), draw(st.sampled_from((0, SWITCH_IP))))]
    workers = (lambda draw: _any_worker(draw, max_workers, can),) * 2
    ranks = (lambda draw: _any_rank(draw, can),)
    put = draw(st.sampled_from((*_ANY, *ranks, *workers, *((_any_loss,) if can.lose else ()))))(draw)
    kind = draw(st.sampled_from(("put", "put", "remove", "default")))
    if kind == "remove":
        return [Remove(put.table, put.match, put.priority)]
    if kind == "default" and put.table == "l2_table":
        return [SetDefault("l2_table", put.action, put.parameters)]
    return [put]


def _switch_address(mac: int, ip: int) -> SetDefault:
    return SetDefault("switch_address_table", "set_switch_address", (("mac", mac), ("ip", ip)))


# ---- packets ---------------------------------------------------------------------------------------------------------


_PARENT = -1  # the sender, in place of a rank

_SWITCHML_FIELDS = (
    *("version", "kind", "job", "worker", "format", "exponent", "index", "half", "count", "epoch"),
    *("without_values", "payload", "phase", "secret"),
)
_IPV4_FIELDS = ("version_length", "length", "fragment", "protocol", "ip_checksum", "ip_src", "ip_dst")
_RDMA_FIELDS = ("opcode", "padding", "queue_pair", "source", "icrc")
_FRAME_FIELDS = ("host", "eth_dst", "udp_port", "udp_length", "trailer", "cut", *_IPV4_FIELDS, *_RDMA_FIELDS)


@st.composite
def _contributions(
    draw: st.DrawFn, job: Job, rank: int, can: Abilities, slot: int | None = None, phase: int | None = None
) -> bytes:
    """Draw a packet to SwitchML's port; most are well-formed, and some are without values.

    It is a contribution of a rank, or, for ``_PARENT``, a RESULT of the parent.
    """
    from_parent = rank == _PARENT
    usual = _location(job, rank)
    number, kind = (draw(st.sampled_from((0, 2, 3))), Kind.RESULT) if from_parent else (rank, Kind.CONTRIBUTION)
    pick = _Draw(draw, draw(_wrong(_SWITCHML_FIELDS + _FRAME_FIELDS)))
    phase = pick("phase", pick.any(0, 1, 2, 3) if phase is None else phase, 0, 0x7FFFFFFF, 0xFFFFFFFF)
    slot = pick("index", pick.any(0, 1) if slot is None else slot, _SLOTS - 1, _SLOTS, -_SLOTS, 2047, 0x7000)
    empty = can.grow and pick.any(False, False, True)
    if from_parent and not can.contradict:
        empty = can.grow and (phase + slot) % 3 == 0
    count = 0 if empty else pick.any(job.values, 1)
    lengths = [0, 1, job.values - 1, job.values, job.values + 1]
    number_format = pick("format", Format.INT32, 0, 3)
    if can.expand:
        number_format = pick("format", pick.any(Format.INT32, Format.INT32, *CODED_FORMATS), 0, 1, *range(3, 7), 0xFF)
        lengths += [job.values // 4, 4 * job.values]  # words that take the bytes of codes, and the reverse
    elif can.floats:
        number_format = pick("format", pick.any(Format.INT32, Format.FLOAT32, Format.FLOAT32), 0, 3, 0xFF)
    length = pick("payload", 0 if empty else job.values, *lengths)
    largest = 0xFF if number_format in CODED_FORMATS else 0xFFFFFFFF
    if can.floats and from_parent:
        largest = 0x7F7FFFFF  # no NaN and no -0, which are results as 0x7FC00000 and +0
    flags = pick("without_values", int(empty), 0, 1) | pick.any(0, 2, 4, 0xFE)
    step = pick.any(0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x12345679)
    packet = Packet(
        version=pick("version", 1, 0, 2),
        kind=pick("kind", int(kind), *map(int, Kind), 0, 3),
        job=pick("job", job.id, 0, 1, 2, 3, 0xFFFF),
        worker=pick("worker", number, 0, 1, 63, 64, TREE_NO_RANK),
        format=number_format,
        exponent=pick("exponent", pick.any(0, 100, 254, 255, 256), 257, 0xFFFF),
        slot=max(0, job.slot_base + slot) << 1 | pick("half", phase & 1, 1 - (phase & 1)),
        count=pick("count", count, 0, 1, job.values, job.values + 1, 0xFFFF),
        epoch=pick("epoch", job.epoch, 0, 1, 2, 0xFFFF),
        owner=pick.any(0, 0, 1, 2, 64, 0x7F, 0x80, 0x81, 0x82, 0xC0, 0xFF) if can.own or from_parent else 0,
        flags=Flag(flags),
        phase=phase,
        chunk=pick.any(0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF),
        check=pick.any(0, 1, 0x80000000, 0xFFFFFFFF),
        secret=pick("secret", job.secret, 0, 1, 0xFFFFFFFF),
        values=tuple(step * (lane + rank + 1) & largest for lane in range(length)),
    )
    host = pick("host", usual, *_HOSTS, usual.moved(mac=SWITCH_MAC))
    if host.queue_pair is None:
        frame = _in_ipv4(pick, host, packet.pack())
        cut = pick("cut", len(frame), 14, 33, 41, 42, 73, 74, len(frame) - 1)
    else:
        frame = _as_ud_send(pick, host, packet.pack())
        cut = pick("cut", len(frame), 14, 42, 53, 54, 61, 62, 93, 94, 97, 98, len(frame) - 4, len(frame) - 1)
    return frame[:cut] + bytes(pick("trailer", 0, 1, 4, 60))


def _senders(job: Job) -> list[int]:
    """Return the ranks of a job at this switch, and its parent if it has one."""
    return [*range(len(job.hosts)), *([_PARENT] if isinstance(job, LeafJob) else [])]


def _location(job: Job, sender: int) -> Host:
    return job.parent if isinstance(job, LeafJob) and sender == _PARENT else job.hosts[sender]


def _as_ud_send(pick: _Draw, host: Host, packet: bytes) -> bytes:
    """Return a packet as an RDMA card sends it."""
    bth = struct.pack(
        "!BBHII",
        pick("opcode", ROCEV2_OPCODE, 0x65, 0x04, 0x81),
        pick.any(0, 0x80, 0x40) | pick("padding", 0, 0x10, 0x30, 1, 0x0F),
        pick.any(0xFFFF, 0),
        pick.any(0, 0, 0xFF) << 24 | pick("queue_pair", ROCEV2_QUEUE_PAIR, 0, ROCEV2_QUEUE_PAIR ^ 1),
        pick.any(0, 0x80000001, 0xFFFFFFFF),
    )
    deth = struct.pack("!II", pick.any(0, Job.secret, 0xFFFFFFFF), pick("source", host.queue_pair, 0, 0x101, 0xFFFFFF))
    frame = _in_ipv4(pick, host, bth + deth + packet + bytes(4))
    damage: int = pick("icrc", 0, 1, 0x80000000)
    return frame[:-4] + (int.from_bytes(icrc(frame), "big") ^ damage).to_bytes(4, "big")


def _in_ipv4(pick: _Draw, host: Host, payload: bytes) -> bytes:
    """Return a UDP payload with its headers."""
    size = len(payload)
    to = 0xBEE0 if host.queue_pair is None else ROCEV2_UDP_PORT
    udp_length = pick("udp_length", 8 + size, 0, 8, 31, 32, 39, 40, 41, 63, 64, 65, 7 + size, 9 + size, 0xFFFF)
    udp = struct.pack(
        "!HHHH",
        host.udp_port,
        pick("udp_port", to, 0xBEE1, 0xBEE0, ROCEV2_UDP_PORT),
        udp_length,
        pick.any(0, 1, 0xFFFF),
    )
    length = pick("length", 28 + size, 0, 20, 28, 59, 60, 83, 84, 27 + size, 29 + size, 0xFFFF)
    addresses = pick("ip_src", host.ip, SWITCH_IP, 0), pick("ip_dst", SWITCH_IP, host.ip, 0)
    ip = _ipv4(pick, length, pick("protocol", 17, 1, 6), *addresses)
    return _ethernet(pick("eth_dst", SWITCH_MAC, *_MACS), host.mac, 0x0800) + ip + udp + payload


def _ipv4(pick: _Draw, length: int, protocol: int, source: int, destination: int) -> bytes:
    first = struct.pack(
        "!BBHHHBB",
        pick("version_length", 0x45, 0x46, 0x44, 0x55, 0x65),
        pick.any(0, 1, 0xB8, 0xFF),
        length,
        pick.any(0, 1, 0xFFFF),
        pick("fragment", pick.any(0, 0x4000), 0x2000, 1, 0x8000),
        pick.any(64, 1, 0),
        protocol,
    )
    last = struct.pack("!II", source, destination)
    total = sum(struct.unpack("!9H", first + last))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    checksum: int = pick("ip_checksum", ~total & 0xFFFF, total, 0)
    return first + checksum.to_bytes(2, "big") + last


_ARP_FIELDS = ("hardware", "protocol", "hardware_length", "protocol_length", "operation", "sender")


@st.composite
def _ordinary(draw: st.DrawFn, host: Host) -> bytes:
    """Draw a frame that is not a SwitchML packet: ARP, ICMP, anything."""
    kind = draw(st.sampled_from(("arp", "icmp", "bytes", "bytes")))
    pick = _Draw(draw, draw(_wrong(("source", "cut", *_IPV4_FIELDS, *_ARP_FIELDS, "type", "code"))))
    source = pick("source", host.mac, SWITCH_MAC, 0)
    destination = pick.any(*_MACS)
    if kind == "arp":
        frame = _ethernet(destination, source, 0x0806) + _arp(pick, host)
    elif kind == "icmp":
        words = pick.any(0, 0xF7FF, 0xF800, 0xFFFF, 0x1234), pick.any(0, 7), pick.any(0, 1)
        icmp = struct.pack("!BBHHH", pick("type", 8, 0, 13), pick("code", 0, 1), *words) + draw(st.binary(max_size=9))
        length = pick("length", 20 + len(icmp), 0, 20, 27, 28, 21 + len(icmp), 0xFFFF)
        addresses = pick("ip_src", host.ip, SWITCH_IP, 0), pick("ip_dst", SWITCH_IP, host.ip, 0)
        frame = _ethernet(pick.any(SWITCH_MAC, destination), source, 0x0800)
        frame += _ipv4(pick, length, pick("protocol", 1, 17), *addresses) + icmp
    else:
        # No 802.1Q tag: Linux itself drops a frame that ends inside it, before BMv2 receives it.
        frame = _ethernet(destination, source, pick.any(0x0800, 0x0806, 0x88CC, 0x86DD, 0))
        frame += draw(st.binary(max_size=64))
    return frame[: pick("cut", len(frame), 14, 15, 33, 34, 41, 42)]


def _arp(pick: _Draw, host: Host) -> bytes:
    return struct.pack(
        "!HHBBH6sI6sI",
        pick("hardware", 1, 6),
        pick("protocol", 0x0800, 0x86DD),
        pick("hardware_length", 6, 8),
        pick("protocol_length", 4, 16),
        pick("operation", 1, 0, 2),
        host.mac.to_bytes(6, "big"),
        pick("sender", host.ip, 0, SWITCH_IP),
        bytes(6),
        pick.any(SWITCH_IP, SWITCH_IP, host.ip, 0),
    )


def _ethernet(destination: int, source: int, ethertype: int) -> bytes:
    return destination.to_bytes(6, "big") + source.to_bytes(6, "big") + ethertype.to_bytes(2, "big")


# ---- sequences -------------------------------------------------------------------------------------------------------


@st.composite
def _bursts(draw: st.DrawFn, jobs: tuple[Job, ...], can: Abilities) -> list[Step]:
    """Draw frames of one host, through its port or, sometimes, another one."""
    job = draw(st.sampled_from(jobs))
    rank = draw(st.sampled_from(_senders(job)))
    host = _location(job, rank)
    packet = _contributions(job, rank, can)
    frames = draw(st.lists(st.one_of(packet, packet, _ordinary(host)), min_size=1, max_size=_MAX_BURST))
    ports = (host.port,) * 9
    return [Burst(draw(st.sampled_from((*ports, *_PORTS))), tuple(frames))]


@st.composite
def _rounds(draw: st.DrawFn, jobs: tuple[Job, ...], can: Abilities) -> list[Step]:
    """Draw one phase of a slot: every rank contributes, in any order, and some more than once.

    The parent sends its RESULT after that, or at any time.
    """
    job = draw(st.sampled_from(jobs))
    slot, phase = draw(st.sampled_from((0, 1))), draw(st.sampled_from((0, 1, 2, 3)))
    ranks = range(len(job.hosts))
    senders = _senders(job)
    order = [
        *draw(st.permutations(ranks)),
        *senders[len(ranks) :],
        *draw(st.lists(st.sampled_from(senders), max_size=3)),
    ]
    if draw(st.booleans()):
        order = draw(st.permutations(order))
    return [
        Burst(_location(job, sender).port, (draw(_contributions(job, sender, can, slot, phase)),)) for sender in order
    ]


@st.composite
def sequences(draw: st.DrawFn, values: int = 64, max_workers: int = 64, can: Abilities | None = None) -> Sequence:
    """Draw the tables of one or two jobs, then packets and writes in any order.

    Every frame has an Ethernet header, because BMv2's interfaces carry no other. ``can`` is what both pipelines can do;
    by default everything.
    """
    can = can or Abilities()
    jobs = tuple(draw(st.lists(_jobs(values, can), min_size=1, max_size=2, unique_by=lambda job: job.id)))
    steps: list[Step] = [_switch_address(SWITCH_MAC, SWITCH_IP)]
    for job in jobs:
        steps += _job_writes(job)
    if draw(st.booleans()):
        steps += [_put("l2_table", {"eth_dst": host.mac}, "forward", port=host.port) for host in _HOSTS]
        steps.append(_group(_GROUPS[-1], tuple((port, 0) for port in _PORTS[:_MAX_REPLICAS])))
        steps.append(_put("l2_table", {"eth_dst": 0xFFFFFFFFFFFF}, "flood", group=_GROUPS[-1]))
    rounds, bursts = _rounds(jobs, can), _bursts(jobs, can)
    writes = _writes(max_workers, can)
    for more in draw(st.lists(st.one_of(rounds, rounds, bursts, bursts, writes), min_size=1, max_size=24)):
        steps += more
    return Sequence(tuple(steps), values)
