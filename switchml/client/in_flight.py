"""The memory that calls in flight read and write."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["MemoryInFlight"]

CallT = TypeVar("CallT")


class MemoryInFlight(Generic[CallT]):
    """The memory that calls in flight write, whose ranges do not overlap, and that they read. Callers must hold a lock.

    Args:
        has_ended: returns whether a call has ended; its memory is then free even if it was not released.

    """

    def __init__(self, has_ended: Callable[[CallT], bool]) -> None:
        self._has_ended = has_ended
        self._starts: list[int] = []  # in order
        self._ranges: dict[int, tuple[int, CallT]] = {}  # start -> end and call
        self._reads: list[tuple[int, int, CallT]] = []  # start, end and call

    def claim(self, ranges: Sequence[tuple[int, int]], call: CallT, reads: Sequence[tuple[int, int]] = ()) -> None:
        """Let `ranges`, each an address and a number of bytes, belong to `call`, which also `reads`: all or none.

        Raises:
            ValueError: some of that memory is written, or some of `ranges` is read, by a call that has not ended.

        """
        for start, size in reads:
            if not self._is_free(start, start + size):
                raise _shares_memory()
        for number, (start, size) in enumerate(ranges):
            if size == 0:
                continue
            end = start + size
            if not self._is_free(start, end) or (self._reads and self._is_read(start, end)):
                self.release(ranges[:number], call)
                raise _shares_memory()
            bisect.insort(self._starts, start)
            self._ranges[start] = (end, call)
        for start, size in reads:
            if size > 0:
                self._reads.append((start, start + size, call))

    def release(self, ranges: Sequence[tuple[int, int]], call: CallT) -> None:
        """Undo a `claim`."""
        for start, _ in ranges:
            if self._ranges.get(start, (0, None))[1] is call:
                self._forget(start)
        if self._reads:
            self._reads = [read for read in self._reads if read[2] is not call]

    def _is_read(self, begin: int, end: int) -> bool:
        """Return whether a call in flight reads memory between `begin` and `end`."""
        return any(
            start < end and begin < other_end and not self._has_ended(call) for start, other_end, call in self._reads
        )

    def _is_free(self, begin: int, end: int) -> bool:
        """Return whether no call in flight writes memory between `begin` and `end`; release ended calls there."""
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


def _shares_memory() -> ValueError:
    return ValueError(
        "the array shares memory with that of a call that has not ended, so both results would be wrong; "
        "wait for that call first, or pass a copy. The call was not made"
    )
