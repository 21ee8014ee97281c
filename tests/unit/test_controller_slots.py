import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchml.controller.admission.slots import SlotAllocator, SlotPools
from switchml.controller.config import SwitchConfig
from switchml.controller.drivers import Capabilities
from switchml.controller.errors import NoRoom
from switchml.controller.records import JobSwitch
from switchml.controller.switches import ManagedSwitch
from switchml.dataplane.targets import SOFT
from tests.unit.recording_driver import RecordingDriver


def test_ranges_are_aligned_and_lowest_first() -> None:
    slots = SlotAllocator(1024)
    assert [slots.allocate(n) for n in (2, 256, 128, 2)] == [0, 256, 128, 2]
    assert slots.free_slots == 1024 - 388
    assert slots.largest_free_range == 512


def test_refusal_has_the_figures() -> None:
    slots = SlotAllocator(1024)
    slots.allocate(512)
    slots.allocate(256)
    with pytest.raises(NoRoom) as caught:
        slots.allocate(512)
    assert caught.value.figures == {
        "slots_asked": "512",
        "slots_free": "256",
        "largest_free_range": "256",
        "slots": "1024",
    }
    assert "512 slots asked, 256 of 1024 free" in str(caught.value)


def test_freed_neighbours_merge() -> None:
    slots = SlotAllocator(64)
    bases = [slots.allocate(8) for _ in range(8)]
    with pytest.raises(NoRoom):
        slots.allocate(2)
    for base in bases[::2] + bases[1::2]:
        slots.free(base)
    assert slots.allocate(64) == 0


def test_a_size_that_is_no_power_of_two() -> None:
    slots = SlotAllocator(100)  # 64 + 32 + 4
    assert (slots.free_slots, slots.largest_free_range) == (100, 64)
    assert [slots.allocate(n) for n in (32, 64, 4)] == [64, 0, 96]
    for base in (0, 64, 96):
        slots.free(base)
    assert (slots.free_slots, slots.largest_free_range) == (100, 64)


def pools_of(*sizes: int) -> tuple[SlotPools, list[ManagedSwitch]]:
    switches = [
        ManagedSwitch(
            SwitchConfig(name=f"s{number}", target=SOFT, address="127.0.0.1", p4runtime="x:1", slots=size),
            SoftDriver(size),
        )
        for number, size in enumerate(sizes)
    ]
    return SlotPools(), switches


class SoftDriver(RecordingDriver):
    def __init__(self, slots: int) -> None:
        super().__init__([])
        self.slots = slots

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(values_per_packet=64, slots=self.slots)


def test_a_range_that_is_free_on_all_switches() -> None:
    pools, switches = pools_of(64, 128, 64)
    pools.of(switches[0]).reserve(0, 16)
    pools.of(switches[1]).reserve(16, 8)
    pools.of(switches[2]).reserve(32, 8)
    assert pools.allocate(switches, 8) == 24
    assert [pools.of(switch).free_slots for switch in switches] == [40, 112, 48]
    assert pools.allocate(switches, 16) == 48
    with pytest.raises(NoRoom, match="no such range is free on all switches of the tree") as caught:
        pools.allocate(switches, 16)
    assert "s1: 96 of 128 free, the largest free range has 64" in caught.value.message
    assert caught.value.figures == {"slots_asked": "16", "slots_free": "24", "largest_free_range": "16"}
    pools.free([JobSwitch(switch.name, 1, 48, 16, 1) for switch in switches])
    assert pools.allocate(switches, 16) == 48


def test_an_odd_last_index_is_never_given() -> None:
    assert SlotAllocator(7).free_slots == 6


@pytest.mark.parametrize(("base", "slots"), [(8, 8), (0, 16), (0, 32), (8, 2), (4, 8), (32, 8)])
def test_reserve_refuses_what_is_not_free(base: int, slots: int) -> None:
    allocator = SlotAllocator(32)
    allocator.reserve(8, 8)
    with pytest.raises(NoRoom):
        allocator.reserve(base, slots)


def test_freeing_what_is_not_used_is_an_error() -> None:
    with pytest.raises(KeyError):
        SlotAllocator(8).free(0)


@settings(max_examples=200)
@given(
    size=st.integers(2, 300),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 8), st.integers(0, 50)), max_size=60),
)
def test_no_range_overlaps_and_a_rebuilt_allocator_is_the_same(size: int, steps: list[tuple[bool, int, int]]) -> None:
    slots = SlotAllocator(size)
    used: dict[int, int] = {}
    for allocate, exponent, which in steps:
        if allocate:
            asked = 1 << exponent
            largest = slots.largest_free_range
            try:
                base = slots.allocate(asked)
            except NoRoom:
                assert largest < asked
                continue
            assert asked <= largest
            assert base % asked == 0
            assert base + asked <= size
            assert all(base + asked <= other or other + length <= base for other, length in used.items())
            used[base] = asked
        elif used:
            base = sorted(used)[which % len(used)]
            slots.free(base)
            del used[base]
        assert slots.free_slots == size // 2 * 2 - sum(used.values())
    rebuilt = SlotAllocator(size)
    for base, length in used.items():
        rebuilt.reserve(base, length)
    assert (rebuilt.free_slots, rebuilt.largest_free_range) == (slots.free_slots, slots.largest_free_range)
    for base in used:
        slots.free(base)
    assert slots.largest_free_range == SlotAllocator(size).largest_free_range
