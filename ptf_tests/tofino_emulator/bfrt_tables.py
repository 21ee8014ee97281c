"""The tables of the program, by kind: match tables, counters and registers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from ptf_tests.tofino_emulator.bfrt_schema import ActionSpec, TableSpec, refuse
from ptf_tests.tofino_emulator.state import Entry, MatchTable, State

__all__ = ["Copied", "CounterHandler", "Handler", "MatchHandler", "RegisterHandler", "Row"]

PACKETS, BYTES = "$COUNTER_SPEC_PKTS", "$COUNTER_SPEC_BYTES"
_INDEX = {"Counter": "$COUNTER_INDEX", "Register": "$REGISTER_INDEX"}

_NOT_FOUND = grpc.StatusCode.NOT_FOUND
_EXISTS = grpc.StatusCode.ALREADY_EXISTS
_UNSUPPORTED = grpc.StatusCode.UNIMPLEMENTED


@dataclass(frozen=True)
class Row:
    """An entry, to be written or read."""

    key: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    action: ActionSpec | None = None
    is_default: bool = False
    reset_stats: bool = False

    @property
    def action_name(self) -> str:
        """The name of the action; empty without one."""
        return self.action.name if self.action else ""


class Handler(ABC):
    """One table. Operations that a kind of table does not support are refused; all methods raise Refusal."""

    def __init__(self, spec: TableSpec, state: State) -> None:
        self.spec = spec
        self.state = state

    @abstractmethod
    def read(self, row: Row) -> Row:
        """Return the entry of a key."""

    @abstractmethod
    def read_all(self) -> Iterator[Row]:
        """Return all entries except the default entry."""

    def read_default(self) -> Row | None:
        """Return the default entry, if the table has one."""
        return None

    def insert(self, row: Row) -> None:
        """Add an entry."""
        self._unsupported("Table Add failed", row)

    def modify(self, row: Row) -> None:
        """Change the entry of a key."""
        self._unsupported("Table Entry modify failed", row)

    def modify_increment(self, row: Row, remove: bool) -> None:
        """Add members to an entry, or remove them."""
        self._unsupported("Table Entry modify incremental failed", row, remove)

    def delete(self, row: Row) -> None:
        """Delete the entry of a key."""
        self._unsupported("Table Entry delete failed", row)

    def clear(self) -> None:
        """Delete all entries, or set all to 0."""
        self._unsupported("Table Entry delete all failed")

    def set_default(self, row: Row) -> None:
        """Replace the default entry."""
        self._unsupported("Table Default entry set failed", row)

    def reset_default(self) -> None:
        """Restore the program's own default entry."""
        self._unsupported("Table Default Entry reset failed")

    def undo(self) -> Callable[[], None]:
        """Return a function that restores the present entries; a transaction covers match tables only."""
        return lambda: None

    def usage(self) -> int:
        """Return the number of entries."""
        return sum(1 for _ in self.read_all())

    def _unsupported(self, what: str, *_: object) -> None:
        refuse(True, f"{what} table:{self.spec.name}", _UNSUPPORTED)


class Copied(Handler):
    """A table whose reads return the values last copied from the hardware."""

    @abstractmethod
    def sync(self) -> None:
        """Copy everything from the hardware, as an operation or a read `from_hw` does first."""


