"""All-reduces in lanes of each width, sparse ones, reduce-scatters and all-gathers.

Every rank writes the sha256 of its results to the job's directory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import switchml
from switchml.client import communicator, tensors

SEED = 23
# In this order; stochastic rounding hashes the number of a call.
CALLS: dict[str, list[switchml.Wire]] = {
    "float32": [
        switchml.Blocks(),
        switchml.Blocks(16),
        switchml.Blocks(16, "stochastic", SEED),
        switchml.Blocks(8),
        switchml.Blocks(8, "stochastic", SEED),
    ],
    "float16": [switchml.Blocks(16), switchml.Blocks(8, "stochastic", SEED)],
    "bfloat16": [
        switchml.Blocks(16),
        switchml.Blocks(8),
        switchml.Blocks(16, "stochastic", SEED),
        switchml.Blocks(8, "stochastic", SEED),
    ],
    "int8": [switchml.Integers(16), switchml.Integers(8, 31)],
    "uint8": [switchml.Integers(16), switchml.Integers(8, 31)],
    "bool": [switchml.Integers(16), switchml.Integers(8)],
    "int32": [switchml.Integers(16, 8000)],
}
SIZES = (1, 129, 700)


class BrainFloats(np.ndarray):
    """An array of the bits of bfloat16, which numpy does not have."""


def buffer_of(x: np.ndarray, written: bool = True) -> tensors.Buffer:
    """Return the memory of an array; that of BrainFloats as it is for a torch tensor of bfloat16."""
    buffer = tensors.buffer_of(x, written)
    return buffer._replace(dtype="bfloat16") if isinstance(x, BrainFloats) else buffer


def contribution(rank: int, dtype: str, size: int, bound: int | None) -> np.ndarray:
    """Return the values of a rank: floats of many magnitudes, integers of their whole range, or up to the bound."""
    generator = np.random.default_rng((rank, size))
    if dtype == "bool":
        return np.equal(generator.integers(0, 4, size), 0)
    if not dtype.endswith(("float16", "float32")):
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if bound is None else (max(-bound, limits.min), bound)
        return generator.integers(low, high + 1, size).astype(dtype)
    floats = (generator.standard_t(3, size) * np.exp2(generator.integers(-9, 9, size))).astype(np.float32)
    if dtype == "bfloat16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(BrainFloats)
    return floats.astype(dtype)


def sparse_contribution(rank: int, dtype: str) -> np.ndarray:
    """Return values of which each rank has every third run of 50."""
    array = contribution(rank, dtype, SIZES[-1], None)
    array[(np.arange(array.size) // 50 + rank) % 3 != 0] = 0
    return array


def sparse_results(comm: switchml.Communicator) -> Iterator[tuple[str, bytes]]:
    """Make sparse calls, each after the dense one whose result it must have."""
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        for bits in (32, 8) if dtype != "int32" else (32,):
            dense, sparse = (sparse_contribution(comm.rank, dtype) for _ in range(2))
            wire = switchml.Integers() if dtype == "int32" else switchml.Blocks(bits)
            comm.all_reduce(dense, wire=wire)
            work = comm.all_reduce(sparse, wire=wire, skip_zeros=True, async_op=True)
            work.wait()
            assert work.is_sparse
            assert sparse.tobytes() == dense.tobytes()
            yield f"sparse sum of {dtype}, {bits} bits", sparse.tobytes()


def divided_results(comm: switchml.Communicator) -> Iterator[tuple[str, bytes]]:
    """Scatter a sum and gather its parts: every rank then has all of it."""
    for dtype in ("float32", "float16", "int32"):
        given = contribution(comm.rank, dtype, SIZES[-1] * comm.world_size, None)
        part, whole = np.empty(SIZES[-1], dtype), np.empty_like(given)
        comm.reduce_scatter(given, part)
        comm.all_gather(part, whole)
        yield f"scattered and gathered sum of {dtype}", whole.tobytes()
    for root in range(comm.world_size):
        array = contribution(comm.rank, "float32", SIZES[-1], None)
        comm.broadcast(array, root)
        yield f"broadcast from rank {root}", array.tobytes()


def coded_results(comm: switchml.Communicator) -> Iterator[tuple[str, bytes]]:
    """Sum codes where the switches take them; elsewhere they are refused before anything is sent."""
    for codes in ("natural8", "dynamic8"):
        array = contribution(comm.rank, "float32", SIZES[-1], None)
        if codes in comm.codes:
            comm.all_reduce(array, wire=switchml.Codes(codes, SEED))
            yield f"sum of {codes} codes", array.tobytes()
            continue
        try:
            comm.all_reduce(array, wire=switchml.Codes(codes))
        except ValueError:
            continue
        raise AssertionError(f"{codes} codes were not refused")


def results(comm: switchml.Communicator) -> Iterator[tuple[str, bytes]]:
    """Make all calls; yield what each is and the bits of its result."""
    for dtype, calls in CALLS.items():
        for wire in calls:
            bound = wire.bound if isinstance(wire, switchml.Integers) else None
            for size in SIZES:
                for op in ("sum", "avg") if dtype.endswith(("float16", "float32")) else ("sum",):
                    array = contribution(comm.rank, dtype, size, bound)
                    comm.all_reduce(array, op, wire=wire)
                    yield f"{op} of {size} {dtype} as {wire}", array.tobytes()


def main() -> None:
    with mock.patch.object(communicator, "buffer_of", buffer_of), switchml.connect() as comm:
        all_results = itertools.chain(results(comm), sparse_results(comm), divided_results(comm), coded_results(comm))
        hashes = {call: hashlib.sha256(bits).hexdigest() for call, bits in all_results}
        path = Path(os.environ["SWITCHML_JOB_DIR"]) / f"sums-{comm.rank}.json"
        path.write_text(json.dumps({"values": comm.values_per_packet, "sums": hashes}))


main()
