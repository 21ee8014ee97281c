"""A job with its switches: the tables that these must hold, and the messages to its agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address

from switchml.common.job_numbers import seconds_to_open
from switchml.common.printable import REASON_LENGTH, printable, shortened
from switchml.controller.config import SwitchConfig
from switchml.controller.drivers import JobTables, ParentPort, RankPort
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobSwitch, Rank, SharedPort, parse_mac, printed_ranks
from switchml.controller.switches import ManagedSwitch
from switchml.dataplane.codes import CODED_FORMATS
from switchml.dataplane.constants import ROCEV2_QUEUE_PAIRS, TREE_NO_RANK, Format

__all__ = ["PlacedJob", "revocation"]

_MAX_SHOWN = 64  # characters of what an agent says, in an error


class PlacedJob:
    """A job; ``switches`` has the switches of ``job.switches`` in the same order."""

    def __init__(self, job: Job, switches: Sequence[ManagedSwitch]) -> None:
        self.job = job
        self.switches = list(switches)
        self.announcements: dict[int, int] = {}  # rank -> the announcement that it answers, after a rendezvous

    def is_on(self, switch: str) -> bool:
        """Return whether this switch is one of the job's switches."""
        return any(place.switch == switch for place in self.job.switches)

    def places(self) -> Iterator[tuple[JobSwitch, ManagedSwitch]]:
        """Yield the job's record for each switch, with that switch."""
        yield from zip(self.job.switches, self.switches, strict=True)

    def tables(self) -> list[tuple[ManagedSwitch, JobTables]]:
        """Return each switch with the tables that it must hold for the job; every rank's endpoint must be known."""
        return [(switch, self._tables(place, switch)) for place, switch in self.places()]

    def _tables(self, place: JobSwitch, switch: ManagedSwitch) -> JobTables:
        by_name = {one.name: one for one in self.switches}
        children = [
            self._port_of(child, by_name[child.switch].config, switch.config)
            for child in self.job.children(place.switch)
        ]
        parent = self._parent_of(place, switch, by_name[place.upstream]) if place.upstream else None
        return self.job.tables(place, self._multicast(switch), children, parent, self._shared_port(switch.config))

    def _shared_port(self, config: SwitchConfig) -> SharedPort | None:
        """Return the port of an aggregator that is a soft switch; others have a port for each of their agents."""
        if not self.job.over_aggregators or not config.target.udp_ports:
            return None
        return SharedPort(config.aggregator_port, config.sees_macs)

    def _port_of(self, child: JobSwitch, config: SwitchConfig, above: SwitchConfig) -> RankPort:
        """Return the port at which a switch is attached to `above`."""
        assert config.parent is not None, "it is below another switch"
        mac = parse_mac(config.mac) if above.sees_macs else 0
        address = int(IPv4Address(config.address))
        return RankPort(self.job.wire_number(child), config.parent.port, mac, address, config.udp_port)

    def _parent_of(self, place: JobSwitch, switch: ManagedSwitch, above: ManagedSwitch) -> ParentPort:
        """Return the port at which the switch above is attached to `switch`."""
        job, config = self.job, above.config
        assert switch.config.parent is not None, "it is below another switch"
        below = len(job.ranks_on(above.name)) + len(job.children(above.name))
        [upstream] = (one.upstream for one in job.switches if one.switch == above.name)
        return ParentPort(
            number=job.wire_number(place),
            port=switch.config.parent.uplink,
            mac=parse_mac(config.mac) if switch.config.sees_macs else 0,
            address=int(IPv4Address(config.address)),
            udp_port=config.udp_port,
            named=(*range(below), TREE_NO_RANK) if upstream else tuple(range(below)),
        )

    def assignment(self, agent: str) -> pb.Assignment:
        """Return the assignment of the job's ranks to one agent."""
        job = self.job
        carried = job.ranks_by_agent()[agent]
        over_aggregators = job.over_aggregators
        [(place, switch), *_] = (
            both for both in self.places() if over_aggregators or both[0].switch == carried[0].switch
        )
        ranks = [rank.rank for rank in carried]
        wire_workers = job.wire_workers(place.switch)
        senders = [switch] if job.in_tree else self.switches  # of the RESULTs that these ranks get
        owned_results = job.sends_owned_results(place) and all(one.driver.capabilities.owned_results for one in senders)
        return pb.Assignment(
            job=job.id,
            epoch=place.epoch,
            name=job.name,
            world_size=job.workers,
            ranks=ranks,
            slot_base=place.slot_base,
            slots=place.slots,
            values_per_packet=job.values_per_packet,
            switch_address=switch.config.address,
            switch_udp_port=switch.config.udp_port,
            multicast_address=self._multicast(switch),
            announcements=[self.announcements[rank] for rank in ranks] if self.announcements else [],
            on_failure=f"ON_FAILURE_{job.on_failure.name}",
            generation=job.generation,
            secret=job.secret,
            check_key=job.check_key,
            workers=[rank.worker for rank in carried],
            wire_workers=[wire_workers[rank] for rank in ranks] if job.in_tree else [],
            optional_values=all(switch.driver.capabilities.streamed for switch in self.switches),
            formats=sorted(self._formats()),
            owned_results=owned_results,
            switch_ranks=list(wire_workers) if job.in_tree and owned_results else [],
            one_port=self._at_one_port(),
            priority=job.priority,
            tenant=job.tenant,
            aggregators=[_aggregator(one.config) for one in self.switches] if over_aggregators else [],
        )

    def _at_one_port(self) -> bool:
        """Return whether all ranks are at the same port of one switch, as those are that share memory with it."""
        return len({(rank.switch, rank.switch_port) for rank in self.job.ranks}) == 1

    def _formats(self) -> frozenset[Format]:
        """Return the formats in which ranks may send: codes come to the lowest switches only, other formats to all."""
        job = self.job
        with_ranks = {rank.switch for rank in job.ranks}
        lowest = [switch for place, switch in self.places() if job.over_aggregators or place.switch in with_ranks]
        common, common_of_lowest = (
            frozenset[Format].intersection(*(switch.driver.capabilities.formats for switch in switches))
            for switches in (self.switches, lowest)
        )
        return common | common_of_lowest.intersection(CODED_FORMATS)

    def activation(self) -> pb.ControllerMessage:
        """Return the message that lets ranks attach."""
        return pb.ControllerMessage(activation=pb.Activation(job=self.job.id, epoch=self.job.epoch))

    def seconds_to_open(self) -> float:
        """Return the time that its agents may take to open their ranks; those of one host share its CPUs."""
        job = self.job
        most = max(Counter(rank.host for rank in job.ranks).values())
        return seconds_to_open(most, job.slots, job.values_per_packet)

    def endpoints(self, agent: str, ready: pb.AssignmentReady) -> list[tuple[Rank, tuple[str, int]]]:
        """Return an agent's ranks with the addresses that it gives them.

        Raises:
            ValueError: they are not exactly the assigned ranks, or an address cannot be one.

        """
        mine = self.job.ranks_by_agent().get(agent, [])
        if sorted(endpoint.rank for endpoint in ready.endpoints) != [rank.rank for rank in mine]:
            given, wanted = (printed_ranks(sorted(one.rank for one in ranks)) for ranks in (ready.endpoints, mine))
            raise ValueError(f"{shortened(given, _MAX_SHOWN)} instead of {shortened(wanted, _MAX_SHOWN)}")
        found = []
        for endpoint in ready.endpoints:
            try:
                usable = not IPv4Address(endpoint.address).is_unspecified
            except AddressValueError:
                usable = False
            if not usable or not _is_sender(endpoint.udp_port):
                address = printable(endpoint.address, _MAX_SHOWN)
                raise ValueError(f"{address}:{endpoint.udp_port}, which packets cannot be sent to")
            found.append((self.job.ranks[endpoint.rank], (endpoint.address, endpoint.udp_port)))
        return found

    def _multicast(self, switch: ManagedSwitch) -> str:
        """Return the group that a switch's agents join if all are on its segment; a single agent needs no group."""
        config, ranks = switch.config, self.job.ranks_on(switch.name)
        if self.job.children(switch.name) or self.job.over_aggregators:
            return ""
        together = all(rank.switch_port == config.multicast_port for rank in ranks)
        several = len({rank.agent for rank in ranks}) > 1
        return config.multicast_address(self.job.id) if several and together else ""


def _aggregator(config: SwitchConfig) -> pb.Aggregator:
    return pb.Aggregator(address=config.address, udp_port=config.udp_port)


def _is_sender(number: int) -> bool:
    """Return whether it is a UDP port, or a queue pair that a card can give to a program: 0 and 1 are the system's."""
    return 1 <= number <= 65535 or 2 <= number - ROCEV2_QUEUE_PAIRS < ROCEV2_QUEUE_PAIRS


def revocation(
    job: int, epoch: int, reason: pb.RevocationReason, message: str, ranks: Sequence[int] = ()
) -> pb.ControllerMessage:
    """Return the message that tells an agent that a job, in this epoch, is over."""
    text = shortened(message, REASON_LENGTH)
    return pb.ControllerMessage(
        revocation=pb.Revocation(job=job, epoch=epoch, reason=reason, ranks=ranks, message=text)
    )
