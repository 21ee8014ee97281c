"""The P4 entities of a job, their comparison with the contents of a switch, and their readable form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any, Final, TypeAlias

import finsy as fy
from finsy.p4entity import P4Replica

from switchml.controller.drivers import (
    JobTables,
    JobTraffic,
    MulticastGroup,
    ParentPort,
    PortLoss,
    RankPort,
    TableEntry,
)
from switchml.dataplane.constants import (
    PROTOCOL_MAX_WORKERS,
    PROTOCOL_UDP_PORT,
    ROCEV2_QUEUE_PAIRS,
    TREE_FIRST_PARENT_INSTANCE,
    TREE_PARENT_GROUP,
    Kind,
    Verdict,
)
from switchml.dataplane.table_names import LOSS_TABLES

__all__ = ["JOB_TABLES", "MULTICAST_RANK", "Difference", "Entity", "compare", "job_entities"]
__all__ += [
    "NONCE",
    "is_nonce",
    "loss_entry",
    "loss_port",
    "loss_threshold",
    "nonce_entry",
    "nonce_of",
    "port_losses",
    "printed_entry",
    "printed_group",
    "replicas",
    "switch_address_entry",
]
__all__ += ["job_traffic", "link_entries", "verdict_index"]

Entity: TypeAlias = fy.P4TableEntry | fy.P4MulticastGroupEntry

JOB_TABLES = ("job_table", "rank_table", "worker_table")
"""The tables whose entries belong to jobs, in the order of installation."""

MULTICAST_RANK = PROTOCOL_MAX_WORKERS
"""The replica, and key of rank_table, for all agents of a job that have joined its IP multicast group."""

_EVERYONE = (1 << PROTOCOL_MAX_WORKERS) - 1
_CERTAINTY = 0xFFFFFFFF  # the threshold that loses every packet
_NOT_SHOWN = {"secret"}  # keys of worker_table
_WORKER_PRIORITY = 1  # ranges of jobs never overlap, but P4Runtime requires a priority for ternary keys


def job_entities(job: JobTables, *, owned_results: bool) -> list[Entity]:
    """Return the entities of a job in the switch, in the order of installation.

    The worker table comes last, so that no packet is admitted before results can be sent. Ranks of one agent that
    listen at the same address get one copy of each result, addressed to the first of them. If all agents have joined an
    IP multicast group and are behind one port, they get one copy together. `owned_results` is that of the pipeline's
    Capabilities: only then an entry of rank_table lists the ranks that listen at its address. A parent adds a second
    multicast group, its address, and the entries that admit its RESULTs.
    """
    everyone = (1 << len(job.ranks)) - 1
    listeners: dict[RankPort, list[int]] = {}  # by their place
    for r in job.ranks:
        listeners.setdefault(replace(r, rank=0), []).append(r.rank)
    copies = [(place.port, ranks[0]) for place, ranks in listeners.items()]
    addressed = [(r, sum(1 << rank for rank in listeners[replace(r, rank=0)])) for r in job.ranks]
    if job.multicast and len({r.port for r in job.ranks}) == 1:
        port = job.ranks[0].port
        copies = [(port, MULTICAST_RANK)]
        place = RankPort(MULTICAST_RANK, port, _multicast_mac(job.multicast), job.multicast, PROTOCOL_UDP_PORT)
        addressed.insert(0, (place, everyone))
    group = fy.P4MulticastGroupEntry(job.group, replicas=copies)
    described = fy.P4TableEntry(
        "job_table",
        match=fy.Match(job=job.job),
        action=fy.Action("describe_job", slot_value=job.slot_value, slot_mask=job.slot_mask),
    )
    admit = "admit" if job.parent is None else "admit_below"
    workers = [
        _sender(job, r, Kind.CONTRIBUTION, r.rank, admit, worker_bit=1 << r.rank, job_mask=everyone) for r in job.ranks
    ]
    groups = [group]
    if job.parent is not None:
        instance = TREE_FIRST_PARENT_INSTANCE + job.parent.number
        groups.append(fy.P4MulticastGroupEntry(job.group | TREE_PARENT_GROUP, replicas=[(job.parent.port, instance)]))
        above = RankPort(instance, job.parent.port, job.parent.mac, job.parent.address, job.parent.udp_port)
        addressed.append((above, _EVERYONE))  # `owner` of a contribution to the parent is a sender below
        workers += _parents_results(job, job.parent, everyone)
    addresses = [_address(job, place, ranks if owned_results else None) for place, ranks in addressed]
    return [*groups, described, *addresses, *workers]


def _parents_results(job: JobTables, parent: ParentPort, below: int) -> list[fy.P4TableEntry]:
    """Return the entries that admit the parent's RESULTs; `below` is the bitmap of all senders below this switch."""
    return [
        _sender(
            *(job, parent, Kind.RESULT, number, "admit_parent"),
            job_mask=below,
            completed_here=int(number == parent.number),
        )
        for number in parent.named
    ]


