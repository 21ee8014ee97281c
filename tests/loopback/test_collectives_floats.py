"""Floats that the soft switch adds up as such: library, shared memory, engine, packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.dataplane.constants import Format
from switchml.dataplane.floats import sum_digits
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # per packet
SIZES = (1, 63, 64, 65, 5000)
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


def wide(rank: int, size: int) -> Floats:
    """Return values of very different magnitudes, some of which cancel those of other ranks."""
    random = np.random.default_rng((rank, size))
    values = (random.standard_normal(size) * np.exp2(random.integers(-40, 40, size))).astype(np.float32)
    values[::5] = (-1) ** rank * np.float32(1e20)
    return values


def assert_same_bits(result: Array, expected: Array) -> None:
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_sums_equal_the_reference(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> list[Array]:
        assert comm.adds_floats
        arrays = [wide(comm.rank, size) for size in SIZES]
        for array in arrays:
            comm.all_reduce(array, wire=switchml.Floats())
        averages = wide(comm.rank, SIZES[-1])
        comm.all_reduce(averages, "avg", wire=switchml.Floats())
        return [*arrays, averages]

    results = fabric.run_ranks(world_size, run)
    sums = [sum_digits(np.stack([wide(rank, size) for rank in range(world_size)])) for size in SIZES]
    for result in results:
        for array, expected in zip(result, [*sums, sums[-1] / np.float32(world_size)], strict=True):
            assert_same_bits(array, expected)


def test_order_duplicates_and_loss_change_no_bit(tmp_path: Path) -> None:
    world_size, size = 8, 20_000

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays = [wide(comm.rank, size) for _ in range(3)]
        for array in arrays:
            comm.all_reduce(array, wire=switchml.Floats())
        return arrays

    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.switch.set_faults(fabric.port, 0.02, 0.02, 0.02, 7)
        fabric.add_job(1, world_size)
        results = fabric.run_ranks(world_size, run)
        counters = fabric.switch.port_counters(fabric.port)
    assert counters["injected_drop"] > 0
    assert counters["injected_duplicate"] > 0
    expected = sum_digits(np.stack([wide(rank, size) for rank in range(world_size)]))
    for result in results:
        for array in result:
            assert_same_bits(array, expected)


def test_ieee_values(fabric: Fabric) -> None:
    """NaN, infinities, overflow, subnormal numbers, signed zeros and cancellation, which end no call."""
    largest, smallest = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    inf, nan = np.inf, np.nan
    contributions = np.array(
        [
            [inf, inf, nan, largest, largest, smallest, -0.0, 1e10, -inf],
            [1.0, -inf, 1.0, largest, -largest, smallest, -0.0, 1.0, -1.0],
            [1.0, 1.0, 1.0, largest, 1.0, -smallest, -0.0, -1e10, 2.0],
        ],
        np.float32,
    )
    fabric.add_job(1, 3)

    def run(comm: switchml.Communicator) -> Array:
        array: Array = contributions[comm.rank].copy()
        comm.all_reduce(array, wire=switchml.Floats())
        return array

    expected = np.array([inf, nan, nan, inf, 0.0, smallest, 0.0, 1.0, -inf], np.float32)
    for result in fabric.run_ranks(3, run):
        assert_same_bits(result, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(fabric: Fabric, dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    fabric.add_job(1, 3)

    def contribution(rank: int) -> Array:
        array: Array = np.random.default_rng(rank).standard_normal(1000).astype(half)
        return array

    def run(comm: switchml.Communicator) -> Array:
        array = contribution(comm.rank)
        comm.all_reduce(array, wire=switchml.Floats())
        return array

    sums = sum_digits(np.stack([contribution(rank).astype(np.float32) for rank in range(3)]))
    for result in fabric.run_ranks(3, run):
        np.testing.assert_array_equal(result.view(np.uint16), sums.astype(half).view(np.uint16))


def test_reduce_scatter_has_the_parts_of_an_all_reduce(fabric: Fabric) -> None:
    fabric.add_job(1, 4)
    elements = 4 * 1000

    def run(comm: switchml.Communicator) -> Array:
        output = np.empty(elements // 4, np.float32)
        comm.reduce_scatter(wide(comm.rank, elements), output, wire=switchml.Floats())
        return output

    results = fabric.run_ranks(4, run)
    expected = sum_digits(np.stack([wide(rank, elements) for rank in range(4)]))
    assert_same_bits(np.concatenate(results), expected)


def test_calls_in_blocks_and_in_floats_take_turns(fabric: Fabric) -> None:
    """The slots of a call are used by the next one in the other format, with and without values."""
    fabric.add_job(1, 2, slots=8)
    size = 3000

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays: list[Array] = []
        for turn in range(6):
            arrays += [wide(comm.rank, size), np.full(size, comm.rank + turn, np.int32)]
            comm.all_reduce(arrays[-2], wire=switchml.Floats())
            comm.all_reduce(arrays[-1])
            comm.barrier()
        return arrays

    expected = sum_digits(np.stack([wide(rank, size) for rank in range(2)]))
    for arrays in fabric.run_ranks(2, run):
        for turn in range(6):
            assert_same_bits(arrays[2 * turn], expected)
            np.testing.assert_array_equal(arrays[2 * turn + 1], 2 * turn + 1)


def test_one_rank_in_blocks_and_one_in_floats_is_a_mismatch(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        array = np.ones(1000, np.float32)
        with pytest.raises(switchml.CollectiveMismatch, match="sum as floats"):
            comm.all_reduce(array, wire=switchml.Floats() if comm.rank else switchml.Blocks())

    fabric.run_ranks(2, run)


def test_mixed_transports_share_a_job(tmp_path: Path) -> None:
    """Ranks that share memory with the switch and ranks that send packets have one sum."""
    world_size, size = 5, 5000
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.add_agent("shm")
        fabric.add_job(1, world_size)

        def run(comm: switchml.Communicator) -> Array:
            array = wide(comm.rank, size)
            comm.all_reduce(array, wire=switchml.Floats())
            return array

        results = fabric.run_ranks(world_size, run)
    expected = sum_digits(np.stack([wide(rank, size) for rank in range(world_size)]))
    for result in results:
        assert_same_bits(result, expected)


def test_what_floats_cannot_be_combined_with(fabric: Fabric) -> None:
    fabric.add_job(1, 1)

    def run(comm: switchml.Communicator) -> None:
        array = np.ones(10, np.float32)
        with pytest.raises(ValueError, match="a call over floats has no skip_zeros"):
            comm.all_reduce(array, wire=switchml.Floats(), skip_zeros=True)
        with pytest.raises(ValueError, match="not for int32"):
            comm.all_reduce(np.ones(10, np.int32), wire=switchml.Floats())
        np.testing.assert_array_equal(array, 1.0)

    fabric.run_ranks(1, run)


def test_a_switch_that_does_not_add_floats(fabric: Fabric) -> None:
    fabric.formats = [Format.INT32, Format.NATURAL8]
    fabric.add_job(1, 1)

    def run(comm: switchml.Communicator) -> None:
        array = np.ones(10, np.float32)
        assert not comm.adds_floats
        with pytest.raises(ValueError, match="the switches of this job do not add floats"):
            comm.all_reduce(array, wire=switchml.Floats())
        np.testing.assert_array_equal(array, 1.0)

    fabric.run_ranks(1, run)
