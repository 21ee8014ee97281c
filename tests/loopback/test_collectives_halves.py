"""All-reduces of float16 and bfloat16, end to end as in test_collectives.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml._native import kernels
from tests.support.collective_harness import Fabric, running_fabric

SIZES = (0, 1, 63, 64, 65, 1000)
VALUES = 64  # per packet, and so per quantization block

Bits = npt.NDArray[np.uint16]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Half:
    """Conversions and spacing of one of the types; its arrays hold bits."""

    dtype: npt.DTypeLike
    type: kernels.Type
    digits: int  # of the significand
    lowest: int  # exponent of the smallest subnormal
    largest: float

    def doubles(self, bits: Bits) -> Doubles:
        floats = np.empty(len(bits), np.float32)
        kernels.widen(self.type, bits.view(np.uint8), floats.view(np.uint8))
        return floats.astype(np.float64)

    def bits(self, values: Doubles) -> Bits:
        result = np.empty(len(values), np.uint16)
        kernels.narrow(self.type, values.astype(np.float32).view(np.uint8), result.view(np.uint8))
        return result

    def spacing(self, values: Doubles) -> Doubles:
        """Return the unit in the last place."""
        return np.asarray(np.ldexp(1.0, np.maximum(np.frexp(values)[1] - self.digits, self.lowest)))

    def all_reduce(self, comm: switchml.Communicator, bits: Bits, op: str = "sum") -> Bits:
        """Reduce arrays in place."""
        comm.all_reduce(bits.view(self.dtype), op)
        return bits


HALVES = (
    Half(np.float16, kernels.Type.FLOAT16, 11, -24, 65504.0),
    Half(ml_dtypes.bfloat16, kernels.Type.BFLOAT16, 8, -133, 3.3895313892515355e38),
)


@pytest.fixture(params=HALVES, ids=lambda half: np.dtype(half.dtype).name)
def half(request: pytest.FixtureRequest) -> Half:
    chosen: Half = request.param
    return chosen


@pytest.fixture(params=["udp", "shm", "direct"])
def fabric(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fabric]:
    with running_fabric(tmp_path, VALUES, transport=request.param) as running:
        yield running


def normal(half: Half, rank: int, size: int) -> Bits:
    return half.bits(np.random.default_rng((rank, size)).standard_normal(size))


def mixed(half: Half, rank: int, size: int) -> Bits:
    """Return numbers of all magnitudes, including subnormal numbers and zeros."""
    generator = np.random.default_rng((rank, size))
    highest = int(math.log2(half.largest)) - 4
    magnitudes = np.ldexp(generator.random(size), generator.integers(half.lowest, highest, size))
    return half.bits(magnitudes * generator.choice([-1, 0, 1], size))


def assert_is_sum(half: Half, result: Bits, contributions: list[Bits], divisor: int = 1) -> None:
    count, size = len(contributions), len(result)
    addends = [half.doubles(bits) for bits in contributions]
    blocks = -(-size // VALUES)
    padded = np.zeros(blocks * VALUES)
    padded[:size] = np.max(np.abs(addends), axis=0)
    largest = padded.reshape(blocks, VALUES).max(axis=1)
    exponents = np.where(largest == 0, 0, np.maximum(np.frexp(largest)[1] + 126, 0))
    unit = np.ldexp(1.0, exponents - 126 - (31 - math.ceil(math.log2(count))))
    got, exact = half.doubles(result), np.sum(addends, axis=0) / divisor
    bound = count / 2 * np.repeat(unit, VALUES)[:size] / divisor + half.spacing(got) / 2
    worst = int(np.argmax(np.abs(got - exact) - bound)) if size else 0
    assert np.all(np.abs(got - exact) <= bound), f"at {worst}: {got[worst]} for {exact[worst]}, bound {bound[worst]}"


@pytest.mark.parametrize("make", [normal, mixed])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_sums_and_averages_keep_the_bound(fabric: Fabric, half: Half, world_size: int, make: object) -> None:
    assert callable(make)
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> list[tuple[Bits, Bits]]:
        return [
            (
                half.all_reduce(comm, make(half, comm.rank, size)),
                half.all_reduce(comm, make(half, comm.rank, size), "avg"),
            )
            for size in SIZES
        ]

    results = fabric.run_ranks(world_size, run)
    for index, size in enumerate(SIZES):
        contributions = [make(half, rank, size) for rank in range(world_size)]
        for of_rank in results:
            np.testing.assert_array_equal(of_rank[index], results[0][index])
        assert_is_sum(half, results[0][index][0], contributions)
        assert_is_sum(half, results[0][index][1], contributions, world_size)


def test_sums_of_integers_are_numpys_rounded_once(fabric: Fabric) -> None:
    """Reduce values that quantization does not change: the result is the exact sum or average, rounded by numpy."""
    fabric.add_job(1, 3)

    def contribution(rank: int) -> npt.NDArray[np.float16]:
        return np.random.default_rng(rank).integers(-2048, 2049, 5000).astype(np.float16)

    def run(comm: switchml.Communicator) -> list[npt.NDArray[np.float16]]:
        arrays = [contribution(comm.rank), contribution(comm.rank)]
        comm.all_reduce(arrays[0])
        comm.all_reduce(arrays[1], "avg")
        return arrays

    exact = np.sum([contribution(rank).astype(np.float64) for rank in range(3)], axis=0)
    for total, average in fabric.run_ranks(3, run):
        np.testing.assert_array_equal(total, exact.astype(np.float16))
        np.testing.assert_array_equal(average, (exact / 3).astype(np.float16))


def test_sums_beyond_the_type_are_infinite(fabric: Fabric, half: Half) -> None:
    fabric.add_job(1, 2)
    values = np.array([half.largest, -half.largest, half.largest / 2])
    for result in fabric.run_ranks(2, lambda comm: half.all_reduce(comm, half.bits(values))):
        np.testing.assert_array_equal(half.doubles(result), [np.inf, -np.inf, half.largest])


def test_non_finite_values_are_named_and_the_rest_is_right(fabric: Fabric, half: Half) -> None:
    fabric.add_job(1, 3)
    named = [5, 130, 700]

    def contribution(rank: int) -> Bits:
        x = mixed(half, rank, 1000)
        x[named[rank]] = half.bits(np.array([[np.nan, np.inf, -np.inf][rank]]))[0]
        return x

    def run(comm: switchml.Communicator) -> Bits:
        x = contribution(comm.rank)
        with pytest.raises(switchml.NonFiniteError, match="5, 130, 700"):
            half.all_reduce(comm, x)
        return x

    finite = [contribution(rank) for rank in range(3)]
    for x in finite:
        x[named] = 0
    for result in fabric.run_ranks(3, run):
        assert np.isnan(half.doubles(result[named])).all()
        result[named] = 0
        assert_is_sum(half, result, finite)


def test_calls_of_all_types_follow_each_other(fabric: Fabric, half: Half) -> None:
    """Queue calls of several types: the exponents of a call's first chunks are sent with the previous call's chunks."""
    fabric.add_job(1, 2, slots=16)

    def run(comm: switchml.Communicator) -> list[tuple[Bits, npt.NDArray[np.float32], npt.NDArray[np.int32]]]:
        rounds = []
        for size in (3000, 65, 1):
            bits = normal(half, comm.rank, size)
            floats, ints = np.full(size, 0.5, np.float32), np.full(size, comm.rank + 1, np.int32)
            works = [comm.all_reduce(x, async_op=True) for x in (floats, ints)]
            half.all_reduce(comm, bits)
            for work in works:
                work.wait()
            rounds.append((bits, floats, ints))
        return rounds

    for rounds in fabric.run_ranks(2, run):
        for bits, floats, ints in rounds:
            assert np.all(floats == 1)
            assert np.all(ints == 3)
            assert_is_sum(half, bits, [normal(half, rank, len(bits)) for rank in range(2)])


def test_faults_change_nothing(tmp_path: Path, half: Half) -> None:
    size = 100_000
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.switch.set_faults(fabric.port, 0.01, 0.01, 0.01, 7)
        fabric.add_job(1, 4)
        results = fabric.run_ranks(4, lambda comm: half.all_reduce(comm, mixed(half, comm.rank, size)))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    assert_is_sum(half, results[0], [mixed(half, rank, size) for rank in range(4)])


def test_ranks_whose_halves_differ_are_told(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        x = np.ones(100, np.float16 if comm.rank else np.float32)
        with pytest.raises(switchml.SwitchMLError):
            comm.all_reduce(x, timeout=20)

    fabric.run_ranks(2, run)


def test_an_array_that_lies_at_an_odd_address_is_refused(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    memory = np.zeros(65, np.uint8)
    x = memory[1:].view(np.float16)
    with fabric.connect(0) as comm, pytest.raises(switchml.UnsupportedTensor, match="aligned"):
        comm.all_reduce(x)