class MatchHandler(Copied):
    """A match table, with its direct counter if it has one; also a parser value set and port metadata."""

    def __init__(self, spec: TableSpec, state: State) -> None:
        super().__init__(spec, state)
        self._copies: dict[tuple[Any, ...], tuple[int, int]] = {}

    @property
    def table(self) -> MatchTable:
        """The table that the pipeline reads."""
        return self.state.match_tables[self.spec.name]

    def insert(self, row: Row) -> None:
        """Add an entry."""
        entry = self._entry(row)
        name = self.spec.name
        refuse(entry.identity in self.table.entries, f"Table Add failed table:{name}", _EXISTS)
        full = len(self.table.entries) >= self.spec.size
        refuse(full, f"Table Add failed table:{name}", grpc.StatusCode.RESOURCE_EXHAUSTED)
        refuse(_scope(row) == "DefaultOnly", f"action {row.action_name} of table {name} is for the default entry only")
        self.table.put(entry)
        self._copies[entry.identity] = (entry.packets, entry.bytes)

    def modify(self, row: Row) -> None:
        """Change action and data of an entry; its counter is kept unless the data sets or resets it."""
        held = self._held(row, "Table Entry modify failed")
        if row.action is None and self.spec.actions:  # of the direct counter only
            held.packets, held.bytes = row.values.get(PACKETS, held.packets), row.values.get(BYTES, held.bytes)
        else:
            entry = self._entry(row)
            refuse(_scope(row) == "DefaultOnly", f"action {row.action_name} is for the default entry only")
            if not row.reset_stats:
                entry.packets = row.values.get(PACKETS, held.packets)
                entry.bytes = row.values.get(BYTES, held.bytes)
            self.table.put(entry)
            held = entry
        if row.reset_stats or PACKETS in row.values or BYTES in row.values:
            self._copies[held.identity] = (held.packets, held.bytes)

    def delete(self, row: Row) -> None:
        """Delete an entry."""
        held = self._held(row, "Table Entry delete failed")
        self.table.remove(held.identity)
        self._copies.pop(held.identity, None)

    def clear(self) -> None:
        """Delete all entries, and restore the program's own default entry."""
        self.table.clear()
        self._copies.clear()
        if not self.spec.const_default:
            self.table.set_default(None)

    def set_default(self, row: Row) -> None:
        """Replace the default entry."""
        refuse(self.spec.const_default, f"the default action of table {self.spec.name} is constant", _UNSUPPORTED)
        refuse(_scope(row) == "TableOnly", f"action {row.action_name} is not for the default entry")
        self.table.set_default(self._entry(row))

    def reset_default(self) -> None:
        """Restore the program's own default entry."""
        self.table.set_default(None)

    def read(self, row: Row) -> Row:
        """Return an entry and its counter."""
        return self._row(self._held(row, "Entry not found in"))

    def read_all(self) -> Iterator[Row]:
        """Return all entries and their counters."""
        for entry in list(self.table.entries.values()):
            yield self._row(entry)

    def read_default(self) -> Row | None:
        """Return the default entry: the one that was set, or the program's own if bfrt.json reveals it.

        It does if one action without parameters is for the default entry only.
        """
        entry = self.table.default
        if entry is not None:
            return Row({}, entry.data, 0, self._action(entry.action), is_default=True)
        own = [action for action in self.spec.actions.values() if action.scope == "DefaultOnly" and not action.fields]
        return Row({}, {}, 0, own[0], is_default=True) if len(own) == 1 else None

    def sync(self) -> None:
        """Copy the direct counters."""
        self._copies = {identity: (entry.packets, entry.bytes) for identity, entry in self.table.entries.items()}

    def undo(self) -> Callable[[], None]:
        """Return a function that restores the present entries."""
        entries, default = copy.deepcopy(self.table.entries), copy.deepcopy(self.table.default)

        def bring_back() -> None:
            self.table.entries = entries
            self.table.set_default(default)

        return bring_back

    def _held(self, row: Row, what: str) -> Entry:
        identity = Entry(dict(row.key), "", {}, row.priority).identity
        refuse(identity not in self.table.entries, f"{what} table:{self.spec.name}", _NOT_FOUND)
        return self.table.entries[identity]

    def _entry(self, row: Row) -> Entry:
        data = {name: value for name, value in row.values.items() if name not in (PACKETS, BYTES)}
        packets, size = row.values.get(PACKETS, 0), row.values.get(BYTES, 0)
        return Entry(dict(row.key), row.action_name, data, row.priority, packets, size)

    def _row(self, entry: Entry) -> Row:
        packets, size = self._copies.get(entry.identity, (0, 0))
        values = {**entry.data, PACKETS: packets, BYTES: size}
        return Row(entry.key, values, entry.priority, self._action(entry.action))

    def _action(self, name: str) -> ActionSpec | None:
        return next((action for action in self.spec.actions.values() if action.name == name), None)


