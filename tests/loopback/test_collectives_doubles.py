"""All-reduce of float64 in three words for each element, end to end as in test_collectives.py."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from tests.support.collective_harness import Fabric

VALUES = 64  # words per packet
SIZES = (0, 1, 63, 64, 65, 1000)
MOST = np.finfo(np.float64).max
Doubles = npt.NDArray[np.float64]


def contribution(rank: int, size: int) -> Doubles:
    """Return numbers of 200 binary orders of magnitude, of both signs."""
    generator = np.random.default_rng((rank, size))
    return generator.standard_normal(size) * np.exp2(generator.integers(-100, 100, size))


def bound(world_size: int, block: Doubles) -> float:
    """Return the largest difference of a sum from the exact one, before it is rounded to float64."""
    bits = (world_size - 1).bit_length()
    kept = 2 * (32 - bits) + 31 - bits - 8
    largest = np.abs(block).max(initial=0.0)
    return world_size / 2 * math.ldexp(1.0, math.frexp(float(largest))[1] - kept)


def require_near(result: Doubles, contributions: list[Doubles], divisor: int) -> None:
    world_size = len(contributions)
    for start in range(0, len(result), VALUES):
        block = np.stack([each[start : start + VALUES] for each in contributions])
        most = bound(world_size, block) / divisor
        for found, column in zip(result[start : start + VALUES], block.T, strict=True):
            exact = math.fsum(column) / divisor
            assert abs(found - exact) <= most + 2 * math.ulp(exact)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_sums_and_averages_are_within_their_bound_and_alike(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> list[Doubles]:
        sums = [contribution(comm.rank, size) for size in SIZES]
        means = [array.copy() for array in sums]
        works = [comm.all_reduce(array, async_op=True) for array in sums]
        works += [comm.all_reduce(array, "avg", async_op=True) for array in means]
        for work in works:
            work.wait()
        assert fabric.one_port or [work.wire_bytes for work in works] == [12 * size for size in SIZES] * 2
        return sums + means

    results = fabric.run_ranks(world_size, run)
    for index, size in enumerate(SIZES * 2):
        contributions = [contribution(rank, size) for rank in range(world_size)]
        require_near(results[0][index], contributions, 1 if index < len(SIZES) else world_size)
        for other in results[1:]:
            assert other[index].tobytes() == results[0][index].tobytes()


def test_parts_have_the_bits_of_their_all_reduce(fabric: Fabric) -> None:
    fabric.add_job(1, 3)

    def run(comm: switchml.Communicator) -> None:
        whole = contribution(comm.rank, 3 * 100)
        part = np.empty(100)
        comm.reduce_scatter(whole, part)
        for owner in range(3):
            expected = whole[100 * owner : 100 * (owner + 1)].copy()
            comm.all_reduce(expected)
            assert owner != comm.rank or part.tobytes() == expected.tobytes()

    fabric.run_ranks(3, run)


def test_the_largest_and_the_smallest(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        x = np.array([MOST, -MOST, 5e-324, 1.0])
        comm.all_reduce(x, "avg")
        assert x.tolist()[:2] == [MOST, -MOST]
        assert x[2:].tolist() == [0, 0], "they are below the bound of their block"
        tiny = np.array([5e-324, -5e-324, 2.5e-323])
        comm.all_reduce(tiny)
        assert tiny.tolist() == [1e-323, -1e-323, 5e-323]
        big = np.array([MOST, -MOST])
        comm.all_reduce(big)
        assert big.tolist() == [math.inf, -math.inf]

    fabric.run_ranks(2, run)


def test_elements_that_are_not_finite_are_named(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        x = np.full(200, 0.5)
        if comm.rank == 1:
            x[[7, 150]] = math.nan, math.inf
        with pytest.raises(switchml.NonFiniteError) as raised:
            comm.all_reduce(x)
        assert raised.value.indices == (7, 150)
        assert np.isnan(x[[7, 150]]).all()
        assert (np.delete(x, [7, 150]) == 1).all()
        with pytest.raises(ValueError, match="float64 takes three words; wire blocks:bits=16"):
            comm.all_reduce(x, wire=switchml.Blocks(16))
        comm.barrier()

    fabric.run_ranks(2, run)
