"""The tables of a switch according to its bfrt.json, and the conversion of entries to messages.

Tables, fields and actions are looked up by name. The names differ between releases of the SDE, so the lookup tries all
of them: the prefix of the program's tables is the pipeline's name in the program (`pipe.` in SwitchML's), the fixed
tables are $pre.node or pre.node, and so on. Widths and ids of fields are taken from the switch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from switchml.dataplane.bfruntime import bfruntime_pb2 as pb

__all__ = ["ALL_PIPES", "BadAnswer", "BfrtField", "SchemaMismatch", "BfrtSchema", "BfrtTable", "Value"]

ALL_PIPES = 0xFFFF

Value: TypeAlias = int | bool | str | float | list[int] | list[bool] | tuple[int, int]

_INTEGERS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int32": 32, "int64": 64}
_VALUES_ANNOTATION = re.compile(r"@?switchml_values_per_packet\((\d+)\)")
_STREAMED_ANNOTATION = re.compile(r"@?switchml_streamed")
_LEAF_ANNOTATION = re.compile(r"@?switchml_leaf")


class SchemaMismatch(Exception):
    """A table or field is missing in a switch, or differs from the expected one; the message names it."""


class BadAnswer(Exception):
    """A switch sent something that its own bfrt.json does not allow."""


@dataclass(frozen=True)
class BfrtField:
    """A key or data field. ``kind`` is int, bool, string or float; ``match`` is empty for data."""

    id: int
    name: str
    kind: str
    width: int
    match: str = ""
    repeated: bool = False
    choices: tuple[str, ...] = ()

    def number(self, value: int) -> bytes:
        """Return a number as bytes; raise SchemaMismatch if the field is too narrow for it."""
        if value >> self.width:
            raise SchemaMismatch(f"field {self.name} has {self.width} bits, which is too few for {value:#x}")
        return value.to_bytes((self.width + 7) // 8, "big")

    def parse(self, data: bytes) -> int:
        """Return the number in these bytes; raise BadAnswer if their count or value does not fit the field."""
        if len(data) != (self.width + 7) // 8 or int.from_bytes(data, "big") >> self.width:
            raise BadAnswer(f"field {self.name} of {self.width} bits came as {len(data)} bytes {data[:16].hex()}")
        return int.from_bytes(data, "big")


@dataclass(frozen=True)
class BfrtAction:
    """An action and its parameters by name."""

    id: int
    name: str
    fields: dict[str, BfrtField]


class BfrtTable:
    """A table of bfrt.json."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.name = str(table["name"])
        self.id = int(table["id"])
        self.kind = str(table["table_type"])
        self.size = int(table["size"])
        self.operations: tuple[str, ...] = tuple(table.get("supported_operations", ()))
        self.annotations: tuple[str, ...] = tuple(str(one["name"]) for one in table.get("annotations", ()))
        self.keys = {key["name"]: _field(key, key["match_type"]) for key in table["key"]}
        self.data = {field.name: field for field in _data(table.get("data", ()))}
        self.actions = {
            str(action["name"]).rpartition(".")[2]: BfrtAction(
                int(action["id"]), str(action["name"]), {field.name: field for field in _data(action["data"])}
            )
            for action in table.get("action_specs", ())
        }

    # ---- what is there ---------------------------------------------------------------------------------------------

    def missing(self, keys: Iterable[str], data: Iterable[str], actions: Mapping[str, Iterable[str]]) -> list[str]:
        """Return in words which of these names the table lacks."""
        lacks = [f"key field {name}" for name in keys if name not in self.keys]
        lacks += [f"data field {name}" for name in data if name not in self.data]
        for name, parameters in actions.items():
            if name not in self.actions:
                lacks.append(f"action {name}")
            else:
                known = self.actions[name].fields
                lacks += [f"parameter {one} of action {name}" for one in parameters if one not in known]
        return [f"{what} of table {self.name}" for what in lacks]

    def one_of(self, *names: str) -> str:
        """Return the first of these names that a data field has; raise SchemaMismatch if none has."""
        for name in names:
            if name in self.data:
                return name
        raise SchemaMismatch(f"table {self.name} has no data field {' or '.join(names)}")

    # ---- messages --------------------------------------------------------------------------------------------------

    def key(self, values: Mapping[str, Value]) -> pb.TableKey:
        """Return the message of a key; raise SchemaMismatch if a field does not exist or is too narrow."""
        return pb.TableKey(fields=[self._key_field(self._named(self.keys, name), v) for name, v in values.items()])

    def _key_field(self, field: BfrtField, value: Value) -> pb.KeyField:
        message = pb.KeyField(field_id=field.id)
        if isinstance(value, str):
            message.exact.value = value.encode()
        elif isinstance(value, tuple):
            if field.match != "Ternary":
                raise SchemaMismatch(f"key field {field.name} of table {self.name} is matched {field.match}")
            message.ternary.value, message.ternary.mask = field.number(value[0]), field.number(value[1])
        elif isinstance(value, int) and field.match == "Exact":
            message.exact.value = field.number(value)
        else:
            raise SchemaMismatch(f"key field {field.name} of table {self.name} is matched {field.match}")
        return message

    def values(self, data: Mapping[str, Value], action: str = "") -> pb.TableData:
        """Return the message of data; raise SchemaMismatch if a field does not exist or has another type."""
        message = pb.TableData()
        known = dict(self.data)
        if action:
            spec = self._named(self.actions, action)
            message.action_id = spec.id
            known |= spec.fields
        for name, value in data.items():
            message.fields.append(self._data_field(self._named(known, name), value))
        return message

    def _data_field(self, field: BfrtField, value: Value) -> pb.DataField:
        message = pb.DataField(field_id=field.id)
        if isinstance(value, list):
            array = message.bool_arr_val if field.kind == "bool" else message.int_arr_val
            array.SetInParent()  # needed for an empty list
            array.val.extend(value)  # type: ignore[arg-type]
        elif field.kind == "bool":
            message.bool_val = bool(value)
        elif field.kind == "string":
            message.str_val = str(value)
        elif isinstance(value, int) and field.kind == "int":
            message.stream = field.number(value)
        else:
            raise SchemaMismatch(f"data field {field.name} of table {self.name} is of type {field.kind}")
        return message

    def _named(self, known: Mapping[str, Any], name: str) -> Any:
        if name not in known:
            raise SchemaMismatch(f"table {self.name} has no {name}, only {', '.join(known) or 'nothing'}")
        return known[name]

    def read_key(self, key: pb.TableKey) -> dict[str, Value]:
        """Return the values of a key by name; raise BadAnswer if it does not match the schema."""
        by_id = {field.id: field for field in self.keys.values()}
        values: dict[str, Value] = {}
        for message in key.fields:
            field = by_id.get(message.field_id)
            if field is None:
                raise BadAnswer(f"key field {message.field_id} of table {self.name} is not in bfrt.json")
            if message.WhichOneof("match_type") != field.match.lower():
                raise BadAnswer(f"key field {field.name} of table {self.name} is not matched {field.match}")
            if field.kind == "string":
                values[field.name] = message.exact.value.decode("utf-8", "replace")
            elif field.match == "Ternary":
                values[field.name] = (field.parse(message.ternary.value), field.parse(message.ternary.mask))
            else:
                values[field.name] = field.parse(message.exact.value)
        absent = [name for name in self.keys if name not in values]
        if absent:
            raise BadAnswer(f"an entry of table {self.name} came without {', '.join(absent)}")
        return values

    def read_values(self, data: pb.TableData) -> tuple[str, dict[str, Any]]:
        """Return the action's short name, if any, and the values by name; raise BadAnswer if the schema lacks them.

        A repeated field, such as that of a register, becomes a list.
        """
        action, known = "", dict(self.data)
        if data.action_id:
            found = [(name, spec) for name, spec in self.actions.items() if spec.id == data.action_id]
            if not found:
                raise BadAnswer(f"action {data.action_id} of table {self.name} is not in bfrt.json")
            action, known = found[0][0], known | found[0][1].fields
        by_id = {field.id: field for field in known.values()}
        values: dict[str, Any] = {}
        for message in data.fields:
            field = by_id.get(message.field_id)
            if field is None:
                raise BadAnswer(f"data field {message.field_id} of table {self.name} is not in bfrt.json")
            value = self._read_field(field, message)
            if self.kind == "Register":
                values.setdefault(field.name, []).append(value)
            else:
                values[field.name] = value
        return action, values

    def _read_field(self, field: BfrtField, message: pb.DataField) -> Any:
        kind = message.WhichOneof("value")
        if kind == "stream" and field.kind == "int":
            return field.parse(message.stream)
        if kind in ("int_arr_val", "bool_arr_val") and field.repeated:
            return list(getattr(message, kind).val)
        if (kind, field.kind) in (("bool_val", "bool"), ("str_val", "string"), ("float_val", "float")):
            return getattr(message, kind)
        if kind is None:  # a field for which the switch sent no value
            return None
        raise BadAnswer(f"data field {field.name} of table {self.name} came as {kind}")


