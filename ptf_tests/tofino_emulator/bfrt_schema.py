"""The tables as bfrt.json describes them, and the conversion of keys and data to values, checked against it.

Nothing is tolerated: a value that is a byte too long, a field that the action does not have or a choice that is not in
the list is refused, so that a client's mistake fails in its tests and not on a switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from ptf_tests.tofino_emulator.state import KeyValue
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb

__all__ = ["ActionSpec", "FieldSpec", "KeySpec", "Refusal", "Schema", "TableSpec", "refuse"]

PRIORITY = "$MATCH_PRIORITY"

_WIDTHS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int32": 32, "int64": 64}
_WORDS = {
    grpc.StatusCode.INVALID_ARGUMENT: "Invalid arguments",
    grpc.StatusCode.ALREADY_EXISTS: "Already exists",
    grpc.StatusCode.NOT_FOUND: "Object not found",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "Not enough space",
    grpc.StatusCode.UNIMPLEMENTED: "Operation not supported",
    grpc.StatusCode.UNAVAILABLE: "Not ready",
}


class Refusal(Exception):
    """A refused request: a canonical code and a text that ends with the driver's own words for that code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = f"{message} {_WORDS.get(code, '')}".rstrip()

    @property
    def number(self) -> int:
        """The code of google.rpc.Code."""
        return int(self.code.value[0])


