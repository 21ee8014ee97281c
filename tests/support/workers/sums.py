"""All-reduces of several sizes and types; every rank checks the results and exits non-zero if one is wrong."""

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np

import switchml


def contribution(rank: int, size: int, seed: int, dtype: str) -> np.ndarray:
    generator = np.random.default_rng((seed, rank, size))
    if dtype == "int32":
        return generator.integers(-(2**31), 2**31, size, dtype=np.int32)
    return generator.normal(size=size).astype(np.float32)


def check(comm: switchml.Communicator, size: int, seed: int, dtype: str, values: int) -> None:
    result = contribution(comm.rank, size, seed, dtype)
    comm.all_reduce(result)
    every = [contribution(rank, size, seed, dtype) for rank in range(comm.world_size)]
    if dtype == "int32":
        expected = np.zeros(size, np.int32)
        for array in every:
            expected += array
        assert np.array_equal(result, expected), f"int32 sum of {size} is wrong"
        return
    exact = np.sum(np.array(every, np.float64), axis=0)
    padded = np.zeros((comm.world_size, math.ceil(size / values) * values))
    padded[:, :size] = np.abs(every)
    largest = padded.reshape(comm.world_size, -1, values).max(axis=(0, 2), initial=0)
    unit = np.exp2(np.floor(np.log2(np.maximum(largest, 1e-38))) + 1 - 31 + math.ceil(math.log2(comm.world_size)))
    bound = np.repeat(comm.world_size / 2 * unit, values)[:size] + np.spacing(np.abs(exact).astype(np.float32)) / 2
    worst = np.abs(result - exact) - bound
    assert np.all(worst <= 0), f"float32 sum of {size} misses its bound by {worst.max()}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", default="0,1,63,64,65,1000,100000")
    parser.add_argument("--seconds", type=float, default=0, help="continue for this many seconds")
    parser.add_argument("--until", type=Path, help="continue until this file exists")
    options = parser.parse_args()
    assert os.environ["RANK"] == os.environ["SWITCHML_RANK"]
    with switchml.connect() as comm:
        values = comm.values_per_packet
        assert (comm.rank, comm.world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        end = time.monotonic() + options.seconds
        rounds = 0
        more = np.ones(1, np.int32)
        while more[0]:
            for size in map(int, options.sizes.split(",")):
                for dtype in ("int32", "float32"):
                    check(comm, size, options.seed + rounds, dtype, values)
            rounds += 1
            goes_on = time.monotonic() < end or (options.until is not None and not options.until.exists())
            more = np.array([comm.rank == 0 and goes_on], np.int32)
            comm.all_reduce(more)
    print(f"rank {comm.rank}: {rounds} rounds right")


main()
