"""Codes of one byte that the soft switch expands and sums: library, shared memory, engine, packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from switchml._native import kernels
from switchml.dataplane.codes import integers_of_codes
from switchml.dataplane.constants import DYNAMIC8_UNIT_BITS, PROTOCOL_HEADER_BYTES, Format
from tests.support.collective_harness import Fabric, running_fabric

VALUES = 64  # per packet
SIZES = (1, 63, 64, 65, 5000)
SEED = 11
Array = npt.NDArray[Any]
Codes = Literal["natural8", "dynamic8"]
NUMBERS: dict[Codes, Format] = {"natural8": Format.NATURAL8, "dynamic8": Format.DYNAMIC8}


def wide(rank: int, size: int) -> npt.NDArray[np.float32]:
    """Return values of very different magnitudes."""
    random = np.random.default_rng((rank, size))
    return (random.standard_normal(size) * np.exp2(random.integers(-12, 3, size))).astype(np.float32)


def reference(contributions: list[Array], codes: Codes, sequence: int, average: bool) -> Array:
    """Return the sums of the integers that the codes of all ranks stand for, scaled back to float32."""
    count, number = len(contributions), NUMBERS[codes]
    unit_bits = 30 - (count - 1).bit_length() if codes == "natural8" else DYNAMIC8_UNIT_BITS
    table = np.array(integers_of_codes(number), np.int64)
    result = np.empty_like(contributions[0])
    for first in range(0, result.size, VALUES):
        blocks = [np.ascontiguousarray(values[first : first + VALUES]) for values in contributions]
        exponent = max(int((block.view(np.uint32) >> 23 & 0xFF).max()) for block in blocks)
        shift = unit_bits - (exponent - 126)
        sums = np.zeros(blocks[0].size, np.int64)
        for rank, block in enumerate(blocks):
            written = np.empty(block.size, np.uint8)
            counter = (SEED, sequence, rank, first)
            kernels.write_codes(kernels.Type.FLOAT32, block.view(np.uint8), number, shift, written, counter)
            sums += table[written]
        assert np.abs(sums).max() < 2**31
        result[first : first + VALUES] = sums * 2.0**-shift / (count if average else 1)
    return result


@pytest.mark.parametrize("codes", NUMBERS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_sums_equal_the_reference(fabric: Fabric, world_size: int, codes: Codes, transport: str) -> None:
    fabric.add_job(1, world_size)

    def run(comm: switchml.Communicator) -> list[Array]:
        assert comm.codes == ("natural8", "dynamic8")
        arrays = [wide(comm.rank, size) for size in SIZES]
        works = [
            comm.all_reduce(array, op, async_op=True, wire=switchml.Codes(codes, SEED))
            for array, op in zip(arrays, ("sum", "avg", "sum", "avg", "sum"), strict=True)
        ]
        for work in works:
            work.wait()
        size = 1 if transport == "udp" else 4  # ranks that share memory with the switch write words there
        assert [work.wire_bytes for work in works] == [size * each for each in SIZES]
        return arrays

    results = fabric.run_ranks(world_size, run)
    for index, size in enumerate(SIZES):
        expected = reference([wide(rank, size) for rank in range(world_size)], codes, index, index % 2 == 1)
        for result in results:
            np.testing.assert_array_equal(result[index], expected)


@pytest.mark.parametrize("codes", NUMBERS)
def test_faults_do_not_change_a_bit(tmp_path: Path, transport: str, codes: Codes) -> None:
    """Packets are lost, duplicated and reordered; the sums are those of the reference all the same."""
    sizes = (1, 257, 30_000)

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays = [wide(comm.rank, size) for size in sizes]
        for array in arrays:
            comm.all_reduce(array, wire=switchml.Codes(codes, SEED))
        return arrays

    with running_fabric(tmp_path, VALUES, transport=transport) as fabric:
        fabric.switch.set_faults(fabric.port, 0.02, 0.02, 0.02, 7)
        fabric.add_job(1, 4)
        results = fabric.run_ranks(4, run)
        counters = fabric.switch.port_counters(fabric.port)
    assert counters["injected_drop"] > 0
    assert counters["injected_duplicate"] > 0
    for index, size in enumerate(sizes):
        expected = reference([wide(rank, size) for rank in range(4)], codes, index, False)
        for result in results:
            np.testing.assert_array_equal(result[index], expected)


@pytest.mark.parametrize("codes", NUMBERS)
def test_reduce_scatter_has_the_sums_of_its_parts(fabric: Fabric, codes: Codes) -> None:
    fabric.add_job(1, 2)
    elements = 2 * 3 * VALUES  # of whole packets, so that the blocks are those of an all-reduce

    def run(comm: switchml.Communicator) -> Array:
        output = np.empty(elements // 2, np.float32)
        comm.reduce_scatter(wide(comm.rank, elements), output, wire=switchml.Codes(codes, SEED))
        return output

    results = fabric.run_ranks(2, run)
    expected = reference([wide(rank, elements) for rank in range(2)], codes, 0, False)
    np.testing.assert_array_equal(np.concatenate(results), expected)


def test_packets_have_a_byte_for_each_value(tmp_path: Path) -> None:
    """Count the bytes at the switch: header and one byte a value up, header and four bytes a value down."""
    chunks = 40
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.add_job(1, 2)

        def run(comm: switchml.Communicator) -> None:
            comm.all_reduce(np.ones(chunks * VALUES, np.float32), wire=switchml.Codes("natural8"))

        fabric.run_ranks(2, run)
        packets, packet_bytes = 0, 0
        for verdict in range(1, 8):
            counted = fabric.switch.read_job_counter(1 << 4 | verdict)
            packets, packet_bytes = packets + counted[0], packet_bytes + counted[1]
        headers = 14 + 20 + 8 + PROTOCOL_HEADER_BYTES
        values = packet_bytes - packets * headers
    # A packet that is sent again, as on a busy machine, has its values once more.
    assert 2 * chunks * VALUES <= values <= packets * VALUES
    assert values % VALUES == 0


def test_mixed_transports_share_a_job(tmp_path: Path) -> None:
    """A rank that shares memory with the switch writes words where the other one sends codes; the sums are the same."""
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.add_agent("shm")
        fabric.add_job(1, 2)

        def run(comm: switchml.Communicator) -> Array:
            array = wide(comm.rank, 1000)
            comm.all_reduce(array, wire=switchml.Codes("natural8", SEED))
            return array

        results = fabric.run_ranks(2, run)
    expected = reference([wide(rank, 1000) for rank in range(2)], "natural8", 0, False)
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("codes", NUMBERS)
def test_nan_is_named_and_the_rest_correct(fabric: Fabric, codes: Codes) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> Array:
        array = np.full(200, 1.0, np.float32)
        if comm.rank == 1:
            array[70] = np.inf
        with pytest.raises(switchml.NonFiniteError) as caught:
            comm.all_reduce(array, wire=switchml.Codes(codes, SEED))
        assert list(caught.value.indices) == [70]
        return array

    for result in fabric.run_ranks(2, run):
        assert np.isnan(result[70])
        others = np.delete(result, 70)
        assert np.all(others == others[0])
        assert abs(others[0] - 2) < 0.02


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_subnormal_and_zero_blocks(fabric: Fabric, dtype: type[np.floating[Any]]) -> None:
    fabric.add_job(1, 2)
    tiny = float(np.finfo(dtype).smallest_subnormal)

    def run(comm: switchml.Communicator) -> list[Array]:
        arrays = [np.zeros(100, dtype), np.full(100, tiny, dtype), np.full(100, -np.finfo(dtype).max / 4, dtype)]
        for array in arrays:
            comm.all_reduce(array, wire=switchml.Codes("natural8", comm.world_size))
        return arrays

    for zeros, smallest, largest in fabric.run_ranks(2, run):
        assert not zeros.any()
        assert set(smallest) <= {0, tiny, 2 * tiny, 4 * tiny}
        assert np.all(np.isfinite(largest))
        assert np.all(largest < 0)


def test_a_pipeline_without_codes_refuses_them(tmp_path: Path) -> None:
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.formats = [Format.INT32]
        fabric.add_job(1, 1)

        def run(comm: switchml.Communicator) -> Array:
            array = np.full(3, 0.5, np.float32)
            assert comm.codes == ()
            with pytest.raises(ValueError, match="cannot sum natural8 codes"):
                comm.all_reduce(array, wire=switchml.Codes("natural8"))
            comm.all_reduce(array)
            return array

        np.testing.assert_array_equal(fabric.run_ranks(1, run)[0], np.full(3, 0.5))


def test_ranks_with_other_codes_do_not_match(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        with pytest.raises(switchml.CollectiveMismatch, match="codes:"):
            comm.all_reduce(np.ones(10, np.float32), wire=switchml.Codes("natural8" if comm.rank else "dynamic8"))

    fabric.run_ranks(2, run)
