"""The choice of some elements of a large gradient: NumPy's passes, which take a fraction of the time of PyTorch's."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "below_largest",
    "beyond",
    "count_of",
    "largest_places",
    "magnitudes_of",
    "places_of",
    "sample_of",
    "values_at",
]

_RUN: Final = 64  # neighbouring elements of a sample, which are a few cache lines
_PART: Final = 1 << 15  # elements whose magnitudes stay in a CPU's cache


def magnitudes_of(values: Tensor) -> Tensor:
    """Return the absolute values."""
    return torch.from_numpy(np.abs(values.numpy()))


def beyond(values: Tensor, threshold: float) -> Tensor:
    """Return a mask of the elements whose magnitudes are larger than `threshold`, without a copy of all magnitudes."""
    array = values.numpy()
    mask = np.empty(len(array), np.bool_)
    part = np.empty(min(_PART, len(array)), array.dtype)
    for begin in range(0, len(array), _PART):
        there = slice(begin, begin + _PART)
        magnitudes = np.abs(array[there], out=part[: len(array) - begin])
        np.greater(magnitudes, array.dtype.type(threshold), out=mask[there])
    return torch.from_numpy(mask)


def sample_of(values: Tensor, count: int) -> Tensor:
    """Return about `count` of the values, or all of them if these are not many more.

    The sample consists of short runs at random places, which are the same for each tensor of a size.
    """
    runs = len(values) // _RUN
    if 2 * count >= len(values):
        return values
    chosen = np.random.default_rng(0).integers(runs, size=-(-count // _RUN))
    chosen.sort()  # so that memory is read in order
    return torch.from_numpy(values.numpy()[: runs * _RUN].reshape(runs, _RUN)[chosen].reshape(-1))


def count_of(chosen: Tensor) -> int:
    """Return how many elements of a mask are true, or of an array are not 0."""
    return int(np.count_nonzero(chosen.numpy()))


def places_of(chosen: Tensor) -> Tensor:
    """Return the places, as int64, at which a mask is true."""
    return torch.from_numpy(np.flatnonzero(chosen.numpy()))


def values_at(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the values at the places at which a mask is true."""
    return torch.from_numpy(np.compress(chosen.numpy(), values.numpy()))


def below_largest(values: Tensor, count: int) -> float:
    """Return the number just below the `count` largest values: these exceed it, and those that equal the least."""
    least = _least_of_largest(values.numpy(), count)
    return float(np.nextafter(least, -np.inf, dtype=least.dtype))


def largest_places(values: Tensor, count: int) -> Tensor:
    """Return the places, as int64 and in their order, of the `count` largest values; of equal ones the first."""
    array = values.numpy()
    least = _least_of_largest(array, count)
    places = np.flatnonzero(array >= least)
    if len(places) > count:
        above = array[places] > least
        above[np.flatnonzero(~above)[: count - np.count_nonzero(above)]] = True
        places = places[above]
    return torch.from_numpy(places)


def _least_of_largest(array: np.ndarray, count: int) -> np.floating:
    least: np.floating = np.partition(array, -count)[-count]
    return least