class _Indexed(Copied):
    """A table of cells that always exist: the key is an index."""

    def _index(self, row: Row) -> int:
        index = int(row.key[_INDEX[self.spec.kind]])
        refuse(index >= self.spec.size, f"index {index} of table {self.spec.name}, which has {self.spec.size} cells")
        return index

    def insert(self, row: Row) -> None:
        """Set a cell: it exists already, and the driver accepts both insert and modify."""
        self.modify(row)

    def read(self, row: Row) -> Row:
        """Return a cell."""
        return self._cell(self._index(row))

    def read_all(self) -> Iterator[Row]:
        """Return all cells."""
        return (self._cell(index) for index in range(self.spec.size))

    @abstractmethod
    def _cell(self, index: int) -> Row: ...


class CounterHandler(_Indexed):
    """An indexed counter."""

    def __init__(self, spec: TableSpec, state: State) -> None:
        super().__init__(spec, state)
        self._copies: list[list[int]] = [[0, 0] for _ in range(spec.size)]

    @property
    def cells(self) -> list[list[int]]:
        """The cells that the pipeline counts in: [packets, bytes] by index."""
        return self.state.counters[self.spec.name]

    def modify(self, row: Row) -> None:
        """Set a cell."""
        index = self._index(row)
        packets, size = self.cells[index]
        self.cells[index][:] = row.values.get(PACKETS, packets), row.values.get(BYTES, size)
        self._copies[index] = list(self.cells[index])

    def clear(self) -> None:
        """Set all cells to 0."""
        for cell in self.cells:
            cell[:] = (0, 0)
        self.sync()

    def sync(self) -> None:
        """Copy all cells."""
        self._copies = [list(cell) for cell in self.cells]

    def _cell(self, index: int) -> Row:
        packets, size = self._copies[index]
        return Row({_INDEX["Counter"]: index}, {PACKETS: packets, BYTES: size})


class RegisterHandler(_Indexed):
    """A register: a read returns one value for each of `pipes` pipes, the first of which is the pipeline's."""

    def __init__(self, spec: TableSpec, state: State, pipes: int) -> None:
        super().__init__(spec, state)
        self._pipes = pipes
        self._copies = copy.deepcopy(self.cells)

    @property
    def cells(self) -> list[dict[str, int] | int]:
        """The cells that the pipeline computes with."""
        return self.state.registers[self.spec.name]

    def modify(self, row: Row) -> None:
        """Set a cell in all pipes."""
        index = self._index(row)
        held = self.cells[index]
        if isinstance(held, dict):
            held.update(row.values)
        else:
            self.cells[index] = next(iter(row.values.values()), held)
        self._copies[index] = copy.copy(self.cells[index])

    def clear(self) -> None:
        """Set all cells to 0."""
        for index, held in enumerate(self.cells):
            self.cells[index] = dict.fromkeys(held, 0) if isinstance(held, dict) else 0
        self.sync()

    def sync(self) -> None:
        """Copy all cells."""
        self._copies = copy.deepcopy(self.cells)

    def _cell(self, index: int) -> Row:
        held = self._copies[index]
        names = [spec.name for spec in self.spec.fields.values()]
        fields = held if isinstance(held, dict) else {names[0]: held}
        others = [0] * (self._pipes - 1)
        return Row({_INDEX["Register"]: index}, {name: [value, *others] for name, value in fields.items()})


def _scope(row: Row) -> str:
    return row.action.scope if row.action else ""
