"""All-reduce of int64 in as many words as the values of a packet need, end to end as in test_collectives.py."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import switchml
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # words per packet
SIZES = (0, 1, 63, 64, 65, 1000)
LIMITS = np.iinfo(np.int64)
Longs = npt.NDArray[np.int64]


def longs(rank: int, size: int, bits: int) -> Longs:
    """Return integers from -2^bits to 2^bits - 1."""
    generator = np.random.default_rng((rank, size, bits))
    return generator.integers(-(2**bits), 2**bits - 1, size, np.int64, endpoint=True)


def sum_of(contributions: list[Longs]) -> Longs:
    """Return the sum modulo 2^64, computed without int64."""
    columns = zip(*(values.tolist() for values in contributions), strict=True)
    return np.array([(sum(column) + 2**63) % 2**64 - 2**63 for column in columns], np.int64)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_sums_are_exact_and_take_the_words_that_they_need(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)
    headroom = (world_size - 1).bit_length()
    words_of = {0: 1, 31 - headroom: 1, 32 - headroom: 2, 63 - 2 * headroom: 2, 63: 3 if world_size > 1 else 2}

    def contribution(rank: int, size: int, bits: int) -> Longs:
        values = longs(rank, size, bits)
        values[::VALUES] = -(2**bits)  # each packet has one of the largest
        return values

    def run(comm: switchml.Communicator) -> list[Longs]:
        arrays = [contribution(comm.rank, size, bits) for size, bits in itertools.product(SIZES, words_of)]
        works = [comm.all_reduce(array, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        expected = [4 * size * words for size, words in itertools.product(SIZES, words_of.values())]
        assert fabric.one_port or [work.wire_bytes for work in works] == expected
        return arrays

    results = fabric.run_ranks(world_size, run)
    for index, (size, bits) in enumerate(itertools.product(SIZES, words_of)):
        expected = sum_of([contribution(rank, size, bits) for rank in range(world_size)])
        for result in results:
            np.testing.assert_array_equal(result[index], expected)


def test_the_rank_with_the_largest_magnitude_decides(fabric: Fabric) -> None:
    fabric.add_job(1, 3)

    def contribution(rank: int, number: int) -> Longs:
        return longs(rank, 40 * VALUES, (0, 5, 30, 31, 58, 63)[(number + 2 * rank) % 6])

    def run(comm: switchml.Communicator) -> list[Longs]:
        arrays = [contribution(comm.rank, number) for number in range(6)]
        for array in arrays:
            comm.all_reduce(array)
        return arrays

    results = fabric.run_ranks(3, run)
    for number in range(6):
        expected = sum_of([contribution(rank, number) for rank in range(3)])
        for result in results:
            np.testing.assert_array_equal(result[number], expected)


def test_any_values_are_summed_modulo_2_to_the_64(fabric: Fabric) -> None:
    jobs = itertools.count(1)

    @settings(max_examples=30)
    @given(
        shifts=st.tuples(*[st.integers(0, 63)] * 3),
        values=st.lists(st.tuples(*[st.integers(LIMITS.min, LIMITS.max)] * 3), min_size=1, max_size=3 * VALUES),
    )
    def check(shifts: tuple[int, ...], values: list[tuple[int, ...]]) -> None:
        job = next(jobs)
        fabric.add_job(job, 3, slots=8)
        contributions = [np.array([row[rank] >> shifts[rank] for row in values], np.int64) for rank in range(3)]

        def run(comm: switchml.Communicator) -> Longs:
            array: Longs = contributions[comm.rank].copy()
            comm.all_reduce(array)
            return array

        for result in fabric.run_ranks(3, run, job):
            np.testing.assert_array_equal(result, sum_of(contributions))

    check()


def test_faults_do_not_change_a_bit(tmp_path: Path, transport: str) -> None:
    """Lose, duplicate and reorder packets of chunks with one, two and three phases of values."""

    def contribution(rank: int, size: int) -> Longs:
        values = longs(rank, size, 63)
        values >>= np.repeat(np.arange(-(-size // 100)) * (rank + 7) % 64, 100)[:size]  # another range every 100 values
        return values

    def run(comm: switchml.Communicator) -> list[Longs]:
        arrays = [contribution(comm.rank, size) for size in (1, 257, 60_000)]
        for array in arrays:
            comm.all_reduce(array)
        return arrays

    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, 0.02, 0.02, 0.02, 7)
        fabric.add_job(1, 4)
        results = fabric.run_ranks(4, run)
        counters = fabric.switch.port_counters(fabric.port)
    for index, size in enumerate((1, 257, 60_000)):
        expected = sum_of([contribution(rank, size) for rank in range(4)])
        for result in results:
            np.testing.assert_array_equal(result[index], expected)
    assert counters["injected_drop"] > 0
    assert counters["injected_duplicate"] > 0


def wait_for(works: list[switchml.Work]) -> None:
    for work in works:
        work.wait()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_ranks_that_sum_other_dtypes_are_told_so(fabric: Fabric, dtype: str) -> None:
    """Also in the middle of a stream, where each rank knows an exponent that the other one took for its own dtype."""
    fabric.add_job(1, 2, slots=16)

    def run(comm: switchml.Communicator) -> None:
        before = [np.ones(VALUES, np.int64) for _ in range(64)]
        works = [comm.all_reduce(array, async_op=True) for array in before]
        array = np.full(VALUES, 1000, np.int64 if comm.rank == 0 else dtype)
        works.append(comm.all_reduce(array, async_op=True))
        # The calls that are in flight when the job fails have this error as well.
        with pytest.raises(switchml.CollectiveMismatch, match=rf"the ranks call differently.*{dtype}"):
            wait_for(works)

    fabric.run_ranks(2, run)


@pytest.mark.parametrize("wire", [switchml.Integers(16), switchml.Integers(bound=100)])
def test_lanes_and_bounds_are_refused(fabric: Fabric, wire: switchml.Wire) -> None:
    fabric.add_job(1, 1)
    with fabric.connect(0) as comm:
        array = np.ones(10, np.int64)
        with pytest.raises(ValueError, match="int64 takes as many words as the values of its packet need"):
            comm.all_reduce(array, wire=wire)
        assert comm.statistics().position == 0
        assert array.tolist() == [1] * 10
