"""The handle of a collective in flight."""

from __future__ import annotations

import threading
from typing import NamedTuple

from switchml.client.epoch_calls import EpochCalls, Submitted
from switchml.client.membership import Membership

__all__ = ["SentBlocks", "Work"]


class SentBlocks(NamedTuple):
    """The blocks of an all-reduce: each has the values of one packet, or of 256 words if packets are larger."""

    sent: int
    """Blocks that this rank has sent with values."""
    received: int
    """Blocks that at least one rank has sent."""
    all: int
    """Blocks of the array."""


class Work:
    """A collective in flight. Its array must be neither read nor written before `wait` has returned."""

    def __init__(self, membership: Membership, calls: EpochCalls, submitted: Submitted) -> None:
        self._membership = membership
        self._calls = calls
        self._submitted = submitted
        self._waiting = threading.Lock()

    @property
    def wire_bytes(self) -> int:
        """The bytes of this rank's values in packets, without headers and retransmissions; 0 until `wait` returns.

        In a direct call (docs/protocol.md), those that it has put where the ranks add them up.
        """
        outcome = self._submitted.outcome
        return 0 if outcome is None else outcome.wire_bytes

    @property
    def is_sparse(self) -> bool:
        """True if the call was made as a sparse one; False until `wait` returns."""
        outcome = self._submitted.outcome
        return outcome is not None and outcome.sparse

    @property
    def blocks(self) -> SentBlocks:
        """The blocks of this all-reduce; zeros until `wait` returns.

        All blocks are sent and received unless `is_sparse`.
        """
        outcome = self._submitted.outcome
        return SentBlocks(0, 0, 0) if outcome is None else SentBlocks(*outcome.blocks)

    def is_completed(self) -> bool:
        """Return, without waiting, whether the collective has ended, with success or failure."""
        return self._membership.has_ended(self._calls, self._submitted)

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether the collective has ended; it continues if it has not."""
        with self._waiting:
            return self._membership.ends_within(self._calls, self._submitted, seconds)

    def wait(self) -> None:
        """Wait for the end of the collective, until its timeout; afterwards the array holds the result.

        Raises:
            NonFiniteError: a rank contributed NaN or infinity; the array is NaN at the indices named and correct
                elsewhere.
            SwitchMLError: any other of this library's errors; the array is undefined.

        """
        with self._waiting:
            self._membership.wait(self._calls, self._submitted)

    def __del__(self) -> None:
        self._calls.drop(self._submitted)

    def __repr__(self) -> str:
        return f"<switchml.Work {self._submitted.call}, {'ended' if self.is_completed() else 'in flight'}>"
