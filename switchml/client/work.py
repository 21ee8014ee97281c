"""The handle of a collective in flight."""

from __future__ import annotations

from typing import NamedTuple

from switchml import _native
from switchml.client.calls import Call
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

    def __init__(self, membership: Membership, call: Call, native: _native.Work) -> None:
        self._membership = membership
        self._call = call
        self._native = native

    @property
    def wire_bytes(self) -> int:
        """The bytes of this rank's values in packets, without headers and retransmissions; 0 until `wait` returns.

        In a direct call (docs/understand/one-machine.md), those that it has put where the ranks add them up.
        """
        outcome = self._native.outcome
        return 0 if outcome is None else outcome.wire_bytes

    @property
    def is_sparse(self) -> bool:
        """True if the call was made as a sparse one; False until `wait` returns."""
        outcome = self._native.outcome
        return outcome is not None and outcome.sparse

    @property
    def blocks(self) -> SentBlocks:
        """The blocks of this all-reduce; zeros until `wait` returns.

        All blocks are sent and received unless `is_sparse`.
        """
        outcome = self._native.outcome
        return SentBlocks(0, 0, 0) if outcome is None else SentBlocks(*outcome.blocks)

    def is_completed(self) -> bool:
        """Return, without waiting, whether the collective has ended, with success or failure."""
        return self._native.has_ended()

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether the collective has ended; it continues if it has not."""
        return self._native.ends_within(seconds)

    def wait(self) -> None:
        """Wait for the end of the collective, until its timeout; afterwards the array holds the result.

        Raises:
            NonFiniteError: a rank contributed NaN or infinity; the array is NaN at the indices named and correct
                elsewhere.
            SwitchMLError: any other of this library's errors; the array is undefined.

        """
        self._native.wait()

    def __del__(self) -> None:
        if hasattr(self, "_native") and not self._native.was_waited_for:  # construction has finished
            self._membership.drop(self._native, self._call)

    def __repr__(self) -> str:
        return f"<switchml.Work {self._native.in_words()}, {'ended' if self.is_completed() else 'in flight'}>"
