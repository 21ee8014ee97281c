"""All-reduce in lanes of 16 and 8 bits, through an unchanged switch: library, shared memory, engine, packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # words per packet
SIZES = (0, 1, 127, 128, 129, 255, 256, 257, 5000)
Array = npt.NDArray[Any]


def normal(rank: int, size: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng((rank, size)).standard_normal(size).astype(np.float32)


def bound_of(contributions: list[npt.NDArray[np.float32]], bits: int) -> npt.NDArray[np.float64]:
    """Return N/2 * M * (1/Q + 2^-23) for each value, as docs/understand/protocol.md has it."""
    count, size = len(contributions), contributions[0].size
    block = VALUES * 32 // bits
    largest = np.zeros(-(-size // block) * block)
    largest[:size] = np.max(np.abs(contributions), axis=0)
    power = np.exp2(np.frexp(largest.reshape(-1, block).max(axis=1))[1].astype(float))
    levels = (2 ** (bits - 1) - 1) // count
    bound: npt.NDArray[np.float64] = np.repeat(count / 2 * power * (1 / levels + 2.0**-23), block)[:size]
    return bound


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_float_sums_keep_their_bound(fabric: Fabric, world_size: int, bits: int) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays = [normal(comm.rank, size) for size in SIZES]
        works = [comm.all_reduce(array, async_op=True, wire=switchml.Blocks(bits)) for array in arrays]
        for work in works:
            work.wait()
        assert [work.wire_bytes for work in works] == [-(-size * bits // 32) * 4 for size in SIZES]
        return arrays

    results = fabric.run_ranks(world_size, run)
    for index, size in enumerate(SIZES):
        contributions = [normal(rank, size) for rank in range(world_size)]
        exact = np.sum(np.array(contributions, np.float64), axis=0)
        assert len({result[index].tobytes() for result in results}) == 1
        error = np.abs(results[0][index] - exact)
        assert np.all(error <= bound_of(contributions, bits) + 1e-6 * np.abs(exact))


@pytest.mark.parametrize("bits", [16, 8])
def test_narrow_lanes_take_fewer_packets(tmp_path: Path, bits: int) -> None:
    chunks = {}
    for wire_bits in (32, bits):
        folder = tmp_path / str(wire_bits)
        folder.mkdir()
        with running_fabric(folder, VALUES) as fabric:
            fabric.add_job(1, 2)

            def run(comm: switchml.Communicator, wire_bits: int = wire_bits) -> int:
                comm.all_reduce(np.ones(VALUES * 40, np.float32), wire=switchml.Blocks(wire_bits))
                return comm.statistics().position

            chunks[wire_bits] = fabric.run_ranks(2, run)[0]
    assert chunks[32] == 40
    assert chunks[bits] == 40 * bits // 32


@pytest.mark.parametrize(
    "text", [f"blocks:bits={bits}{more}" for bits in (16, 8) for more in ("", ",rounding=stochastic,seed=11")]
)
def test_faults_do_not_change_a_bit(tmp_path: Path, transport: str, text: str) -> None:
    """Compare a run without faults with one in which packets are lost, duplicated and reordered."""

    def run(comm: switchml.Communicator) -> list[bytes]:
        arrays = []
        for size in (1, 257, 60_000):
            array = normal(comm.rank, size)
            comm.all_reduce(array, "avg", wire=switchml.parse_wire(text))
            arrays.append(array.tobytes())
        return arrays

    results = []
    for name in ("clean", "faulty"):
        (tmp_path / name).mkdir()
        with running_fabric(tmp_path / name, VALUES, transport=transport) as fabric:
            if name == "faulty":
                fabric.switch.set_faults(fabric.port, 0.02, 0.02, 0.02, 7)
            fabric.add_job(1, 4)
            results += fabric.run_ranks(4, run)
            counters = fabric.switch.port_counters(fabric.port)
    assert all(result == results[0] for result in results)
    assert counters["injected_drop"] > 0
    assert counters["injected_duplicate"] > 0


def test_stochastic_rounding_follows_the_seed(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> list[bytes]:
        results = []
        for seed in (1, 1, 2):
            array = normal(comm.rank, 1000)
            comm.all_reduce(array, wire=switchml.Blocks(8, "stochastic", seed))
            results.append(array.tobytes())
        return results

    one, other = fabric.run_ranks(2, run)
    assert one == other
    assert len(set(one)) == 3  # the number of the call counts as well


@pytest.mark.parametrize("bits", [16, 8])
def test_places_that_are_not_finite_are_named(fabric: Fabric, bits: int) -> None:
    fabric.add_job(1, 3)

    def run(comm: switchml.Communicator) -> Array:
        array = normal(comm.rank, 1000)
        if comm.rank == 1:
            array[[7, 300]] = np.nan, np.inf
        if comm.rank == 2:
            array[999] = -np.inf
        with pytest.raises(switchml.NonFiniteError) as raised:
            comm.all_reduce(array, wire=switchml.Blocks(bits))
        assert raised.value.indices == (7, 300, 999)
        return array

    results = fabric.run_ranks(3, run)
    exact = np.sum([normal(rank, 1000).astype(np.float64) for rank in range(3)], axis=0)
    for result in results:
        assert result.tobytes() == results[0].tobytes()
        assert np.flatnonzero(np.isnan(result)).tolist() == [7, 300, 999]
        rest = ~np.isnan(result)
        assert np.abs(result - exact)[rest].max() < {16: 0.01, 8: 0.6}[bits]


@pytest.mark.parametrize(
    ("dtype", "bits", "bound"),
    [
        ("int8", 16, None),
        ("uint8", 16, None),
        ("int8", 32, None),
        ("int16", 32, None),
        ("bool", 8, None),
        ("bool", 16, None),
        ("int8", 8, 31),
        ("int16", 16, 8191),
        ("int32", 16, 8191),
        ("int32", 8, 31),
    ],
)
def test_integers_are_exact(fabric: Fabric, dtype: str, bits: int, bound: int | None) -> None:
    fabric.add_job(1, 4)

    def array(rank: int, size: int) -> Array:
        generator = np.random.default_rng((rank, size))
        if dtype == "bool":
            return np.asarray(generator.integers(0, 8, size) == 0)
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if bound is None else (-bound, bound)
        return generator.integers(low, high + 1, size).astype(dtype)

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays = [array(comm.rank, size) for size in SIZES]
        for x in arrays:
            comm.all_reduce(x, wire=switchml.Integers(bits, bound))
        return arrays

    for result in fabric.run_ranks(4, run):
        for index, size in enumerate(SIZES):
            with np.errstate(over="ignore"):
                expected = np.sum([array(rank, size) for rank in range(4)], axis=0, dtype=dtype)
            np.testing.assert_array_equal(result[index], expected)


def test_what_is_no_wire_is_refused_before_anything_is_sent(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        array = np.ones(10, np.float32)
        given: Any = {"wire_bits": 8}
        with pytest.raises(
            TypeError, match=r"all_reduce\(\) has no argument 'wire_bits'; write wire=Blocks\(bits=...\)"
        ):
            comm.all_reduce(array, **given)
        with pytest.raises(TypeError, match=r"has no argument 'wires'$"):
            comm.all_reduce(array, wires=8)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"wire is 8; it must be Blocks.*The array is unchanged"):
            comm.all_reduce(array, wire=8)  # type: ignore[call-overload]
        with pytest.raises(
            ValueError, match=r"is for float32, float16, bfloat16, not for int32. The array is unchanged"
        ):
            comm.all_reduce(array.astype(np.int32), wire=switchml.Blocks(8))
        assert comm.statistics().position == 0
        assert array.tolist() == [1.0] * 10
        comm.all_reduce(array, wire=switchml.Blocks(16))
        assert array == pytest.approx(2, rel=1e-3)

    fabric.run_ranks(2, run)


@pytest.mark.parametrize("bits", [(16, 8), (32, 16), (8, 32)])
def test_ranks_that_ask_for_different_widths_are_told_both(fabric: Fabric, bits: tuple[int, int]) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> str:
        with pytest.raises(switchml.CollectiveMismatch) as raised:
            comm.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(bits[comm.rank]))
        return str(raised.value)

    said = "; ".join(
        f"rank {rank}: call 0, all_reduce (sum as {switchml.Blocks(width)}) of 10 float32"
        for rank, width in enumerate(bits)
    )
    for message in fabric.run_ranks(2, run):
        assert f"the ranks call differently: {said}" in message


def test_values_beyond_the_bound_are_not_sent(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> list[int]:
        array = np.full(1000, 5, np.int8)
        array[999] = -6
        with pytest.raises(ValueError, match=r"beyond the bound 5\. It is unchanged"):
            comm.all_reduce(array, wire=switchml.Integers(8, 5))
        assert comm.statistics().position == 0
        assert array[999] == -6
        comm.all_reduce(array, wire=switchml.Integers(8, 6))
        return sorted({int(value) for value in array})

    assert fabric.run_ranks(2, run) == [[-12, 10]] * 2


def test_more_ranks_than_the_lanes_hold(fabric: Fabric) -> None:
    fabric.add_job(1, 3)

    def run(comm: switchml.Communicator) -> None:
        array = np.ones(10, np.int8)
        with pytest.raises(ValueError, match=r"at most 2 ranks .* this job has 3"):
            comm.all_reduce(array, wire=switchml.Integers(8, 63))
        comm.all_reduce(array, wire=switchml.Integers(8, 42))
        assert array.tolist() == [3] * 10

    fabric.run_ranks(3, run)
