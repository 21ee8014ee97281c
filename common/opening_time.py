"""The time that an agent may take to open the ranks of a job."""

from __future__ import annotations

from typing import Final

__all__ = ["seconds_to_open"]

_ANY_JOB_SECONDS: Final = 10.0
_SECONDS_PER_RANK: Final = 0.02
_SECONDS_PER_GIB: Final = 5.0  # to allocate the ranks' memory on a busy machine


def seconds_to_open(ranks: int, slots: int, values: int) -> float:
    """Return the limit for `ranks` ranks on one host, each of which has a buffer of `values` words for each slot."""
    memory = ranks * slots * values * 4
    return _ANY_JOB_SECONDS + _SECONDS_PER_RANK * ranks + _SECONDS_PER_GIB * memory / 2**30
