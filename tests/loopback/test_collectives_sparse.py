"""Sparse all-reduces end to end: they have the bits of dense ones, and only blocks with values are sent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, Verdict
from tests.support.collective_harness import DEADLINE, Fabric, running_fabric

if TYPE_CHECKING:
    from switchml.host_agent._engine import RankStatus

VALUES = 64  # per packet, and so per block
BLOCKS = 1000
SLOTS = 64
DENSITIES = (0.0, 1 / BLOCKS, 0.01, 0.1, 0.5, 1.0)
OVERLAPS = ("random", "all", "none")
ELEMENTS = BLOCKS * VALUES - 7
EMPTY_FRAME_BYTES = 14 + 20 + 8 + PROTOCOL_HEADER_BYTES  # Ethernet, IPv4, UDP

Floats = npt.NDArray[np.float32]


def blocks_of(rank: int, world_size: int, density: float, overlap: str) -> npt.NDArray[np.intp]:
    """Return the blocks in which a rank has values: the same at `all` ranks, or disjoint ones at `none`."""
    own = np.random.default_rng((7, rank)).permutation(BLOCKS)
    if overlap == "all":
        own = np.random.default_rng(7).permutation(BLOCKS)
    elif overlap == "none":
        own = np.arange(rank, BLOCKS, world_size)
    return own[: round(density * BLOCKS)]


def sparse_floats(rank: int, blocks: npt.NDArray[np.intp]) -> Floats:
    """Return values of all magnitudes in `blocks`, and some -0.0 elsewhere."""
    generator = np.random.default_rng((rank, len(blocks)))
    padded = np.where(generator.random((BLOCKS, VALUES)) < 0.01, -0.0, 0.0).astype(np.float32)
    magnitudes = np.ldexp(
        generator.random((len(blocks), VALUES)) + 0.5, generator.integers(-140, 100, (len(blocks), 1))
    )
    padded[blocks] = magnitudes * generator.choice([-1, 1], magnitudes.shape)
    return padded.reshape(-1)[:ELEMENTS]


def contributions(rank: int, world_size: int) -> list[Floats]:
    return [
        sparse_floats(rank, blocks_of(rank, world_size, density, overlap))
        for density in DENSITIES
        for overlap in OVERLAPS
    ]


def dense_sums(world_size: int, directory: Path, transport: str) -> list[Floats]:
    """Return the sums of `contributions`, made by dense calls."""

    def run(comm: switchml.Communicator) -> list[Floats]:
        arrays = contributions(comm.rank, world_size)
        for work in [comm.all_reduce(array, async_op=True) for array in arrays]:
            work.wait()
        return arrays

    directory.mkdir()
    with running_fabric(directory, VALUES, transport=transport) as fabric:
        fabric.add_job(1, world_size, slots=SLOTS)
        return fabric.run_ranks(world_size, run)[0]


@pytest.mark.parametrize("faults", [0, 0.02, 0.1])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_sparse_sums_have_the_bits_of_dense_ones(
    tmp_path: Path, transport: str, world_size: int, faults: float
) -> None:
    def run(comm: switchml.Communicator) -> list[tuple[bytes, tuple[int, int, int]]]:
        arrays = contributions(comm.rank, world_size)
        works = [comm.all_reduce(array, skip_zeros=True, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        return [(array.tobytes(), work.blocks) for array, work in zip(arrays, works, strict=True)]

    expected = dense_sums(world_size, tmp_path / "dense", transport)
    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, faults, faults, faults, 7)
        fabric.add_job(1, world_size, slots=SLOTS)
        results = fabric.run_ranks(world_size, run)
    cases = [(density, overlap) for density in DENSITIES for overlap in OVERLAPS]
    for index, (density, overlap) in enumerate(cases):
        owned = [set(blocks_of(rank, world_size, density, overlap)) for rank in range(world_size)]
        for rank, result in enumerate(results):
            bits, blocks = result[index]
            assert bits == expected[index].tobytes(), f"rank {rank}, density {density}, overlap {overlap}"
            assert blocks == (len(owned[rank]), len(set().union(*owned)), BLOCKS)


def test_only_blocks_with_values_are_sent(fabric: Fabric) -> None:
    """Count packets: one for each own block with values, and one more without for each column's announcement."""

    def run(comm: switchml.Communicator) -> tuple[int, int]:
        array = sparse_floats(comm.rank, blocks_of(comm.rank, 3, 0.1, "none"))
        work = comm.all_reduce(array, skip_zeros=True, async_op=True)
        work.wait()
        return work.wire_bytes, comm.statistics().position

    fabric.add_job(1, 3, slots=SLOTS)
    assert fabric.run_ranks(3, run) == [(100 * VALUES * 4, SLOTS)] * 3


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("density", DENSITIES)
def test_a_column_takes_a_round_for_each_block_of_the_union_and_one_more(
    fabric: Fabric, density: float, overlap: str
) -> None:
    """Compare the last phase of each slot, and the contributions that the switch counts, with the ranks' blocks."""
    ranks = 3
    owned = [blocks_of(rank, ranks, density, overlap) for rank in range(ranks)]
    columns = np.bincount(np.unique(np.concatenate(owned)) % SLOTS, minlength=SLOTS)

    def run(comm: switchml.Communicator) -> None:
        comm.all_reduce(sparse_floats(comm.rank, owned[comm.rank]), skip_zeros=True)

    fabric.add_job(1, ranks, slots=SLOTS)
    fabric.run_ranks(ranks, run)
    phases = [
        max(fabric.switch.read_register("slot_phase", slot << 1 | half) for half in (0, 1)) for slot in range(SLOTS)
    ]
    assert [phase + 1 for phase in phases] == (columns + 1).tolist()
    rounds = int(columns.sum()) + SLOTS
    counted = [fabric.switch.read_job_counter(1 << 4 | verdict) for verdict in (Verdict.AGGREGATED, Verdict.COMPLETED)]
    packets, sizes = zip(*counted, strict=True)
    assert packets == ((ranks - 1) * rounds, rounds)
    assert sum(sizes) == ranks * rounds * EMPTY_FRAME_BYTES + sum(map(len, owned)) * VALUES * 4


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_packets_are_counted_exactly(fabric: Fabric, transport: str, overlap: str) -> None:
    """Own blocks with values go up, those of the union down; and each column has an announcement without values."""
    world_size, density = 3, 0.1
    all_done = threading.Barrier(world_size)

    def run(comm: switchml.Communicator) -> tuple[RankStatus, int]:
        comm.all_reduce(sparse_floats(comm.rank, blocks_of(comm.rank, world_size, density, overlap)), skip_zeros=True)
        all_done.wait(DEADLINE)
        handle = fabric.call(lambda: fabric.agent.jobs[1].ranks[comm.rank].handle)
        assert handle is not None
        counters = fabric.engines[0].status(handle)
        return counters, fabric.engines[0].profile(handle, 0)["received_bytes"]

    fabric.add_job(1, world_size, slots=SLOTS)
    owned = [set(blocks_of(rank, world_size, density, overlap)) for rank in range(world_size)]
    union = len(set().union(*owned))
    for own, (counters, received_bytes) in zip(owned, fabric.run_ranks(world_size, run), strict=True):
        again = counters["retransmissions"] + counters["fast_retransmissions"]
        assert again == 0 or transport == "udp"  # where packets may be late
        assert counters["sent"] - again == counters["received"] == union + SLOTS
        assert len(own) <= counters["sent"] - counters["sent_without_values"] <= len(own) + again
        if transport == "udp":
            assert received_bytes == (union + SLOTS) * PROTOCOL_HEADER_BYTES + union * 4 * VALUES


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int16, np.uint8, np.bool_, np.int64])
def test_all_dtypes(fabric: Fabric, dtype: type[np.generic]) -> None:
    def values(rank: int) -> npt.NDArray[np.generic]:
        array = np.zeros(10 * VALUES, dtype)
        array[rank * 3 * VALUES : (rank * 3 + 1) * VALUES + 5] = 1
        return array

    def run(comm: switchml.Communicator) -> tuple[npt.NDArray[np.generic], int]:
        array = values(comm.rank)
        work = comm.all_reduce(array, skip_zeros=True, async_op=True)
        work.wait()
        return array, work.blocks.sent

    fabric.add_job(1, 2)
    expected = (values(0).astype(np.int64) + values(1).astype(np.int64)).astype(dtype)
    for array, sent in fabric.run_ranks(2, run):
        np.testing.assert_array_equal(array, expected)
        assert sent == (10 if dtype is np.int64 else 2)  # a call of int64 is dense


