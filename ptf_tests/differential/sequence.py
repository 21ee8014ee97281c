"""A sequence of table writes and packets as data, which a failure saves and ``replay`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import finsy as fy

from ptf_tests.control import Entity

__all__ = ["Burst", "Put", "Remove", "Sequence", "SetDefault", "Step", "load", "save"]


@dataclass(frozen=True)
class _Subject:
    """An entry of ``table`` with a match, or the multicast group whose id is in the match."""

    table: str
    match: tuple[tuple[str, int | tuple[int, int]], ...] = ()
    priority: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        """The key that identifies it in a switch."""
        return self.table, self.match, self.priority

    def _entity(self, action: fy.P4TableAction | None, replicas: tuple[tuple[int, int], ...] = ()) -> Entity:
        match: dict[str, Any] = dict(self.match)
        if self.table == "group":
            return fy.P4MulticastGroupEntry(match["id"], replicas=replicas)
        return fy.P4TableEntry(self.table, match=fy.Match(match), action=action, priority=self.priority)


@dataclass(frozen=True)
class Put(_Subject):
    """Write an entry or a group: insert it, or modify it if it exists."""

    action: str = ""
    parameters: tuple[tuple[str, int], ...] = ()
    replicas: tuple[tuple[int, int], ...] = ()

    def entity(self) -> Entity:
        """Return it as a finsy entity."""
        action = None if self.table == "group" else fy.Action(self.action, **dict(self.parameters))
        return self._entity(action, self.replicas)


@dataclass(frozen=True)
class Remove(_Subject):
    """Delete an entry or a group, if it exists."""

    def entity(self) -> Entity:
        """Return it as a finsy entity."""
        return self._entity(None)


@dataclass(frozen=True)
class SetDefault:
    """Modify the default entry of a table."""

    table: str
    action: str
    parameters: tuple[tuple[str, int], ...] = ()

    def entity(self) -> Entity:
        """Return it as a finsy entity."""
        return fy.P4TableEntry(
            self.table, action=fy.Action(self.action, **dict(self.parameters)), is_default_action=True
        )


@dataclass(frozen=True)
class Burst:
    """Frames that arrive through one port, directly one after the other."""

    port: int
    frames: tuple[bytes, ...]


Step = Put | Remove | SetDefault | Burst


@dataclass(frozen=True)
class Sequence:
    """Steps, executed in order by a switch that has just loaded its pipeline."""

    steps: tuple[Step, ...]
    values: int = field(default=64)


_KINDS: dict[str, type[Step]] = {kind.__name__: kind for kind in (Put, Remove, SetDefault, Burst)}


def save(sequence: Sequence, path: Path) -> None:
    """Write a sequence as JSON, with one step per line."""
    lines = [json.dumps({"step": type(step).__name__, **_plain(vars(step))}) for step in sequence.steps]
    body = ",\n  ".join(lines)
    path.write_text(f'{{"values": {sequence.values}, "steps": [\n  {body}\n]}}\n', encoding="utf-8")


def load(path: Path) -> Sequence:
    """Read a file written by ``save``. Raises OSError, ValueError, KeyError or TypeError if it is not valid."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Sequence(tuple(map(_step, document["steps"])), document["values"])


def _step(fields: dict[str, Any]) -> Step:
    kind = _KINDS[fields.pop("step")]
    if kind is Burst:
        return Burst(fields["port"], tuple(map(bytes.fromhex, fields["frames"])))
    return kind(**{name: _tuples(value) for name, value in fields.items()})


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: [f.hex() for f in value] if name == "frames" else value for name, value in fields.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, Iterable) and not isinstance(value, str) else value
