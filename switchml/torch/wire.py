"""The wire of each dtype in the sums of a group."""

from __future__ import annotations

from typing import Final

import torch

from switchml.client.wire import Blocks, Codes, Integers, Wire
from switchml.torch.options import Options, current_options

__all__ = ["MOST_RANKS_OF_16_BITS", "wire_bits", "wire_of"]

MOST_RANKS_OF_16_BITS: Final = 8
"""With up to this many ranks, a sum of float16 or bfloat16 in lanes of 16 bits is at least as exact as one that a ring
rounds to bfloat16 after each addition."""

_HALVES: Final = (torch.float16, torch.bfloat16)
_EXACT: Final = {torch.int8: 2**7, torch.uint8: 2**8 - 1, torch.bool: 1}  # the largest magnitudes


def wire_bits(dtype: torch.dtype, world_size: int, options: Options | None = None) -> int:
    """Return the bits of packets that an element of `dtype` takes in a sum over `world_size` ranks.

    float64 takes three words for each element, and int64 one to three, as the largest magnitude in a packet needs. All
    others have one lane of 32, 16 or 8 bits. The results of `Codes` take 32 bits, not 8.

    Args:
        dtype: the dtype of the tensors.
        world_size: the ranks of the group.
        options: those of the group; None for those of `configure` and the environment.

    """
    if dtype in (torch.float64, torch.int64):
        return 96
    wire = wire_of(dtype, world_size, current_options() if options is None else options)
    return 8 if isinstance(wire, Codes) else getattr(wire, "bits", 32)


def wire_of(dtype: torch.dtype, world_size: int, options: Options) -> Wire | None:
    """Return the wire for a sum of tensors; None for int64 and float64, which have only one."""
    if dtype in (torch.int64, torch.float64):
        return None
    if dtype in _EXACT:
        return Integers(next((bits for bits in (8, 16) if world_size * _EXACT[dtype] < 2 ** (bits - 1)), 32))
    if not dtype.is_floating_point:
        return Integers()
    if isinstance(options.wire, Wire):
        return options.wire
    return Blocks(16 if dtype in _HALVES and world_size <= MOST_RANKS_OF_16_BITS else 32)