@pytest.mark.parametrize("bits", [16, 8])
def test_narrow_lanes(fabric: Fabric, bits: int) -> None:
    def run(comm: switchml.Communicator) -> None:
        arrays = [sparse_floats(comm.rank, np.arange(comm.rank, 200, 17)) for _ in range(2)]
        options = {"wire": switchml.Blocks(bits), "op": "avg"}
        comm.all_reduce(arrays[0], **options)  # type: ignore[call-overload]
        comm.all_reduce(arrays[1], skip_zeros=True, **options)  # type: ignore[call-overload]
        assert arrays[0].tobytes() == arrays[1].tobytes()

    fabric.add_job(1, 3)
    fabric.run_ranks(3, run)


def test_small_arrays(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        for elements in (0, 1, VALUES, VALUES + 1):
            array = np.full(elements, comm.rank, np.float32)
            comm.all_reduce(array, skip_zeros=True)
            np.testing.assert_array_equal(array, np.float32(3))

    fabric.add_job(1, 3)
    fabric.run_ranks(3, run)


def test_non_finite_values_are_named(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        array = np.zeros(ELEMENTS, np.float32)
        array[comm.rank * 700] = 1 if comm.rank else np.inf
        array[701] = np.nan if comm.rank == 2 else 0
        with pytest.raises(switchml.NonFiniteError) as raised:
            comm.all_reduce(array, skip_zeros=True)
        assert raised.value.indices == (0, 701)
        assert np.isnan(array[[0, 701]]).all()
        assert array[[700, 1400]].tolist() == [1, 1]

    fabric.add_job(1, 3)
    fabric.run_ranks(3, run)


def test_sparse_and_dense_are_different_calls(fabric: Fabric) -> None:
    def run(comm: switchml.Communicator) -> None:
        with pytest.raises(switchml.CollectiveMismatch, match=r"sum as blocks skip_zeros"):
            comm.all_reduce(np.ones(100, np.float32), skip_zeros=comm.rank == 0)

    fabric.add_job(1, 2)
    fabric.run_ranks(2, run)


@pytest.mark.parametrize("optional_values", [True, False])
def test_calls_are_dense_where_the_pipeline_needs_values(fabric: Fabric, optional_values: bool) -> None:
    def run(comm: switchml.Communicator) -> tuple[bool, tuple[int, int, int], int]:
        array = np.zeros(10 * VALUES, np.float32)
        array[comm.rank] = 1
        work = comm.all_reduce(array, skip_zeros=True, async_op=True)
        work.wait()
        assert array[:2].tolist() == [1, 1]
        return work.is_sparse, work.blocks, comm._membership.native.spent()["sparse_calls_dense"]

    fabric.optional_values = optional_values
    fabric.add_job(1, 2)
    expected = (True, (1, 1, 10), 0) if optional_values else (False, (10, 10, 10), 1)
    assert fabric.run_ranks(2, run) == [expected] * 2


AUTO_BLOCKS = 1 + (1 << 20) // (4 * VALUES)  # of the smallest arrays for which "auto" may choose a sparse call


@pytest.mark.parametrize("transport", ["udp", "shm"])  # direct calls are never sparse
def test_auto_leaves_full_arrays_dense(fabric: Fabric) -> None:
    """Ranks that wait for each call and one that has many in flight choose alike; all bits are those of dense calls."""
    world_size = 3

    def values(rank: int, call: int) -> Floats:
        """Return an array in which one block in fifty has values, or from the fourth call on nearly all."""
        own = np.random.default_rng((3, rank, call))
        padded = np.zeros((AUTO_BLOCKS, VALUES), np.float32)
        owned = own.permutation(AUTO_BLOCKS)[: AUTO_BLOCKS * 9 // 10 if call > 3 else AUTO_BLOCKS // 50]
        padded[owned] = own.standard_normal((len(owned), 1))
        return padded.reshape(-1)

    calls = 16

    def run(comm: switchml.Communicator) -> list[bool]:
        arrays = [values(comm.rank, call) for call in range(calls)]
        works = []
        for array in arrays:
            works.append(comm.all_reduce(array, skip_zeros="auto", async_op=True))
            if comm.rank != 1:
                works[-1].wait()
        for work in works:
            work.wait()
        dense = [values(comm.rank, call) for call in range(calls)]
        for array in dense:
            comm.all_reduce(array)
        assert [array.tobytes() for array in arrays] == [array.tobytes() for array in dense]
        assert comm._membership.native.spent()["sparse_calls_dense"] == 0
        return [work.is_sparse for work in works]

    fabric.add_job(1, world_size, slots=SLOTS)
    # Calls 4 and 5 are full, and count from 8 and 9 on.
    assert fabric.run_ranks(world_size, run) == [[call < 9 for call in range(calls)]] * world_size


@pytest.mark.parametrize(("elements", "dtype"), [(VALUES * 100, np.float32), (VALUES * AUTO_BLOCKS, np.int64)])
def test_auto_is_dense_where_sparse_calls_have_little_to_gain(
    fabric: Fabric, elements: int, dtype: type[np.generic]
) -> None:
    def run(comm: switchml.Communicator) -> bool:
        array = np.zeros(elements, dtype)
        work = comm.all_reduce(array, skip_zeros="auto", async_op=True)
        work.wait()
        with pytest.raises(ValueError, match='False, True or "auto"'):
            comm.all_reduce(array, skip_zeros="on")  # type: ignore[call-overload]
        return work.is_sparse

    fabric.add_job(1, 2, slots=SLOTS)
    assert fabric.run_ranks(2, run) == [False] * 2


def test_auto_never_changes_bits(tmp_path: Path) -> None:
    def run(comm: switchml.Communicator) -> bool:
        work = comm.all_reduce(np.zeros(1 << 20, np.float32), skip_zeros="auto", async_op=True)
        work.wait()
        return work.is_sparse

    with running_fabric(tmp_path, LARGE) as fabric:  # sparse calls would have blocks smaller than packets
        fabric.add_job(1, 2, slots=SLOTS)
        assert fabric.run_ranks(2, run) == [False] * 2


LARGE = 1024  # values of a packet, of four blocks
WORDS = 256  # of such a block


@pytest.mark.parametrize("faults", [0, 0.05])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_blocks_are_agreed_on_where_packets_are_large(
    tmp_path: Path, transport: str, world_size: int, faults: float
) -> None:
    """Sum values of one magnitude, whose bits do not depend on the other blocks of their packet."""
    blocks = 300

    def values(rank: int, density: float, overlap: bool) -> Floats:
        generator = np.random.default_rng(3 if overlap else (3, rank))
        array = np.zeros((blocks, WORDS), np.float32)
        owned = generator.permutation(blocks)[: round(density * blocks)]
        array[owned] = generator.choice([-1.5, 1.5], (len(owned), WORDS))
        return array.reshape(-1)[:-9]

    cases = [(density, overlap) for density in (0, 1 / blocks, 0.01, 0.1, 0.5, 1) for overlap in (True, False)]

    def run(comm: switchml.Communicator) -> None:
        arrays = [values(comm.rank, *case) for case in cases]
        works = [comm.all_reduce(array, skip_zeros=True, async_op=True) for array in arrays]
        for case, array, work in zip(cases, arrays, works, strict=True):
            work.wait()
            contributions = [values(rank, *case) for rank in range(world_size)]
            assert array.tobytes() == np.sum(contributions, axis=0).tobytes()
            padded = [np.append(each, np.zeros(9, np.float32)).reshape(blocks, WORDS) for each in contributions]
            owned = [each.any(axis=1) for each in padded]
            received = int(np.any(owned, axis=0).sum())
            if received > 0.6 * blocks:
                assert not work.is_sparse
            else:
                assert work.blocks == (int(owned[comm.rank].sum()), received, blocks)

    with running_fabric(tmp_path, LARGE, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, faults, faults, faults, 7)
        fabric.add_job(1, world_size, slots=SLOTS)
        fabric.run_ranks(world_size, run)


def test_agreed_sums_of_floats_keep_the_bound(tmp_path: Path, transport: str) -> None:
    def values(rank: int) -> Floats:
        generator = np.random.default_rng((5, rank))
        array = np.zeros((200, WORDS), np.float32)
        owned = generator.permutation(200)[:20]
        array[owned] = generator.standard_normal((20, WORDS)) * np.exp2(generator.integers(-8, 8, (20, 1)))
        return array.reshape(-1)

    def run(comm: switchml.Communicator) -> bytes:
        array = values(comm.rank)
        comm.all_reduce(array, skip_zeros=True)
        exact = np.sum([values(rank).astype(np.float64) for rank in range(4)], axis=0)
        assert np.abs(array - exact).max() < 2 * 2.0**11 * 2.0**-29 + 2.0**-13  # magnitudes are below 2^11
        return array.tobytes()

    results = []
    for attempt in ("first", "second"):
        (tmp_path / attempt).mkdir()
        with running_fabric(tmp_path / attempt, LARGE, transport=transport) as fabric:
            fabric.add_job(1, 4, slots=SLOTS)
            results += fabric.run_ranks(4, run)
    assert len(set(results)) == 1
