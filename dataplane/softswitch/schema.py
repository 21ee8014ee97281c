"""The contents of a P4Info in the form that validating writes needs: tables, fields, actions, counters, registers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from finsy.proto import p4i

__all__ = ["Action", "CounterArray", "Field", "LANE_NAME", "Parameter", "Register", "Schema", "Table", "short_name"]

LANE_NAME = re.compile(r"lane_(0|[1-9][0-9]{0,3})")
"""The name, without its control, of a register that holds one value of every slot."""


def short_name(name: str) -> str:
    """Return a P4 object's name without the name of its control."""
    return name.rpartition(".")[2]


@dataclass(frozen=True)
class Field:
    """A match key field, which is ``ternary`` or exact."""

    id: int
    name: str
    bits: int
    ternary: bool


@dataclass(frozen=True)
class Parameter:
    """An action parameter."""

    id: int
    name: str
    bits: int


@dataclass(frozen=True)
class Action:
    """An action, with its parameters by id."""

    id: int
    name: str
    parameters: Mapping[int, Parameter]


@dataclass(frozen=True)
class Table:
    """A table. ``entry_actions`` and ``default_actions`` are the actions that their scopes in the P4Info allow."""

    id: int
    name: str
    size: int
    fields: Mapping[int, Field]
    entry_actions: frozenset[int]
    default_actions: frozenset[int]
    initial_default: p4i.TableActionCall
    const_default: bool
    direct_counter: bool

    @property
    def ternary(self) -> bool:
        """True if entries have a priority."""
        return any(field.ternary for field in self.fields.values())

    @property
    def actions(self) -> frozenset[int]:
        """The ids of all actions of the table."""
        return self.entry_actions | self.default_actions


@dataclass(frozen=True)
class CounterArray:
    """An indirect counter array."""

    id: int
    name: str
    size: int


@dataclass(frozen=True)
class Register:
    """A register array. Its length is given by the device configuration rather than the P4Info."""

    id: int
    name: str
    bits: int


class Schema:
    """The objects of a P4Info by id. Names are short: without their control."""

    def __init__(self, p4info: p4i.P4Info) -> None:
        self.actions = {action.preamble.id: _action(action) for action in p4info.actions}
        self.direct_counters = {counter.preamble.id: counter.direct_table_id for counter in p4info.direct_counters}
        self.tables = {table.preamble.id: self._table(table) for table in p4info.tables}
        self.counters = {
            counter.preamble.id: CounterArray(counter.preamble.id, short_name(counter.preamble.name), counter.size)
            for counter in p4info.counters
        }
        self.registers = {
            register.preamble.id: Register(
                register.preamble.id,
                short_name(register.preamble.name),
                register.type_spec.bitstring.bit.bitwidth,
            )
            for register in p4info.registers
        }

    def _table(self, table: p4i.Table) -> Table:
        initial = p4i.TableActionCall()
        if table.HasField("initial_default_action"):
            initial.CopyFrom(table.initial_default_action)
        elif table.const_default_action_id:
            initial.action_id = table.const_default_action_id
        scope = p4i.ActionRef
        return Table(
            id=table.preamble.id,
            name=short_name(table.preamble.name),
            size=table.size,
            fields={
                field.id: Field(field.id, field.name, field.bitwidth, field.match_type == p4i.MatchField.TERNARY)
                for field in table.match_fields
            },
            entry_actions=frozenset(ref.id for ref in table.action_refs if ref.scope != scope.DEFAULT_ONLY),
            default_actions=frozenset(ref.id for ref in table.action_refs if ref.scope != scope.TABLE_ONLY),
            initial_default=initial,
            const_default=bool(table.const_default_action_id),
            direct_counter=any(resource in self.direct_counters for resource in table.direct_resource_ids),
        )


def _action(action: p4i.Action) -> Action:
    return Action(
        id=action.preamble.id,
        name=short_name(action.preamble.name),
        parameters={p.id: Parameter(p.id, p.name, p.bitwidth) for p in action.params},
    )
