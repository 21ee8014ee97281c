"""The model of the TNA pipeline without a control plane: tests write its tables directly and build frames by hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ptf_tests.tofino_emulator.pipeline import Pipeline
from ptf_tests.tofino_emulator.program import load_program, state_of, values_per_packet
from ptf_tests.tofino_emulator.state import Entry, MulticastGroup, MulticastNode, State
from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_UDP_PORT, DropReason, Flag, Kind, Verdict
from tests.unit.tna_reference import WORD, Half

SWITCH_MAC, SWITCH_IP = 0x0200000000FE, 0x0A0000FE
RECIRCULATION_PORT = 68
INGRESS, EGRESS = "pipe.SwitchMLIngress", "pipe.SwitchMLEgress"


@cache
def program() -> Mapping[str, Any]:
    """Return the program that was compiled last."""
    return load_program()


@dataclass(frozen=True)
class Job:
    """A job whose rank r is attached to port r + 1, with pool indexes from ``base``."""

    id: int
    ranks: int
    epoch: int
    base: int = 0
    slots: int = 4
    secret: int = 0x5EC2E7

    @property
    def mask(self) -> int:
        return (1 << self.ranks) - 1

    def addresses(self, rank: int) -> tuple[int, int, int]:
        """Return MAC, IP and UDP port of a rank."""
        return 0x020000000100 + rank, 0x0A000100 + rank, 40000 + rank


def checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total > WORD >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def datagram(macs: tuple[int, int], ips: tuple[int, int], ports: tuple[int, int], payload: bytes, **ip: int) -> bytes:
    """Return an Ethernet frame; each pair is (source, destination)."""
    length = 28 + len(payload)
    fields = (0x45, 0, length, ip.get("id", 0x1234), ip.get("fragment", 0), ip.get("ttl", 32), 17)
    addresses = struct.pack("!II", *ips)
    sum_ = checksum(struct.pack("!BBHHHBBH", *fields, 0) + addresses)
    ethernet = macs[1].to_bytes(6, "big") + macs[0].to_bytes(6, "big") + b"\x08\x00"
    udp = struct.pack("!HHHH", *ports, 8 + len(payload), ip.get("udp_checksum", 0))
    return ethernet + struct.pack("!BBHHHBBH", *fields, sum_) + addresses + udp + payload


@dataclass
class Chip:
    """A pipeline with ports 1 to 8. ``out`` holds the frames that have left it, as (port, frame)."""

    compiled: Mapping[str, Any] = field(default_factory=program)
    state: State = field(init=False)
    out: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = values_per_packet(self.compiled)
        self.state = state_of(self.compiled)
        self.pipeline = Pipeline(self.compiled, self.state, lambda port, frame: self.out.append((port, frame)))
        address = Entry({}, "SwitchMLIngress.set_switch_address", {"mac": SWITCH_MAC, "ip": SWITCH_IP})
        self.state.match_tables[f"{INGRESS}.switch_address_table"].set_default(address)
        for port in (*range(1, 9), RECIRCULATION_PORT):
            returns = int(port == RECIRCULATION_PORT)
            data = {"recirculation_port": 0 if returns else RECIRCULATION_PORT, "is_recirculated": returns}
            self.put("pipe.SwitchMLIngressParser.$PORT_METADATA", {"ig_intr_md.ingress_port": port}, "", **data)

    def put(self, table: str, key: dict[str, Any], action: str, **data: int) -> None:
        """Write an entry."""
        self.state.match_tables[table].put(Entry(key, action, data))

    def add_job(self, job: Job) -> Job:
        """Write the controller's entries for a job; also used to change its epoch."""
        slot = (job.base << 1, ~(2 * job.slots - 1) & 0xFFFF)
        range_ = {"slot_value": slot[0], "slot_mask": slot[1]}
        self.put(f"{INGRESS}.job_table", {"job": job.id}, "SwitchMLIngress.describe_job", **range_)
        for rank in range(job.ranks):
            mac, ip, udp_port = job.addresses(rank)
            key: dict[str, Any] = {"ingress_port": rank + 1, "eth_src": mac, "ipv4_src": ip, "udp_src": udp_port}
            key |= {"kind": Kind.CONTRIBUTION, "job": job.id, "worker": rank, "secret": job.secret, "slot": slot}
            data = {"worker_bit": 1 << rank, "job_mask": job.mask, "epoch": job.epoch, "group": job.id}
            self.put(f"{INGRESS}.worker_table", key, "SwitchMLIngress.admit", **data)
            to = {"eth_dst": mac, "ipv4_dst": ip, "udp_dst": udp_port}
            self.put(f"{EGRESS}.rank_table", {"job": job.id, "rank": rank}, "SwitchMLEgress.address_rank", **to)
            self.state.nodes[job.id << 8 | rank] = MulticastNode(rank, [rank + 1])
        self.state.groups[job.id] = MulticastGroup([job.id << 8 | rank for rank in range(job.ranks)])
        return job

    @staticmethod
    def frame(job: Job, packet: Packet) -> bytes:
        """Return a contribution as its rank sends it."""
        mac, ip, udp_port = job.addresses(packet.worker)
        payload = replace(packet, secret=job.secret).pack()
        return datagram((mac, SWITCH_MAC), (ip, SWITCH_IP), (udp_port, PROTOCOL_UDP_PORT), payload)

    @staticmethod
    def result(job: Job, rank: int, packet: Packet) -> tuple[int, bytes]:
        """Return the port and frame in which a RESULT reaches a rank."""
        mac, ip, udp_port = job.addresses(rank)
        macs, ips, ports = (SWITCH_MAC, mac), (SWITCH_IP, ip), (PROTOCOL_UDP_PORT, udp_port)
        payload = replace(packet, secret=job.secret).pack()
        return rank + 1, datagram(macs, ips, ports, payload, id=0, fragment=0x4000, ttl=64)

    def send(self, job: Job, packet: Packet) -> list[tuple[int, bytes]]:
        """Send a contribution; return the frames that come out before anything else happens."""
        self.out.clear()
        self.pipeline.receive(packet.worker + 1, self.frame(job, packet))
        return list(self.out)

    # ---- counters and registers --------------------------------------------------------------------------------------

    def drops(self) -> dict[DropReason, int]:
        """Return the packets that were dropped, by reason."""
        one, other = (self.state.counters[f"{side}.drop_counter"] for side in (INGRESS, EGRESS))
        counts = {reason: one[reason][0] + other[reason][0] for reason in DropReason}
        return {reason: count for reason, count in counts.items() if count}

    def verdicts(self, job: Job) -> dict[Verdict, int]:
        """Return the packets of a job by verdict."""
        cells = self.state.counters[f"{INGRESS}.job_counter"]
        return {verdict: cells[job.id << 4 | verdict][0] for verdict in Verdict if cells[job.id << 4 | verdict][0]}

    def clear_counters(self, job: Job) -> None:
        """Set the counters of drops and of one job to zero."""
        counters = self.state.counters
        cells = [counters[f"{side}.drop_counter"][reason] for side in (INGRESS, EGRESS) for reason in DropReason]
        cells += (counters[f"{INGRESS}.job_counter"][job.id << 4 | verdict] for verdict in Verdict)
        for cell in cells:
            cell[:] = (0, 0)

    def _register(self, name: str) -> list[Any]:
        return self.state.registers[f"{INGRESS}.{name}"]

    def store(self, index: int, half: Half) -> None:
        """Write a half of a slot into the registers."""
        for copy in ("slot_tag", "slot_tag_2"):
            cell = self._register(copy)[index]
            for name in cell:
                cell[name] = half.phase if name.endswith("phase") else half.epoch
        for copy in ("slot_bitmap", "slot_bitmap_2"):
            self._register(copy)[index] = half.bitmap
        self._register("slot_filled")[index] = int(half.filled)
        self._register("slot_exponent")[index] = half.exponent
        self._register("slot_check")[index] = half.check
        self._register("slot_next")[index] = half.next
        for lane in range(0, len(half.values), 2):
            cell = self._register(f"lanes_{lane}_{lane + 1}")[index]
            for name in cell:
                cell[name] = half.values[lane + name.endswith("odd")]

    def load(self, index: int, lanes: int | None = None) -> Half:
        """Read a half of a slot, or its first lanes; both copies of duplicated state must be equal."""
        phases: set[int] = set()
        epochs: set[int] = set()
        for copy in ("slot_tag", "slot_tag_2"):
            for name, value in self._register(copy)[index].items():
                (phases if name.endswith("phase") else epochs).add(value)
        bitmaps = {self._register(copy)[index] for copy in ("slot_bitmap", "slot_bitmap_2")}
        (phase,), (epoch,), (bitmap,) = phases, epochs, bitmaps
        values: list[int] = []
        for lane in range(0, self.values if lanes is None else lanes, 2):
            cell = self._register(f"lanes_{lane}_{lane + 1}")[index]
            values += (cell[name] for name in sorted(cell, key=lambda name: name.endswith("odd")))
        exponent, check, chunk = (self._register(name)[index] for name in ("slot_exponent", "slot_check", "slot_next"))
        filled = bool(self._register("slot_filled")[index])
        return Half(epoch, phase, bitmap, exponent, check, chunk, tuple(values), filled)


def result_of(packet: Packet, half: Half, values: tuple[int, ...]) -> Packet:
    """Return the RESULT that the switch makes from a packet; it has ``values`` if the half has any."""
    changed: dict[str, Any] = {}
    if half.filled and not packet.values:
        changed = {"count": len(values), "flags": Flag(packet.flags & 0xFF ^ Flag.WITHOUT_VALUES)}
    sums: dict[str, Any] = {"exponent": half.exponent, "check": half.check, "chunk": half.next}
    return replace(packet, kind=Kind.RESULT, values=values if half.filled else (), **sums, **changed)


def unsigned(packet: Packet) -> Packet:
    """Return a packet with its values as the slot holds them."""
    return replace(packet, values=tuple(value & WORD for value in packet.values))
