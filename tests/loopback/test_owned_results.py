"""Reduce-scatter and all-gather with results that have values only in the copies for ranks that read them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # words per packet
POOL = 16
HEADER = PROTOCOL_HEADER_BYTES
PACKET = HEADER + 4 * VALUES
Array = npt.NDArray[Any]

CASES = [
    *((dtype, None) for dtype in ("f4", "f2", "i8", "i4", "?", ml_dtypes.bfloat16)),
    ("i1", switchml.Integers(16)),
    ("u1", switchml.Integers(16)),
    ("f4", switchml.Blocks(16)),
    ("f4", switchml.Blocks(8)),
]


def values_of(dtype: np.dtype[Any], rank: int, size: int) -> Array:
    """Return values whose sums over 8 ranks fit every dtype."""
    random = np.random.default_rng((rank, size))
    if dtype.kind == "b":
        return random.integers(0, 2, size).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, 12, size).astype(dtype) << (40 if dtype.itemsize == 8 else 0)
    return random.standard_normal(size).astype(dtype)


def add_agents(fabric: Fabric, transports: list[str]) -> None:
    """Add agents, one of which the fabric has already."""
    for transport in transports[1:]:
        fabric.add_agent(transport)


def path_counters(fabric: Fabric, rank: int) -> Array:
    """Return the bytes that a rank, alone at its agent, has sent and received, and its retransmissions."""
    handle = fabric.call(lambda: fabric.agents[rank].agent.jobs[1].ranks[rank].handle)
    assert handle is not None
    profile, status = fabric.engines[rank].profile(handle, 0), fabric.engines[rank].status(handle)
    again = status["retransmissions"] + status["fast_retransmissions"]
    return np.array([profile["sent_bytes"], profile["received_bytes"], again])


@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("owned", [True, False])
def test_bytes_in_each_direction(tmp_path: Path, world_size: int, owned: bool) -> None:
    size = 5 * VALUES + 7  # elements of a part

    def run(comm: switchml.Communicator) -> list[Array]:
        counted = [path_counters(fabric, comm.rank)]
        for dtype, wire in (("i4", None), ("f4", None), ("f4", switchml.Blocks(16))):
            whole = values_of(np.dtype(dtype), comm.rank, size * world_size)
            comm.reduce_scatter(whole, np.zeros(size, dtype), wire=wire)
            counted.append(path_counters(fabric, comm.rank))
        return list(np.diff(counted, axis=0))

    def compare(counted: Array, words: int, exponents: int) -> None:
        """Compare the counters of a rank during one call, whose parts take this number of words."""
        of_part = -(-words // VALUES)
        chunks = world_size * of_part
        sent, received, again = counted
        assert received == (chunks + exponents) * HEADER + (of_part if owned else chunks) * 4 * VALUES
        # The rank's own part stays with it. On a busy machine a packet may be sent again although it was not lost.
        assert 0 <= sent - (chunks + exponents) * HEADER - (chunks - of_part) * 4 * VALUES <= again * PACKET

    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.owned_results = owned
        add_agents(fabric, ["udp"] * world_size)
        fabric.add_job(1, world_size, slots=POOL)
        for counted in fabric.run_ranks(world_size, run):
            # The first chunk in each slot needs a packet without values, to agree on its exponent.
            integers, floats, halves = counted
            compare(integers, size, 0)
            compare(floats, size, min(POOL, 6 * world_size))
            compare(halves, -(-size // 2), min(POOL, 3 * world_size))


@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("owned", [True, False])
def test_bytes_of_an_all_gather(tmp_path: Path, world_size: int, owned: bool) -> None:
    of_part = 5
    size = (of_part - 1) * VALUES + 7  # elements of a part

    def run(comm: switchml.Communicator) -> Array:
        before = path_counters(fabric, comm.rank)
        gathered = np.zeros((world_size, size), np.int32)
        comm.all_gather(np.full(size, comm.rank, np.int32), gathered)
        assert (gathered == np.arange(world_size)[:, None]).all()
        return path_counters(fabric, comm.rank) - before

    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.owned_results = owned
        add_agents(fabric, ["udp"] * world_size)
        fabric.add_job(1, world_size, slots=POOL)
        chunks = world_size * of_part
        for sent, received, again in fabric.run_ranks(world_size, run):
            assert received == chunks * HEADER + (chunks - (of_part if owned else 0)) * 4 * VALUES
            assert 0 <= sent - chunks * HEADER - of_part * 4 * VALUES <= again * PACKET


def results(fabric: Fabric, world_size: int, faults: float) -> list[list[bytes]]:
    """Return the bytes of each rank's results of all cases."""
    fabric.switch.set_faults(fabric.port, faults, faults, faults, 7)

    def run(comm: switchml.Communicator) -> list[bytes]:
        found = []
        for dtype, wire in CASES:
            works = []
            for size in (1, VALUES, 777):
                whole = values_of(np.dtype(dtype), comm.rank, size * world_size)
                result = np.zeros(size, dtype)
                works.append((comm.reduce_scatter(whole, result, async_op=True, wire=wire), result))
            for work, result in works:
                work.wait()
                found.append(result.tobytes())
        comm.barrier()
        return found

    return fabric.run_ranks(world_size, run)


