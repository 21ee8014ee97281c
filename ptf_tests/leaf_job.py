"""A job on a switch that is below another one in a tree, and the packets between the two."""

from __future__ import annotations

from dataclasses import dataclass, replace

import finsy as fy

from ptf_tests.control import Entity
from ptf_tests.frames import Host
from ptf_tests.job import Job
from ptf_tests.targets import HOST_PORTS
from ptf_tests.wire import Packet
from switchml.dataplane.constants import (
    OWNER_EVERYONE,
    PROTOCOL_MAX_WORKERS,
    PROTOCOL_UDP_PORT,
    TREE_FIRST_PARENT_INSTANCE,
    TREE_NO_RANK,
    TREE_PARENT_GROUP,
    Kind,
)

__all__ = ["LeafJob"]


@dataclass(frozen=True)
class LeafJob(Job):
    """A job of which some ranks are below this switch, at ``hosts``.

    Its parent knows this switch by the number ``number``, and has ``switches`` switches below it.
    """

    number: int = 2
    switches: int = 4

    @property
    def parent(self) -> Host:
        """The parent's location."""
        return Host(HOST_PORTS[-1], 0x0200000000FD, 0x0A0000FD, PROTOCOL_UDP_PORT)

    def worker_entry(self, rank: int) -> fy.P4TableEntry:
        """Return the entry that admits a rank."""
        entry = super().worker_entry(rank)
        assert isinstance(entry.action, fy.P4TableAction)
        return replace(entry, action=fy.Action("admit_below", **entry.action.args))

    def parent_entry(self, number: int) -> fy.P4TableEntry:
        """Return the entry that admits the parent's RESULTs that the switch with this number completed."""
        return fy.P4TableEntry(
            "worker_table",
            match=fy.Match(
                ingress_port=self.parent.port,
                eth_src=self.parent.mac,
                ipv4_src=self.parent.ip,
                udp_src=self.parent.udp_port,
                kind=Kind.RESULT,
                job=self.id,
                worker=number,
                secret=self.secret,
                slot=self.slot_match,
            ),
            action=fy.Action(
                "admit_parent",
                job_mask=self.mask,
                epoch=self.epoch,
                group=self.group_id,
                completed_here=int(number == self.number),
            ),
            priority=1,
        )

    def entities(self) -> list[Entity]:
        """Return all entries and groups of the job, in the order of writing."""
        instance = TREE_FIRST_PARENT_INSTANCE + self.number
        address = fy.P4TableEntry(
            "rank_table",
            match=fy.Match(job=self.id, rank=instance),
            action=fy.Action(
                "address_rank",
                eth_dst=self.parent.mac,
                ipv4_dst=self.parent.ip,
                udp_dst=self.parent.udp_port,
                ranks=(1 << PROTOCOL_MAX_WORKERS) - 1,
            ),
        )
        group = fy.P4MulticastGroupEntry(self.group_id | TREE_PARENT_GROUP, replicas=((self.parent.port, instance),))
        return [*super().entities(), group, address, *map(self.parent_entry, range(self.switches))]

    def sent_on(self, *contributions: Packet, asked_by: Packet | None = None) -> Packet:
        """Return this switch's contribution to the parent, the sum of those of its ranks.

        The last one, or ``asked_by``, made the switch send it.
        """
        sum_ = self.result(*contributions, asked_by=asked_by)
        return replace(sum_, kind=Kind.CONTRIBUTION, worker=self.number, owner=sum_.worker)

    def from_parent(self, phase: int = 0, *, slot: int = 0, completed_by: int | None = None, **fields: int) -> Packet:
        """Return the parent's RESULT, with values that are not those of any rank here.

        ``completed_by`` is the number of the switch that completed the phase, by default this one's; ``owner`` the rank
        there that made it send its contribution.
        """
        packet = self.packet(77, slot, phase, exponent=200, chunk=3, **fields)
        return replace(packet, kind=Kind.RESULT, worker=self.number if completed_by is None else completed_by)

    def from_parent_without_values(self, phase: int = 0, **fields: int) -> Packet:
        """Return the parent's RESULT of a phase in which no rank of the job has values."""
        packet = self.without_values(77, 0, phase, exponent=200, chunk=3, **fields)
        return replace(packet, kind=Kind.RESULT, worker=self.number)

    def to_ranks(self, result: Packet, owner: int = OWNER_EVERYONE) -> Packet:
        """Return a RESULT of the parent as the ranks get it: it names the rank below that completed it, if one did.

        ``owner`` is that of the last contribution from below, if the switch passes it on.
        """
        return replace(result, worker=result.owner if result.worker == self.number else TREE_NO_RANK, owner=owner)
