"""The effect of a contribution on its slot (docs/understand/protocol.md) as a table, independent of the P4 program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from switchml.dataplane.constants import DropReason, Verdict

WORD = 0xFFFFFFFF


class PhasePredicate(Enum):
    """The packet's phase compared with the slot's; NEWER also if the slot holds another epoch."""

    STALE = 0
    SAME = 1
    NEWER = 2


class Sums(Enum):
    """The changes to exponent, check, chunk and values in the slot and in the packet."""

    OVERWRITE = "the slot takes the packet's"
    ADD = "the slot adds the packet's (maximum exponent, minimum chunk, first values overwrite), the packet takes it"
    FETCH = "the packet takes the slot's, but for the phase's first values, which overwrite"
    NOTHING = "neither changes"


class Decision(NamedTuple):
    """The decision that follows from phase predicate, seen and full."""

    sums: Sums
    verdict: Verdict
    drop: DropReason | None = None


# (predicate, the worker has contributed to this phase, all workers including this one have) -> decision.
DECISIONS = {
    (PhasePredicate.NEWER, False, False): Decision(Sums.OVERWRITE, Verdict.AGGREGATED),
    (PhasePredicate.NEWER, False, True): Decision(Sums.OVERWRITE, Verdict.COMPLETED),
    (PhasePredicate.SAME, False, False): Decision(Sums.ADD, Verdict.AGGREGATED),
    (PhasePredicate.SAME, False, True): Decision(Sums.ADD, Verdict.COMPLETED),
    (PhasePredicate.SAME, True, True): Decision(Sums.FETCH, Verdict.RESENT),
    (PhasePredicate.SAME, True, False): Decision(Sums.FETCH, Verdict.DUPLICATE, DropReason.DUPLICATE),
    **{
        (PhasePredicate.STALE, seen, full): Decision(Sums.NOTHING, Verdict.STALE, DropReason.STALE)
        for seen in (False, True)
        for full in (False, True)
    },
}


@dataclass(frozen=True)
class Half:
    """The contents of one half of a slot. Values are unsigned."""

    epoch: int = 0
    phase: int = 0
    bitmap: int = 0
    exponent: int = 0
    check: int = 0
    next: int = 0  # the smallest chunk
    values: tuple[int, ...] = field(default=(), repr=False)
    filled: bool = False  # the phase has values


@dataclass(frozen=True)
class Contribution:
    """The fields of a packet that the table uses. ``values`` is None in a packet without values."""

    epoch: int
    phase: int
    worker_bit: int
    exponent: int
    check: int
    chunk: int
    values: tuple[int, ...] | None = field(repr=False)


def contribute(stored: Half, packet: Contribution, mask: int) -> tuple[Half, Decision]:
    """Return the slot after the packet, and the decision; the packet has the job's epoch."""
    if stored.epoch != packet.epoch or packet.phase > stored.phase:
        predicate, before = PhasePredicate.NEWER, 0
    elif packet.phase < stored.phase:
        predicate, before = PhasePredicate.STALE, stored.bitmap
    else:
        predicate, before = PhasePredicate.SAME, stored.bitmap
    seen = bool(before & packet.worker_bit)
    bitmap = before | packet.worker_bit
    decision = DECISIONS[predicate, seen, bitmap == mask]
    if decision.sums is Sums.OVERWRITE:
        values = stored.values if packet.values is None else packet.values
        filled = packet.values is not None
        first = (packet.exponent, packet.check, packet.chunk, values, filled)
        return Half(packet.epoch, packet.phase, bitmap, *first), decision
    if decision.sums is Sums.ADD:
        sums = stored.values if packet.values is None else packet.values
        if packet.values is not None and stored.filled:
            sums = tuple((one + other) & WORD for one, other in zip(stored.values, packet.values, strict=True))
        exponent = max(stored.exponent, packet.exponent)
        check = (stored.check + packet.check) & WORD
        smallest = min(stored.next, packet.chunk)
        filled = stored.filled or packet.values is not None
        added = Half(stored.epoch, stored.phase, bitmap, exponent, check, smallest, sums, filled)
        return added, decision
    if decision.sums is Sums.FETCH and packet.values is not None and not stored.filled:
        return replace(stored, values=packet.values, filled=True), decision  # it had contributed without values
    return stored, decision