def _sender(
    job: JobTables, place: RankPort | ParentPort, kind: Kind, number: int, action: str, **parameters: int
) -> fy.P4TableEntry:
    """Return the entry that admits the packets of one kind that name `number` as their worker."""
    return fy.P4TableEntry(
        "worker_table",
        match=fy.Match(
            ingress_port=place.port,
            eth_src=place.mac,
            ipv4_src=place.address,
            udp_src=place.udp_port,
            kind=kind,
            job=job.job,
            worker=number,
            secret=job.secret,
            slot=(job.slot_value, job.slot_mask),
        ),
        action=fy.Action(action, epoch=job.epoch, group=job.group, **parameters),
        priority=_WORKER_PRIORITY,
    )


def _address(job: JobTables, place: RankPort, ranks: int | None) -> fy.P4TableEntry:
    """Return the entry that addresses copies for `place.rank`; `ranks`, if not None, is a bitmap of those there.

    If the job has no owned results here, every copy has the values, because its header names no owner, but the sender
    that completed the phase.
    """
    listeners = {} if ranks is None else {"ranks": ranks if job.owned_results else _EVERYONE}
    there = {"eth_dst": place.mac, "ipv4_dst": place.address, **listeners}
    if place.udp_port < ROCEV2_QUEUE_PAIRS:
        action = fy.Action("address_rank", udp_dst=place.udp_port, **there)
    else:
        action = fy.Action("address_queue_pair", queue_pair=place.udp_port - ROCEV2_QUEUE_PAIRS, **there)
    return fy.P4TableEntry("rank_table", match=fy.Match(job=job.job, rank=place.rank), action=action)


def _multicast_mac(address: int) -> int:
    """Return the MAC address of an IPv4 multicast group (RFC 1112, section 6.4)."""
    return 0x01005E000000 | (address & 0x7FFFFF)


def switch_address_entry(mac: str, address: str) -> fy.P4TableEntry:
    """Return the default entry that tells the switch its own addresses."""
    return fy.P4TableEntry(
        "switch_address_table",
        action=fy.Action("set_switch_address", mac=int(mac.replace(":", ""), 16), ip=int(IPv4Address(address))),
        is_default_action=True,
    )


NONCE: Final[Mapping[str, int]] = {"job": 0, "rank": 0}
"""The key of the entry of rank_table that keeps the controller's nonce: 0 is never a job."""


def nonce_entry(nonce: int, *, owned_results: bool) -> fy.P4TableEntry:
    """Return the entry that keeps a nonce in the switch, as the MAC address of a rank that no packet is sent to."""
    listeners = {"ranks": 0} if owned_results else {}
    action = fy.Action("address_rank", eth_dst=nonce, ipv4_dst=0, udp_dst=0, **listeners)
    return fy.P4TableEntry("rank_table", match=fy.Match(**NONCE), action=action)


def is_nonce(entity: Entity) -> bool:
    """Return whether an entity is the entry that keeps the nonce."""
    return (
        isinstance(entity, fy.P4TableEntry)
        and entity.table_id == "rank_table"
        and entity.match is not None
        and _number(entity.match["job"]) == NONCE["job"]
    )


def nonce_of(entries: Iterable[fy.P4TableEntry]) -> int:
    """Return the nonce in the entry that keeps it; 0 if there is no such entry."""
    return next((_number(_action(entry)[1]["eth_dst"]) for entry in entries if is_nonce(entry)), 0)


def loss_threshold(share: float) -> int:
    """Return the threshold that loses this share of packets, 0 to 1; only a share of 0 gives 0."""
    return max(round(share * _CERTAINTY), int(share > 0))


def loss_entry(direction: str, port: int, threshold: int = 0) -> fy.P4TableEntry:
    """Return the entry that makes a port lose packets."""
    return fy.P4TableEntry(
        LOSS_TABLES[direction], match=fy.Match(port=port), action=fy.Action("lose", threshold=threshold)
    )


def loss_port(entry: fy.P4TableEntry) -> int:
    """Return the port of an entry of a loss table."""
    assert entry.match is not None, "the port is an exact key"
    return int(entry.match["port"])


def port_losses(entries: Iterable[fy.P4TableEntry]) -> list[PortLoss]:
    """Return the shares in the entries of the loss tables among `entries`, by port."""
    shares: dict[int, dict[str, float]] = {}
    for entry in entries:
        for direction, table in LOSS_TABLES.items():
            if entry.table_id == table:
                share = _number(_action(entry)[1]["threshold"]) / _CERTAINTY
                shares.setdefault(loss_port(entry), {})[direction] = share
    return [PortLoss(port, **shares[port]) for port in sorted(shares)]


def verdict_index(job_id: int, verdict: Verdict) -> int:
    """Return the index of job_counter that counts a job's packets of one verdict."""
    return (job_id << 4) | verdict


