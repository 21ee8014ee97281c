"""A communicator's part in one epoch of its job: the native end of its memory, and the calls that go through it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING

from switchml import _native
from switchml.agent_connection import Attachment
from switchml.calls import Call
from switchml.in_flight import MemoryInFlight

if TYPE_CHECKING:
    from switchml.errors import SwitchMLError
    from switchml.work import Work

__all__ = ["Generation"]


class Generation:
    """The calls of one epoch; who uses it holds the communicator's lock. `error` is why the epoch ended, if it has."""

    def __init__(self, attachment: Attachment, native: _native.Communicator) -> None:
        self.attachment = attachment
        self.native = native
        self.calls: dict[int, Call] = {}  # unfinished, or not yet waited for
        self.works: weakref.WeakValueDictionary[int, Work] = weakref.WeakValueDictionary()
        self.memory: MemoryInFlight[Call] = MemoryInFlight(
            lambda call: native.outcome(call.sequence).status != "pending"
        )
        self.orphans: deque[int] = deque()  # calls whose Work was dropped
        self.sequence = 0  # of the next call
        self.suspect: Call | None = None  # the call whose check failed
        self.error: SwitchMLError | None = None

    def has_ended(self, ticket: int) -> bool:
        """Tell whether a call has, one way or the other."""
        return self.native.outcome(ticket).status != "pending"

    def finish(self, work: Work) -> None:
        """Take over the outcome of an ended call and forget it."""
        if work._outcome is None:
            ticket = work._call.sequence
            work._outcome = self.native.outcome(ticket)
            self._forget(ticket)

    def forget_orphans(self) -> None:
        """Release ended calls that nobody can wait for any more."""
        while self.orphans and self.has_ended(self.orphans[0]):
            self._forget(self.orphans.popleft())

    def _forget(self, ticket: int) -> None:
        self.native.release(ticket)
        call = self.calls.pop(ticket)
        self.memory.release(call.ranges, call)

    def settle(self) -> int:
        """Take the results that are there, let all other calls fail, and return how many came before the first of them.

        All ranks that leave an epoch together get the same number.
        """
        self.native.settle()
        failed = [ticket for ticket in self.calls if self.native.outcome(ticket).status == "failed"]
        return min(failed, default=self.sequence)
