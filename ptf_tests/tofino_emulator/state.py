"""The state of a switch under BfRt: tables, counters, registers, multicast and ports. Storage without behaviour.

Names are full bfrt names, as in bfrt.json. The BfRt server writes the state; the pipeline reads it and counts in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Entry", "KeyValue", "MatchTable", "MulticastGroup", "MulticastNode", "Port", "State"]

_MATCH_TABLES = ("MatchAction_Direct", "ParserValueSet", "PortMetadata")

KeyValue: TypeAlias = int | tuple[int, int]
"""Exact: int; ternary: (value, mask); LPM: (value, prefix length); range: (low, high), both included."""


@dataclass
class Entry:
    """One entry of a match table; ``packets`` and ``bytes`` are its direct counter. Priority 0 is the highest."""

    key: dict[str, KeyValue]
    action: str
    data: dict[str, int] = field(default_factory=dict)
    priority: int = 0
    packets: int = 0
    bytes: int = 0

    @property
    def identity(self) -> tuple[Any, ...]:
        """The identity, which differs for any two entries of a table."""
        return (self.priority, *sorted(self.key.items()))


@dataclass
class MatchTable:
    """Entries by identity. ``version`` increases with every change of entries or default, not with counters.

    ``default`` is None while the P4 program's own default action applies, which bfrt.json does not reveal.
    """

    name: str
    match_types: dict[str, str] = field(default_factory=dict)  # Exact, Ternary, LPM or Range by key field
    size: int = 0
    entries: dict[tuple[Any, ...], Entry] = field(default_factory=dict)
    default: Entry | None = None
    version: int = 0

    def put(self, entry: Entry) -> None:
        """Insert an entry, or replace the one of the same identity."""
        self.entries[entry.identity] = entry
        self.version += 1

    def remove(self, identity: tuple[Any, ...]) -> None:
        """Delete an entry; raises KeyError if it does not exist."""
        del self.entries[identity]
        self.version += 1

    def clear(self) -> None:
        """Delete all entries; the default stays."""
        self.entries.clear()
        self.version += 1

    def set_default(self, entry: Entry | None) -> None:
        """Set the default entry; None restores the P4 program's own."""
        self.default = entry
        self.version += 1


@dataclass
class MulticastNode:
    """A level-1 node: one replica through each port, all with this replication id."""

    rid: int
    ports: list[int]
    lags: list[int] = field(default_factory=list)


@dataclass
class MulticastGroup:
    """The nodes of a group; ``xid_valid`` and ``xid`` (level-1 exclusion) are as long as ``node_ids``."""

    node_ids: list[int] = field(default_factory=list)
    xid_valid: list[bool] = field(default_factory=list)
    xid: list[int] = field(default_factory=list)


@dataclass
class Port:
    """A port that was added: its $PORT data by field name, and the frames that the pipeline has counted."""

    data: dict[str, Any] = field(default_factory=dict)
    received: int = 0
    transmitted: int = 0

    @property
    def up(self) -> bool:
        """True if frames pass it."""
        return bool(self.data.get("$PORT_ENABLE", False))


@dataclass
class State:
    """The whole state. Counters are [packets, bytes] by index, registers values (or fields) by index, in pipe 0."""

    match_tables: dict[str, MatchTable] = field(default_factory=dict)
    counters: dict[str, list[list[int]]] = field(default_factory=dict)
    registers: dict[str, list[dict[str, int] | int]] = field(default_factory=dict)
    nodes: dict[int, MulticastNode] = field(default_factory=dict)
    groups: dict[int, MulticastGroup] = field(default_factory=dict)
    ports: dict[int, Port] = field(default_factory=dict)
    loads: int = 0  # number of program loads, each of which replaces all tables, counters and registers

    @classmethod
    def from_bfrt(cls, *documents: Mapping[str, Any]) -> State:
        """Create the state of freshly loaded programs from their parsed bfrt.json documents."""
        state = cls()
        state.load(*documents)
        return state

    def load(self, *documents: Mapping[str, Any]) -> None:
        """Become the state of freshly loaded programs: old contents are lost, and ports must be added again."""
        self.loads += 1
        versions = {name: table.version for name, table in self.match_tables.items()}
        everything: tuple[dict[Any, Any], ...] = (
            *(self.match_tables, self.counters, self.registers, self.nodes, self.groups, self.ports),
        )
        for one in everything:
            one.clear()
        for document in documents:
            for table in document["tables"]:
                self._add(table)
        for name, table in self.match_tables.items():
            table.version = versions.get(name, 0) + 1

    def _add(self, table: Mapping[str, Any]) -> None:
        name, kind, size = table["name"], table["table_type"], table.get("size", 0)
        if kind in _MATCH_TABLES:
            match_types = {key["name"]: key["match_type"] for key in table["key"]}
            match_types.pop("$MATCH_PRIORITY", None)
            self.match_tables[name] = MatchTable(name, match_types, size)
        elif kind == "Counter":
            self.counters[name] = [[0, 0] for _ in range(size)]
        elif kind == "Register":
            fields = _field_names(table["data"])
            one = len(fields) == 1
            self.registers[name] = [0 if one else dict.fromkeys(fields, 0) for _ in range(size)]

    def clear_counters(self) -> None:
        """Set every counter, direct or not, to 0."""
        for counter in self.counters.values():
            for cell in counter:
                cell[:] = (0, 0)
        for table in self.match_tables.values():
            for entry in table.entries.values():
                entry.packets = entry.bytes = 0

    def replicas(self, group: int) -> list[tuple[int, int]]:
        """Return the (port, replication id) pairs of a multicast group; an unknown group has none."""
        nodes = self.groups[group].node_ids if group in self.groups else []
        return [(port, self.nodes[node].rid) for node in nodes for port in self.nodes[node].ports]


def _field_names(data: Iterable[Mapping[str, Any]]) -> list[str]:
    return [one["singleton"]["name"] for one in data if "singleton" in one]
