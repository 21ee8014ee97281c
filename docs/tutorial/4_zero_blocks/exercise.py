"""Lesson 4: an all-reduce that leaves out blocks of zeros, compared with the switch's own.

switchml-ctl up --values 256
switchml-ctl job start --workers 4 -- python docs/tutorial/4_zero_blocks/exercise.py
"""

import json

import numpy as np

import switchml

BLOCK = 256  # values of a packet
BLOCKS = 4096
DENSITIES = (0.05, 0.5)  # the share of blocks in which a rank has values


def blocks_with_values(x: np.ndarray) -> np.ndarray:
    """Return for each block of BLOCK values whether any of them is not zero: a bool for each block."""
    # ---- hole 1: one line of numpy; x.reshape(-1, BLOCK) has a block in each row
    raise NotImplementedError("hole 1: say for each block whether it has a value that is not zero")
    # ---- end of hole 1


def sparse_sum(comm: switchml.Communicator, x: np.ndarray) -> int:
    """Replace x by its sum over all ranks, without the blocks that are zero on all of them; return the bytes sent.

    All ranks must sum arrays of the same length, so first they have to learn which blocks any of them has.
    """
    rows = x.reshape(-1, BLOCK)
    has = blocks_with_values(x).astype(np.int32)
    # ---- hole 2: sum `has` over the ranks, then the rows that any rank has; summed(comm, array) returns the bytes
    raise NotImplementedError("hole 2: sum only the blocks that any rank has")
    # ---- end of hole 2


def summed(comm: switchml.Communicator, array: np.ndarray) -> int:
    """Replace an array by its sum over all ranks, and return the bytes of its values that this rank has sent."""
    work = comm.all_reduce(array, async_op=True)
    work.wait()
    return work.wire_bytes


def gradient(rank: int, density: float) -> np.ndarray:
    """Return a rank's gradient: whole numbers in some blocks, in other places on each rank."""
    random = np.random.default_rng(rank)
    x = np.zeros((BLOCKS, BLOCK), np.float32)
    chosen = random.choice(BLOCKS, int(BLOCKS * density), replace=False)
    x[chosen] = random.integers(-9, 10, (len(chosen), BLOCK))
    return x.reshape(-1)


def main() -> None:
    """Sum gradients of each density in three ways, and print the bytes that this rank has sent."""
    with switchml.connect() as comm:
        results = []
        for density in DENSITIES:
            right = gradient(comm.rank, density)
            dense = summed(comm, right)
            x = gradient(comm.rank, density)
            sparse = sparse_sum(comm, x)
            own = gradient(comm.rank, density)
            work = comm.all_reduce(own, skip_zeros=True, async_op=True)
            work.wait()
            results.append(
                {
                    "density": density,
                    "dense_bytes": dense,
                    "your_bytes": sparse,
                    "skip_zeros_bytes": work.wire_bytes,
                    "skip_zeros_blocks": work.blocks._asdict(),
                    "wrong": int((x != right).sum()),
                    "wrong_of_skip_zeros": int((own != right).sum()),
                }
            )
        print(json.dumps({"rank": comm.rank, "results": results}))


if __name__ == "__main__":
    main()
