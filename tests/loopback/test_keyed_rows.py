"""Sums of rows by their keys, end to end, compared with numpy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ml_dtypes import bfloat16

import switchml
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # per packet
DIMENSION = 24  # so that rows are cut by packets
TABLE = 5000  # rows

Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]
KEYS = ("random", "all", "none", "one rank", "empty")


@pytest.fixture(params=["udp", "shm", "direct"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path, VALUES, transport=request.param) as running:
        yield running


def keys_of(rank: int, world_size: int, case: str) -> Keys:
    """Return a rank's keys: `random` ones, the same at `all` ranks, disjoint ones (`none`), or only at `one rank`."""
    generator = np.random.default_rng((11, 0 if case == "all" else rank))
    if case == "empty" or (case == "one rank" and rank != 1):
        return np.empty(0, np.int64)
    if case == "none":
        return np.arange(rank, TABLE, 3 * world_size, dtype=np.int64)
    return np.sort(generator.permutation(TABLE)[: 200 + (0 if case == "all" else 50 * rank)]) + (1 << 40)


def rows_of(rank: int, keys: Keys, dtype: type[np.generic]) -> Rows:
    generator = np.random.default_rng((12, rank))
    return generator.integers(-1000, 1000, (len(keys), DIMENSION)).astype(dtype)


def expected_sums(world_size: int, case: str, dtype: type[np.generic]) -> tuple[Keys, Rows]:
    """Return the exact sums: rows are integers, which all of the dtypes hold."""
    parts = [keys_of(rank, world_size, case) for rank in range(world_size)]
    union = np.unique(np.concatenate(parts))
    sums = np.zeros((len(union), DIMENSION), np.int64)
    for rank, keys in enumerate(parts):
        sums[np.searchsorted(union, keys)] += rows_of(rank, keys, dtype).astype(np.int64)
    return union, sums


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_sums_are_those_of_numpy(fabric: Fabric, world_size: int) -> None:
    def run(comm: switchml.Communicator) -> list[tuple[Keys, Rows]]:
        results = []
        for case in KEYS:
            for dtype in (np.float32, np.int32):
                keys = keys_of(comm.rank, world_size, case)
                rows = rows_of(comm.rank, keys, dtype)
                before = rows.copy()
                results.append(comm.sparse_all_reduce(keys, rows))
                np.testing.assert_array_equal(rows, before)
        return results

    fabric.add_job(1, world_size)
    expected = [expected_sums(world_size, case, dtype) for case in KEYS for dtype in (np.float32, np.int32)]
    for results in fabric.run_ranks(world_size, run):
        for (ids, rows), (union, sums) in zip(results, expected, strict=True):
            assert ids.dtype == np.int64
            np.testing.assert_array_equal(ids, union)
            assert rows.shape == sums.shape
            np.testing.assert_allclose(rows, sums, rtol=0, atol=1e-4)


def test_ranks_get_the_same_bits(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> bytes:
        keys = keys_of(comm.rank, 3, "random")
        rows = np.random.default_rng(comm.rank).standard_normal((len(keys), DIMENSION)).astype(np.float32)
        return b"".join(array.tobytes() for array in comm.sparse_all_reduce(keys, rows, "avg"))

    fabric.add_job(1, 3)
    assert len(set(fabric.run_ranks(3, run))) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16])
def test_averages_divide_by_all_ranks(fabric: Fabric, dtype: type[np.generic]) -> None:
    def run(comm: switchml.Communicator) -> None:
        ids, rows = comm.sparse_all_reduce(np.array([comm.rank, 7]), np.full((2, 2), 8, dtype), "avg")
        assert ids.tolist() == [0, 1, 7]
        assert rows.dtype == dtype
        np.testing.assert_array_equal(rows, np.array([[4, 4], [4, 4], [8, 8]]))

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


@pytest.mark.parametrize("optional_values", [True, False])
def test_rows_are_summed_by_a_sparse_call(fabric: Fabric, optional_values: bool) -> None:
    """Count the sparse calls that are made as dense ones, because the pipeline needs values from every rank."""

    def run(comm: switchml.Communicator) -> int:
        ids, rows = comm.sparse_all_reduce(np.array([comm.rank]), np.ones((1, 100), np.float32))
        assert ids.tolist() == [0, 1]
        assert bool((rows == 1).all())
        return comm._membership.native.spent()["sparse_calls_dense"]

    fabric.optional_values = optional_values
    fabric.add_job(1, 2)
    assert fabric.run_ranks(2, run) == [0 if optional_values else 1] * 2


