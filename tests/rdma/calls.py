"""The calls whose results are compared between ranks, and between transports."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import switchml

ELEMENTS = 20_000


def digests(comm: switchml.Communicator, elements: int = ELEMENTS) -> list[str]:
    """Make a call of each kind with this number of elements, and return a digest of each result."""
    random = np.random.default_rng(comm.rank)
    integers = random.integers(-(2**31), 2**31, elements, dtype=np.int32)
    floats = random.standard_normal(elements, dtype=np.float32)
    found = []

    def reduce(array: Any, **options: Any) -> None:
        comm.all_reduce(array, **options)
        found.append(digest(array))

    for integer in (np.int8, np.int16, np.int32, np.int64):
        reduce(integers.astype(integer))
    for real in (np.float16, np.float32):
        reduce(floats.astype(real))
    for bits in (16, 8):
        reduce(floats.copy(), wire=switchml.Blocks(bits=bits))
    reduce(np.where(random.random(elements) < 0.01, floats, 0).astype(np.float32), skip_zeros=True)
    part = np.empty(elements // comm.world_size, np.float32)
    comm.reduce_scatter(floats[: part.size * comm.world_size].copy(), part)
    found.append(digest(part))
    comm.broadcast(floats, root=0)
    found.append(digest(floats))
    comm.barrier()
    return found


def digests_of_ranks(job: int, ranks: Sequence[int], world: int, agent: Path, elements: int) -> list[list[str]]:
    """Make the calls as these ranks of a job, each in a thread, and return their digests."""

    def run(rank: int) -> list[str]:
        with switchml.connect(job=job, rank=rank, world_size=world, agent=agent) as comm:
            return digests(comm, elements)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(run, ranks))


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
