"""A realized forwarding pipeline: every entity that a client can write and read, over one native switch."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import grpc
from finsy.proto import p4r

from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.arrays import Counters, Registers
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.pipeline_config import Dimensions
from switchml.dataplane.softswitch.replication import MulticastGroups
from switchml.dataplane.softswitch.schema import Schema
from switchml.dataplane.softswitch.table_entry import invalid
from switchml.dataplane.softswitch.tables import Tables

__all__ = ["Pipeline"]

# Entities that the pipeline does not have, and the field whose default value means all of them in a read.
_UNSUPPORTED = {
    "extern_entry": ("extern entries", "extern_type_id"),
    "action_profile_member": ("action profiles", "action_profile_id"),
    "action_profile_group": ("action profiles", "action_profile_id"),
    "meter_entry": ("meters", "meter_id"),
    "direct_meter_entry": ("meters", "table_entry"),
    "value_set_entry": ("parser value sets", "value_set_id"),
    "digest_entry": ("digests", "digest_id"),
    "clone_session_entry": ("clone sessions", "session_id"),
}


class Pipeline:
    """The state of one forwarding-pipeline configuration. ``switch`` must be freshly reset to ``dimensions``."""

    def __init__(
        self,
        config: p4r.ForwardingPipelineConfig,
        dimensions: Dimensions,
        switch: Switch,
        ports: Collection[int],
    ) -> None:
        schema = Schema(config.p4info)
        self.config = config
        self.dimensions = dimensions
        self._tables = Tables(schema, switch)
        self._groups = MulticastGroups(switch, ports)
        self._counters = Counters(schema, switch)
        self._registers = Registers(schema, switch, dimensions)

    def retire(self) -> None:
        """Make reads in progress fail, because ``switch`` is about to belong to another pipeline."""
        self._registers.invalidate()

    def write(self, update: p4r.Update) -> None:
        """Execute one update of a WriteRequest. Raises P4RuntimeError, and then changes nothing."""
        kind = update.entity.WhichOneof("entity")
        if update.type not in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            raise invalid(f"update type {update.type} is not one of INSERT, MODIFY and DELETE")
        if kind == "table_entry":
            self._write_table_entry(update)
        elif kind == "packet_replication_engine_entry":
            self._write_replication(update)
        elif kind in ("counter_entry", "direct_counter_entry", "register_entry"):
            if update.type != p4r.Update.MODIFY:
                raise invalid(f"a {kind} always exists: it can only be modified")
            if kind == "counter_entry":
                self._counters.modify(update.entity.counter_entry)
            elif kind == "direct_counter_entry":
                self._tables.modify_counter(update.entity.direct_counter_entry)
            else:
                self._registers.modify(update.entity.register_entry)
        else:
            raise _unsupported(kind)

    def read(self, request: p4r.Entity) -> Iterator[p4r.Entity]:
        """Yield what one entity of a ReadRequest selects. Raises P4RuntimeError if it cannot be read."""
        kind = request.WhichOneof("entity")
        if kind == "table_entry":
            for entry in self._tables.select(request.table_entry):
                yield p4r.Entity(table_entry=entry)
        elif kind == "direct_counter_entry":
            for direct in self._tables.select_counters(request.direct_counter_entry.table_entry):
                yield p4r.Entity(direct_counter_entry=direct)
        elif kind == "counter_entry":
            for cell in self._counters.select(request.counter_entry):
                yield p4r.Entity(counter_entry=cell)
        elif kind == "register_entry":
            for register in self._registers.select(request.register_entry):
                yield p4r.Entity(register_entry=register)
        elif kind == "packet_replication_engine_entry":
            yield from self._read_replication(request.packet_replication_engine_entry)
        else:
            _check_reads_all(request, kind)

    def _write_table_entry(self, update: p4r.Update) -> None:
        entry = update.entity.table_entry
        if update.type == p4r.Update.INSERT:
            self._tables.insert(entry)
        elif update.type == p4r.Update.MODIFY:
            self._tables.modify(entry)
        else:
            self._tables.delete(entry)

    def _write_replication(self, update: p4r.Update) -> None:
        entry = update.entity.packet_replication_engine_entry
        if entry.WhichOneof("type") != "multicast_group_entry":
            raise _unsupported(entry.WhichOneof("type"))
        if update.type == p4r.Update.INSERT:
            self._groups.insert(entry.multicast_group_entry)
        elif update.type == p4r.Update.MODIFY:
            self._groups.modify(entry.multicast_group_entry)
        else:
            self._groups.delete(entry.multicast_group_entry)

    def _read_replication(self, request: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        kind = request.WhichOneof("type")
        if kind != "multicast_group_entry":
            _check_reads_all(request, kind)
            return
        for group in self._groups.select(request.multicast_group_entry):
            replication = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
            yield p4r.Entity(packet_replication_engine_entry=replication)


def _check_reads_all(request: p4r.Entity | p4r.PacketReplicationEngineEntry, kind: str | None) -> None:
    """Accept a wildcard read of entities that the pipeline does not have; refuse a read of a particular one."""
    if kind not in _UNSUPPORTED:
        raise _unsupported(kind)
    _, identity = _UNSUPPORTED[kind]
    value = getattr(getattr(request, kind), identity)
    if value.ByteSize() if isinstance(value, p4r.TableEntry) else value:
        raise _unsupported(kind)


def _unsupported(kind: str | None) -> P4RuntimeError:
    if kind is None:
        return invalid("the entity is not set")
    what, _ = _UNSUPPORTED.get(kind, (kind, ""))
    return P4RuntimeError(grpc.StatusCode.UNIMPLEMENTED, f"this pipeline has no {what}")
