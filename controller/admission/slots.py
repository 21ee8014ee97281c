"""Allocation of the switches' pool indexes to jobs, as aligned power-of-two ranges (buddy allocation)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from switchml.common.job_numbers import MINIMUM_SLOTS, is_power_of_two
from switchml.controller.errors import NoRoom
from switchml.controller.records import JobSwitch
from switchml.controller.switches import ManagedSwitch, Switches

__all__ = ["SlotAllocator", "SlotPools"]


class SlotAllocator:
    """Ranges of pool indexes 0..size-1.

    A range of n indexes starts at a multiple of n, so the switch matches it with one ternary key. A size that is not a
    power of two is divided into a sequence of shrinking blocks; an odd last index is never allocated.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: dict[int, set[int]] = {}  # block size -> the bases of the free blocks
        self._used: dict[int, int] = {}  # base -> block size
        base = 0
        while size - base >= MINIMUM_SLOTS:
            block = 1 << ((size - base).bit_length() - 1)
            self._free.setdefault(block, set()).add(base)
            base += block

    @property
    def free_slots(self) -> int:
        """The number of free indexes, over all ranges."""
        return sum(block * len(bases) for block, bases in self._free.items())

    @property
    def ranges_used(self) -> int:
        """The number of ranges in use."""
        return len(self._used)

    @property
    def largest_free_range(self) -> int:
        """The number of indexes in the largest free range; 0 if no range is free."""
        return max((block for block, bases in self._free.items() if bases), default=0)

    def allocate(self, slots: int) -> int:
        """Allocate `slots` indexes, a power of two, from the smallest sufficient free range; return the first one.

        Raises:
            NoRoom: no free range is long enough.

        """
        _require_range_size(slots)
        base = next(self.free_bases(slots), None)
        if base is None:
            raise NoRoom(
                f"{slots} slots asked, {self.room}; ask for fewer or stop a job",
                slots_asked=slots,
                slots_free=self.free_slots,
                largest_free_range=self.largest_free_range,
                slots=self.size,
            )
        self.reserve(base, slots)
        return base

    @property
    def room(self) -> str:
        """The free indexes in words."""
        return f"{self.free_slots} of {self.size} free, the largest free range has {self.largest_free_range}"

    def free_bases(self, slots: int) -> Iterator[int]:
        """Yield the first index of each free range of `slots` indexes: those in the smallest free blocks first."""
        for block in sorted(block for block in self._free if block >= slots):
            for holder in sorted(self._free[block]):
                yield from range(holder, holder + block, slots)

    def is_free(self, base: int, slots: int) -> bool:
        """Return whether `slots` indexes from `base`, a multiple of `slots`, are free."""
        return any(base - base % block in bases for block, bases in self._free.items() if block >= slots)

    def reserve(self, base: int, slots: int) -> None:
        """Allocate a given range, for a live job in the store.

        Raises:
            NoRoom: it is not completely free, or not aligned.

        """
        _require_range_size(slots)
        for block, bases in self._free.items():
            holder = base - base % block
            if block >= slots and base % slots == 0 and holder in bases:
                self._take(holder, block, slots, base)
                return
        raise NoRoom(f"slots {base} to {base + slots - 1} of {self.size} are not free", base=base, slots_asked=slots)

    def free(self, base: int) -> None:
        """Free the range that starts at `base`, and merge it with free neighbours.

        Raises:
            KeyError: no range in use starts there.

        """
        block = self._used.pop(base)
        while (base ^ block) in self._free.get(block, ()) and (base & ~block) + 2 * block <= self.size:
            self._free[block].remove(base ^ block)
            base &= ~block
            block *= 2
        self._free.setdefault(block, set()).add(base)

    def _take(self, holder: int, block: int, slots: int, base: int) -> None:
        self._free[block].remove(holder)
        while block > slots:
            block //= 2
            other = holder if base >= holder + block else holder + block
            holder = holder + block if base >= holder + block else holder
            self._free.setdefault(block, set()).add(other)
        self._used[base] = slots


class SlotPools:
    """The pool indexes of all switches."""

    def __init__(self) -> None:
        self._pools: dict[str, SlotAllocator] = {}  # by switch

    def of(self, switch: ManagedSwitch) -> SlotAllocator:
        """Return the pool of one switch."""
        if switch.name not in self._pools:
            self._pools[switch.name] = SlotAllocator(switch.driver.capabilities.slots)
        return self._pools[switch.name]

    def allocate(self, switches: Sequence[ManagedSwitch], slots: int) -> int:
        """Allocate the same `slots` indexes, a power of two, on each of these switches; return the first one.

        Raises:
            NoRoom: no range of this length is free on all of them.

        """
        if len(switches) == 1:
            return self.of(switches[0]).allocate(slots)
        pools = [self.of(switch) for switch in switches]
        for base in pools[0].free_bases(slots):
            if all(pool.is_free(base, slots) for pool in pools):
                for pool in pools:
                    pool.reserve(base, slots)
                return base
        rooms = "; ".join(f"{switch.name}: {pool.room}" for switch, pool in zip(switches, pools, strict=True))
        raise NoRoom(
            f"{slots} slots asked, and no such range is free on all switches of the tree ({rooms}); ask for fewer or"
            " stop a job",
            slots_asked=slots,
            slots_free=min(pool.free_slots for pool in pools),
            largest_free_range=min(pool.largest_free_range for pool in pools),
        )

    def reserve(self, places: Iterable[JobSwitch], values_per_packet: int, switches: Switches) -> None:
        """Allocate the slots that a job held before a restart of the controller: all of them, or none if this raises.

        Raises:
            SwitchNotFound, InvalidRequest, NoRoom: a switch has changed.

        """
        with contextlib.ExitStack() as undo:
            for place in places:
                switch = switches.get(place.switch)
                values = switch.driver.capabilities.values_per_packet
                if values != values_per_packet:
                    raise NoRoom(f"switch {place.switch} has {values} values per packet, not {values_per_packet}")
                pool = self.of(switch)
                pool.reserve(place.slot_base, place.slots)
                undo.callback(pool.free, place.slot_base)
            undo.pop_all()

    def free(self, places: Iterable[JobSwitch]) -> None:
        """Free the slots that a job held on its switches."""
        for place in places:
            self._pools[place.switch].free(place.slot_base)


def _require_range_size(slots: int) -> None:
    assert is_power_of_two(slots), slots
    assert slots >= MINIMUM_SLOTS, slots
