"""Conversion between the entities of p4tables and the messages of BfRt.

With it one description of a job's tables serves both interfaces. Three things differ. A multicast group is a $pre.mgid
entry with $pre.node entries, one node for each replication id. Priorities have the reverse order: 0 is the highest. And
a table has no default entry until one is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import finsy as fy

from switchml.controller.drivers.bfrt_schema import BadAnswer, BfrtSchema, BfrtTable, SchemaMismatch, Value
from switchml.controller.drivers.p4tables import Entity, replicas
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb

__all__ = ["GROUP_TABLES", "PRIORITIES", "TABLES", "Held", "Names", "TableNames"]

PRIORITIES = 1 << 16
"""P4Runtime's priority p is $MATCH_PRIORITY PRIORITIES - p."""

_PRIORITY = "$MATCH_PRIORITY"
_PACKETS, _BYTES = "$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_BYTES"
_NODES_OF_A_GROUP = 1 << 8  # the node ids of group g are g << 8 and up


@dataclass(frozen=True)
class TableNames:
    """The names that the program needs of a table: key fields, actions with their parameters, data fields."""

    keys: tuple[str, ...] = ()
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: tuple[str, ...] = ()


TABLES: dict[str, TableNames] = {
    "switch_address_table": TableNames((), {"set_switch_address": ("mac", "ip")}),
    "worker_table": TableNames(
        ("ingress_port", "eth_src", "ipv4_src", "udp_src", "kind", "job", "worker", "secret", "slot", _PRIORITY),
        {
            "admit": ("worker_bit", "job_mask", "epoch", "group"),
            "admit_below": ("worker_bit", "job_mask", "epoch", "group"),
            "admit_parent": ("job_mask", "epoch", "group", "completed_here"),
        },
        (_PACKETS, _BYTES),
    ),
    "job_table": TableNames(("job",), {"describe_job": ("slot_value", "slot_mask")}),
    "rank_table": TableNames(("job", "rank"), {"address_rank": ("eth_dst", "ipv4_dst", "udp_dst")}),
    "l2_table": TableNames(("eth_dst",), {"forward": ("port",), "flood": ("group",), "drop_no_route": ()}),
    "job_counter": TableNames(("$COUNTER_INDEX",), {}, (_PACKETS, _BYTES)),
    "SwitchMLIngress.drop_counter": TableNames(("$COUNTER_INDEX",), {}, (_PACKETS, _BYTES)),
    "SwitchMLEgress.drop_counter": TableNames(("$COUNTER_INDEX",), {}, (_PACKETS, _BYTES)),
}
"""The tables of the P4 program."""

GROUP_TABLES = {"group": ("$pre.mgid", "pre.mgid"), "node": ("$pre.node", "pre.node")}
"""The names, by release of the SDE, of the tables of multicast groups and their nodes."""

_GROUP_NAMES = {
    "group": TableNames(
        ("$MGID",), {}, ("$MULTICAST_NODE_ID", "$MULTICAST_NODE_L1_XID_VALID", "$MULTICAST_NODE_L1_XID")
    ),
    "node": TableNames(("$MULTICAST_NODE_ID",), {}, ("$MULTICAST_RID", "$MULTICAST_LAG_ID", "$DEV_PORT")),
}


@dataclass
class Held:
    """The contents of a switch: entities, and the nodes of each group; ``orphans`` are nodes without a group."""

    entities: list[Entity] = field(default_factory=list)
    nodes: dict[int, list[int]] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)


