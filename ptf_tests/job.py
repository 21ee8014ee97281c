"""A job as the controller writes it into a switch, and the packets of its ranks."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import finsy as fy

from ptf_tests.control import Entity
from ptf_tests.frames import Host
from ptf_tests.targets import HOST_PORTS
from ptf_tests.wire import Packet
from switchml.dataplane.constants import Flag, Format, Kind

__all__ = ["Job", "default_host"]

_MASK = 0xFFFFFFFF


def default_host(rank: int) -> Host:
    """Return a rank's default location: ranks use the ports in turn, and no two share an address."""
    return Host(HOST_PORTS[rank % len(HOST_PORTS)], 0x020000000100 + rank, 0x0A000100 + rank, 40000 + rank)


@dataclass(frozen=True)
class Job:
    """A job in one epoch: ranks at ``hosts``, pool indexes ``slot_base`` to ``slot_base + slots`` (exclusive).

    ``group`` is its multicast group; 0 means the group with the job's id.
    """

    id: int
    epoch: int
    hosts: tuple[Host, ...]
    values: int
    slot_base: int = 0
    slots: int = 16
    group: int = 0
    secret: int = 0x5EC2E7

    @property
    def group_id(self) -> int:
        """The multicast group that the job's results go to."""
        return self.group or self.id

    @property
    def mask(self) -> int:
        """The bitmap of a slot to which every rank has contributed."""
        return (1 << len(self.hosts)) - 1

    @property
    def slot_match(self) -> tuple[int, int]:
        """The slot fields of the job as value and mask."""
        return self.slot_base << 1, ~(2 * self.slots - 1) & 0xFFFF

    def worker_entry(self, rank: int) -> fy.P4TableEntry:
        """Return the entry that admits a rank."""
        host = self.hosts[rank]
        return fy.P4TableEntry(
            "worker_table",
            match=fy.Match(
                ingress_port=host.port,
                eth_src=host.mac,
                ipv4_src=host.ip,
                udp_src=host.sender,
                kind=Kind.CONTRIBUTION,
                job=self.id,
                worker=rank,
                secret=self.secret,
                slot=self.slot_match,
            ),
            action=fy.Action("admit", worker_bit=1 << rank, job_mask=self.mask, epoch=self.epoch, group=self.group_id),
            priority=1,
        )

    def rank_entry(self, rank: int, listeners: Sequence[int] = ()) -> fy.P4TableEntry:
        """Return the entry that addresses results to a rank; ``listeners`` are all ranks there, if there are others."""
        host = self.hosts[rank]
        place = {"eth_dst": host.mac, "ipv4_dst": host.ip, "ranks": sum(1 << one for one in listeners or (rank,))}
        if host.queue_pair is None:
            action = fy.Action("address_rank", udp_dst=host.udp_port, **place)
        else:
            action = fy.Action("address_queue_pair", queue_pair=host.queue_pair, **place)
        return fy.P4TableEntry("rank_table", match=fy.Match(job=self.id, rank=rank), action=action)

    def group_entry(self) -> fy.P4MulticastGroupEntry:
        """Return the multicast group: one replica for each rank."""
        return fy.P4MulticastGroupEntry(
            self.group_id, replicas=tuple((host.port, n) for n, host in enumerate(self.hosts))
        )

    def entities(self) -> list[Entity]:
        """Return all entries and groups of the job, in the order of writing."""
        value, mask = self.slot_match
        job = fy.P4TableEntry(
            "job_table",
            match=fy.Match(job=self.id),
            action=fy.Action("describe_job", slot_value=value, slot_mask=mask),
        )
        ranks = range(len(self.hosts))
        return [self.group_entry(), job, *map(self.rank_entry, ranks), *map(self.worker_entry, ranks)]

    def packet(self, rank: int, slot: int = 0, phase: int = 0, **fields: Any) -> Packet:
        """Return a contribution of ``rank`` to the job's ``slot``-th slot, with values that differ in every lane."""
        pattern = tuple((rank + 1) * 1_000_003 * (lane + 1) - 7 * (phase + slot) for lane in range(self.values))
        packet = Packet(
            job=self.id,
            worker=rank,
            slot=(self.slot_base + slot) << 1 | phase & 1,
            phase=phase,
            epoch=self.epoch,
            values=pattern,
            count=self.values,
            exponent=100 + rank % 100,
            chunk=(phase * self.slots + slot) & _MASK,
            secret=self.secret,
        )
        packet = replace(packet, **fields)
        # A switch adds up checks without knowing what they mean, so any number will do.
        return packet if "check" in fields else replace(packet, check=zlib.crc32(packet.pack()))

    def without_values(self, rank: int, slot: int = 0, phase: int = 0, **fields: Any) -> Packet:
        """Return a contribution without values."""
        empty: dict[str, Any] = {"values": (), "count": 0, "flags": Flag.WITHOUT_VALUES}
        return self.packet(rank, slot, phase, **{**empty, **fields})

    @staticmethod
    def result(*contributions: Packet, asked_by: Packet | None = None) -> Packet:
        """Return the RESULT of contributions to one phase of a slot.

        Its header is that of the last contribution, which completes it, or of ``asked_by``, to which it is resent,
        except for the largest exponent, the sum of the checks and the smallest chunk. It has values if and only if any
        contribution has, and they are words even if those of the contributions are codes.
        """
        lanes = zip(*(packet.integers for packet in contributions if packet.values), strict=True)
        values = tuple(sum(lane) & _MASK for lane in lanes)
        trigger = contributions[-1] if asked_by is None else asked_by
        if values and not trigger.values:
            trigger = replace(trigger, count=len(values), flags=Flag(trigger.flags & 0xFF ^ Flag.WITHOUT_VALUES))
        return replace(
            trigger,
            kind=Kind.RESULT,
            format=Format.INT32,
            exponent=max(packet.exponent for packet in contributions),
            check=sum(packet.check for packet in contributions) & _MASK,
            chunk=min(packet.chunk for packet in contributions),
            values=values,
        )
