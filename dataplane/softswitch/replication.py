"""Multicast groups (P4Runtime specification, "MulticastGroupEntry")."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import grpc
from finsy.proto import p4r

from switchml.dataplane.softswitch import bytestring
from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.native_tables import native_errors
from switchml.dataplane.softswitch.table_entry import check_metadata, invalid

__all__ = ["MulticastGroups"]

_PORT_BITS = 9
_MAX_GROUP = 0xFFFF
_MAX_INSTANCE = 0xFFFF
_MAX_REPLICAS = 512


class MulticastGroups:
    """The multicast groups of the packet replication engine, by id.

    ``ports`` are the ports of the switch; a replica to any other port is refused.
    """

    def __init__(self, switch: Switch, ports: Collection[int]) -> None:
        self._switch = switch
        self._ports = ports
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}

    def insert(self, entry: p4r.MulticastGroupEntry) -> None:
        """Add a group; raises P4RuntimeError, for example ALREADY_EXISTS."""
        _check_id(entry)
        if entry.multicast_group_id in self._groups:
            raise P4RuntimeError(grpc.StatusCode.ALREADY_EXISTS, f"{_name(entry)} already exists")
        self._put(entry)

    def modify(self, entry: p4r.MulticastGroupEntry) -> None:
        """Replace a group's replicas and metadata; raises P4RuntimeError, for example NOT_FOUND."""
        self._check_exists(entry)
        self._put(entry)

    def delete(self, entry: p4r.MulticastGroupEntry) -> None:
        """Remove a group; raises P4RuntimeError, for example NOT_FOUND."""
        self._check_exists(entry)
        with native_errors(_name(entry)):
            self._switch.delete_group(entry.multicast_group_id)
        del self._groups[entry.multicast_group_id]

    def select(self, request: p4r.MulticastGroupEntry) -> Iterator[p4r.MulticastGroupEntry]:
        """Yield the group with the request's id, or all of them for id 0."""
        if request.multicast_group_id:
            group = self._groups.get(request.multicast_group_id)
            if group is not None:
                yield group
        else:
            yield from self._groups.values()

    def _put(self, entry: p4r.MulticastGroupEntry) -> None:
        check_metadata(_name(entry), entry.metadata)
        if len(entry.replicas) > _MAX_REPLICAS:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_name(entry)} has {len(entry.replicas)} replicas; this switch supports at most {_MAX_REPLICAS}",
            )
        stored = p4r.MulticastGroupEntry(multicast_group_id=entry.multicast_group_id, metadata=entry.metadata)
        replicas: list[tuple[int, int]] = []
        for replica in entry.replicas:
            port = self._port(entry, replica)
            if (port, replica.instance) in replicas:
                raise invalid(f"{_name(entry)} has port {port}, instance {replica.instance} twice")
            replicas.append((port, replica.instance))
            # A client reads back the form of port that it wrote, because clients older than P4Runtime 1.4 know only the
            # first.
            if replica.HasField("egress_port"):
                stored.replicas.add(egress_port=port, instance=replica.instance)
            else:
                stored.replicas.add(port=bytestring.encode(port), instance=replica.instance)
        with native_errors(_name(entry)):
            self._switch.set_group(entry.multicast_group_id, replicas)
        self._groups[entry.multicast_group_id] = stored

    def _port(self, entry: p4r.MulticastGroupEntry, replica: p4r.Replica) -> int:
        what = f"{_name(entry)}: replica with instance {replica.instance}"
        if replica.backup_replicas:
            raise P4RuntimeError(grpc.StatusCode.UNIMPLEMENTED, f"{what}: this switch has no backup replicas")
        if replica.instance > _MAX_INSTANCE:
            raise invalid(f"{what}: an instance is at most {_MAX_INSTANCE}")
        if replica.HasField("port"):
            port = bytestring.decode(replica.port, _PORT_BITS, f"{what}: port")
        else:
            port = replica.egress_port
        if port not in self._ports:
            known = ", ".join(map(str, sorted(self._ports))) or "none"
            raise invalid(f"{what}: the switch has no port {port}; its ports are {known}")
        return port

    def _check_exists(self, entry: p4r.MulticastGroupEntry) -> None:
        _check_id(entry)
        if entry.multicast_group_id not in self._groups:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, f"{_name(entry)} does not exist")


def _name(entry: p4r.MulticastGroupEntry) -> str:
    return f"multicast group {entry.multicast_group_id}"


def _check_id(entry: p4r.MulticastGroupEntry) -> None:
    if not 1 <= entry.multicast_group_id <= _MAX_GROUP:
        raise invalid(f"a multicast group id is 1 to {_MAX_GROUP}, not {entry.multicast_group_id}")
