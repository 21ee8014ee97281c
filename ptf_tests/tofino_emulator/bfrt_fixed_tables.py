"""The tables that every Tofino has: multicast nodes and groups, pruning, ports and their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from ptf_tests.tofino_emulator.bfrt_schema import Refusal, TableSpec, refuse
from ptf_tests.tofino_emulator.bfrt_tables import Handler, Row
from ptf_tests.tofino_emulator.chassis import Chassis
from ptf_tests.tofino_emulator.state import MulticastGroup, MulticastNode, Port, State

__all__ = ["GroupHandler", "NodeHandler", "PortHandler", "PortNameHandler", "PortStatHandler", "PruneHandler"]

_NODE, _RID, _LAG, _PORT, _GROUP = (
    *("$MULTICAST_NODE_ID", "$MULTICAST_RID", "$MULTICAST_LAG_ID", "$DEV_PORT", "$MGID"),
)
_XID_VALID, _XID = "$MULTICAST_NODE_L1_XID_VALID", "$MULTICAST_NODE_L1_XID"

_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_EXISTS = grpc.StatusCode.ALREADY_EXISTS


class NodeHandler(Handler):
    """$pre.node: a node exists until it is deleted, in a group or not."""

    def __init__(self, spec: TableSpec, state: State, chassis: Chassis) -> None:
        super().__init__(spec, state)
        self._chassis = chassis

    def insert(self, row: Row) -> None:
        """Create a node."""
        number = row.key[_NODE]
        refuse(number in self.state.nodes, f"Table Add failed table:{self.spec.name}", _EXISTS)
        self.state.nodes[number] = self._node(row)

    def modify(self, row: Row) -> None:
        """Change a node's ports; its replication id stays."""
        held, node = self._held(row), self._node(row)
        refuse(node.rid != held.rid, f"node {row.key[_NODE]} has another $MULTICAST_RID, which cannot change")
        self.state.nodes[row.key[_NODE]] = node

    def delete(self, row: Row) -> None:
        """Delete a node that is in no group."""
        self._held(row)
        number = row.key[_NODE]
        groups = [group for group, held in self.state.groups.items() if number in held.node_ids]
        refuse(bool(groups), f"Table Entry delete failed table:{self.spec.name}: node {number} is in groups {groups}")
        del self.state.nodes[number]

    def read(self, row: Row) -> Row:
        """Return a node."""
        return _node_row(row.key[_NODE], self._held(row))

    def read_all(self) -> Iterator[Row]:
        """Return all nodes."""
        return (_node_row(number, node) for number, node in list(self.state.nodes.items()))

    def _held(self, row: Row) -> MulticastNode:
        refuse(row.key[_NODE] not in self.state.nodes, f"Entry not found in table:{self.spec.name}", _NOT_FOUND)
        return self.state.nodes[row.key[_NODE]]

    def _node(self, row: Row) -> MulticastNode:
        ports = row.values[_PORT]
        for port in ports:
            refuse(not self._chassis.has(port), f"there is no device port {port}")
        refuse(len(set(ports)) != len(ports), f"a port twice in {ports}")
        return MulticastNode(row.values[_RID], list(ports), list(row.values[_LAG]))


def _node_row(number: int, node: MulticastNode) -> Row:
    return Row({_NODE: number}, {_RID: node.rid, _PORT: node.ports, _LAG: node.lags})


