"""All-reduces in lanes of each width; every rank writes the sha256 of its results to the job's directory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import switchml
from switchml import communicator, tensors

# By dtype: width, rounding, and bound of integers. In this order; stochastic rounding hashes the number of a call.
CALLS = {
    "float32": [
        (32, "nearest", None),
        (16, "nearest", None),
        (16, "stochastic", None),
        (8, "nearest", None),
        (8, "stochastic", None),
    ],
    "float16": [(16, "nearest", None), (8, "stochastic", None)],
    "bfloat16": [(16, "nearest", None), (8, "nearest", None), (16, "stochastic", None), (8, "stochastic", None)],
    "int8": [(16, "nearest", None), (8, "nearest", 31)],
    "uint8": [(16, "nearest", None), (8, "nearest", 31)],
    "bool": [(16, "nearest", None), (8, "nearest", None)],
    "int32": [(16, "nearest", 8000)],
}
SIZES = (1, 129, 700)
SEED = 23


class BrainFloats(np.ndarray):
    """An array of the bits of bfloat16, which numpy does not have."""


def buffer_of(x: np.ndarray) -> tensors.Buffer:
    """Return the memory of an array; that of BrainFloats as it is for a torch tensor of bfloat16."""
    buffer = tensors.buffer_of(x)
    return buffer._replace(dtype="bfloat16") if isinstance(x, BrainFloats) else buffer


def contribution(rank: int, dtype: str, size: int, bound: int | None) -> np.ndarray:
    """Return the values of a rank: floats of many magnitudes, integers of their whole range, or up to the bound."""
    generator = np.random.default_rng((rank, size))
    if dtype == "bool":
        return generator.integers(0, 4, size) == 0
    if not dtype.endswith(("float16", "float32")):
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if bound is None else (max(-bound, limits.min), bound)
        return generator.integers(low, high + 1, size).astype(dtype)
    floats = (generator.standard_t(3, size) * np.exp2(generator.integers(-9, 9, size))).astype(np.float32)
    if dtype == "bfloat16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16).view(BrainFloats)
    return floats.astype(dtype)


def results(comm: switchml.Communicator) -> Iterator[tuple[str, bytes]]:
    """Make all calls; yield what each is and the bits of its result."""
    for dtype, calls in CALLS.items():
        for bits, rounding, bound in calls:
            for size in SIZES:
                for op in ("sum", "avg") if dtype.endswith(("float16", "float32")) else ("sum",):
                    array = contribution(comm.rank, dtype, size, bound)
                    comm.all_reduce(array, op, wire_bits=bits, rounding=rounding, seed=SEED, bound=bound)
                    yield f"{op} of {size} {dtype}, {bits} bits, {rounding}", array.tobytes()


def main() -> None:
    communicator.buffer_of = buffer_of
    with switchml.connect() as comm:
        hashes = {call: hashlib.sha256(bits).hexdigest() for call, bits in results(comm)}
        path = Path(os.environ["SWITCHML_JOB_DIR"]) / f"sums-{comm.rank}.json"
        path.write_text(json.dumps({"values": comm.values_per_packet, "sums": hashes}))


main()
