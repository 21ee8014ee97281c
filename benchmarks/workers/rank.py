"""One rank of a benchmark: `python -m switchml.benchmarks.workers.rank BACKEND SOCKET`.

It joins its group, connects to the benchmark's Unix socket, sends {"rank", "pid", "share"} and then answers commands,
one
per line, with one line of JSON:

    all_reduce ELEMENTS CALLS WARM_UP     one tensor, call after call; TYPE (float32 or bfloat16) and WIRE_BITS (32)
                                          may follow
    queue ELEMENTS TENSORS CALLS WARM_UP  TENSORS tensors of ELEMENTS, queued together: one "call"
    python_cost ELEMENTS CALLS WARM_UP    SwitchML only: also the part of each call outside of native code,
                                          "python_seconds" and "python_cpu_seconds"
    end

The answer has the "seconds" of each call, the resources that this process used during them ("cpu_seconds", "wake_ups",
"preemptions"), "largest_error" and "allowed_error". Rank 0 adds those of the processes in SWITCHML_BENCH_DAEMONS
("daemon_cpu_seconds", ...). A failure is answered by {"error"}, and the rank ends.

Between the barrier and the call a rank only reads its own counters. Those of other processes take longer to read; they
are read before that barrier and after the call, and the cost of a barrier alone is subtracted. The call is followed by
another barrier, so that no rank verifies while others still reduce. Those would have fewer CPUs, and would wait for the
next call of Open MPI's ranks, which send what they have queued only inside of calls.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, TextIO

import numpy as np
import numpy.typing as npt

from switchml.benchmarks.workers import counters
from switchml.benchmarks.workers.backends import BACKENDS, Backend, SwitchMLBackend
from switchml.benchmarks.workers.pattern import TYPES, Pattern, allowed_error

__all__ = ["main"]


_ALIGNMENT: Final = 64
"""Alignment of a tensor's memory in bytes, as in PyTorch; numpy's memory begins 16 bytes after a page boundary."""


def _aligned_vector(elements: int, element_type: str) -> npt.NDArray[np.float32 | np.uint16]:
    size = np.dtype(TYPES[element_type]).itemsize * elements
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(TYPES[element_type])


class Series:
    """A series of calls on one tensor: each with new contents, between two barriers, and verified."""

    def __init__(
        self, backend: Backend, backend_name: str, elements: int, element_type: str = "float32", wire_bits: int = 32
    ) -> None:
        self._backend = backend
        self.tensor = _aligned_vector(elements, element_type)
        self._pattern = Pattern(backend.rank, backend.world_size, elements, element_type)
        self._allowed_error = allowed_error(backend_name, backend.world_size, element_type, wire_bits)
        pids = os.environ.get("SWITCHML_BENCH_DAEMONS", "")
        self._daemons = [int(pid) for pid in pids.split(",") if pid] if backend.rank == 0 else []

    def run(self, call: Callable[[], float], calls: int, warm_up: int) -> dict[str, Any]:
        """Make the calls, each of which returns its seconds. Raises ValueError for a wrong result."""
        seconds: list[float] = []
        used, daemons_used = counters.Usage(), counters.Usage()
        largest_error = 0.0
        for number in range(warm_up + calls):
            self._pattern.fill(self.tensor, number)
            self._backend.barrier()
            daemons_idle = counters.of_processes(self._daemons)
            self._backend.barrier()
            daemons_before = counters.of_processes(self._daemons)
            self._backend.barrier()
            before = counters.own()
            elapsed = call()
            after = counters.own()
            daemons_after = counters.of_processes(self._daemons)
            self._backend.barrier()
            error = self._pattern.largest_error(self.tensor, number)
            if not error <= self._allowed_error:  # also catches NaN
                raise ValueError(
                    f"call {number} of {self.tensor.size} elements gave a wrong sum: an element differs by {error}, "
                    f"and {self._allowed_error} is allowed"
                )
            largest_error = max(largest_error, error)
            if number >= warm_up:
                seconds.append(elapsed)
                used += after - before
                daemons_used += (daemons_after - daemons_before) - (daemons_before - daemons_idle)
        answer = {"seconds": seconds, "largest_error": largest_error, "allowed_error": self._allowed_error}
        answer |= vars(used)
        if self._daemons:
            answer |= {f"daemon_{name}": max(0, value) for name, value in vars(daemons_used).items()}
        return answer


def _all_reduce(
    backend: Backend,
    name: str,
    elements: int,
    calls: int,
    warm_up: int,
    element_type: str = "float32",
    wire_bits: int = 32,
) -> dict[str, Any]:
    series = Series(backend, name, elements, element_type, wire_bits)
    prepared = backend.prepare(series.tensor)
    all_reduce = backend.all_reduce_with(wire_bits)

    def call() -> float:
        begin = time.perf_counter()
        all_reduce(prepared)
        return time.perf_counter() - begin

    return series.run(call, calls, warm_up)


def _queue(backend: Backend, name: str, elements: int, tensors: int, calls: int, warm_up: int) -> dict[str, Any]:
    series = Series(backend, name, elements * tensors)
    prepared = [backend.prepare(tensor) for tensor in series.tensor.reshape(tensors, elements)]

    def call() -> float:
        begin = time.perf_counter()
        backend.all_reduce_queued(prepared)
        return time.perf_counter() - begin

    return series.run(call, calls, warm_up)


def _python_cost(backend: Backend, name: str, elements: int, calls: int, warm_up: int) -> dict[str, Any]:
    assert isinstance(backend, SwitchMLBackend)
    series = Series(backend, name, elements)
    prepared = backend.prepare(series.tensor)
    python: list[tuple[float, float]] = []

    def call() -> float:
        elapsed, python_seconds, python_cpu_seconds = backend.time_python(prepared)
        python.append((python_seconds, python_cpu_seconds))
        return elapsed

    answer = series.run(call, calls, warm_up)
    python_seconds, python_cpu_seconds = zip(*python[warm_up:], strict=True)
    return answer | {"python_seconds": python_seconds, "python_cpu_seconds": python_cpu_seconds}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "all_reduce": _all_reduce,
    "queue": _queue,
    "python_cost": _python_cost,
}


def _answer(stream: TextIO, content: dict[str, Any]) -> None:
    stream.write(json.dumps(content) + "\n")
    stream.flush()


def main() -> int:
    """Serve until the end; return the exit status."""
    name, address = sys.argv[1:]
    share = counters.take_share()
    backend = BACKENDS[name]()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw", encoding="ascii") as stream:
            _answer(stream, {"rank": backend.rank, "pid": os.getpid(), "share": share})
            for line in stream:
                command, *words = line.split()
                if command == "end":
                    break
                try:
                    arguments = [int(word) if word.isdecimal() else word for word in words]
                    answer = COMMANDS[command](backend, name, *arguments)
                except Exception as error:
                    traceback.print_exc()
                    _answer(stream, {"error": f"{type(error).__name__}: {error}"})
                    return 1
                _answer(stream, answer)
    backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
