"""Sums of floats of several sizes; every rank checks that their bits are those of the reference in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import switchml
from switchml.dataplane.floats import sum_digits

SIZES = (1, 63, 1000, 5000)


def contribution(rank: int, size: int) -> npt.NDArray[np.float32]:
    """Return numbers whose magnitudes are up to 2^80 apart, with some that are not finite."""
    generator = np.random.default_rng((rank, size))
    values = np.ldexp(generator.standard_normal(size), generator.integers(-40, 41, size)).astype(np.float32)
    values[generator.random(size) < 0.01] = np.inf
    values[generator.random(size) < 0.01] = -np.inf
    values[generator.random(size) < 0.01] = np.nan
    return values


def main() -> None:
    with switchml.connect() as comm:
        for size in SIZES:
            result = contribution(comm.rank, size)
            comm.all_reduce(result, wire=switchml.Floats())
            expected = sum_digits(np.array([contribution(rank, size) for rank in range(comm.world_size)]))
            assert result.tobytes() == expected.tobytes(), f"the sum of {size} floats is wrong"


main()
