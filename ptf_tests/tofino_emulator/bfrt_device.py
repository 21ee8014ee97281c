"""The device behind the BfRt server: the tables of the loaded program and of every Tofino, over one state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from ptf_tests.tofino_emulator.bfrt_fixed_tables import (
    GroupHandler,
    NodeHandler,
    PortHandler,
    PortNameHandler,
    PortStatHandler,
    PruneHandler,
)
from ptf_tests.tofino_emulator.bfrt_schema import Refusal, Schema, TableSpec, refuse
from ptf_tests.tofino_emulator.bfrt_tables import Copied, CounterHandler, Handler, MatchHandler, RegisterHandler, Row
from ptf_tests.tofino_emulator.chassis import ALL_PIPES, Chassis
from ptf_tests.tofino_emulator.fixed_tables import fixed_tables
from ptf_tests.tofino_emulator.state import State
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb

__all__ = ["Device", "Program"]

_UNSUPPORTED = grpc.StatusCode.UNIMPLEMENTED


@dataclass(frozen=True)
class Program:
    """A P4 program in a switch: its name and the text of its bfrt.json."""

    name: str
    bfrt: bytes


class Device:
    """Execute writes and reads; raise Refusal.

    ``used`` contains every table, key field, action, data field and operation that a client has named, as tuples of
    (table, kind, name).
    """

    def __init__(self, program: Program, chassis: Chassis, state: State | None = None, device_id: int = 0) -> None:
        self.device_id = device_id
        self.chassis = chassis
        self.state = State() if state is None else state
        self.fixed = fixed_tables()
        self.used: set[tuple[str, str, str]] = set()
        self.port_listeners: list[Callable[[pb.TableEntry, bool], None]] = []
        self.load(program)

    def load(self, program: Program) -> None:
        """Load a program: tables, registers and counters are empty afterwards, and no port exists.

        Raises:
            Refusal: its bfrt.json is not valid.

        """
        try:
            document = json.loads(program.bfrt)
            schema = Schema(self.fixed, document)
        except (ValueError, KeyError, TypeError) as error:
            code = grpc.StatusCode.INVALID_ARGUMENT
            raise Refusal(code, f"the bfrt.json of program {program.name} is damaged: {error!r}") from None
        self.program, self.schema = program, schema
        self.state.load(self.fixed, document)
        self._handlers = {table.id: self._handler(table) for table in schema.by_id.values()}

    def _handler(self, table: TableSpec) -> Handler:
        plain: dict[str, type[Handler]] = {
            "MatchAction_Direct": MatchHandler,
            "ParserValueSet": MatchHandler,
            "PortMetadata": MatchHandler,
            "Counter": CounterHandler,
            "PreMgid": GroupHandler,
            "PrePrune": PruneHandler,
            "PortStat": PortStatHandler,
        }
        if table.kind == "Register":
            return RegisterHandler(table, self.state, self.chassis.pipes)
        if table.kind == "PreNode":
            return NodeHandler(table, self.state, self.chassis)
        if table.kind == "PortConfigure":
            return PortHandler(table, self.state, self.chassis, self._port_changed)
        if table.kind in ("PortStrInfo", "PortHdlInfo", "PortFpIdxInfo"):
            return PortNameHandler(table, self.state, self.chassis)
        return plain.get(table.kind, _Unmodelled)(table, self.state)

    def _port_changed(self, port: int, up: bool) -> None:
        table = self.schema.by_name["$PORT"]
        entry = pb.TableEntry(table_id=table.id, key=table.encode_key({"$DEV_PORT": port}))
        for tell in self.port_listeners:
            tell(entry, up)

    # ---- writes ----------------------------------------------------------------------------------------------------

    def write(self, update: pb.Update, target: pb.TargetDevice) -> None:
        """Do one update; raises Refusal."""
        kind = update.entity.WhichOneof("entity")
        if kind == "table_entry":
            self._write_entry(update.type, update.entity.table_entry, target)
        elif kind == "table_operation":
            self._operate(update.entity.table_operation)
        else:
            refuse(kind == "table_usage", "Write operation not available on TableUsage", _UNSUPPORTED)
            refuse(kind != "table_attribute", "Invalid update.", _UNSUPPORTED)
            self._check_attribute(update.entity.table_attribute)

    def _write_entry(self, kind: pb.Update.Type, entry: pb.TableEntry, target: pb.TargetDevice) -> None:
        handler = self._find(entry.table_id)
        own = entry.entry_tgt if entry.HasField("entry_tgt") else target
        refuse(own.device_id != self.device_id, f"there is no device {own.device_id}")
        refuse(own.pipe_id != ALL_PIPES, f"table {handler.spec.name} has the scope of all pipes, not of {own.pipe_id}")
        refuse(entry.WhichOneof("value") == "handle_id", "entries are not written by handle", _UNSUPPORTED)
        if kind == pb.Update.DELETE:
            self._delete(handler, entry)
            return
        if entry.is_default_entry:
            refuse(bool(entry.key.fields), "Non-empty key for default entry")
            words = "INSERT of default entry is not supported. Please use MODIFY instead"
            refuse(kind != pb.Update.MODIFY, words, _UNSUPPORTED)
            row = self._row(handler, entry, complete=True)
            handler.set_default(row)
            return
        refuse(not entry.HasField("key"), "Table key cannot be empty")
        # A modification may name some of the fields; for an entry with an action it must give the action's whole data.
        complete = kind == pb.Update.INSERT or bool(entry.data.action_id)
        row = self._row(handler, entry, complete)
        if kind == pb.Update.INSERT:
            handler.insert(row)
        elif kind == pb.Update.MODIFY:
            handler.modify(row)
        elif kind == pb.Update.MODIFY_INC:
            handler.modify_increment(row, entry.table_flags.mod_del)
        elif kind == pb.Update.INSERT_OR_MODIFY:
            try:
                handler.insert(row)
            except Refusal as refusal:
                if refusal.code is not grpc.StatusCode.ALREADY_EXISTS:
                    raise
                handler.modify(row)
        else:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "Invalid update type")

    def _delete(self, handler: Handler, entry: pb.TableEntry) -> None:
        if entry.is_default_entry:
            handler.reset_default()
        elif entry.HasField("key"):
            handler.delete(self._row(handler, entry, complete=False))
        else:
            self._note(handler, "operation", "clear")
            handler.clear()

    def _row(self, handler: Handler, entry: pb.TableEntry, complete: bool) -> Row:
        key, priority = handler.spec.decode_key(entry.key) if entry.HasField("key") else ({}, 0)
        action, values = handler.spec.decode_data(entry.data, complete=complete)
        for field in entry.key.fields:
            self._note(handler, "key", handler.spec.keys[field.field_id].name)
        if action is not None:
            self._note(handler, "action", action.name)
        for name in values:
            self._note(handler, "data", f"{action.name}: {name}" if action and name in _names(action) else name)
        return Row(key, values, priority, action, entry.is_default_entry, entry.table_flags.reset_stats)

    def _operate(self, operation: pb.TableOperation) -> None:
        handler = self._find(operation.table_id)
        kind = operation.table_operations_type
        # The driver accepts the short word for the long ones.
        supported = handler.spec.operations & ({"Sync", "SyncCounters", "SyncRegisters"} if kind == "Sync" else {kind})
        refuse(not supported or not isinstance(handler, Copied), "Operation not supported", _UNSUPPORTED)
        self._note(handler, "operation", kind)
        if isinstance(handler, Copied):
            handler.sync()

    def _check_attribute(self, attribute: pb.TableAttribute) -> None:
        handler = self._find(attribute.table_id)
        kind = attribute.WhichOneof("attribute")
        name = {"entry_scope": "EntryScope", "port_status_notify": "port_status_notif_cb"}.get(kind or "", "")
        refuse(name not in handler.spec.attributes, f"Invalid Attribute Type. table:{handler.spec.name}")
        self._note(handler, "attribute", name)
        single = kind == "entry_scope" and attribute.entry_scope.pipe_scope.predef != pb.Mode.ALL
        refuse(single, "scopes other than all pipes are not modelled", _UNSUPPORTED)

    def undo(self) -> Callable[[], None]:
        """Return a function that restores the match tables' present entries, as aborting a transaction does."""
        each = [handler.undo() for handler in self._handlers.values()]

        def bring_back() -> None:
            for one in each:
                one()

        return bring_back

    # ---- reads -----------------------------------------------------------------------------------------------------

    def read(self, entity: pb.Entity, target: pb.TargetDevice) -> Iterator[pb.Entity]:
        """Yield what an entity asks for; raises Refusal."""
        kind = entity.WhichOneof("entity")
        if kind == "table_usage":
            handler = self._find(entity.table_usage.table_id)
            self._note(handler, "operation", "usage")
            yield pb.Entity(table_usage=pb.TableUsage(table_id=handler.spec.id, usage=handler.usage()))
            return
        refuse(kind == "table_operation", "Read operation not available on TableOperation", _UNSUPPORTED)
        refuse(kind != "table_entry", "Invalid Read entity received")
        entry = entity.table_entry
        handler = self._find(entry.table_id)
        own = entry.entry_tgt if entry.HasField("entry_tgt") else target
        refuse(own.device_id != self.device_id, f"there is no device {own.device_id}")
        if (entry.table_flags.from_hw or entry.table_read_flag.from_hw) and isinstance(handler, Copied):
            handler.sync()
        for row in self._rows(handler, entry):
            yield pb.Entity(table_entry=self._entry(handler, entry, row, own.pipe_id))

    def _rows(self, handler: Handler, entry: pb.TableEntry) -> Iterator[Row]:
        refuse(entry.WhichOneof("value") == "handle_id", "entries are not read by handle", _UNSUPPORTED)
        # Without a key, all entries are meant, including the default entry.
        if entry.HasField("key"):
            key, priority = handler.spec.decode_key(entry.key)
            for field in entry.key.fields:
                self._note(handler, "key", handler.spec.keys[field.field_id].name)
            yield handler.read(Row(key, {}, priority))
            return
        if not entry.is_default_entry:
            yield from handler.read_all()
        default = handler.read_default()
        if default is not None:
            yield default

    def _entry(self, handler: Handler, asked: pb.TableEntry, row: Row, pipe: int) -> pb.TableEntry:
        spec = handler.spec
        message = pb.TableEntry(table_id=spec.id, is_default_entry=row.is_default)
        if not row.is_default:
            message.key.CopyFrom(spec.encode_key(row.key, row.priority))
        if asked.HasField("entry_tgt"):
            message.entry_tgt.CopyFrom(asked.entry_tgt)
        if not (asked.table_flags.key_only or asked.table_read_flag.key_only):
            only = [field.field_id for field in asked.data.fields]
            message.data.CopyFrom(spec.encode_data(_of_pipe(handler, row, pipe), row.action_name, only))
            for field in asked.data.fields:
                known = spec.fields.get(field.field_id)
                refuse(known is None, f"data field {field.field_id} not found", grpc.StatusCode.NOT_FOUND)
        for field in message.data.fields:
            if field.field_id in spec.fields:
                self._note(handler, "data", spec.fields[field.field_id].name)
        return message

    def _find(self, table_id: int) -> Handler:
        return self._handlers[self.schema.find(table_id).id]

    def _note(self, handler: Handler, kind: str, name: str) -> None:
        self.used.add((handler.spec.name, kind, name))


class _Unmodelled(Handler):
    """A table of a kind that the program does not have."""

    def read(self, row: Row) -> Row:
        """Refuse."""
        raise Refusal(_UNSUPPORTED, f"tables of type {self.spec.kind} are not modelled: {self.spec.name}, {row.key}")

    def read_all(self) -> Iterator[Row]:
        """Refuse."""
        raise Refusal(_UNSUPPORTED, f"tables of type {self.spec.kind} are not modelled: {self.spec.name}")


def _of_pipe(handler: Handler, row: Row, pipe: int) -> dict[str, Any]:
    """Return the values of one pipe: for a register, the pipe's own."""
    if not isinstance(handler, RegisterHandler) or pipe == ALL_PIPES:
        return dict(row.values)
    return {name: values[pipe : pipe + 1] for name, values in row.values.items()}


def _names(action: Any) -> set[str]:
    return {field.name for field in action.fields.values()}
