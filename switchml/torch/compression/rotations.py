"""A method that rotates gradients before it rounds them, so that single large elements cost the others nothing."""

from __future__ import annotations

import functools
from typing import Final

import torch
from torch import Tensor

from switchml.client.arguments import whole_number
from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds
from switchml.torch.compression.requests import Largest, Sum

__all__ = ["Thc", "hadamard"]

_MOST_ELEMENTS: Final = 1 << 16  # of a block: 127 times as many are still exact in float32
_LEAST_UNIT: Final = torch.finfo(torch.float32).tiny  # the reciprocal of a smaller one could be infinite


class Thc(Compressor):
    """Stochastic levels of blocks that a random rotation has made even, in lanes of 8 bits (THC with uniform levels).

    A block is multiplied by random signs and transformed by Walsh and Hadamard. Each element then is a sum over all
    elements of the block, so that the largest is a few times the standard deviation, whatever the gradient is. The
    largest of all ranks' elements of a block is the unit of floor(127 / N) levels on both sides of 0. As the transform
    is linear, the sum of the levels is transformed back once, however many ranks there are.

    The way back computes with integers below 2^24, which are exact in any order of additions, so all ranks end with
    the same bits whatever CPU they have.

    Args:
        block: elements that are rotated together, a power of two up to 65536. Shorter gradients have one block of the
            next power of two. The last block is filled up with zeros.

    """

    name = "thc"
    sent = "8 + 32 / block"
    requests = (Largest, Sum)
    unbiased = True

    def __init__(self, block: int = 1024) -> None:
        if not 1 <= whole_number(block, "block") <= _MOST_ELEMENTS or block & (block - 1):
            raise ValueError(f"block is {block}; it must be a power of two from 1 to {_MOST_ELEMENTS}")
        self.block = block

    def check(self, world_size: int) -> None:
        """Check that there is a level for each rank."""
        if world_size > 127:
            raise ValueError(f"thc: lanes of 8 bits hold no sum of {world_size} ranks")

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the units, then sum levels."""
        elements, most = gradient.numel(), 127 // place.size
        block = min(self.block, 1 << (elements - 1).bit_length())
        signs = torch.randint(0, 2, (block,), generator=place.shared_generator()).mul_(2).sub_(1).float()
        rotated = hadamard(torch.nn.functional.pad(gradient, (0, -elements % block)).view(-1, block) * signs)
        unit = ((yield Largest(torch.linalg.vector_norm(rotated, torch.inf, dim=1))) / most)[:, None]
        levels = rotated.mul_(torch.where(unit >= _LEAST_UNIT, 1 / unit, 0.0))
        levels.add_(torch.rand(levels.shape, generator=place.generator())).floor_().clamp_(-most, most)
        sums = yield Sum(levels.to(torch.int8).view(-1), most)
        factors = signs * (unit / block)

        def back(total: Tensor) -> Tensor:
            return (hadamard(total.float().view(-1, block)) * factors).view(-1)[:elements]

        return Outcome(back(sums) / place.size, back(levels))


def hadamard(rows: Tensor) -> Tensor:
    """Return the Walsh-Hadamard transform of each row, whose length is a power of two; twice it multiplies by that.

    The transform of length a * b is that of length a over the columns, and of length b over the rows, of an a x b
    matrix: two multiplications by small matrices are faster than one pass over memory for each factor of 2.
    """
    exponent = rows.shape[1].bit_length() - 1
    first, second = 1 << exponent // 2, 1 << (exponent + 1) // 2
    inner = rows.view(-1, second) @ _matrix(second)
    return torch.matmul(_matrix(first), inner.view(-1, first, second)).view(rows.shape)


@functools.lru_cache
def _matrix(size: int) -> Tensor:
    """Return Sylvester's matrix."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix
