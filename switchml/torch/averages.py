"""Exact averages of int64, from sums that may exceed int64."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["average", "parts"]


def parts(values: Tensor, count: int) -> Tensor:
    """Return the quotients and the remainders of int64 `values` divided by `count`, in a new last dimension of 2."""
    return torch.stack((values.div(count, rounding_mode="floor"), values.remainder(count)), -1)


def average(sums: Tensor, count: int) -> Tensor:
    """Return the average of `count` tensors, rounded towards zero, from the sums of their `parts`."""
    quotients, remainders = sums.unbind(-1)
    result = quotients + remainders.div(count, rounding_mode="floor")
    result += (result < 0) & (remainders.remainder(count) > 0)
    return result