def link_entries(job: JobTables, children: Collection[int]) -> list[fy.P4TableEntry]:
    """Return reads of the entries that admit packets of other switches, with their counters."""
    below = [_sender(job, r, Kind.CONTRIBUTION, r.rank, "admit") for r in job.ranks if r.rank in children]
    above = _parents_results(job, job.parent, 0) if job.parent is not None else []
    return [
        fy.P4TableEntry(one.table_id, match=one.match, priority=one.priority, counter_data=fy.P4CounterData())
        for one in (*below, *above)
    ]


def job_traffic(
    job: JobTables, children: Collection[int], verdicts: dict[Verdict, int], entries: Iterable[fy.P4TableEntry]
) -> JobTraffic:
    """Return the packets of a job; `entries` are those of worker_table with counters, also those of other jobs."""
    contributions = dict.fromkeys(children, 0)
    results = 0
    for entry in entries:
        assert entry.match is not None, "job and kind are exact keys"
        packets = entry.counter_data.packet_count if entry.counter_data is not None else 0
        worker = _number(entry.match["worker"])
        if _number(entry.match["job"]) != job.job:
            continue
        if _number(entry.match["kind"]) == Kind.RESULT:
            results += packets
        elif worker in contributions:
            contributions[worker] = packets
    return JobTraffic(verdicts, contributions, results)


@dataclass(frozen=True)
class Difference:
    """The updates that give a switch the wanted contents; `delete` comes first, each in the given order."""

    delete: list[Entity]
    modify: list[Entity]
    insert: list[Entity]

    def __len__(self) -> int:
        return len(self.delete) + len(self.modify) + len(self.insert)


def compare(held: Iterable[Entity], wanted: Sequence[Entity]) -> Difference:
    """Compare the contents of a switch with the wanted ones; both are in the order of installation."""
    there = {_key(entity): entity for entity in held}
    should = {_key(entity): entity for entity in wanted}
    return Difference(
        delete=[entity for key, entity in reversed(there.items()) if key not in should],
        modify=[entity for key, entity in should.items() if key in there and _content(there[key]) != _content(entity)],
        insert=[entity for key, entity in should.items() if key not in there],
    )


def _key(entity: Entity) -> tuple[Any, ...]:
    if isinstance(entity, fy.P4MulticastGroupEntry):
        return ("", entity.multicast_group_id)
    match = {name: _number(value) for name, value in (entity.match or {}).items()}
    # P4Runtime omits a ternary field that matches everything.
    fields = frozenset((name, value) for name, value in match.items() if value != (0, 0))
    return (entity.table_id, fields, entity.priority, entity.is_default_action)


def _content(entity: Entity) -> tuple[Any, ...]:
    if isinstance(entity, fy.P4MulticastGroupEntry):
        return tuple(sorted(replicas(entity)))
    name, arguments = _action(entity)
    return (name, frozenset((key, _number(value)) for key, value in arguments.items()))


def _number(value: Any) -> Any:
    """Return a field's value, which finsy may decode to an address object, as a number or two."""
    return tuple(int(part) for part in value) if isinstance(value, tuple) else int(value)


def _action(entry: fy.P4TableEntry) -> tuple[str, Mapping[str, Any]]:
    if entry.action is None:
        return "", {}
    assert isinstance(entry.action, fy.P4TableAction), "SwitchML's tables have no action profiles"
    return entry.action.name, entry.action.args


def replicas(group: fy.P4MulticastGroupEntry) -> list[tuple[int, int]]:
    """Return (port, instance) pairs; finsy returns a replica of instance 0 as only its port."""
    found: list[tuple[int, int]] = []
    for replica in group.replicas:
        if isinstance(replica, P4Replica):
            found.append((replica.port, replica.instance))
        else:
            found.append((replica, 0) if isinstance(replica, int) else replica)
    return found


def printed_group(group: fy.P4MulticastGroupEntry) -> MulticastGroup:
    """Return a multicast group in readable form."""
    return MulticastGroup(group.multicast_group_id, sorted(replicas(group)))


def printed_entry(entry: fy.P4TableEntry) -> TableEntry:
    """Return a table entry in readable form."""
    name, arguments = _action(entry)
    parameters = {key: _printed(key, _number(value)) for key, value in arguments.items()}
    if name == "describe_job":
        parameters = {"slots": _printed_slots(_number(arguments["slot_value"]), _number(arguments["slot_mask"]))}
    return TableEntry(
        table=entry.table_id,
        match={k: _printed(k, _number(value)) for k, value in (entry.match or {}).items() if k not in _NOT_SHOWN},
        action=name,
        parameters=parameters,
        packets=None if entry.counter_data is None else entry.counter_data.packet_count,
    )


def _printed(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return _printed_slots(*value)
    if name.startswith("eth_") or name == "mac":
        return str(fy.MACAddress(value))
    if name.startswith("ipv4_") or name == "ip":
        return str(IPv4Address(value))
    if name in ("worker_bit", "job_mask", "ranks"):
        return hex(value)
    return str(value)


def _printed_slots(value: int, mask: int) -> str:
    """Print the pool indexes whose slot fields match; the lowest bit of the field is the half."""
    return f"{value >> 1}-{(value | (~mask & 0xFFFF)) >> 1}"
