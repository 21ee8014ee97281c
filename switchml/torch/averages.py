"""Averages from sums of int64: exact ones although a sum may exceed int64, and float64 rounded once."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["average", "parts", "quotients"]


def parts(values: Tensor, count: int) -> Tensor:
    """Return the quotients and the remainders of int64 `values` divided by `count`, in a new last dimension of 2."""
    return torch.stack((values.div(count, rounding_mode="floor"), values.remainder(count)), -1)


def average(sums: Tensor, count: int) -> Tensor:
    """Return the average of `count` tensors, rounded towards zero, from the sums of their `parts`."""
    quotients, remainders = sums.unbind(-1)
    result = quotients + remainders.div(count, rounding_mode="floor")
    result += (result < 0) & (remainders.remainder(count) > 0)
    return result


def quotients(sums: Tensor, count: int) -> Tensor:
    """Return int64 `sums` divided by `count` as float64, rounded once.

    Args:
        sums: their magnitudes are at most 2^(62 - ceil(log2 count)) for each of `count` summands.
        count: the divisor.

    """
    # A magnitude up to 2^53 is a float64, and its division rounds once. That of a larger one is a fixed-point number of
    # at least 55 bits, of which the last one is odd if anything is lost below it: it is not between two float64 then,
    # so that the conversion rounds as if it knew all bits.
    bits = (count - 1).bit_length()
    shift = (sums.abs() < 2**54).long() + bits
    fixed = sums.div(count, rounding_mode="floor") << shift
    rest = sums.remainder(count) << shift
    fixed += rest.div(count, rounding_mode="floor")
    fixed |= rest.remainder(count) != 0
    return torch.where(sums.abs() <= 2**53, sums.double() / count, torch.ldexp(fixed.double(), -shift.double()))