@pytest.mark.parametrize("faults", [0, 0.02, 0.1])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_results_have_the_same_bits_as_if_all_ranks_had_the_values(
    tmp_path: Path, world_size: int, faults: float
) -> None:
    found = []
    for owned in (False, True):
        place = tmp_path / str(owned)
        place.mkdir()
        with running_fabric(place, VALUES) as fabric:
            fabric.owned_results = owned
            add_agents(fabric, ["udp"] * world_size)
            fabric.add_job(1, world_size)
            found.append(results(fabric, world_size, faults if owned else 0))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("transports", "world_size"),
    [(["udp", "udp"], 4), (["udp", "shm"], 4), (["shm", "udp", "udp"], 5), (["shm"], 3), (["udp"], 3)],
)
def test_owners_share_an_agent_or_memory_with_the_switch(
    tmp_path: Path, transports: list[str], world_size: int
) -> None:
    found = []
    for owned in (False, True):
        place = tmp_path / str(owned)
        place.mkdir()
        with running_fabric(place, VALUES, transport=transports[0]) as fabric:
            fabric.owned_results = owned
            add_agents(fabric, transports)
            fabric.add_job(1, world_size)
            found.append(results(fabric, world_size, 0.02 if owned else 0))
    assert found[0] == found[1]


def test_an_ip_multicast_group_gets_all_values(tmp_path: Path) -> None:
    with running_fabric(tmp_path, VALUES) as fabric:
        add_agents(fabric, ["udp"] * 3)
        fabric.add_job(1, 3, multicast="239.192.0.1")
        size = 1000
        expected = np.sum([values_of(np.dtype("i4"), rank, 3 * size) for rank in range(3)], axis=0)

        def run(comm: switchml.Communicator) -> None:
            result = np.zeros(size, np.int32)
            comm.reduce_scatter(values_of(np.dtype("i4"), comm.rank, 3 * size), result)
            np.testing.assert_array_equal(result, expected[comm.rank * size : (comm.rank + 1) * size])

        fabric.run_ranks(3, run)


def test_nan_is_named_at_all_ranks(tmp_path: Path) -> None:
    with running_fabric(tmp_path, VALUES) as fabric:
        add_agents(fabric, ["udp"] * 3)
        fabric.add_job(1, 3)

        def run(comm: switchml.Communicator) -> None:
            whole = np.ones(300, np.float32)
            if comm.rank == 0:
                whole[150] = np.nan
            result = np.zeros(100, np.float32)
            with pytest.raises(switchml.NonFiniteError) as raised:
                comm.reduce_scatter(whole, result)
            assert raised.value.indices == (150,)
            assert [int(i) for i in np.flatnonzero(result != 3)] == ([50] if comm.rank == 1 else [])

        fabric.run_ranks(3, run)


@pytest.mark.parametrize("odd", [0, 2])
def test_ranks_that_make_another_call_are_named(tmp_path: Path, odd: int) -> None:
    with running_fabric(tmp_path, VALUES) as fabric:
        add_agents(fabric, ["udp"] * 3)
        fabric.add_job(1, 3)

        def run(comm: switchml.Communicator) -> None:
            whole, result = np.ones(3 * 1000, np.int32), np.zeros(1000, np.int32)
            call = partial(comm.all_reduce, whole)
            if comm.rank != odd:
                call = partial(comm.reduce_scatter, whole, result)
            with pytest.raises(switchml.CollectiveMismatch):
                call()

        fabric.run_ranks(3, run)
