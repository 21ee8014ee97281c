"""Lookup in the tables of the model: which entry matches, which action runs, with what arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ptf_tests.tofino_emulator.state import Entry, KeyValue, MatchTable
from ptf_tests.tofino_emulator.undefined import ModelError, Undefined

__all__ = ["Found", "Lookup", "PortMetadata", "UNDEFINED_MATCH", "ValueSet"]

UNDEFINED_MATCH = -1
Found: TypeAlias = tuple[bool | Undefined, int, tuple[int, ...], Entry | None]
"""Hit, number of the action among the table's actions, its arguments, and the entry if it has a counter.

If the outcome depends on an undefined value: that value and UNDEFINED_MATCH.
"""

_CACHED = 4096
_Test: TypeAlias = tuple[int, str, int, int]
"""A test: column, kind (mask or range), and value and mask or low and high."""


def _key_tests(column: int, kind: str, width: int, value: Any) -> list[_Test]:
    """Return the tests of a key in one column; none if the column matches anything."""
    full = (1 << width) - 1
    if value is None:
        return []
    if isinstance(value, int):
        return [(column, "mask", int(value), full)]
    one, other = value
    if kind == "range":
        return [] if (one, other) == (0, full) else [(column, "range", one, other)]
    mask = full & ~((1 << (width - other)) - 1) if kind == "lpm" else other
    return [(column, "mask", one & mask, mask)] if mask else []


def _passes(key: Sequence[Any], tests: Iterable[_Test]) -> bool | Undefined:
    """Return whether a key passes all tests, or the undefined value on which that depends."""
    open_question = None
    for column, kind, one, other in tests:
        value = key[column]
        if isinstance(value, Undefined):
            open_question = value
        elif not (value & other == one if kind == "mask" else one <= value <= other):
            return False
    return True if open_question is None else open_question


class Lookup:
    """One table. Call it with a key; results stay in ``cache`` until the entries change."""

    def __init__(self, table: Mapping[str, Any], actions: Mapping[str, Any], stored: MatchTable | None) -> None:
        self.name: str = table["name"]
        self.cache: dict[tuple[Any, ...], Found] = {}
        self._table, self._actions, self._stored = table, actions, stored
        self._version: int | None = None
        self._rows: list[tuple[list[_Test], Found]] = []
        self._exact: dict[tuple[Any, ...], Found] = {}
        self._default: Found = (False, 0, (), None)
        self._numbers = {actions[one]["name"]: number for number, one in enumerate(table["actions"])}
        self.refresh()

    def refresh(self) -> None:
        """Read the entries that were written since the last time."""
        version = 0 if self._stored is None else self._stored.version
        if version == self._version:
            return
        self._version = version
        self.cache.clear()
        self._exact.clear()
        self._default = self._program_default()
        if self._table["entries"] is not None:
            self._rows = [self._const_row(*entry) for entry in self._table["entries"]]
            return
        if self._stored is None:
            self._rows = []
            return
        entries = sorted(self._stored.entries.values(), key=self._order)
        self._rows = [(self._tests(entry.key), self._found(True, entry)) for entry in entries]
        if all(kind == "exact" for _, kind, _, _ in self._table["keys"]):
            for entry in entries:
                self._exact[tuple(entry.key[name] for _, _, name, _ in self._table["keys"])] = self._found(True, entry)
        if self._stored.default is not None:
            self._default = self._found(False, self._stored.default)

    def __call__(self, key: tuple[Any, ...]) -> Found:
        """Return the outcome for a key."""
        found = self._exact.get(key)
        if found is None:
            found = self._find(key)
        if len(self.cache) >= _CACHED:
            self.cache.clear()
        self.cache[key] = found
        return found

    def _find(self, key: tuple[Any, ...]) -> Found:
        for tests, row in self._rows:
            passes = _passes(key, tests)
            if isinstance(passes, Undefined):
                return passes, UNDEFINED_MATCH, (), None
            if passes:
                return row
        return self._default

    def _order(self, entry: Entry) -> tuple[int, int]:
        """Return the sort key of an entry in the hardware's order: by priority, longest prefix first."""
        for _, kind, name, _ in self._table["keys"]:
            value = entry.key.get(name)
            if kind == "lpm" and isinstance(value, tuple):
                return -value[1], entry.priority
        return entry.priority, 0

    def _tests(self, key: Mapping[str, KeyValue]) -> list[_Test]:
        return [
            test
            for column, (_, kind, name, width) in enumerate(self._table["keys"])
            for test in _key_tests(column, kind, width, key.get(name))
        ]

    def _const_row(self, sets: list[Any], action: str, arguments: list[int]) -> tuple[list[_Test], Found]:
        tests = []
        for column, (one, (_, kind, _, width)) in enumerate(zip(sets, self._table["keys"], strict=True)):
            value = tuple(one[1:]) if isinstance(one, list) else one
            tests += _key_tests(column, "range" if isinstance(one, list) and one[0] == "range" else kind, width, value)
        return tests, (True, self._table["actions"].index(action), tuple(arguments), None)

    def _program_default(self) -> Found:
        action, arguments = self._table["default"]
        return False, self._table["actions"].index(action), tuple(arguments), None

    def _found(self, hit: bool, entry: Entry) -> Found:
        name = entry.action.removeprefix("pipe.")
        if name not in self._numbers:
            raise ModelError(f"{self.name} has an entry with the unknown action {entry.action}")
        number = self._numbers[name]
        parameters = self._actions[self._table["actions"][number]]["parameters"]
        missing = [public for _, public in parameters if public not in entry.data]
        if missing:
            raise ModelError(f"{self.name}: an entry gives {entry.action} no {', '.join(missing)}")
        return hit, number, tuple(entry.data[public] for _, public in parameters), entry


class ValueSet:
    """A parser's value set: call it with a value to test membership."""

    def __init__(self, name: str, widths: Sequence[int], stored: MatchTable | None) -> None:
        self._name, self._widths, self._stored = name, widths, stored

    def __call__(self, value: int) -> bool:
        """Return whether the set contains a value of one field."""
        if self._stored is None:
            return False
        width = self._widths[0]
        return any(
            _passes((value,), _key_tests(0, self._kind(one), width, one))
            for entry in self._stored.entries.values()
            for one in entry.key.values()
        )

    def _kind(self, value: KeyValue) -> str:
        kinds = {} if self._stored is None else self._stored.match_types
        return "range" if "Range" in kinds.values() and isinstance(value, tuple) else "ternary"


class PortMetadata:
    """The port metadata that the control plane has written: call it with an ingress port and field names."""

    def __init__(self, stored: MatchTable | None) -> None:
        self._stored = stored

    def __call__(self, port: int, fields: Sequence[str]) -> tuple[int, ...]:
        """Return the fields' values, or 0 for those that were not written."""
        for entry in () if self._stored is None else self._stored.entries.values():
            if port in entry.key.values():
                return tuple(entry.data.get(field, 0) for field in fields)
        return (0,) * len(fields)
