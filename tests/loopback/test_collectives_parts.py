"""Reduce-scatter and all-gather through an unchanged switch: library, shared memory, engine, packets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import switchml
from tests.support.collective_harness import DEADLINE, Fabric, running_fabric

VALUES = 64  # words per packet
PARTS = (0, 1, 63, 64, 65, 1000)  # elements of each rank's part
Array = npt.NDArray[Any]


def values_of(dtype: np.dtype[Any], rank: int, size: int) -> Array:
    """Return values whose sums over 8 ranks fit every dtype."""
    random = np.random.default_rng((rank, size))
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, 12, size).astype(dtype) << (40 if dtype.itemsize == 8 else 0)
    return random.standard_normal(size).astype(dtype)


def part(array: Array, rank: int, world_size: int) -> Array:
    return array[rank * array.size // world_size : (rank + 1) * array.size // world_size]


CASES = [
    *((dtype, "sum", None) for dtype in ("f4", "f2", "i8", "i4", "i2", "?")),
    ("f4", "avg", None),
    (ml_dtypes.bfloat16, "avg", None),
    ("i1", "sum", switchml.Integers(16)),
    ("u1", "sum", switchml.Integers(16)),
    ("f4", "sum", switchml.Blocks(16)),
    ("f4", "avg", switchml.Blocks(8)),
]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_each_rank_gets_the_bits_of_an_all_reduce_of_its_part(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> None:
        for dtype, op, wire in CASES:
            for size in PARTS:
                whole = values_of(np.dtype(dtype), comm.rank, size * world_size)
                expected = whole.copy()
                for owner in range(world_size):
                    comm.all_reduce(part(expected, owner, world_size), op, wire=wire)
                given = whole.copy()
                given.flags.writeable = False
                result = np.full(size, 7, dtype)
                work = comm.reduce_scatter(given, result, op, async_op=True, wire=wire)
                work.wait()
                assert result.tobytes() == part(expected, comm.rank, world_size).tobytes(), (dtype, op, wire, size)
                assert given.tobytes() == whole.tobytes()
                bits = getattr(wire, "bits", 32)
                keeps_own = comm.optional_values and not comm.shares_memory and world_size > 1
                if dtype != "i8" and not fabric.one_port:
                    assert work.wire_bytes == (world_size - keeps_own) * 4 * -(-size * bits // 32)
                comm.reduce_scatter(whole, part(whole, comm.rank, world_size), op, wire=wire)
                assert part(whole, comm.rank, world_size).tobytes() == result.tobytes()

    fabric.run_ranks(world_size, run)


def test_whole_packets_have_the_bits_of_an_all_reduce_of_the_input(fabric: Fabric) -> None:
    fabric.add_job(1, 4)

    def run(comm: switchml.Communicator) -> None:
        whole = values_of(np.dtype("f4"), comm.rank, 4 * 6 * VALUES)
        result = np.zeros(6 * VALUES, np.float32)
        for wire in (None, switchml.Blocks(16, "stochastic", 5)):
            comm.barrier()
            scattered = comm.reduce_scatter(whole, result, async_op=True, wire=wire)
            scattered.wait()
            reduced = whole.copy()
            comm.all_reduce(reduced, wire=wire)
            if wire is None:  # the number of a call chooses the random numbers
                assert result.tobytes() == part(reduced, comm.rank, 4).tobytes()
            else:
                np.testing.assert_allclose(result, part(reduced, comm.rank, 4), atol=4e-2)

    fabric.run_ranks(4, run)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_all_gather_is_exact_for_any_dtype(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> None:
        for dtype in ("f4", "f8", "u1", "i2", "c16", "S3", ml_dtypes.bfloat16):
            for size in PARTS:
                items = np.dtype(dtype).itemsize
                raw = [np.random.default_rng(rank).bytes(size * items) for rank in range(world_size)]
                given = np.frombuffer(raw[comm.rank], dtype)  # read-only, also NaN payloads
                result = np.zeros(size * world_size, dtype)
                work = comm.all_gather(given, result, async_op=True)
                work.wait()
                assert result.tobytes() == b"".join(raw)
                if not fabric.one_port:  # the others' parts take packets without values
                    assert work.wire_bytes == 4 * -(-size * items // 4)
                within = np.zeros(size * world_size, dtype)
                part(within, comm.rank, world_size)[:] = given
                comm.all_gather(part(within, comm.rank, world_size), within)
                assert within.tobytes() == result.tobytes()

    fabric.run_ranks(world_size, run)


def test_parts_survive_loss(tmp_path: Path, transport: str) -> None:
    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, 0.01, 0.01, 0.01, 7)
        fabric.add_job(1, 3)

        def run(comm: switchml.Communicator) -> None:
            for repetition in range(3):
                whole = np.arange(3 * 5000, dtype=np.int32) * (comm.rank + 1) + repetition
                result, gathered = np.zeros(5000, np.int32), np.zeros(3 * 5000, np.int32)
                works = [
                    comm.reduce_scatter(whole, result, async_op=True),
                    comm.all_gather(part(whole, comm.rank, 3), gathered, async_op=True),
                ]
                for work in works:
                    work.wait()
                expected = np.arange(3 * 5000, dtype=np.int32)
                np.testing.assert_array_equal(result, part(expected * 6 + 3 * repetition, comm.rank, 3))
                np.testing.assert_array_equal(gathered, expected * np.repeat([1, 2, 3], 5000) + repetition)

        fabric.run_ranks(3, run)
        assert fabric.switch.port_counters(fabric.port)["injected_drop"] > 0


def test_nan_is_named_at_all_ranks_and_stays_in_its_part(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        whole = np.ones(200, np.float32)
        if comm.rank == 0:
            whole[150] = np.nan
        result = np.zeros(100, np.float32)
        with pytest.raises(switchml.NonFiniteError, match="index 150 of the flattened array") as raised:
            comm.reduce_scatter(whole, result)
        assert raised.value.indices == (150,)
        assert [int(i) for i in np.flatnonzero(result != 2)] == ([] if comm.rank == 0 else [50])

    fabric.run_ranks(2, run)


def test_what_cannot_be_divided_is_refused_before_anything_is_sent(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        ten, five = np.ones(10, np.float32), np.ones(5, np.float32)
        refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
            (ValueError, "input has 10 elements", lambda: comm.reduce_scatter(ten, ten.copy())),
            (ValueError, "input has 5 elements", lambda: comm.reduce_scatter(five, five[:2])),
            (ValueError, "one dtype", lambda: comm.reduce_scatter(ten, five.astype(np.float16))),
            (ValueError, "not the part of rank", lambda: comm.reduce_scatter(ten, ten[1:6])),
            (ValueError, "not the part of rank", lambda: comm.reduce_scatter(ten, part(ten, 1 - comm.rank, 2))),
            (ValueError, "op is", lambda: comm.reduce_scatter(ten, five, "max")),
            (TypeError, "write wire=Blocks", lambda: comm.reduce_scatter(ten, five, wire_bits=7)),  # type: ignore[call-overload]
            (
                ValueError,
                "beyond the bound",
                lambda: comm.reduce_scatter(
                    np.array([1, 9], np.int8), np.ones(1, np.int8), wire=switchml.Integers(8, 3)
                ),
            ),
            (
                switchml.UnsupportedTensor,
                "reduce_scatter .* not complex64",
                lambda: comm.reduce_scatter(ten.astype(np.complex64), five.astype(np.complex64)),
            ),
            (
                switchml.UnsupportedTensor,
                "read-only",
                lambda: comm.reduce_scatter(ten, np.frombuffer(five.tobytes(), np.float32)),
            ),
            (ValueError, "output has 5 elements", lambda: comm.all_gather(five.copy(), five)),
            (ValueError, "one dtype", lambda: comm.all_gather(five.astype(np.int32), ten)),
            (ValueError, "not the part of rank", lambda: comm.all_gather(part(ten, 1 - comm.rank, 2), ten)),
        ]
        for error, text, call in refused:
            with pytest.raises(error, match=text):
                call()
        comm.all_gather(five, ten)  # the communicator remains usable

    fabric.run_ranks(2, run)


def test_inputs_may_be_shared_by_calls_in_flight_but_not_written(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    looked = threading.Event()

    def run(comm: switchml.Communicator) -> None:
        given = np.full(1000, comm.rank + 1, np.float32)
        results = [np.zeros(500, np.float32) for _ in range(2)]
        if comm.rank == 1:
            assert looked.wait(DEADLINE)
        works = [comm.reduce_scatter(given, result, async_op=True) for result in results]
        if comm.rank == 0:  # the other rank has not called, so both calls are in flight
            calls: list[Callable[[], object]] = [
                *(lambda: comm.all_reduce(given[:1]), lambda: comm.reduce_scatter(given, results[0]))
            ]
            for call in calls:
                with pytest.raises(ValueError, match="has not ended"):
                    call()
            looked.set()
        for work, result in zip(works, results, strict=True):
            work.wait()
            assert (result == 3).all()

    fabric.run_ranks(2, run)
