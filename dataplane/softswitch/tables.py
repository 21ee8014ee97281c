"""The match-action tables: the entries that clients wrote, kept for reading back, and passed to the native switch.

P4Runtime specification, "TableEntry", "DirectCounterEntry" and "Wildcard Reads".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from finsy.proto import p4r

from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.native_tables import native_errors, native_table
from switchml.dataplane.softswitch.schema import Schema, Table
from switchml.dataplane.softswitch.table_entry import (
    ActionCall,
    EntryKey,
    check_default_key,
    check_entry_fields,
    decode_action,
    decode_key,
    decode_match,
    encode_action,
    encode_match,
    initial_default,
    invalid,
    read_counter_data,
)

__all__ = ["Tables"]


@dataclass(frozen=True)
class _Entry:
    call: ActionCall
    controller_metadata: int = 0
    metadata: bytes = b""


class _TableState:
    """One table: its entries by key and its default entry."""

    def __init__(self, schema: Schema, table: Table, switch: Switch) -> None:
        self.table = table
        self._schema = schema
        self._native = native_table(table.name, switch)
        self._entries: dict[EntryKey, _Entry] = {}
        self._default = _Entry(initial_default(schema, table))

    def insert(self, entry: p4r.TableEntry) -> None:
        table = self.table
        if not table.fields:
            raise invalid(f"{table.name} has no key: its only entry is the default entry, which can be modified")
        check_entry_fields(table, entry)
        key = decode_key(table, entry)
        if not entry.HasField("action"):
            raise invalid(f"{table.name}: an entry to insert needs an action")
        call = decode_action(self._schema, table, entry.action, default=False)
        counter = read_counter_data(table.name, entry.counter_data)
        if key in self._entries:
            raise P4RuntimeError(grpc.StatusCode.ALREADY_EXISTS, f"{table.name} already has this entry")
        if len(self._entries) >= table.size:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{table.name} is full: it holds {table.size} entries"
            )
        self._put(key, call)
        self._entries[key] = _Entry(call, entry.controller_metadata, entry.metadata)
        if entry.HasField("counter_data"):
            self._write_counter(key, counter)

    def modify(self, entry: p4r.TableEntry) -> None:
        table = self.table
        check_entry_fields(table, entry)
        if entry.is_default_action:
            self._modify_default(entry)
            return
        key, old = self._find(entry)
        counter = read_counter_data(table.name, entry.counter_data)
        call = old.call
        if entry.HasField("action"):
            call = decode_action(self._schema, table, entry.action, default=False)
            self._put(key, call)
        self._entries[key] = _Entry(call, entry.controller_metadata, entry.metadata)
        if entry.HasField("counter_data"):
            self._write_counter(key, counter)

    def delete(self, entry: p4r.TableEntry) -> None:
        key, _ = self._find(entry)
        with native_errors(self.table.name):
            self._native.remove(key.named(self.table), key.priority)
        del self._entries[key]

    def modify_counter(self, message: p4r.DirectCounterEntry) -> None:
        self._check_direct_counter(message.table_entry)
        key, _ = self._find(message.table_entry)
        if message.HasField("data"):
            self._write_counter(key, read_counter_data(self.table.name, message.data))

    def select(self, request: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """Yield the entries that a read request of this table selects."""
        table = self.table
        if request.HasField("time_since_last_hit"):
            raise invalid(f"{table.name} does not support idle timeouts")
        if request.is_default_action:
            check_default_key(table, request)
            keys: list[EntryKey | None] = [None]
        else:
            keys = list(self._matching(request))
        action_id = request.action.action.action_id
        if action_id and action_id not in table.actions:
            raise invalid(f"{table.name} has no action with id {action_id}")
        for key in keys:
            entry = self._default if key is None else self._entries[key]
            if action_id and entry.call.action.id != action_id:
                continue
            if request.controller_metadata and entry.controller_metadata != request.controller_metadata:
                continue
            if request.metadata and entry.metadata != request.metadata:
                continue
            yield self._encode(key, entry, with_counter=request.HasField("counter_data"))

    def select_counters(self, request: p4r.TableEntry) -> Iterator[p4r.DirectCounterEntry]:
        """Yield the direct counters that a read request of this table selects."""
        self._check_direct_counter(request)
        keys = list(self._matching(request))
        if request.match and not keys:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, f"{self.table.name} has no such entry")
        for key in keys:
            packets, byte_count = self._read_counter(key)
            identity = p4r.TableEntry(
                table_id=self.table.id, match=encode_match(self.table, key), priority=key.priority
            )
            data = p4r.CounterData(packet_count=packets, byte_count=byte_count)
            yield p4r.DirectCounterEntry(table_entry=identity, data=data)

    def _modify_default(self, entry: p4r.TableEntry) -> None:
        table = self.table
        check_default_key(table, entry)
        if table.const_default:
            raise P4RuntimeError(
                grpc.StatusCode.PERMISSION_DENIED, f"{table.name}: the P4 program makes its default entry constant"
            )
        if entry.HasField("action"):
            call = decode_action(self._schema, table, entry.action, default=True)
            new = _Entry(call, entry.controller_metadata, entry.metadata)
        else:
            new = _Entry(initial_default(self._schema, table))
        with native_errors(table.name):
            self._native.set_default(new.call.action.name, new.call.arguments)
        self._default = new

    def _matching(self, request: p4r.TableEntry) -> Iterator[EntryKey]:
        if request.priority < 0:
            raise invalid(f"{self.table.name}: priority {request.priority} is negative")
        if request.match and (request.priority or not self.table.ternary):
            key = decode_key(self.table, request)
            if key in self._entries:
                yield key
            return
        match = decode_match(self.table, request.match) if request.match else None
        for key in self._entries:
            if match in (None, key.match) and request.priority in (0, key.priority):
                yield key

    def _find(self, entry: p4r.TableEntry) -> tuple[EntryKey, _Entry]:
        if entry.is_default_action:
            raise invalid(f"{self.table.name}: the default entry always exists; it can only be modified")
        if not self.table.fields:
            raise invalid(f"{self.table.name} has no key: set is_default_action to modify its default entry")
        key = decode_key(self.table, entry)
        if key not in self._entries:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, f"{self.table.name} has no such entry")
        return key, self._entries[key]

    def _check_direct_counter(self, entry: p4r.TableEntry) -> None:
        if not self.table.direct_counter:
            raise invalid(f"{self.table.name} has no direct counter")
        if entry.is_default_action:
            raise P4RuntimeError(
                grpc.StatusCode.UNIMPLEMENTED,
                f"the default entry of {self.table.name} has no counter in this switch; misses count in drop_counter",
            )

    def _put(self, key: EntryKey, call: ActionCall) -> None:
        with native_errors(self.table.name):
            self._native.put(key.named(self.table), key.priority, call.action.name, call.arguments)

    def _read_counter(self, key: EntryKey) -> tuple[int, int]:
        with native_errors(self.table.name):
            return self._native.read_counter(key.named(self.table), key.priority)

    def _write_counter(self, key: EntryKey, value: tuple[int, int]) -> None:
        with native_errors(self.table.name):
            self._native.write_counter(key.named(self.table), key.priority, *value)

    def _encode(self, key: EntryKey | None, entry: _Entry, *, with_counter: bool) -> p4r.TableEntry:
        message = p4r.TableEntry(
            table_id=self.table.id,
            action=encode_action(entry.call),
            controller_metadata=entry.controller_metadata,
            metadata=entry.metadata,
        )
        if key is None:
            message.is_default_action = True
            message.is_const = self.table.const_default
        else:
            message.match.extend(encode_match(self.table, key))
            message.priority = key.priority
            if with_counter and self.table.direct_counter:
                message.counter_data.packet_count, message.counter_data.byte_count = self._read_counter(key)
        return message


class Tables:
    """All tables of the pipeline, by id."""

    def __init__(self, schema: Schema, switch: Switch) -> None:
        self._states = {table.id: _TableState(schema, table, switch) for table in schema.tables.values()}

    def insert(self, entry: p4r.TableEntry) -> None:
        """Insert an entry; raises P4RuntimeError as the specification's "TableEntry" requires."""
        state = self._state(entry.table_id)
        if entry.is_default_action:
            raise invalid(f"{state.table.name}: the default entry always exists; it can only be modified")
        state.insert(entry)

    def modify(self, entry: p4r.TableEntry) -> None:
        """Modify an entry or a default entry; raises P4RuntimeError."""
        self._state(entry.table_id).modify(entry)

    def delete(self, entry: p4r.TableEntry) -> None:
        """Delete an entry; raises P4RuntimeError."""
        self._state(entry.table_id).delete(entry)

    def modify_counter(self, message: p4r.DirectCounterEntry) -> None:
        """Set an entry's direct counter; raises P4RuntimeError."""
        self._state(message.table_entry.table_id).modify_counter(message)

    def select(self, request: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """Yield what a TableEntry in a ReadRequest selects; table id 0 means every table."""
        if request.table_id:
            yield from self._state(request.table_id).select(request)
            return
        filters = (request.match, request.HasField("action"), request.priority)
        if any((*filters, request.metadata, request.controller_metadata)):
            raise invalid("a read of all tables (table_id 0) cannot be filtered")
        for state in self._states.values():
            yield from state.select(request)

    def select_counters(self, request: p4r.TableEntry) -> Iterator[p4r.DirectCounterEntry]:
        """Yield what a DirectCounterEntry in a ReadRequest selects; table id 0 means every table."""
        if request.table_id:
            yield from self._state(request.table_id).select_counters(request)
            return
        if request.match or request.priority:
            raise invalid("a read of all direct counters (table_id 0) cannot be filtered")
        for state in self._states.values():
            if state.table.direct_counter:
                yield from state.select_counters(request)

    def _state(self, table_id: int) -> _TableState:
        if not table_id:
            raise invalid("table_id is 0, which is not a valid id")
        state = self._states.get(table_id)
        if state is None:
            raise invalid(f"the pipeline has no table with id {table_id:#x}")
        return state
