"""Readings that are shared by all who ask for the same at one time: their cost does not grow with the askers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["SharedReadings"]

_T = TypeVar("_T")


class SharedReadings(Generic[_T]):
    """Reads values by key, each at most once at a time.

    A reading begins after it was asked for, so that it is never older than the question: who asks while one is under
    way gets the next one, together with all others who ask until it begins.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[_T]] = {}
        self._next: dict[Hashable, asyncio.Task[_T]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[_T]]) -> _T:
        """Return the value that `read` returns, or raise what it raises, also to others who ask for this key."""
        reading = self._next.get(key)
        if reading is None:
            reading = self._next[key] = asyncio.create_task(self._read(key, self._running.get(key), read))
            reading.add_done_callback(_note_error)
        return await asyncio.shield(reading)

    async def _read(self, key: Hashable, before: asyncio.Task[_T] | None, read: Callable[[], Awaitable[_T]]) -> _T:
        if before is not None:
            await asyncio.wait({before})
        reading = self._running[key] = self._next.pop(key)
        try:
            return await read()
        finally:
            if self._running.get(key) is reading:
                del self._running[key]


def _note_error(reading: asyncio.Task[_T]) -> None:
    """Retrieve the error of a reading; all who asked may have gone."""
    if not reading.cancelled():
        reading.exception()
