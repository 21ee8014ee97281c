"""Collectives end to end: library, shared memory, engine, packets, native switch. Only the controller is missing."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml.dataplane.constants import Verdict
from tests.support.collective_harness import Fabric, running_fabric

SIZES = (0, 1, 63, 64, 65, 1000)
VALUES = 64  # per packet, and so per quantization block
WORLD_SIZES = (1, 2, 3, 8)

Floats = npt.NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)


def int32s(rank: int, size: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng((rank, size)).integers(-(2**31), 2**31, size, np.int32)


def normal(rank: int, size: int) -> Floats:
    return np.random.default_rng((rank, size)).standard_normal(size).astype(np.float32)


def tiny(rank: int, size: int) -> Floats:
    return (normal(rank, size) * 1e-30).astype(np.float32)


def huge(rank: int, size: int) -> Floats:
    return (normal(rank, size).clip(-4, 4) * 1e37).astype(np.float32)


def mixed(rank: int, size: int) -> Floats:
    """Return numbers of all magnitudes, including denormal numbers and zeros."""
    generator = np.random.default_rng((rank, size))
    magnitudes = np.ldexp(generator.random(size), generator.integers(-148, 120, size))
    return np.asarray(magnitudes * generator.choice([-1, 0, 1], size), np.float32)


def error_bound(contributions: list[Floats], result: Floats) -> npt.NDArray[np.float64]:
    """Return the largest error that docs/guides/formats.md allows for each value of the sum."""
    count = len(contributions)
    blocks = -(-result.size // VALUES)
    largest = np.zeros(blocks * VALUES)
    largest[: result.size] = np.max([np.abs(c).astype(np.float64) for c in contributions], axis=0)
    # The IEEE exponent field e of the block's largest magnitude: |x| < 2^(e - 126).
    field = np.maximum(np.frexp(largest.reshape(blocks, VALUES).max(axis=1))[1] + 126, 0)
    field[largest.reshape(blocks, VALUES).max(axis=1) == 0] = 0
    unit = np.ldexp(1.0, field - 126 - (31 - math.ceil(math.log2(count))))
    return count / 2 * np.repeat(unit, VALUES)[: result.size] + np.spacing(np.abs(result)).astype(np.float64) / 2


def assert_is_sum(result: Floats, contributions: list[Floats]) -> None:
    exact = np.sum([c.astype(np.float64) for c in contributions], axis=0)
    error = np.abs(result.astype(np.float64) - exact)
    bound = error_bound(contributions, result)
    worst = int(np.argmax(error - bound)) if error.size else 0
    assert np.all(error <= bound), f"at {worst}: {result[worst]} for {exact[worst]}, bound {bound[worst]}"


def assert_all_equal(results: Sequence[npt.NDArray[Any]]) -> None:
    for other in results[1:]:
        assert results[0].tobytes() == other.tobytes()


def reduced(
    comm: switchml.Communicator, arrays: list[npt.NDArray[Number]], op: str = "sum"
) -> list[npt.NDArray[Number]]:
    for array in arrays:
        comm.all_reduce(array, op)
    return arrays


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_int32_sums_are_numpys_bit_for_bit(fabric: Fabric, world_size: int) -> None:
    fabric.add_job(1, world_size)
    results = fabric.run_ranks(world_size, lambda comm: reduced(comm, [int32s(comm.rank, n) for n in SIZES]))
    for index, size in enumerate(SIZES):
        with np.errstate(over="ignore"):
            expected = np.sum([int32s(rank, size) for rank in range(world_size)], axis=0, dtype=np.int32)
        for result in results:
            np.testing.assert_array_equal(result[index], expected)


@pytest.mark.parametrize("make", [normal, tiny, huge, mixed])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_float32_sums_keep_the_bound(fabric: Fabric, world_size: int, make: Callable[[int, int], Floats]) -> None:
    fabric.add_job(1, world_size)
    results = fabric.run_ranks(world_size, lambda comm: reduced(comm, [make(comm.rank, n) for n in SIZES]))
    for index, size in enumerate(SIZES):
        of_size = [result[index] for result in results]
        assert_all_equal(of_size)
        assert_is_sum(of_size[0], [make(rank, size) for rank in range(world_size)])


@pytest.mark.parametrize("make", [int32s, normal, mixed])
def test_a_million_values_by_eight_ranks(fabric: Fabric, make: Callable[[int, int], npt.NDArray[Any]]) -> None:
    fabric.add_job(1, 8)
    results = [result[0] for result in fabric.run_ranks(8, lambda comm: reduced(comm, [make(comm.rank, 1_000_000)]))]
    assert_all_equal(results)
    contributions = [make(rank, 1_000_000) for rank in range(8)]
    if make is int32s:
        np.testing.assert_array_equal(results[0], np.sum(contributions, axis=0, dtype=np.int32))
    else:
        assert_is_sum(results[0], contributions)


def test_25_million_values(tmp_path: Path, transport: str) -> None:
    size = 25_000_000
    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.add_job(1, 2, slots=256)
        results = [
            result[0]
            for result in fabric.run_ranks(2, lambda comm: reduced(comm, [normal(comm.rank, size)]), deadline=100)
        ]
    assert_all_equal(results)
    for begin in range(0, size, 64 * 50_000):  # in parts, to save memory
        part = slice(begin, begin + 64 * 50_000)
        assert_is_sum(results[0][part], [normal(rank, size)[part] for rank in range(2)])


def test_sums_beyond_float32_are_infinite(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> Floats:
        x = np.array([3e38, -3e38, 1.0], np.float32)
        comm.all_reduce(x)
        return x

    for result in fabric.run_ranks(2, run):
        assert result[0] == np.inf
        assert result[1] == -np.inf


def test_averages(fabric: Fabric) -> None:
    fabric.add_job(1, 3)
    results = fabric.run_ranks(3, lambda comm: reduced(comm, [normal(comm.rank, 1000)], "avg")[0])
    exact = np.mean([normal(rank, 1000).astype(np.float64) for rank in range(3)], axis=0)
    assert_all_equal(results)
    np.testing.assert_allclose(results[0], exact, rtol=1e-6, atol=1e-7)


def test_averages_are_rounded_once(fabric: Fabric) -> None:
    """Reduce values that quantization does not change: each average is the float32 nearest to the exact quotient."""
    fabric.add_job(1, 3)
    sums = np.random.default_rng(5).integers(1 << 24, 1 << 25, 1000) * 3 + 1
    largest = np.finfo(np.float32).max

    def run(comm: switchml.Communicator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        high = (sums >> 12 << 12).astype(np.float32)
        x = [high, (sums - high).astype(np.float32), np.zeros(1000, np.float32)][comm.rank]
        comm.all_reduce(x, op="avg")
        y = np.full(10, largest, np.float32)
        comm.all_reduce(y, op="avg")
        return x, y

    for x, y in fabric.run_ranks(3, run):
        np.testing.assert_array_equal(x, (sums / 3).astype(np.float32))
        assert np.all(y == largest)


def test_calls_in_flight_may_not_share_memory(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    started = threading.Barrier(2)

    def run(comm: switchml.Communicator) -> None:
        x = np.ones(1000, np.float32)
        if comm.rank == 0:
            first = comm.all_reduce(x[:600], async_op=True)  # cannot end yet
            for overlapping in (x[599:], x, x[:600], x[100:200]):
                with pytest.raises(ValueError, match="shares memory"):
                    comm.all_reduce(overlapping, async_op=True)
                with pytest.raises(ValueError, match="shares memory"):
                    comm.broadcast(overlapping, 0)
        started.wait(30)
        if comm.rank == 1:
            first = comm.all_reduce(x[:600], async_op=True)
        second = comm.all_reduce(x[600:], async_op=True)
        first.wait()
        second.wait()
        for _ in range(3):
            comm.all_reduce(x)
        assert (x == 16).all()

    fabric.run_ranks(2, run)


def test_same_bits_whoever_is_late(tmp_path: Path, transport: str) -> None:
    def run(seed: int) -> bytes:
        def rank(comm: switchml.Communicator) -> bytes:
            delays = np.random.default_rng((seed, comm.rank))
            arrays = [mixed(comm.rank, size) for size in (1, 64, 1000, 5000, 65, 3)]
            for array in arrays:
                time.sleep(delays.uniform(0, 0.02))
                comm.all_reduce(array)
            return b"".join(array.tobytes() for array in arrays)

        directory = tmp_path / str(seed)
        directory.mkdir()
        with running_fabric(directory, VALUES, transport=transport) as fabric:
            fabric.add_job(1, 4)
            results = fabric.run_ranks(4, rank)
        assert len(set(results)) == 1
        return results[0]

    assert run(1) == run(2)


@pytest.mark.parametrize("transport", ["udp", "shm"])  # direct calls have no packets
def test_faults_change_nothing(tmp_path: Path, transport: str) -> None:
    """Drop 1 % of packets, duplicate 1 % and delay 1 % past their successors, in each direction."""
    sizes = (1, 65, 1000, 200_000, 7)
    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, 0.01, 0.01, 0.01, 7)
        fabric.add_job(1, 4)

        def run(comm: switchml.Communicator) -> list[npt.NDArray[Any]]:
            return reduced(comm, [make(comm.rank, n) for n in sizes for make in (int32s, mixed)])

        results = fabric.run_ranks(4, run)
        counters = fabric.switch.port_counters(fabric.port)
        verdicts = fabric.verdicts()
    for index, size in enumerate(sizes):
        ints, floats = ([result[2 * index + kind] for result in results] for kind in (0, 1))
        assert_all_equal(ints)
        assert_all_equal(floats)
        np.testing.assert_array_equal(
            ints[0], np.sum([int32s(rank, size) for rank in range(4)], axis=0, dtype=np.int32)
        )
        assert_is_sum(floats[0], [mixed(rank, size) for rank in range(4)])
    assert counters["injected_drop"] > 0
    assert counters["injected_duplicate"] > 0
    assert counters["injected_delay"] > 0
    assert verdicts[Verdict.RESENT] > 0
    assert verdicts[Verdict.DUPLICATE] > 0


def test_heavy_loss_does_not_stall(tmp_path: Path, transport: str) -> None:
    """Lose 5 % each way: windows shrink, and timeouts must retransmit the packets for which the other rank waits."""
    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, 0.05, 0, 0, 3)
        fabric.add_job(1, 2, slots=512)

        def run(comm: switchml.Communicator) -> list[npt.NDArray[Any]]:
            return [reduced(comm, [int32s(comm.rank, size)])[0] for size in (64, 1000, 100_000) * 4]

        results = fabric.run_ranks(2, run, deadline=40)
    assert_all_equal([result[-1] for result in results])


BROADCAST_DTYPES = (
    "bool",
    "int8",
    "uint16",
    "float16",
    "int32",
    "float32",
    "int64",
    "float64",
    "complex128",
    "S5",
    "i4,f8",
)


def test_broadcast_copies_every_dtype_bit_for_bit(fabric: Fabric) -> None:
    fabric.add_job(1, 3)

    def array(dtype: str, root: int, size: int) -> npt.NDArray[np.generic]:
        made = np.empty(size, dtype)
        generator = np.random.default_rng((root, size))
        made.view(np.uint8)[:] = generator.integers(0, 2 if dtype == "bool" else 256, made.nbytes, np.uint8)
        return made

    def run(comm: switchml.Communicator) -> list[bytes]:
        received = []
        for number, dtype in enumerate(BROADCAST_DTYPES):
            for size in (0, 1, 3, 65, 1001):
                root = (number + size) % 3
                x = array(dtype, root if comm.rank == root else 99, size)
                comm.broadcast(x, root)
                received.append(x.tobytes())
        return received

    expected = [
        array(dtype, (number + size) % 3, size).tobytes()
        for number, dtype in enumerate(BROADCAST_DTYPES)
        for size in (0, 1, 3, 65, 1001)
    ]
    assert fabric.run_ranks(3, run) == [expected] * 3


def test_shapes_and_zero_dimensions(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> tuple[float, Floats]:
        scalar = np.array(comm.rank + 1, np.float32)
        matrix = np.full((3, 5, 7), comm.rank + 1, np.float32)
        comm.all_reduce(scalar)
        comm.all_reduce(matrix)
        return float(scalar), matrix

    for scalar, matrix in fabric.run_ranks(2, run):
        assert scalar == 3
        np.testing.assert_array_equal(matrix, np.full((3, 5, 7), 3, np.float32))


def test_many_calls_in_flight_end_in_order(fabric: Fabric) -> None:
    fabric.add_job(1, 3, slots=16)
    sizes = [(17 * n) % 500 for n in range(200)]

    def run(comm: switchml.Communicator) -> list[npt.NDArray[np.int32]]:
        arrays = [int32s(comm.rank, size) for size in sizes]
        works = [comm.all_reduce(array, async_op=True) for array in arrays]
        works[-1].wait()
        assert all(work.is_completed() for work in works)
        for work in works:
            work.wait()
        return arrays

    for result in fabric.run_ranks(3, run):
        for array, size in zip(result, sizes, strict=True):
            np.testing.assert_array_equal(
                array, np.sum([int32s(rank, size) for rank in range(3)], axis=0, dtype=np.int32)
            )


def test_barrier_waits_for_everyone(fabric: Fabric) -> None:
    fabric.add_job(1, 3)
    arrived: list[int] = []

    def run(comm: switchml.Communicator) -> int:
        time.sleep(0.05 * comm.rank)
        arrived.append(comm.rank)
        comm.barrier()
        return len(arrived)

    assert fabric.run_ranks(3, run) == [3, 3, 3]


def test_two_jobs_at_once(fabric: Fabric) -> None:
    fabric.add_job(1, 4, slots=32)
    fabric.add_job(2, 4, slots=32)
    results: dict[int, list[npt.NDArray[np.generic]]] = {}

    def run_job(job: int) -> None:
        results[job] = fabric.run_ranks(
            4, lambda comm: reduced(comm, [int32s(10 * job + comm.rank, 100_000)])[0], job=job
        )

    threads = [threading.Thread(target=run_job, args=(job,)) for job in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for job in (1, 2):
        expected = np.sum([int32s(10 * job + rank, 100_000) for rank in range(4)], axis=0, dtype=np.int32)
        for result in results[job]:
            np.testing.assert_array_equal(result, expected)


def test_non_finite_values_are_named_on_every_rank_and_the_rest_is_right(fabric: Fabric) -> None:
    fabric.add_job(1, 3)
    places = {0: {5: np.nan}, 1: {130: np.inf, 700: -np.inf}, 2: {}}
    named = [5, 130, 700]

    def contribution(rank: int) -> Floats:
        x = mixed(rank, 1000)
        for index, value in places[rank].items():
            x[index] = value
        return x

    def run(comm: switchml.Communicator) -> tuple[switchml.NonFiniteError, Floats, Floats]:
        x = contribution(comm.rank)
        with pytest.raises(switchml.NonFiniteError, match="5, 130, 700") as raised:
            comm.all_reduce(x)
        after = normal(comm.rank, 100)
        comm.all_reduce(after)
        return raised.value, x, after

    for error, result, after in fabric.run_ranks(3, run):
        assert error.indices == tuple(named)
        assert error.count == 3
        assert np.isnan(result[named]).all()
        finite = [contribution(rank) for rank in range(3)]
        for x in finite:
            x[named] = 0
        result[named] = 0
        assert_is_sum(result, finite)
        assert_is_sum(after, [normal(rank, 100) for rank in range(3)])


def test_more_non_finite_values_than_are_named(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> switchml.NonFiniteError:
        with pytest.raises(switchml.NonFiniteError, match="and 84 more") as raised:
            comm.all_reduce(np.full(100, np.nan if comm.rank else 1, np.float32))
        return raised.value

    for error in fabric.run_ranks(2, run):
        assert error.count == 100
        assert error.indices == tuple(range(16))


def test_a_barrier_in_flight_ends_when_all_have_come(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    late = threading.Event()

    def run(comm: switchml.Communicator) -> None:
        if comm.rank == 1:
            assert late.wait(30)
        work = comm.barrier(async_op=True)
        if comm.rank == 0:
            assert not work.ends_within(0.05)
            late.set()
        assert work.ends_within(30)
        work.wait()
        assert work.ends_within(0)

    fabric.run_ranks(2, run)


def test_position_counts_chunks(fabric: Fabric) -> None:
    fabric.add_job(1, 2, slots=16)

    def run(comm: switchml.Communicator) -> None:
        assert (comm.slots, comm.values_per_packet, comm.statistics().position) == (16, VALUES, 0)
        comm.all_reduce(np.ones(3 * VALUES + 1, np.int32))
        comm.barrier()
        assert comm.statistics().position == 5

    fabric.run_ranks(2, run)


def test_a_failure_is_told_to_a_process_that_makes_no_calls(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    idle, lost = fabric.connect(0), fabric.connect(1)
    told: list[switchml.SwitchMLError] = []
    came = threading.Event()

    def tell(error: switchml.SwitchMLError) -> None:
        told.append(error)
        came.set()

    idle.on_failure(tell)
    assert idle.failure is None
    lost.end("it is tired")
    assert came.wait(30)
    assert isinstance(told[0], switchml.WorkerLost)
    assert idle.failure is told[0]
    idle.on_failure(told.append)  # already known
    assert told == [idle.failure] * 2
    idle.close()
