"""The calls whose results are compared between ranks, and between transports."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import switchml

ELEMENTS = 20_000


def digests(comm: switchml.Communicator) -> list[str]:
    """Make a call of each kind, and return a digest of each result."""
    random = np.random.default_rng(comm.rank)
    integers = random.integers(-(2**31), 2**31, ELEMENTS, dtype=np.int32)
    floats = random.standard_normal(ELEMENTS, dtype=np.float32)
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
    reduce(np.where(random.random(ELEMENTS) < 0.01, floats, 0).astype(np.float32), skip_zeros=True)
    part = np.empty(ELEMENTS // comm.world_size, np.float32)
    comm.reduce_scatter(floats[: part.size * comm.world_size].copy(), part)
    found.append(digest(part))
    comm.broadcast(floats, root=0)
    found.append(digest(floats))
    comm.barrier()
    return found


def digest(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
