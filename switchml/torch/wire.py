"""The bits that a value of each dtype takes in packets."""

from __future__ import annotations

from typing import Final, TypedDict

import torch

from switchml.lanes import Arithmetic, Codes
from switchml.torch.options import Options, current_options

__all__ = ["MOST_RANKS_OF_16_BITS", "LaneArguments", "lane_arguments", "wire_bits"]

MOST_RANKS_OF_16_BITS: Final = 8
"""With up to this many ranks, a sum of float16 or bfloat16 in lanes of 16 bits is at least as exact as one that a ring
rounds to bfloat16 after each addition."""

_HALVES: Final = (torch.float16, torch.bfloat16)
_EXACT: Final = {torch.int8: 2**7, torch.uint8: 2**8 - 1, torch.bool: 1}  # the largest magnitudes


class LaneArguments(TypedDict, total=False):
    """The arguments of `Communicator.all_reduce` that choose its lanes."""

    wire_bits: int
    rounding: str
    seed: int
    bound: int
    codes: Codes
    arithmetic: Arithmetic


def wire_bits(dtype: torch.dtype, world_size: int, options: Options | None = None) -> int:
    """Return the bits of packets that an element of `dtype` takes in a sum over `world_size` ranks.

    float64 and int64 take one to three words for each element, as the largest magnitude in a packet needs; 96 bits are
    the most. All others have one lane of 32, 16 or 8 bits.

    Args:
        dtype: the dtype of the tensors.
        world_size: the ranks of the group.
        options: those of the group; None for those of `configure` and the environment.

    """
    options = current_options() if options is None else options
    if dtype in (torch.float64, torch.int64):
        return 96
    if dtype in _EXACT:
        return next((bits for bits in (8, 16) if world_size * _EXACT[dtype] < 2 ** (bits - 1)), 32)
    if not dtype.is_floating_point:
        return 32
    if options.wire == "auto":
        if options.arithmetic == "float":
            return 32
        return 16 if dtype in _HALVES and world_size <= MOST_RANKS_OF_16_BITS else 32
    return options.wire


def lane_arguments(dtype: torch.dtype, world_size: int, options: Options) -> LaneArguments:
    """Return the arguments for a sum of tensors of any dtype but float64."""
    if dtype == torch.int64:
        return {}
    if options.arithmetic == "float" and dtype.is_floating_point:
        return {"arithmetic": "float"}
    bits = wire_bits(dtype, world_size, options)
    if bits == 32 or not dtype.is_floating_point:
        return {"wire_bits": bits}
    if options.rounding == "stochastic":
        return {"wire_bits": bits, "rounding": options.rounding, "seed": options.seed}
    return {"wire_bits": bits}
