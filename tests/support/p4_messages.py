"""P4Runtime messages for the SwitchML pipeline, written by the names in its P4Info."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from finsy.proto import p4d, p4i, p4r
from google.protobuf import text_format

P4INFO_PATH = Path(__file__).parents[2] / "dataplane" / "p4" / "build" / "bmv2" / "switchml.p4info.txtpb"
INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
SECRET = 0x5EC2E7
WORKER = {
    "ingress_port": 1,
    "eth_src": 0,
    "ipv4_src": 0x7F000001,
    "udp_src": 40000,
    "kind": 1,
    "job": 5,
    "worker": 0,
    "secret": SECRET,
}
WORKER_MATCH = {**WORKER, "slot": (0x40, 0xFFC0)}
ADMIT = ("admit", 1, 3, 7, 5)
ADDRESS = ("address_rank", 0, 0x7F000001, 40000, 1)


def load_p4info() -> p4i.P4Info:
    return text_format.Parse(P4INFO_PATH.read_text(), p4i.P4Info())


@functools.cache
def info() -> p4i.P4Info:
    return load_p4info()


def object_id(name: str) -> int:
    objects: tuple[Any, ...] = (*info().tables, *info().actions, *info().counters, *info().registers)
    (found,) = (o.preamble.id for o in objects if o.preamble.alias == name)
    return int(found)


def encode(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def table_action(name: str, *arguments: int | bytes) -> p4r.TableAction:
    action = p4r.Action(action_id=object_id(name))
    for number, value in enumerate(arguments, 1):
        action.params.add(param_id=number, value=encode(value))
    return p4r.TableAction(action=action)


def table_entry(
    table: str, match: Mapping[str, Any] | None = None, action: tuple[Any, ...] | None = None, **fields: Any
) -> p4r.TableEntry:
    (p4_table,) = (t for t in info().tables if t.preamble.alias == table)
    entry = p4r.TableEntry(table_id=p4_table.preamble.id, **fields)
    for field in p4_table.match_fields:
        value = (match or {}).get(field.name)
        if isinstance(value, tuple):
            entry.match.add(field_id=field.id, ternary={"value": encode(value[0]), "mask": encode(value[1])})
        elif value is not None:
            entry.match.add(field_id=field.id, exact={"value": encode(value)})
    if action is not None:
        entry.action.CopyFrom(table_action(*action))
    return entry


def worker_entry(action: tuple[Any, ...] | None = ADMIT, **fields: Any) -> p4r.TableEntry:
    match = {**WORKER_MATCH, **fields.pop("match", {})}
    return table_entry("worker_table", match, action, **{"priority": 1, **fields})


def rank_entry(rank: int = 0, action: tuple[Any, ...] | None = ADDRESS) -> p4r.TableEntry:
    return table_entry("rank_table", {"job": 5, "rank": rank}, action)


def group_entry(group: int, *replicas: tuple[int, int], **fields: Any) -> p4r.PacketReplicationEngineEntry:
    entry = p4r.MulticastGroupEntry(multicast_group_id=group, **fields)
    for port, instance in replicas:
        entry.replicas.add(port=encode(port), instance=instance)
    return p4r.PacketReplicationEngineEntry(multicast_group_entry=entry)


def counter_entry(name: str = "", index: int | None = None, packets: int = 0, byte_count: int = 0) -> p4r.CounterEntry:
    entry = p4r.CounterEntry(counter_id=object_id(name) if name else 0)
    if index is not None:
        entry.index.index = index
    if packets or byte_count:
        entry.data.packet_count, entry.data.byte_count = packets, byte_count
    return entry


def register_entry(name: str = "", index: int | None = None, value: int | bytes | None = None) -> p4r.RegisterEntry:
    entry = p4r.RegisterEntry(register_id=object_id(name) if name else 0)
    if index is not None:
        entry.index.index = index
    if value is not None:
        entry.data.CopyFrom(p4d.P4Data(bitstring=encode(value)))
    return entry


_FIELD_OF = {
    p4r.TableEntry: "table_entry",
    p4r.DirectCounterEntry: "direct_counter_entry",
    p4r.CounterEntry: "counter_entry",
    p4r.RegisterEntry: "register_entry",
    p4r.PacketReplicationEngineEntry: "packet_replication_engine_entry",
}


def entity(message: Any) -> p4r.Entity:
    return p4r.Entity(**{_FIELD_OF[type(message)]: message})


def update(kind: p4r.Update.Type.ValueType, message: Any) -> p4r.Update:
    return p4r.Update(type=kind, entity=entity(message))


# One message of each kind that the server accepts, for tests that corrupt them.
VALID = (
    worker_entry(counter_data=p4r.CounterData(packet_count=3)),
    p4r.DirectCounterEntry(table_entry=worker_entry(), data=p4r.CounterData(packet_count=3)),
    rank_entry(),
    table_entry("job_table", {"job": 3}, ("describe_job", 1, 2)),
    table_entry("l2_table", {"eth_dst": 3}, ("flood", 1)),
    table_entry("switch_address_table", None, ("set_switch_address", 1, 2), is_default_action=True),
    group_entry(5, (1, 0), (2, 1)),
    counter_entry("drop_counter", 1, 2, 3),
    register_entry("lane_2", 3, 4),
)