def refuse(condition: bool, message: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
    """Raise Refusal if the condition holds."""
    if condition:
        raise Refusal(code, message)


@dataclass(frozen=True)
class FieldSpec:
    """A data field. ``kind`` is int, bool, string or float; ``width``, in bits, is used for int only."""

    id: int
    name: str
    kind: str
    width: int
    repeated: bool
    mandatory: bool
    read_only: bool
    choices: frozenset[str]
    is_register: bool

    @classmethod
    def parse(cls, outer: Mapping[str, Any], inner: Mapping[str, Any]) -> FieldSpec:
        """Parse a field; ``outer`` has mandatory and read_only, and for parameters is the field itself."""
        kind = inner["type"]["type"]
        width = inner["type"]["width"] if kind == "bytes" else _WIDTHS.get(kind, 0)
        annotations = {one["name"]: one.get("value") for one in inner.get("annotations", ())}
        return cls(
            inner["id"],
            inner["name"],
            "int" if width else kind,
            width,
            inner.get("repeated", False),
            outer.get("mandatory", False),
            outer.get("read_only", False),
            frozenset(inner["type"].get("choices", ())),
            annotations.get("$bfrt_field_class") == "register_data",
        )

    def decode(self, field: pb.DataField, table: str) -> Any:
        """Return the value of a message; raises Refusal."""
        where = f"field {self.name} of table {table}"
        given = field.WhichOneof("value")
        wanted = {
            ("int", False): "stream",
            ("int", True): "int_arr_val",
            ("bool", False): "bool_val",
            ("bool", True): "bool_arr_val",
            ("string", False): "str_val",
            ("float", False): "float_val",
        }.get((self.kind, self.repeated))
        refuse(given != wanted, f"{where} takes {wanted}, not {given}")
        refuse(self.read_only, f"{where} is read only")
        if self.repeated:
            values = list(getattr(field, given).val)
            refuse(self.kind == "int" and any(one >> self.width for one in values), f"{where} has {self.width} bits")
            return values
        if self.kind == "int":
            return decode_number(field.stream, self.width, where)
        if self.kind == "string":
            choices = self.choices
            refuse(bool(choices) and field.str_val not in choices, f"{where}: {field.str_val!r} is not a choice")
        return getattr(field, given)

    def encode(self, value: Any) -> pb.DataField:
        """Return the message of a value."""
        message = pb.DataField(field_id=self.id)
        if self.repeated:
            array = message.bool_arr_val if self.kind == "bool" else message.int_arr_val
            array.SetInParent()
            array.val.extend(value)
        elif self.kind == "int":
            message.stream = encode_number(value, self.width)
        elif self.kind == "string":
            message.str_val = value
        elif self.kind == "bool":
            message.bool_val = value
        else:
            message.float_val = value
        return message


@dataclass(frozen=True)
class KeySpec:
    """A key field; ``is_text`` if it is a string, which is exact and has no width."""

    id: int
    name: str
    match: str
    width: int
    mandatory: bool
    is_text: bool

    @classmethod
    def parse(cls, key: Mapping[str, Any]) -> KeySpec:
        """Parse a key field."""
        kind = key["type"]["type"]
        width = key["type"]["width"] if kind == "bytes" else _WIDTHS.get(kind, 0)
        return cls(key["id"], key["name"], key["match_type"], width, key.get("mandatory", False), kind == "string")

    def decode(self, field: pb.KeyField, table: str) -> Any:
        """Return the value of a message; raises Refusal."""
        where = f"key field {self.name} of table {table}"
        given = field.WhichOneof("match_type") or "nothing"
        refuse(given != self.match.lower(), f"{where} is matched {self.match}, not {given}")
        if self.is_text:
            return field.exact.value.decode("utf-8", "replace")
        if given == "exact":
            return decode_number(field.exact.value, self.width, where)
        if given == "ternary":
            value = decode_number(field.ternary.value, self.width, where)
            mask = decode_number(field.ternary.mask, self.width, where)
            refuse(bool(value & ~mask), f"{where}: the value has bits outside its mask")
            return value, mask
        if given == "lpm":
            refuse(not 0 <= field.lpm.prefix_len <= self.width, f"{where} has {self.width} bits")
            return decode_number(field.lpm.value, self.width, where), field.lpm.prefix_len
        refuse(given != "range", f"{where}: {given} matches are not modelled", grpc.StatusCode.UNIMPLEMENTED)
        return decode_number(field.range.low, self.width, where), decode_number(field.range.high, self.width, where)

    def encode(self, value: Any) -> pb.KeyField:
        """Return the message of a value."""
        message = pb.KeyField(field_id=self.id)
        if self.is_text:
            message.exact.value = value.encode()
        elif self.match == "Exact":
            message.exact.value = encode_number(value, self.width)
        elif self.match == "Ternary":
            message.ternary.value, message.ternary.mask = (encode_number(one, self.width) for one in value)
        elif self.match == "LPM":
            message.lpm.value, message.lpm.prefix_len = encode_number(value[0], self.width), value[1]
        else:
            message.range.low, message.range.high = (encode_number(one, self.width) for one in value)
        return message

    @property
    def anything(self) -> KeyValue:
        """The value that a field matches if it is left out."""
        whole = {"Ternary": (0, 0), "LPM": (0, 0), "Range": (0, (1 << self.width) - 1)}
        return whole.get(self.match, 0)


@dataclass(frozen=True)
class ActionSpec:
    """An action of a table."""

    id: int
    name: str
    scope: str
    fields: dict[int, FieldSpec]


class TableSpec:
    """A table of bfrt.json."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.name: str = table["name"]
        self.id: int = table["id"]
        self.kind: str = table["table_type"]
        self.size: int = table.get("size", 0)
        self.operations = frozenset(table.get("supported_operations", ()))
        self.attributes = frozenset(table.get("attributes", ()))
        self.const_default: bool = table.get("has_const_default_action", False)
        self.keys = {key["id"]: KeySpec.parse(key) for key in table["key"]}
        self.fields = _fields(table.get("data", ()))
        self.actions = {
            action["id"]: ActionSpec(
                action["id"], action["name"], action.get("action_scope", "TableAndDefault"), _fields(action["data"])
            )
            for action in table.get("action_specs", ())
        }

    def decode_key(self, key: pb.TableKey) -> tuple[dict[str, Any], int]:
        """Return the values of a key's fields by name, and the priority; raises Refusal."""
        values: dict[str, Any] = {}
        for field in key.fields:
            spec = self.keys.get(field.field_id)
            if spec is None:
                raise Refusal(grpc.StatusCode.NOT_FOUND, f"Key field {field.field_id} not found in table {self.name}")
            refuse(spec.name in values, f"key field {spec.name} of table {self.name} is given twice")
            values[spec.name] = spec.decode(field, self.name)
        priority = values.pop(PRIORITY, 0)
        for spec in self.keys.values():
            if spec.name == PRIORITY or spec.name in values:
                continue
            # A real switch takes 0 for a missing exact field, which is never intended.
            refuse(spec.mandatory or spec.match == "Exact", f"key field {spec.name} of table {self.name} is missing")
            values[spec.name] = spec.anything
        return values, priority

    def encode_key(self, values: Mapping[str, Any], priority: int = 0) -> pb.TableKey:
        """Return the message of a key."""
        return pb.TableKey(
            fields=[
                spec.encode(priority if spec.name == PRIORITY else values[spec.name]) for spec in self.keys.values()
            ]
        )

    def decode_data(self, data: pb.TableData, *, complete: bool) -> tuple[ActionSpec | None, dict[str, Any]]:
        """Return the action and the values of the fields by name; raises Refusal.

        With ``complete``, a missing mandatory field is refused.
        """
        action = self.actions.get(data.action_id)
        code = grpc.StatusCode.NOT_FOUND
        refuse(bool(data.action_id) and action is None, f"Action {data.action_id} not found in table {self.name}", code)
        known = {**self.fields, **(action.fields if action else {})}
        values: dict[str, Any] = {}
        for field in data.fields:
            spec = known.get(field.field_id)
            if spec is None:
                what = f"data field {field.field_id} not found in table {self.name}"
                raise Refusal(code, f"{what}, action {action.name}" if action else what)
            refuse(spec.name in values, f"data field {spec.name} of table {self.name} is given twice")
            values[spec.name] = spec.decode(field, self.name)
        if complete:
            refuse(bool(self.actions) and action is None, f"table {self.name} needs an action")
            missing = [spec.name for spec in known.values() if spec.mandatory and spec.name not in values]
            refuse(bool(missing), f"data fields {', '.join(missing)} of table {self.name} are missing")
        return action, values

    def encode_data(self, values: Mapping[str, Any], action: str = "", only: Iterable[int] = ()) -> pb.TableData:
        """Return the message of data; a register's field is repeated, once for each pipe."""
        message = pb.TableData()
        known = dict(self.fields)
        for spec in self.actions.values():
            if spec.name == action:
                message.action_id = spec.id
                known = {**spec.fields, **known}
        wanted = set(only)
        for field in known.values():
            if field.name in values and (not wanted or field.id in wanted):
                value = values[field.name]
                for one in value if field.is_register else [value]:
                    message.fields.append(field.encode(one))
        return message


class Schema:
    """All tables, by id and by name."""

    def __init__(self, *documents: Mapping[str, Any]) -> None:
        tables = [TableSpec(table) for document in documents for table in document["tables"]]
        self.by_id = {table.id: table for table in tables}
        self.by_name = {table.name: table for table in tables}

    def find(self, table_id: int) -> TableSpec:
        """Return a table; raises Refusal."""
        if table_id not in self.by_id:
            raise Refusal(grpc.StatusCode.NOT_FOUND, f"Table not found for id {table_id}")
        return self.by_id[table_id]


def _fields(fields: Iterable[Mapping[str, Any]]) -> dict[int, FieldSpec]:
    parsed = [
        FieldSpec.parse(field, inner)
        for field in fields
        for inner in field.get("oneof", [field.get("singleton", field)])
        if "container" not in inner
    ]
    return {field.id: field for field in parsed}


def decode_number(data: bytes, width: int, where: str) -> int:
    """Return a big-endian number; raises Refusal unless it has exactly the bytes and at most the bits of its field."""
    size = (width + 7) // 8
    refuse(len(data) != size, f"{where} has {width} bits, so {size} bytes, not {len(data)}")
    value = int.from_bytes(data, "big")
    refuse(bool(value >> width), f"{where} has {width} bits, and {value:#x} more")
    return value


def encode_number(value: int, width: int) -> bytes:
    """Return a number in as many bytes as its field needs."""
    return value.to_bytes((width + 7) // 8, "big")
