"""The choice of some elements of a large gradient: NumPy's passes, which take a fraction of the time of PyTorch's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["count_of", "largest_places", "magnitudes_of", "places_of", "values_at"]


def magnitudes_of(values: Tensor) -> Tensor:
    """Return the absolute values."""
    return torch.from_numpy(np.abs(values.numpy()))


def count_of(chosen: Tensor) -> int:
    """Return how many elements of a mask are true."""
    return int(np.count_nonzero(chosen.numpy()))


def places_of(chosen: Tensor) -> Tensor:
    """Return the places, as int64, at which a mask is true."""
    return torch.from_numpy(np.flatnonzero(chosen.numpy()))


def values_at(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the values at the places at which a mask is true."""
    return torch.from_numpy(np.compress(chosen.numpy(), values.numpy()))


def largest_places(values: Tensor, count: int) -> Tensor:
    """Return the places, as int64 and in their order, of the `count` largest values; of equal ones the first."""
    array = values.numpy()
    least = np.partition(array, -count)[-count]
    places = np.flatnonzero(array >= least)
    if len(places) > count:
        above = array[places] > least
        above[np.flatnonzero(~above)[: count - np.count_nonzero(above)]] = True
        places = places[above]
    return torch.from_numpy(places)
