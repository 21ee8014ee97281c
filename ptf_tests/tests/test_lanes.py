"""Narrow lanes: words that hold two or four signed sums each, which the switch adds as any other words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest

_WORD: Final = 1 << 32


def _joined(lanes: Sequence[int], bits: int) -> int:
    """Return the word of these lanes, as a signed number."""
    word = sum(lane << bits * place for place, lane in enumerate(lanes)) % _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _split(word: int, bits: int) -> list[int]:
    lanes = []
    for _ in range(32 // bits):
        lane = word % (1 << bits)
        lane -= (1 << bits) if lane >= 1 << bits - 1 else 0
        lanes.append(lane)
        word = (word - lane) >> bits
    return lanes


class _Lanes(SwitchMLTest):
    """All ranks put their largest magnitudes into the lanes, with every pattern of signs in neighbours."""

    bits: int
    ranks = 4

    def lanes_of(self, rank: int, place: int) -> list[int]:
        levels = ((1 << self.bits - 1) - 1) // self.ranks
        patterns = 1 << 32 // self.bits
        if place < patterns:  # all ranks alike: the sums are as large as they can be, and borrow from each other
            return [-levels if place >> j & 1 else levels for j in range(32 // self.bits)]
        return [(7919 * (rank + 1) * (place + j)) % (2 * levels + 1) - levels for j in range(32 // self.bits)]

    def sums_are_exact(self) -> None:
        job = self.job(self.ranks)
        of_ranks = [[self.lanes_of(rank, place) for place in range(job.values)] for rank in range(self.ranks)]
        result = self.reduce(
            job,
            [
                job.packet(rank, values=tuple(_joined(lanes, self.bits) for lanes in of_ranks[rank]))
                for rank in range(self.ranks)
            ],
        )
        expected = [[sum(lane) for lane in zip(*lanes, strict=True)] for lanes in zip(*of_ranks, strict=True)]
        self.assertEqual([_split(word, self.bits) for word in result.values], expected)


@group("values")
class LanesOf16Bits(_Lanes):
    """Two sums in each word."""

    bits = 16

    def runTest(self) -> None:
        self.sums_are_exact()


@group("values")
class LanesOf8Bits(_Lanes):
    """Four sums in each word."""

    bits = 8

    def runTest(self) -> None:
        self.sums_are_exact()