class GroupHandler(Handler):
    """$pre.mgid: a group of nodes that exist and are in no other group."""

    def insert(self, row: Row) -> None:
        """Create a group."""
        refuse(row.key[_GROUP] in self.state.groups, f"Table Add failed table:{self.spec.name}", _EXISTS)
        self.state.groups[row.key[_GROUP]] = self._group(row)

    def modify(self, row: Row) -> None:
        """Replace a group's nodes."""
        self._held(row)
        self.state.groups[row.key[_GROUP]] = self._group(row)

    def modify_increment(self, row: Row, remove: bool) -> None:
        """Add nodes to a group or remove them."""
        held, change = self._held(row), self._group(row)
        if remove:
            kept = [n for n, node in enumerate(held.node_ids) if node not in change.node_ids]
            self.state.groups[row.key[_GROUP]] = MulticastGroup(
                [held.node_ids[n] for n in kept], [held.xid_valid[n] for n in kept], [held.xid[n] for n in kept]
            )
        else:
            held.node_ids += change.node_ids
            held.xid_valid += change.xid_valid
            held.xid += change.xid

    def delete(self, row: Row) -> None:
        """Delete a group; its nodes stay."""
        self._held(row)
        del self.state.groups[row.key[_GROUP]]

    def read(self, row: Row) -> Row:
        """Return a group."""
        return _group_row(row.key[_GROUP], self._held(row))

    def read_all(self) -> Iterator[Row]:
        """Return all groups."""
        return (_group_row(number, group) for number, group in list(self.state.groups.items()))

    def _held(self, row: Row) -> MulticastGroup:
        refuse(row.key[_GROUP] not in self.state.groups, f"Entry not found in table:{self.spec.name}", _NOT_FOUND)
        return self.state.groups[row.key[_GROUP]]

    def _group(self, row: Row) -> MulticastGroup:
        nodes, valid, xid = (list(row.values.get(name, ())) for name in (_NODE, _XID_VALID, _XID))
        refuse(not len(nodes) == len(valid) == len(xid), f"{_NODE}, {_XID_VALID} and {_XID} are not of one length")
        ecmp = [name for name in row.values if name.startswith("$MULTICAST_ECMP") and row.values[name]]
        refuse(bool(ecmp), "ECMP groups are not modelled", grpc.StatusCode.UNIMPLEMENTED)
        for node in nodes:
            refuse(node not in self.state.nodes, f"Table Add failed table:{self.spec.name}: no node {node}", _NOT_FOUND)
            others = [n for n, held in self.state.groups.items() if node in held.node_ids and n != row.key[_GROUP]]
            refuse(bool(others), f"node {node} is in group {others} already", _EXISTS)
        return MulticastGroup(nodes, valid, xid)


def _group_row(number: int, group: MulticastGroup) -> Row:
    return Row({_GROUP: number}, {_NODE: group.node_ids, _XID_VALID: group.xid_valid, _XID: group.xid})


class PruneHandler(Handler):
    """$pre.prune: the ports that a level-2 exclusion id removes; stored, and read back."""

    def __init__(self, spec: TableSpec, state: State) -> None:
        super().__init__(spec, state)
        self._ports: dict[int, list[int]] = {}

    def modify(self, row: Row) -> None:
        """Set the ports of an exclusion id, which must all exist."""
        self._ports[row.key["$MULTICAST_L2_XID"]] = list(row.values[_PORT])

    def insert(self, row: Row) -> None:
        """Set the ports of an exclusion id."""
        self.modify(row)

    def read(self, row: Row) -> Row:
        """Return the ports of an exclusion id."""
        return Row(row.key, {_PORT: self._ports.get(row.key["$MULTICAST_L2_XID"], [])})

    def read_all(self) -> Iterator[Row]:
        """Return the exclusion ids that have ports."""
        return (Row({"$MULTICAST_L2_XID": xid}, {_PORT: ports}) for xid, ports in self._ports.items())


