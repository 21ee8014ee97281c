"""One rank of this study, which measures calls of an urgent job while an all-reduce of another job is under way.

Its command is `urgent CALLS WARM_UP ELEMENTS BEHIND`; BEHIND are the elements of the other job's calls, 0 for none.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Final

import numpy as np

import switchml
from switchml.benchmarks.workers.backends import BACKENDS, Backend, SwitchMLBackend
from switchml.benchmarks.workers.pattern import Pattern
from switchml.benchmarks.workers.rank import COMMANDS, Calls, Series, aligned_vector, main

_POOLS_BEFORE: Final = 2
_BEHIND_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 1e-3


class UrgentBackend(SwitchMLBackend):
    """A rank that has a second job with the same ranks, which has the highest priority."""

    @functools.cached_property
    def urgent(self) -> switchml.Communicator:
        """The communicator of the second job."""
        job = f"urgent ranks of {self.communicator.name}"
        return switchml.connect(job=job, rank=self.rank, world_size=self.world_size, create=True, priority=7)

    def close(self) -> None:
        """End this rank's part in its jobs."""
        if "urgent" in vars(self):
            self.urgent.close()
        super().close()


class Urgent(Series):
    """A series of calls of an urgent job, during each of which another job reduces `behind`."""

    def __init__(self, backend: UrgentBackend, elements: int, behind: int) -> None:
        super().__init__(backend, elements)
        self._urgent, self._other = backend.urgent, backend.communicator
        self.behind = aligned_vector(behind, "float32")
        self._pattern_behind = Pattern(backend.rank, backend.world_size, behind) if behind else None
        self._ended_first = 0
        self.remarks = lambda: {"ended_first": self._ended_first}

    def call(self) -> float:
        """Return the seconds of the urgent call. Raises ValueError if the other job does not progress."""
        if self._pattern_behind is None:
            self._urgent.barrier()
            return self._seconds()
        # The other call has found its window, and keeps its links busy, when its pool has been used a few times.
        first = self._other.statistics().position + _POOLS_BEFORE * self._other.slots
        work = self._other.all_reduce(self.behind, async_op=True)
        deadline = time.monotonic() + _BEHIND_SECONDS
        while self._other.statistics().position < first and not work.is_completed():
            if time.monotonic() > deadline:
                raise ValueError(f"the call behind the urgent one did not progress within {_BEHIND_SECONDS:g} s")
            work.ends_within(_STEP_SECONDS)
        self._urgent.barrier()
        seconds = self._seconds()
        self._ended_first += work.is_completed()
        work.wait()
        return seconds

    def _seconds(self) -> float:
        begin = time.perf_counter()
        self._urgent.all_reduce(self.tensor)
        return time.perf_counter() - begin

    def _fill(self, number: int) -> None:
        super()._fill(number)
        if self._pattern_behind is not None:
            self._pattern_behind.fill(self.behind, number)

    def _error(self, number: int) -> float:
        error = super()._error(number)
        if self._pattern_behind is None:
            return error
        return float(np.maximum(error, self._pattern_behind.largest_error(self.behind, number)))  # also keeps NaN


def _urgent(backend: Backend, elements: int, behind: int) -> Calls:
    assert isinstance(backend, UrgentBackend)
    series = Urgent(backend, elements, behind)
    return series, series.call


if __name__ == "__main__":
    BACKENDS["switchml"] = UrgentBackend
    COMMANDS["urgent"] = _urgent
    sys.exit(main())
