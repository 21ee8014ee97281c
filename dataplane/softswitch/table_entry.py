"""Conversion of table entries: checks of TableEntry messages, and their canonical form.

P4Runtime specification, "TableEntry": match format, action specification, default entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
from finsy.proto import p4i, p4r

from switchml.dataplane.softswitch import bytestring
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.schema import Action, Field, Schema, Table

__all__ = [
    "ActionCall",
    "EntryKey",
    "MAX_METADATA_BYTES",
    "check_default_key",
    "check_entry_fields",
    "check_metadata",
    "decode_action",
    "decode_key",
    "decode_match",
    "encode_action",
    "encode_match",
    "initial_default",
    "invalid",
    "read_counter_data",
]

MAX_METADATA_BYTES = 4096
"""Maximum size of the opaque metadata of one entity."""

Match = tuple[int, int, int]
"""Field id, value and mask; for an exact field the mask is all ones."""


@dataclass(frozen=True)
class EntryKey:
    """The identity of an entry in its table. A ternary field that is not matched has mask 0."""

    match: tuple[Match, ...]
    priority: int

    def named(self, table: Table) -> Mapping[str, tuple[int, int]]:
        """Return value and mask by field name."""
        return {table.fields[field_id].name: (value, mask) for field_id, value, mask in self.match}


@dataclass(frozen=True)
class ActionCall:
    """An action and its arguments, in the order of the parameter ids."""

    action: Action
    arguments: tuple[int, ...]


def invalid(message: str) -> P4RuntimeError:
    """Return an INVALID_ARGUMENT error."""
    return P4RuntimeError(grpc.StatusCode.INVALID_ARGUMENT, message)


def decode_key(table: Table, entry: p4r.TableEntry) -> EntryKey:
    """Return the key of a non-default entry. Raises P4RuntimeError for one that the specification forbids."""
    match = decode_match(table, entry.match)
    if table.ternary and entry.priority <= 0:
        raise invalid(
            f"{table.name}: priority must be greater than 0, because the key has a ternary field; it is "
            f"{entry.priority}"
        )
    if not table.ternary and entry.priority:
        raise invalid(f"{table.name}: priority must be 0, because all fields are exact; it is {entry.priority}")
    return EntryKey(match, entry.priority)


def decode_match(table: Table, matches: Sequence[p4r.FieldMatch]) -> tuple[Match, ...]:
    """Return the match of a non-default entry, complete and in the order of the field ids."""
    decoded: dict[int, Match] = {}
    for match in matches:
        field = table.fields.get(match.field_id)
        if field is None:
            raise invalid(f"{table.name} has no match field with id {match.field_id}")
        if field.id in decoded:
            raise invalid(f"{table.name}: match field {field.name} is given twice")
        decoded[field.id] = _decode_field(table, field, match)
    for field in table.fields.values():
        if field.id not in decoded:
            if not field.ternary:
                raise invalid(f"{table.name}: exact match field {field.name} is missing")
            decoded[field.id] = (field.id, 0, 0)
    return tuple(decoded[field_id] for field_id in sorted(decoded))


def _decode_field(table: Table, field: Field, match: p4r.FieldMatch) -> Match:
    what = f"{table.name}: match field {field.name}"
    expected = "ternary" if field.ternary else "exact"
    given = match.WhichOneof("field_match_type")
    if given != expected:
        raise invalid(f"{what} is {expected}, but the match is {given or 'not set'}")
    if not field.ternary:
        return field.id, bytestring.decode(match.exact.value, field.bits, what), (1 << field.bits) - 1
    value = bytestring.decode(match.ternary.value, field.bits, what)
    mask = bytestring.decode(match.ternary.mask, field.bits, f"{what} (mask)")
    if mask == 0:
        raise invalid(f"{what} has mask 0; leave the field out to match any value")
    if value & ~mask:
        raise invalid(f"{what}: value {value:#x} has bits outside its mask {mask:#x}")
    return field.id, value, mask


def encode_match(table: Table, key: EntryKey) -> list[p4r.FieldMatch]:
    """Return the canonical match messages: shortest byte strings, fields that match anything left out."""
    messages = []
    for field_id, value, mask in key.match:
        if not table.fields[field_id].ternary:
            exact = p4r.FieldMatch.Exact(value=bytestring.encode(value))
            messages.append(p4r.FieldMatch(field_id=field_id, exact=exact))
        elif mask:
            ternary = p4r.FieldMatch.Ternary(value=bytestring.encode(value), mask=bytestring.encode(mask))
            messages.append(p4r.FieldMatch(field_id=field_id, ternary=ternary))
    return messages


def decode_action(schema: Schema, table: Table, message: p4r.TableAction, *, default: bool) -> ActionCall:
    """Return the action of an entry, or of the default entry. Raises P4RuntimeError if the table cannot have it."""
    given = message.WhichOneof("type")
    if given != "action":
        raise invalid(f"{table.name} is a direct table: its action must be an action, not {given or 'unset'}")
    action_id = message.action.action_id
    if action_id not in table.actions:
        raise invalid(f"{table.name} has no action with id {action_id}")
    action = schema.actions[action_id]
    if action_id not in (table.default_actions if default else table.entry_actions):
        place = "its default entry" if default else "its entries"
        raise P4RuntimeError(
            grpc.StatusCode.PERMISSION_DENIED, f"{table.name}: the scope of action {action.name} does not allow {place}"
        )
    arguments: dict[int, int] = {}
    for param in message.action.params:
        parameter = action.parameters.get(param.param_id)
        if parameter is None:
            raise invalid(f"{table.name}: action {action.name} has no parameter with id {param.param_id}")
        if parameter.id in arguments:
            raise invalid(f"{table.name}: parameter {parameter.name} of action {action.name} is given twice")
        what = f"{table.name}: parameter {parameter.name} of action {action.name}"
        arguments[parameter.id] = bytestring.decode(param.value, parameter.bits, what)
    missing = [p.name for p in action.parameters.values() if p.id not in arguments]
    if missing:
        raise invalid(f"{table.name}: action {action.name} lacks {', '.join(missing)}")
    return ActionCall(action, tuple(arguments[parameter_id] for parameter_id in action.parameters))


def encode_action(call: ActionCall) -> p4r.TableAction:
    """Return the canonical message of an action with its arguments."""
    action = p4r.Action(action_id=call.action.id)
    for parameter, value in zip(call.action.parameters.values(), call.arguments, strict=True):
        action.params.add(param_id=parameter.id, value=bytestring.encode(value))
    return p4r.TableAction(action=action)


def initial_default(schema: Schema, table: Table) -> ActionCall:
    """Return the default action that the P4 program gives the table."""
    call: p4i.TableActionCall = table.initial_default
    action = schema.actions[call.action_id]
    values = {argument.param_id: int.from_bytes(argument.value, "big") for argument in call.arguments}
    return ActionCall(action, tuple(values.get(parameter_id, 0) for parameter_id in action.parameters))


def check_entry_fields(table: Table, entry: p4r.TableEntry) -> None:
    """Refuse the fields of an INSERT or MODIFY that this table does not support."""
    if entry.is_const:
        raise invalid(f"{table.name}: is_const cannot be written")
    if entry.idle_timeout_ns or entry.HasField("time_since_last_hit"):
        raise invalid(f"{table.name} does not support idle timeouts")
    if entry.HasField("meter_config") or entry.HasField("meter_counter_data"):
        raise invalid(f"{table.name} has no direct meter")
    if entry.HasField("counter_data") and (not table.direct_counter or entry.is_default_action):
        owner = f"the default entry of {table.name}" if entry.is_default_action else table.name
        raise invalid(f"{owner} has no direct counter")
    check_metadata(table.name, entry.metadata)


def check_default_key(table: Table, entry: p4r.TableEntry) -> None:
    """Refuse a key in a message about the default entry."""
    if entry.match or entry.priority:
        raise invalid(f"the default entry of {table.name} has neither match fields nor a priority")


def check_metadata(what: str, metadata: bytes) -> None:
    """Refuse opaque metadata above the maximum size."""
    if len(metadata) > MAX_METADATA_BYTES:
        raise P4RuntimeError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"{what}: {len(metadata)} bytes of metadata; this switch keeps at most {MAX_METADATA_BYTES} for an entity",
        )


def read_counter_data(what: str, data: p4r.CounterData) -> tuple[int, int]:
    """Return (packets, bytes) of a CounterData message. Raises P4RuntimeError if one is negative."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{what}: a counter cannot be negative")
    return data.packet_count, data.byte_count