BAD = {
    "unsorted": (np.array([3, 1]), np.ones((2, 4), np.float32), ValueError, "unsorted at 0: 3, 1.*coalesce"),
    "twice": (np.array([1, 3, 3]), np.ones((3, 4), np.float32), ValueError, "twice at 1: 3, 3.*coalesce"),
    "negative": (np.array([-1, 3]), np.ones((2, 4), np.float32), ValueError, "-1 is negative"),
    "int32 ids": (np.array([1], np.int32), np.ones((1, 4), np.float32), switchml.UnsupportedTensor, "ids are int32"),
    "a matrix of ids": (np.ones((1, 1), np.int64), np.ones((1, 4), np.float32), ValueError, "one dimension"),
    "too few rows": (np.array([1, 2]), np.ones((1, 4), np.float32), ValueError, r"\(1, 4\) for 2 ids"),
    "one dimension": (np.array([1, 2]), np.ones(2, np.float32), ValueError, r"must be \(2, dimension\)"),
    "float64": (np.array([1]), np.ones((1, 4)), switchml.UnsupportedTensor, "rows are float64, not float32, float16"),
    "a list": ([1], np.ones((1, 4), np.float32), switchml.UnsupportedTensor, "list is neither"),
    "every second row": (np.array([1]), np.ones((1, 8), np.float32)[:, ::2], switchml.UnsupportedTensor, "contiguous"),
}


def test_bad_input_sends_nothing(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        for ids, rows, error, message in BAD.values():
            with pytest.raises(error, match=message):
                comm.sparse_all_reduce(ids, rows)  # type: ignore[arg-type]
        rows = np.ones((1, 4), np.int32)
        for op, message in (("avg", "int32"), ("max", 'must be "sum" or "avg"')):
            with pytest.raises((ValueError, switchml.UnsupportedTensor), match=message):
                comm.sparse_all_reduce(np.array([1]), rows, op)
        with pytest.raises(ValueError, match="positive number of seconds"):
            comm.sparse_all_reduce(np.array([1]), rows, timeout=0)
        assert comm.statistics().position == 0
        assert comm.sparse_all_reduce(np.array([1]), rows)[1].tolist() == [[2] * 4]

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


@pytest.mark.parametrize(
    ("dtype", "dimension", "op", "said"),
    [
        (np.float32, 5, "sum", "sum of rows of 5 float32"),
        (np.float16, 4, "sum", "sum of rows of 4 float16"),
        (np.float32, 4, "avg", "avg of rows of 4 float32"),
    ],
)
@pytest.mark.parametrize("keys", [0, 10])
def test_other_rows_are_a_mismatch(
    fabric: Fabric, dtype: type[np.generic], dimension: int, op: str, said: str, keys: int
) -> None:
    def run(comm: switchml.Communicator) -> None:
        shape = (keys, dimension if comm.rank else 4)
        rows = np.ones(shape, dtype if comm.rank else np.float32)
        with pytest.raises(switchml.CollectiveMismatch, match=re.escape(said)):
            comm.sparse_all_reduce(np.arange(keys), rows, op if comm.rank else "sum")

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


def test_a_dense_call_is_a_mismatch(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        calls: list[Callable[[], object]] = [
            lambda: comm.sparse_all_reduce(np.array([1]), np.ones((1, 4), np.float32)),
            lambda: comm.all_reduce(np.ones(4, np.float32)),
        ]
        with pytest.raises(switchml.CollectiveMismatch, match=r"keys for sum of rows of 4 float32.*all_reduce"):
            calls[comm.rank]()

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


def test_non_finite_values_are_named(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        rows = np.ones((2, 4), np.float32)
        rows[1, 2] = np.nan if comm.rank else 1
        with pytest.raises(switchml.NonFiniteError) as raised:
            comm.sparse_all_reduce(np.array([0, 5 + comm.rank]), rows)
        assert raised.value.indices == (2 * 4 + 2,)
        assert comm.sparse_all_reduce(np.array([3]), rows[:1])[0].tolist() == [3]

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


def test_a_rank_that_does_not_come_is_named_in_time(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        if comm.rank == 0:
            with pytest.raises(switchml.CollectiveTimeout) as raised:
                comm.sparse_all_reduce(np.array([0]), np.ones((1, 4), np.float32), timeout=0.5)
            assert raised.value.ranks == (1,)

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)