class BfrtSchema:
    """All tables that a switch has."""

    def __init__(self, tables: Sequence[BfrtTable]) -> None:
        self.tables = tables
        self._by_id = {table.id: table for table in tables}

    @classmethod
    def parse(cls, *documents: bytes) -> BfrtSchema:
        """Read bfrt.json documents; raise BadAnswer if one is damaged."""
        try:
            return cls([BfrtTable(table) for document in documents for table in json.loads(document)["tables"]])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadAnswer(f"bfrt.json is damaged: {type(error).__name__} {error}") from None

    def find(self, *names: str) -> BfrtTable:
        """Return the table whose name, or the end of it, is one of these; raise SchemaMismatch unless there is one."""
        for name in names:
            found = [table for table in self.tables if table.name == name or table.name.endswith(f".{name}")]
            if len(found) == 1:
                return found[0]
            if found:
                raise SchemaMismatch(f"{name} is the name of {len(found)} tables: {', '.join(t.name for t in found)}")
        raise SchemaMismatch(f"there is no table {' or '.join(names)}")

    def by_id(self, table_id: int) -> BfrtTable:
        """Return a table; raise BadAnswer if no table has this id."""
        if table_id not in self._by_id:
            raise BadAnswer(f"a table with the id {table_id} is not in bfrt.json")
        return self._by_id[table_id]

    def of_kind(self, kind: str) -> list[BfrtTable]:
        """Return the tables of a type."""
        return [table for table in self.tables if table.kind == kind]

    @property
    def values_per_packet(self) -> int:
        """The values per packet, from the annotation of the worker table; raises SchemaMismatch."""
        table = self.find("worker_table")
        for annotation in table.annotations:
            if found := _VALUES_ANNOTATION.fullmatch(annotation):
                return int(found[1])
        raise SchemaMismatch(f"table {table.name} has no annotation switchml_values_per_packet")

    @property
    def streamed(self) -> bool:
        """Return whether ranks with and without values can share a phase, as the worker table's annotation says."""
        return self._annotated(_STREAMED_ANNOTATION)

    @property
    def leaf(self) -> bool:
        """Return whether the switch can be below another one, as the worker table's annotation says."""
        return self._annotated(_LEAF_ANNOTATION)

    def _annotated(self, wanted: re.Pattern[str]) -> bool:
        return any(wanted.fullmatch(annotation) for annotation in self.find("worker_table").annotations)

    @property
    def max_workers(self) -> int:
        """The most ranks of a job: the bits of the worker bitmap; raises SchemaMismatch."""
        table = self.find("worker_table")
        if table.missing((), (), {"admit": ("worker_bit",)}):
            raise SchemaMismatch(f"table {table.name} has no action admit with a worker_bit")
        return table.actions["admit"].fields["worker_bit"].width

    @property
    def epoch_register(self) -> BfrtTable:
        """The register that holds each slot's epoch, alone or with its phase; raises SchemaMismatch."""
        return self.find("slot_tag", "slot_epoch")

    @property
    def slots(self) -> int:
        """Pool indexes, of two halves each; raises SchemaMismatch."""
        return self.epoch_register.size // 2


def _field(field: Mapping[str, Any], match: str = "") -> BfrtField:
    kind = str(field["type"]["type"])
    width = int(field["type"]["width"]) if kind == "bytes" else _INTEGERS.get(kind, 0)
    choices = tuple(map(str, field["type"].get("choices", ())))
    repeated = bool(field.get("repeated", False))
    return BfrtField(int(field["id"]), str(field["name"]), "int" if width else kind, width, match, repeated, choices)


def _data(fields: Iterable[Mapping[str, Any]]) -> Iterable[BfrtField]:
    for field in fields:
        for inner in field.get("oneof", [field.get("singleton", field)]):
            if "container" not in inner:
                yield _field(inner)
