"""The memory that calls in flight read and write."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["MemoryInFlight"]

CallT = TypeVar("CallT")


class MemoryInFlight(Generic[CallT]):
    """Ranges of addresses that belong to calls in flight and do not overlap. Callers must hold a lock.

    Args:
        has_ended: returns whether a call has ended; its memory is then free even if it was not released.

    """

    def __init__(self, has_ended: Callable[[CallT], bool]) -> None:
        self._has_ended = has_ended
        self._starts: list[int] = []  # in order
        self._ranges: dict[int, tuple[int, CallT]] = {}  # start -> end and call

    def claim(self, ranges: Sequence[tuple[int, int]], call: CallT) -> None:
        """Let `ranges`, each an address and a number of bytes, belong to `call`: all of them or none.

        Raises:
            ValueError: some of that memory belongs to a call that has not ended.

        """
        claimed: list[tuple[int, int]] = []
        for start, size in ranges:
            if size == 0:
                continue
            if not self._is_free(start, start + size):
                self.release(claimed, call)
                raise ValueError(
                    "the array shares memory with that of a call that has not ended, so both results would be wrong; "
                    "wait for that call first, or pass a copy. The call was not made"
                )
            bisect.insort(self._starts, start)
            self._ranges[start] = (start + size, call)
            claimed.append((start, size))

    def release(self, ranges: Sequence[tuple[int, int]], call: CallT) -> None:
        """Undo a `claim`."""
        for start, _ in ranges:
            if self._ranges.get(start, (0, None))[1] is call:
                self._forget(start)

    def _is_free(self, begin: int, end: int) -> bool:
        """Return whether no call in flight has memory between `begin` and `end`; release ended calls there."""
        at = bisect.bisect_left(self._starts, end)
        while at > 0:
            start = self._starts[at - 1]
            other_end, call = self._ranges[start]
            if other_end <= begin:
                return True
            if not self._has_ended(call):
                return False
            self._forget(start)
            at -= 1
        return True

    def _forget(self, start: int) -> None:
        del self._starts[bisect.bisect_left(self._starts, start)]
        del self._ranges[start]
