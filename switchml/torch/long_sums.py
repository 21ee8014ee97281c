"""The choice between network and Gloo for the large sums of int64 of one group, alike at all of its ranks.

How many words an int64 takes in packets depends on the values of all ranks (switchml/native/codecs/limbs.h), so no rank
knows it before a sum. But the ranks know it alike afterwards. So the first sum of each size goes through the network: a
look. The sums that follow take the path that is faster for the words of the look, and after `CALLS_BETWEEN_LOOKS` of
them the next one is a look again.

Which sum is a look, and which look a sum follows, is a function of the order of the calls alone, and that order is the
same at all ranks. A sum whose look has not ended waits for it, because the looks of other ranks may end earlier or
later. So there is no message between ranks about this, and they choose the same path at the same call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchml.torch.paths import LEAST_LONG_SUM_BYTES, MOST_WORDS, Medium, Path, path_of_long_sum

__all__ = ["CALLS_BETWEEN_LOOKS", "LongSums", "Look", "LongSumTurn"]

CALLS_BETWEEN_LOOKS: Final = 64
"""If small values follow large ones, at most this many sums of a size take the slower path."""


_INT64_PER_WORD: Final = 2  # the bytes of an int64 over those of a word


@dataclass
class Look:
    """A sum through the network that tells how many words an element of such sums takes there.

    Attributes:
        words: the mean over its elements; None until it has ended.

    """

    words: float | None = None


@dataclass(frozen=True)
class LongSumTurn:
    """The place of a sum in the order of the sums of its size, between the same two powers of two of bytes.

    Attributes:
        nbytes: the bytes of its tensor.
        look: the latest look of that size, which may be this sum itself.
        number: how many sums of that size the look has had before; 0 for the look itself.

    """

    nbytes: int
    look: Look
    number: int

    @property
    def is_look(self) -> bool:
        """True if this sum is the look itself."""
        return self.number == 0

    def path(self, world_size: int, medium: Medium | None) -> Path | None:
        """Return the path of this sum of ranks so connected; None if it is not known before its look has ended."""
        if self.is_look:
            return "network"
        if self.look.words is not None:
            return path_of_long_sum(self.nbytes, self.look.words, world_size, medium)
        return None if path_of_long_sum(self.nbytes, MOST_WORDS, world_size, medium) == "gloo" else "network"

    def ended(self, wire_bytes: int) -> None:
        """Note the end of this sum, whose values took `wire_bytes` in packets."""
        if self.is_look:
            self.look.words = _INT64_PER_WORD * wire_bytes / self.nbytes


class LongSums:
    """The large sums of int64 of one group. The caller holds a lock."""

    def __init__(self) -> None:
        self._latest: dict[int, LongSumTurn] = {}  # by size

    def next_turn(self, nbytes: int) -> LongSumTurn | None:
        """Return the turn of a sum if it is made now; None if it goes through the network in any case."""
        if nbytes < LEAST_LONG_SUM_BYTES:
            return None
        latest = self._latest.get(nbytes.bit_length())
        if latest is None or latest.number == CALLS_BETWEEN_LOOKS:
            return LongSumTurn(nbytes, Look(), 0)
        return LongSumTurn(nbytes, latest.look, latest.number + 1)

    def take(self, turn: LongSumTurn | None) -> None:
        """Count a sum that is made now."""
        if turn is not None:
            self._latest[turn.nbytes.bit_length()] = turn