class Names:
    """Translates entities for one switch; raises SchemaMismatch for missing tables, BadAnswer for invalid answers."""

    def __init__(self, schema: BfrtSchema) -> None:
        self.schema = schema
        missing: list[str] = []
        self.tables: dict[str, BfrtTable] = {}
        for name, wanted in TABLES.items():
            missing += self._look_up(name, (name,), wanted)
        for name, candidates in GROUP_TABLES.items():
            missing += self._look_up(name, candidates, _GROUP_NAMES[name])
        if missing:
            raise SchemaMismatch("; ".join(missing))
        self.group, self.node = self.tables.pop("group"), self.tables.pop("node")
        self._aliases = {table.id: name for name, table in self.tables.items()}

    def _look_up(self, name: str, candidates: tuple[str, ...], wanted: TableNames) -> list[str]:
        try:
            table = self.schema.find(*candidates)
        except SchemaMismatch as error:
            return [str(error)]
        self.tables[name] = table
        return table.missing(wanted.keys, wanted.data, wanted.actions)

    # ---- to the switch ---------------------------------------------------------------------------------------------

    def insertion(self, entity: Entity) -> list[pb.Update]:
        """Return the updates that insert an entity, in order: nodes before their group."""
        if isinstance(entity, fy.P4MulticastGroupEntry):
            nodes = _nodes(entity)
            made = [
                self._update(pb.Update.INSERT, self.node, {"$MULTICAST_NODE_ID": number}, data)
                for number, data in nodes.items()
            ]
            members: dict[str, Value] = {
                "$MULTICAST_NODE_ID": list(nodes),
                "$MULTICAST_NODE_L1_XID_VALID": [False] * len(nodes),
                "$MULTICAST_NODE_L1_XID": [0] * len(nodes),
            }
            return [*made, self._update(pb.Update.INSERT, self.group, _group_key(entity), members)]
        return [self._entry_update(pb.Update.INSERT, entity)]

    def modification(self, entity: fy.P4TableEntry) -> list[pb.Update]:
        """Return the update that gives an entry, or a table's default, another action."""
        return [self._entry_update(pb.Update.MODIFY, entity)]

    def deletion(self, entity: Entity, nodes: Iterable[int] | None = None) -> list[pb.Update]:
        """Return the updates that delete an entity: a group before its nodes (default: those that SwitchML writes)."""
        if isinstance(entity, fy.P4MulticastGroupEntry):
            numbers = list(_nodes(entity) if nodes is None else nodes)
            group = pb.TableEntry(table_id=self.group.id, key=self.group.key(_group_key(entity)))
            return [_update(pb.Update.DELETE, group), *self.node_deletions(numbers[::-1])]
        table = self._table(entity)
        if entity.is_default_action:
            entry = pb.TableEntry(table_id=table.id, is_default_entry=True)
        else:
            entry = pb.TableEntry(table_id=table.id, key=table.key(self._key(entity, table)))
        return [_update(pb.Update.DELETE, entry)]

    def node_deletions(self, numbers: Iterable[int]) -> list[pb.Update]:
        """Return the updates that delete multicast nodes."""
        entries = (
            pb.TableEntry(table_id=self.node.id, key=self.node.key({"$MULTICAST_NODE_ID": number}))
            for number in numbers
        )
        return [_update(pb.Update.DELETE, entry) for entry in entries]

    def counter_update(self, counter: str, index: int) -> pb.Update:
        """Return the update that sets a cell of a counter to 0."""
        table = self.tables[counter]
        return self._update(pb.Update.MODIFY, table, {"$COUNTER_INDEX": index}, {_PACKETS: 0, _BYTES: 0})

    @staticmethod
    def clearing(table: BfrtTable) -> pb.Update:
        """Return the update that deletes all entries of a table, or sets all its cells to 0."""
        return _update(pb.Update.DELETE, pb.TableEntry(table_id=table.id))

    @staticmethod
    def synchronisation(table: BfrtTable) -> pb.Update:
        """Return the update that fetches counters or registers from the hardware, under its name in this release."""
        known = [name for name in ("SyncCounters", "SyncRegisters", "Sync") if name in table.operations]
        if not known:
            raise SchemaMismatch(f"table {table.name} has no operation that fetches its counters")
        operation = pb.TableOperation(table_id=table.id, table_operations_type=known[0])
        return pb.Update(type=pb.Update.INSERT, entity=pb.Entity(table_operation=operation))

    @staticmethod
    def request(table: BfrtTable, key: Mapping[str, Value] | None = None, default: bool = False) -> pb.Entity:
        """Return the request for the entry of a key, for the default entry, or for all entries."""
        entry = pb.TableEntry(table_id=table.id, is_default_entry=default)
        if key is not None:
            entry.key.CopyFrom(table.key(key))
        return pb.Entity(table_entry=entry)

    def _entry_update(self, kind: pb.Update.Type, entity: fy.P4TableEntry) -> pb.Update:
        table = self._table(entity)
        action = entity.action
        if not isinstance(action, fy.P4TableAction):
            raise SchemaMismatch(f"an entry of table {table.name} has no action")
        data = {name: _number(value) for name, value in action.args.items()}
        entry = pb.TableEntry(table_id=table.id, data=table.values(data, action.name))
        if entity.is_default_action:
            entry.is_default_entry = True
        else:
            entry.key.CopyFrom(table.key(self._key(entity, table)))
        return _update(kind, entry)

    def _key(self, entity: fy.P4TableEntry, table: BfrtTable) -> dict[str, Value]:
        match = {name: _number(value) for name, value in (entity.match or {}).items()}
        # P4Runtime omits a ternary field that matches everything; BfRt needs all fields.
        whole = {name: (0, 0) for name, key in table.keys.items() if key.match == "Ternary"}
        priority = {_PRIORITY: PRIORITIES - entity.priority} if _PRIORITY in table.keys else {}
        return {**whole, **match, **priority}

    def _table(self, entity: fy.P4TableEntry) -> BfrtTable:
        if entity.table_id not in self.tables:
            raise SchemaMismatch(f"the P4 program has no table {entity.table_id}")
        return self.tables[entity.table_id]

    def _update(
        self, kind: pb.Update.Type, table: BfrtTable, key: Mapping[str, Value], data: Mapping[str, Value]
    ) -> pb.Update:
        return _update(kind, pb.TableEntry(table_id=table.id, key=table.key(key), data=table.values(data)))

    # ---- from the switch -------------------------------------------------------------------------------------------

    def held(self, entries: Iterable[pb.TableEntry]) -> Held:
        """Return the entities that these entries represent."""
        held = Held()
        nodes: dict[int, tuple[int, list[int]]] = {}
        groups: dict[int, list[int]] = {}
        for entry in entries:
            if entry.table_id == self.node.id:
                number, data = self._row(self.node, entry)
                rid, ports = data.get("$MULTICAST_RID"), data.get("$DEV_PORT")
                if not isinstance(rid, int) or not isinstance(ports, list):
                    raise BadAnswer(f"multicast node {number} came without its replication id or its ports")
                nodes[number] = rid, ports
            elif entry.table_id == self.group.id:
                number, data = self._row(self.group, entry)
                groups[number] = list(data.get("$MULTICAST_NODE_ID") or [])
            else:
                held.entities.append(self.entry(entry))
        for group, members in groups.items():
            if missing := [node for node in members if node not in nodes]:
                raise BadAnswer(f"multicast group {group} came with nodes {missing}, and they did not")
            copies = [(port, nodes[node][0]) for node in members for port in nodes[node][1]]
            held.entities.append(fy.P4MulticastGroupEntry(group, replicas=copies))
            held.nodes[group] = members
        used = {node for members in groups.values() for node in members}
        held.orphans = [node for node in nodes if node not in used]
        return held

    def entry(self, message: pb.TableEntry) -> fy.P4TableEntry:
        """Return the entity, with its counter, that an entry of the program's tables represents."""
        if message.table_id not in self._aliases:
            raise BadAnswer(
                f"an entry of table {self.schema.by_id(message.table_id).name} came, which was not asked for"
            )
        name = self._aliases[message.table_id]
        table = self.tables[name]
        key = {} if message.is_default_entry else table.read_key(message.key)
        action, values = table.read_values(message.data)
        counter = (
            fy.P4CounterData(packet_count=values.pop(_PACKETS), byte_count=values.pop(_BYTES, 0))
            if (values.get(_PACKETS) is not None)
            else None
        )
        priority = key.pop(_PRIORITY, PRIORITIES)
        match = {one: value for one, value in key.items() if value != (0, 0)}
        return fy.P4TableEntry(
            name,
            match=fy.Match(**match) if match else None,
            action=fy.Action(action, **values) if action else None,
            priority=PRIORITIES - priority if isinstance(priority, int) else 0,
            is_default_action=message.is_default_entry,
            counter_data=counter,
        )

    def cell(self, message: pb.TableEntry) -> tuple[str, int, int, int]:
        """Return the counter's name, the index, packets and bytes of a counter's entry."""
        if message.table_id not in self._aliases:
            raise BadAnswer(f"an entry of table {message.table_id} came, and counters were asked for")
        table = self.tables[self._aliases[message.table_id]]
        index = table.read_key(message.key).get("$COUNTER_INDEX")
        _, values = table.read_values(message.data)
        packets, size = values.get(_PACKETS), values.get(_BYTES)
        if not (isinstance(index, int) and isinstance(packets, int) and isinstance(size, int)):
            raise BadAnswer(f"a cell of counter {table.name} came without its index or its counts")
        return self._aliases[message.table_id], index, packets, size

    @staticmethod
    def _row(table: BfrtTable, entry: pb.TableEntry) -> tuple[int, dict[str, Any]]:
        (number,) = table.read_key(entry.key).values()
        if not isinstance(number, int):
            raise BadAnswer(f"an entry of table {table.name} came with a key that is not a number")
        return number, table.read_values(entry.data)[1]


def _nodes(group: fy.P4MulticastGroupEntry) -> dict[int, dict[str, Value]]:
    """Return the nodes that SwitchML writes for a group: one for each replication id."""
    ports: dict[int, list[int]] = {}
    for port, instance in replicas(group):
        ports.setdefault(instance, []).append(port)
    if len(ports) > _NODES_OF_A_GROUP:
        raise SchemaMismatch(f"a multicast group has at most {_NODES_OF_A_GROUP} replication ids, not {len(ports)}")
    first = group.multicast_group_id * _NODES_OF_A_GROUP
    return {
        first + place: {"$MULTICAST_RID": instance, "$MULTICAST_LAG_ID": list[int](), "$DEV_PORT": members}
        for place, (instance, members) in enumerate(sorted(ports.items()))
    }


def _group_key(group: fy.P4MulticastGroupEntry) -> dict[str, Value]:
    return {"$MGID": group.multicast_group_id}


def _update(kind: pb.Update.Type, entry: pb.TableEntry) -> pb.Update:
    return pb.Update(type=kind, entity=pb.Entity(table_entry=entry))


def _number(value: Any) -> Value:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) else int(value)
