"""The tests' interface to a switch's control plane, independent of the protocol."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import finsy as fy

from switchml.dataplane.constants import DropReason

__all__ = ["Control", "Count", "Counts", "Entity", "worker_key"]

Entity = fy.P4TableEntry | fy.P4MulticastGroupEntry
Count = tuple[int, int]  # packets, bytes
_T = TypeVar("_T")
_SECONDS = 60.0


@dataclass
class Counts:
    """The counters that are not zero: drops by reason, verdicts by index (job << 4 | verdict), workers by match."""

    drops: dict[int, Count] = field(default_factory=dict)
    verdicts: dict[int, Count] = field(default_factory=dict)
    workers: dict[str, Count] = field(default_factory=dict)


class Control(ABC):
    """A session of a primary client, with one call after the other. A context manager.

    Entities are finsy's, for BfRt as well. The protocol's coroutines run in a separate thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="control", daemon=True)

    def __enter__(self) -> Control:
        self._thread.start()
        self._call(self._connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._disconnect())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)

    def load(self) -> None:
        """Load the pipeline again: registers, tables, groups and counters are empty afterwards."""
        self._call(self._load())

    def insert(self, *entities: Entity) -> None:
        """Insert entries and groups. Like the next ones, raises finsy.P4ClientError or BfrtError if refused."""
        self._call(self._insert(entities))

    def modify(self, *entities: Entity) -> None:
        """Replace the actions and replicas of entries and groups that exist."""
        self._call(self._modify(entities))

    def delete(self, *entities: Entity) -> None:
        """Delete entries and groups."""
        self._call(self._delete(entities))

    def counts(self, jobs: Iterable[int] | None = None) -> Counts:
        """Return every counter, or those of the verdicts of these jobs only."""
        return self._call(self._counts(jobs))

    def drops(self, reason: DropReason) -> int:
        """Return the number of packets dropped for a reason."""
        return self._call(self._drops(reason))

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_SECONDS)

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _load(self) -> None: ...

    @abstractmethod
    async def _insert(self, entities: Iterable[Entity]) -> None: ...

    @abstractmethod
    async def _modify(self, entities: Iterable[Entity]) -> None: ...

    @abstractmethod
    async def _delete(self, entities: Iterable[Entity]) -> None: ...

    @abstractmethod
    async def _counts(self, jobs: Iterable[int] | None) -> Counts: ...

    @abstractmethod
    async def _drops(self, reason: DropReason) -> int: ...


def worker_key(entry: fy.P4TableEntry) -> str:
    """Return a name for an entry of the worker table that is the same on every target."""
    match: Mapping[str, Any] = entry.match or {}
    return " ".join(f"{name}={match[name]}" for name in sorted(match)) + f" priority={entry.priority}"
