"""Calls whose values the ranks of one machine add up themselves; conftest.py runs the tests of collectives so, too."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.dataplane.constants import Verdict
from tests.support.collective_harness import DEADLINE, Fabric, running_fabric

VALUES = 64
SIZES = (1, 65, 3000, 200_000)

Floats = npt.NDArray[np.float32]


@pytest.fixture
def transport() -> str:
    return "direct"


def floats(rank: int, size: int) -> Floats:
    return np.random.default_rng((rank, size)).standard_normal(size).astype(np.float32)


def sums(comm: switchml.Communicator) -> list[Floats]:
    arrays = [floats(comm.rank, size) for size in SIZES]
    for array in arrays:
        comm.all_reduce(array)
    comm.barrier()
    part = np.empty(SIZES[-1], np.float32)
    comm.reduce_scatter(np.tile(floats(comm.rank, SIZES[-1]), comm.world_size), part)
    whole = np.empty(comm.world_size * SIZES[1], np.float32)
    comm.all_gather(floats(comm.rank, SIZES[1]), whole)
    sent = floats(comm.rank, SIZES[1])
    comm.broadcast(sent, root=1)
    return [*arrays, part, whole, sent]


def contributions(fabric: Fabric) -> int:
    return sum(fabric.verdicts().values())


def test_the_switch_has_no_part_in_direct_calls(tmp_path: Path) -> None:
    """Ranks without it send their values to the switch; the bits are the same."""
    results = []
    for transport in ("direct", "shm"):
        directory = tmp_path / transport
        directory.mkdir()
        with running_fabric(directory, VALUES, transport=transport) as fabric:
            fabric.add_job(1, 3)
            results.append(fabric.run_ranks(3, sums))
            assert (contributions(fabric) == 0) == (transport == "direct")
    for direct, over_switch in zip(*results, strict=True):
        assert [array.tobytes() for array in direct] == [array.tobytes() for array in over_switch]


def test_one_rank_without_direct_calls(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric.add_job(1, 2)
    first = fabric.connect(0)
    monkeypatch.setenv("SWITCHML_DIRECT", "0")
    with first, fabric.connect(1) as second, ThreadPoolExecutor(2) as pool:
        one, other = pool.map(sums, (first, second))
    for array, same, size in zip(one, other, SIZES, strict=False):
        np.testing.assert_array_equal(array, same)
        np.testing.assert_allclose(array, floats(0, size) + floats(1, size), rtol=1e-5, atol=1e-5)
    assert fabric.verdicts()[Verdict.COMPLETED] > 0


def test_both_kinds_of_calls_in_flight(fabric: Fabric) -> None:
    """Direct calls and others end in the order in which they were made, whatever the waits."""
    world_size, rounds = 3, 40

    def run(comm: switchml.Communicator) -> None:
        works = []
        for number in range(rounds):
            direct = np.full(1 + 700 * number, comm.rank + number, np.float32)
            over_switch = np.full(1 + 50 * number, comm.rank + number, np.int16)
            shared = np.full(10, comm.rank, np.int64)
            for array, work in (
                (direct, comm.all_reduce(direct, async_op=True)),
                (over_switch, comm.all_reduce(over_switch, async_op=True, wire=switchml.Integers(bits=16, bound=100))),
                (shared, comm.broadcast(shared, root=number % world_size, async_op=True)),
            ):
                works.append((number, array, work))
            if number % (comm.rank + 2) == 0:
                works[-1][2].wait()
        comm.barrier()
        for number, array, work in works:
            work.wait()
            expected = number % world_size if array.dtype == np.int64 else 3 + world_size * number
            np.testing.assert_array_equal(array, np.full(len(array), expected, array.dtype))

    fabric.add_job(1, world_size)
    fabric.run_ranks(world_size, run)


@pytest.mark.parametrize("late", [0, 1])
def test_a_direct_call_that_another_rank_makes_over_the_switch(fabric: Fabric, late: int) -> None:
    """Each rank makes its call first once; either way all ranks are told of both calls."""
    fabric.add_job(1, 2)
    made = threading.Event()

    def run(comm: switchml.Communicator) -> str:
        comm.all_reduce(np.ones(10, np.float32))
        comm.all_reduce(np.ones(10, np.int16), wire=switchml.Integers(bits=8, bound=1))
        if comm.rank == late:
            assert made.wait(DEADLINE)
        array = np.ones(10, np.float32)
        work = comm.all_reduce(array, async_op=True, wire=switchml.Blocks(bits=32 - 16 * comm.rank))
        made.set()
        with pytest.raises(switchml.CollectiveMismatch) as raised:
            work.wait()
        return str(raised.value)

    for message in fabric.run_ranks(2, run):
        assert "rank 0: call 2, all_reduce (sum" in message
        assert "rank 1: call 2, all_reduce (sum as" in message


def test_a_call_that_is_out_of_time_names_the_late_rank_which_cannot_complete_it(fabric: Fabric) -> None:
    """An earlier call is complete, so that contributions and results are told apart."""
    fabric.add_job(1, 2)
    with fabric.connect(0) as first, fabric.connect(1) as late, ThreadPoolExecutor(2) as pool:
        list(pool.map(sums, (first, late)))
        with pytest.raises(switchml.CollectiveTimeout, match="rank 1 had not taken part") as raised:
            first.all_reduce(np.ones(10, np.float32), timeout=0.3)
        assert raised.value.ranks == (1,)
        with pytest.raises(switchml.SwitchMLError):
            late.all_reduce(np.ones(10, np.float32), timeout=0.3)
