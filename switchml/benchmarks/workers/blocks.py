"""Tensors of which only some blocks have values, and the sparse sums of a rank of `bench sparse`.

In a block in which rank r has values, element i of its tensor is base(i) * (r + 1) * 2^-(c mod 3) in call c, where
base(i) is an odd number below 2^15 in magnitude, times 2^-15. So no element is zero there, and sums over up to 22 ranks
are exact in float32. The power of two makes the result of an earlier call wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from switchml.benchmarks.workers.backends import Backend, SwitchMLBackend
from switchml.benchmarks.workers.pattern import Elements, Vector

__all__ = ["METHODS", "BlockPattern", "Method", "owners", "packets_with_values"]

_SEED: Final = 18
_FACTORS: Final[tuple[np.float32, ...]] = (np.float32(1), np.float32(0.5), np.float32(0.25))
_SLICE: Final = 1 << 16  # elements that are computed at a time, so that they stay in the caches

Flags = npt.NDArray[np.bool_]


def owners(workers: int, blocks: int, density: float, overlap: str) -> Flags:
    """Return which ranks have values in which blocks, with shape (workers, blocks).

    Every rank has values in the same number of blocks: `density` (0 to 1) of them, at least one unless it is 0.
    `overlap` says which of them the ranks have in common: "all", "none", or at "random" those that chance gives them.
    Raises ValueError if they cannot have none in common.
    """
    count = min(blocks, max(1, round(density * blocks))) if density else 0
    if overlap == "none" and workers * count > blocks:
        raise ValueError(f"{workers} ranks with {count} blocks each have some of {blocks} blocks in common")
    owned = np.zeros((workers, blocks), np.bool_)
    for rank in range(workers):
        order = np.random.default_rng([_SEED, rank if overlap == "random" else 0]).permutation(blocks)
        first = rank * count if overlap == "none" else 0
        owned[rank, order[first : first + count]] = True
    return owned


def packets_with_values(owned: Flags, block: int, values: int) -> int:
    """Return how many packets of `values` have at least one of an owned block; `owned` has a flag for each block."""
    numbers = np.flatnonzero(owned)
    changes = np.zeros(-(-len(owned) * block // values) + 1, np.int64)
    np.add.at(changes, numbers * block // values, 1)
    np.add.at(changes, ((numbers + 1) * block - 1) // values + 1, -1)
    return int(np.count_nonzero(np.cumsum(changes)))


class BlockPattern:
    """The contributions of one rank and their sums; `owned` is that of `owners`, blocks have `block` elements."""

    def __init__(self, rank: int, owned: Flags, block: int) -> None:
        self._block = block
        self._rank = rank
        self._owned = owned[rank]
        self._weights: Vector = (np.arange(1, len(owned) + 1) @ owned).astype(np.float32)

    def fill(self, tensor: Elements, call: int) -> None:
        """Make `tensor` this rank's contribution to a call."""
        rows = tensor.reshape(-1, self._block)
        rows[:] = 0
        for numbers in self._slices(np.flatnonzero(self._owned)):
            rows[numbers] = self._base(numbers) * (np.float32(self._rank + 1) * _factor(call))

    def largest_error(self, tensor: Elements, call: int) -> float:
        """Return the largest error of an element of the sum, in units of the call's factor.

        It is NaN if any element is NaN, and infinite if a block that no rank has is not all zero.
        """
        rows, factor = tensor.reshape(-1, self._block), _factor(call)
        for numbers in self._slices(np.flatnonzero(self._weights == 0)):
            if rows[numbers].any():
                return float("inf")
        largest = np.float32(0)
        for numbers in self._slices(np.flatnonzero(self._weights)):
            expected = self._base(numbers) * (self._weights[numbers] * factor)[:, np.newaxis]
            largest = np.maximum(largest, np.abs(rows[numbers] - expected).max())  # NaN is the maximum
        return float(largest) / float(factor)

    def _slices(self, numbers: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        length = max(1, _SLICE // self._block)
        return [numbers[start : start + length] for start in range(0, len(numbers), length)]

    def _base(self, numbers: npt.NDArray[np.int64]) -> Vector:
        """Return the numbers that the ranks multiply, for these blocks."""
        starts = numbers.astype(np.uint32)[:, np.newaxis] * np.uint32(self._block)
        places = (starts + np.arange(self._block, dtype=np.uint32)) * np.uint32(2654435761)
        odd = (places >> np.uint32(16)).astype(np.int32) | np.int32(1)
        base: Vector = (odd - np.int32(1 << 15)).astype(np.float32) * np.float32(2.0**-15)
        return base


def _factor(call: int) -> np.float32:
    return _FACTORS[call % len(_FACTORS)]


# ---- methods --------------------------------------------------------------------------------------------------------

Method = Callable[[], dict[str, int]]
"""Sum the tensor; return what is known of the blocks: "sent", "received" and "all", and 1 as "sparse"."""


def _dense(backend: Backend, tensor: Elements, _block: int) -> Method:
    prepared = backend.prepare(tensor)

    def call() -> dict[str, int]:
        backend.all_reduce(prepared)
        return {}

    return call


def _sparse(backend: Backend, tensor: Elements, _block: int) -> Method:
    assert isinstance(backend, SwitchMLBackend)
    all_reduce = backend.communicator.all_reduce

    def call() -> dict[str, int]:
        work = all_reduce(tensor, skip_zeros=True, async_op=True)
        work.wait()
        return {**work.blocks._asdict(), "sparse": int(work.is_sparse)}

    return call


def _gather(backend: Backend, tensor: Elements, block: int) -> Method:
    """Return the method of the peer `allgather-sparse`: an all-gather of the numbers and values of the blocks."""
    import torch
    import torch.distributed as dist

    rows = backend.prepare(tensor).view(-1, block)

    def call() -> dict[str, int]:
        own = rows.view(torch.uint8).amax(dim=1).nonzero().flatten()  # the fastest of PyTorch's ways to find them
        counts = torch.empty(backend.world_size, dtype=torch.int64)
        dist.all_gather_into_tensor(counts, torch.tensor([len(own)]))
        most = int(counts.max())
        if most == 0:
            return {}
        numbers, values = torch.zeros(most, dtype=torch.int64), torch.zeros(most, block)
        numbers[: len(own)], values[: len(own)] = own, rows[own]
        all_numbers = torch.empty(backend.world_size, most, dtype=torch.int64)
        all_values = torch.empty(backend.world_size, most, block)
        dist.all_gather_into_tensor(all_numbers.view(-1), numbers)
        dist.all_gather_into_tensor(all_values.view(-1, block), values)
        rows[own] = 0
        for count, some, theirs in zip(counts.tolist(), all_numbers, all_values, strict=True):
            rows.index_add_(0, some[:count], theirs[:count])
        return {}

    return call


METHODS: Final[dict[str, Callable[[Backend, Elements, int], Method]]] = {
    "dense": _dense,
    "sparse": _sparse,
    "allgather-sparse": _gather,
}
"""The methods to sum a tensor with blocks of a number of elements, by name."""
