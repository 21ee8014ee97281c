"""A rank's calls in one epoch of its job, and the native communicator that processes them."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from switchml import _native
from switchml.client.agent_connection import Attachment
from switchml.client.calls import Call
from switchml.client.errors import RankClosed, SwitchMLError
from switchml.client.in_flight import MemoryInFlight

__all__ = ["EpochCalls", "Submitted", "communicator_over"]

_MOST_DESCRIPTIONS: Final = 512  # of calls, that are kept


def communicator_over(attachment: Attachment, descriptors: Sequence[int]) -> _native.Communicator:
    """Return the native communicator of a rank in an epoch, over the memory that the `descriptors` stand for.

    With SWITCHML_DIRECT=0 all calls of the job go over the switch, also where its ranks could add up the values
    themselves.
    """
    direct = os.environ.get("SWITCHML_DIRECT") != "0"
    return _native.Communicator(attachment.check_key, *descriptors, direct=direct)


class Submitted:
    """A call that was submitted: its deadline, and its outcome once `finish` has stored it."""

    __slots__ = ("call", "deadline", "outcome", "timeout")

    def __init__(self, call: Call, timeout: float) -> None:
        self.call = call
        self.timeout = timeout  # seconds
        self.deadline = time.monotonic() + timeout
        self.outcome: _native.Outcome | None = None


class EpochCalls:
    """The calls of one epoch. Callers must hold the membership's lock. `error` is the reason if the epoch has ended."""

    def __init__(self, attachment: Attachment, native: _native.Communicator) -> None:
        self.attachment = attachment
        self.native = native
        self.error: SwitchMLError | None = None
        self.suspect: Call | None = None  # the call whose check failed
        self._closed: RankClosed | None = None
        self._last = sys.maxsize  # the number of calls in which all ranks take part
        self._unreleased: dict[int, Submitted] = {}  # unfinished, or not yet waited for
        self._memory: MemoryInFlight[Call] = MemoryInFlight(lambda call: native.status(call.sequence) != "pending")
        self._orphans: deque[int] = deque()  # calls whose Work was dropped
        self._descriptions: dict[tuple[object, ...], _native.CallDescription] = {}
        self._sequence = 0  # number of the next call

    @property
    def made(self) -> int:
        """The number of calls so far."""
        return self._sequence

    @property
    def first(self) -> Call | None:
        """The earliest call that is unfinished or not yet waited for."""
        return next((submitted.call for submitted in self._unreleased.values()), None)

    @property
    def all_ended(self) -> bool:
        """True if no call is unfinished."""
        return all(self.has_ended(ticket) for ticket in self._unreleased)

    def ranks_closed(self, error: RankClosed, calls: int) -> None:
        """Let all calls beyond this number of `calls`, the last in which all ranks take part, fail with `error`."""
        if calls < self._last:
            self._closed, self._last = error, calls
            self.native.fail_from(calls)

    def lacks_ranks(self, call: int) -> RankClosed | None:
        """Return the error of a call, given by its number, if ranks have closed before it."""
        return self._closed if call >= self._last else None

    def find(self, ticket: int) -> Call | None:
        """Return the call with this ticket; None if it was released."""
        submitted = self._unreleased.get(ticket)
        return None if submitted is None else submitted.call

    def submit(self, call: Call, timeout: float, awaited: bool) -> Submitted:
        """Pass the next call to the native code; it may take `timeout` seconds from now, and its memory belongs to it.

        If it is `awaited`, this thread must wait for it next: it may begin only there.

        Raises:
            ValueError: some of that memory belongs to a call that has not ended.

        """
        self._forget_orphans()
        call.sequence = self._sequence
        self._memory.claim(call.written, call, call.read)
        try:
            submitted = self._unreleased[call.sequence] = Submitted(call, timeout)
            self._pass_on(call, awaited)
            self._sequence += 1
        except BaseException:  # of a signal handler, before or after the call was passed on
            self._sequence = self.native.submitted
            if self._sequence == call.sequence:
                self._unreleased.pop(call.sequence, None)
                self._memory.release(call.written, call)
            raise
        return submitted

    def _pass_on(self, call: Call, awaited: bool) -> None:
        ticket = self.native.submit(self._description_of(call), *call.addresses, awaited)
        assert ticket == call.sequence

    def _description_of(self, call: Call) -> _native.CallDescription:
        """Return the call's description; training repeats its calls, and to make one takes a third of a small call."""
        known = self._descriptions.get(call.identity)
        if known is None:
            if len(self._descriptions) >= _MOST_DESCRIPTIONS:
                self._descriptions.clear()
            known = self._descriptions[call.identity] = call.description(self.attachment.rank)
        return known

    def has_ended(self, ticket: int) -> bool:
        """Return whether a call has ended, with success or failure."""
        return self.native.status(ticket) != "pending"

    def finish(self, submitted: Submitted) -> None:
        """Store the outcome of an ended call and release the call."""
        if submitted.outcome is None:
            submitted.outcome = self._release(submitted.call.sequence)

    def finish_all(self) -> None:
        """Store the outcomes of all calls, which must have ended."""
        for submitted in list(self._unreleased.values()):
            self.finish(submitted)
        self._unreleased.clear()

    def drop(self, submitted: Submitted) -> None:
        """Release a call, once it has ended, that nothing can wait for any more. Any thread may call this any time."""
        if submitted.outcome is None:
            self._orphans.append(submitted.call.sequence)

    def settle(self) -> int:
        """Take the results that have arrived, make all other calls fail, and return the number of completed calls.

        All ranks that leave an epoch together get the same number.
        """
        self.native.settle()
        failed = [ticket for ticket in self._unreleased if self.native.status(ticket) == "failed"]
        return min(failed, default=self._sequence)

    def _forget_orphans(self) -> None:
        while self._orphans and self.has_ended(self._orphans[0]):
            self._release(self._orphans.popleft())

    def _release(self, ticket: int) -> _native.Outcome:
        outcome = self.native.release(ticket)
        call = self._unreleased.pop(ticket).call
        self._memory.release(call.written, call)
        return outcome
