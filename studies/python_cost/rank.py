"""One rank of this study, which measures all-reduces, and the part of each outside of native code.

Its command is `python_cost CALLS WARM_UP ELEMENTS`. The answer also has "python_seconds" and "python_cpu_seconds".
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from switchml.benchmarks.workers.backends import Backend, SwitchMLBackend
from switchml.benchmarks.workers.pattern import Elements
from switchml.benchmarks.workers.rank import COMMANDS, Calls, Series, main


class _TimedNative:
    """Stand in for a native object during one call, and add up the time inside of its methods.

    The native object of a call stands in for itself in the same way.
    """

    def __init__(self, native: Any, times: list[float] | None = None) -> None:
        self.native = native
        self.times = [0.0, 0.0] if times is None else times  # seconds, and those of this thread's CPU
        # Created beforehand, so that the call does not include it.
        for name in ("submit", "wait"):
            if hasattr(native, name):
                setattr(self, name, self._timed(getattr(native, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            try:
                result = function(*arguments)
            finally:
                self.times[0] += time.perf_counter() - begin
                self.times[1] += time.thread_time() - begin_cpu
            return result if result is None else _TimedNative(result, self.times)

        return timed


def _time_python(backend: SwitchMLBackend, tensor: Elements) -> tuple[float, float, float]:
    """Return the seconds of an all-reduce, those outside of native calls, and this thread's CPU time in the latter.

    The time includes reading the clocks and standing in for native objects, some microseconds.
    """
    membership = backend.communicator._membership
    native = _TimedNative(membership._native)
    membership._native = native  # type: ignore[assignment]
    try:
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        backend.all_reduce(tensor)
        elapsed, cpu = time.perf_counter() - begin, time.thread_time() - begin_cpu
    finally:
        membership._native = native.native
    return elapsed, elapsed - native.times[0], cpu - native.times[1]


def _python_cost(backend: Backend, elements: int) -> Calls:
    assert isinstance(backend, SwitchMLBackend)
    series = Series(backend, elements)
    python: list[tuple[float, float]] = []  # of all calls, those before the timed ones included

    def call() -> float:
        elapsed, python_seconds, python_cpu_seconds = _time_python(backend, series.tensor)
        python.append((python_seconds, python_cpu_seconds))
        return elapsed

    def remarks() -> dict[str, Any]:
        python_seconds, python_cpu_seconds = zip(*python, strict=True)
        return {"python_seconds": python_seconds, "python_cpu_seconds": python_cpu_seconds}

    series.remarks = remarks
    return series, call


if __name__ == "__main__":
    COMMANDS["python_cost"] = _python_cost
    sys.exit(main())