class PortHandler(Handler):
    """$PORT: ports are added with speed and FEC, and are up as soon as they are enabled."""

    def __init__(self, spec: TableSpec, state: State, chassis: Chassis, changed: Callable[[int, bool], None]) -> None:
        super().__init__(spec, state)
        self._chassis = chassis
        self._changed = changed

    def insert(self, row: Row) -> None:
        """Add a port."""
        number = row.key[_PORT]
        what = f"Table Add failed table:{self.spec.name}"
        refuse(not self._chassis.has(number), what)
        refuse("$SPEED" not in row.values or "$FEC" not in row.values, f"{what}: it needs $SPEED and $FEC")
        refuse(number in self.state.ports, what, _EXISTS)
        self._set(number, Port(), row)

    def modify(self, row: Row) -> None:
        """Change a port."""
        self._set(row.key[_PORT], self._held(row), row)

    def delete(self, row: Row) -> None:
        """Remove a port."""
        port = self._held(row)
        del self.state.ports[row.key[_PORT]]
        if port.up:
            self._changed(row.key[_PORT], False)

    def clear(self) -> None:
        """Remove all ports."""
        for number in list(self.state.ports):
            self.delete(Row({_PORT: number}))

    def read(self, row: Row) -> Row:
        """Return a port."""
        return self._row(row.key[_PORT], self._held(row))

    def read_all(self) -> Iterator[Row]:
        """Return the ports that were added."""
        return (self._row(number, port) for number, port in list(self.state.ports.items()))

    def _held(self, row: Row) -> Port:
        refuse(row.key[_PORT] not in self.state.ports, f"Entry not found in table:{self.spec.name}", _NOT_FOUND)
        return self.state.ports[row.key[_PORT]]

    def _set(self, number: int, port: Port, row: Row) -> None:
        before = port.up
        self.state.ports[number] = port
        port.data.update(row.values)
        if port.up != before:
            self._changed(number, port.up)

    def _row(self, number: int, port: Port) -> Row:
        defaults = {"$AUTO_NEGOTIATION": "PM_AN_DEFAULT", "$LOOPBACK_MODE": "BF_LPBK_NONE", "$PORT_ENABLE": False}
        values: dict[str, Any] = {**defaults, **port.data, "$PORT_UP": port.up, "$IS_VALID": True}
        front = self._chassis.named(number)
        values["$IS_INTERNAL"] = front is None
        if front is not None:
            values |= {"$PORT_NAME": front.name, "$CONN_ID": front.connector, "$CHNL_ID": front.channel}
        return Row({_PORT: number}, values)


class PortStatHandler(Handler):
    """$PORT_STAT of the ports that were added."""

    def read(self, row: Row) -> Row:
        """Return the counters of a port."""
        refuse(row.key[_PORT] not in self.state.ports, f"Entry not found in table:{self.spec.name}", _NOT_FOUND)
        port = self.state.ports[row.key[_PORT]]
        values = {spec.name: 0 for spec in self.spec.fields.values()}
        values |= {"$FramesReceivedOK": port.received, "$FramesReceivedAll": port.received}
        values |= {"$FramesTransmittedOK": port.transmitted, "$FramesTransmittedAll": port.transmitted}
        return Row(row.key, values)

    def read_all(self) -> Iterator[Row]:
        """Return the counters of all ports."""
        return (self.read(Row({_PORT: number})) for number in list(self.state.ports))

    def clear(self) -> None:
        """Set all to 0."""
        for port in self.state.ports.values():
            port.received = port.transmitted = 0


class PortNameHandler(Handler):
    """$PORT_STR_INFO and similar: the device port of a front-panel port. One key at a time."""

    def __init__(self, spec: TableSpec, state: State, chassis: Chassis) -> None:
        super().__init__(spec, state)
        self._chassis = chassis

    def read(self, row: Row) -> Row:
        """Return the device port of a name, or of connector and channel."""
        name = row.key.get("$PORT_NAME") or f"{row.key.get('$CONN_ID')}/{row.key.get('$CHNL_ID')}"
        port = self._chassis.front_ports.get(name)
        if port is None:
            raise Refusal(_NOT_FOUND, f"Entry not found in table:{self.spec.name}")
        return Row(row.key, {_PORT: port.device_port})

    def read_all(self) -> Iterator[Row]:
        """Refuse: some releases cannot read all."""
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED, f"Error getting first entry of table:{self.spec.name}")
