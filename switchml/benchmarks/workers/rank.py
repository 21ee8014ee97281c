"""One rank of a benchmark: `python -m switchml.benchmarks.workers.rank BACKEND SOCKET`.

It joins its group, connects to the benchmark's Unix socket, sends {"rank", "pid", "share"} and then answers commands,
one per line, with one line of JSON:

    all_reduce ELEMENTS CALLS WARM_UP     one tensor, call after call; TYPE (float32, bfloat16 or int64), WIRE_BITS
                                          (32) and, for int64, MAGNITUDE_BITS may follow
    all_reduce_digest ELEMENTS CALLS WARM_UP
                                          the same, and also "digest", the SHA-256 of the last result
    reduce_scatter ELEMENTS CALLS WARM_UP ELEMENTS, rounded down to a multiple of the number of ranks, here and below,
                                          are those of all parts; TYPE (float32 or bfloat16) and WIRE_BITS may follow
    all_gather ELEMENTS CALLS WARM_UP     likewise
    scatter_and_gather ELEMENTS CALLS WARM_UP
                                          a reduce_scatter of a tensor and, at the same time, an all_gather of another
    broadcast ELEMENTS CALLS WARM_UP      from rank 0
    queue ELEMENTS TENSORS CALLS WARM_UP  TENSORS tensors of ELEMENTS, queued together: one "call"
    python_cost ELEMENTS CALLS WARM_UP    SwitchML only: also the part of each call outside of native code,
                                          "python_seconds" and "python_cpu_seconds"
    urgent ELEMENTS BEHIND CALLS WARM_UP  SwitchML only: calls of an urgent job, each while an all-reduce of BEHIND
                                          elements of the other job is under way; 0 for none
    sparse METHOD ELEMENTS BLOCK DENSITY OVERLAP CALLS WARM_UP
                                          a tensor of which only some blocks have values (METHOD of METHODS in
                                          blocks.py); with sparse calls also "blocks", what the last one has sent
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

import hashlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, TextIO

import numpy as np

from switchml.benchmarks.workers import counters
from switchml.benchmarks.workers.backends import BACKENDS, Backend, SwitchMLBackend
from switchml.benchmarks.workers.blocks import METHODS, BlockPattern, owners
from switchml.benchmarks.workers.pattern import TYPES, Elements, Pattern, allowed_error, pattern_of

__all__ = ["main"]


_ALIGNMENT: Final = 64
"""Alignment of a tensor's memory in bytes, as in PyTorch; numpy's memory begins 16 bytes after a page boundary."""


_POOLS_BEFORE: Final = 2
_BEHIND_SECONDS: Final = 60.0
_STEP_SECONDS: Final = 1e-3


def _aligned_vector(elements: int, element_type: str) -> Elements:
    size = np.dtype(TYPES[element_type]).itemsize * elements
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(TYPES[element_type])


class Series:
    """A series of calls on one tensor: each with new contents, between two barriers, and verified."""

    def __init__(
        self,
        backend: Backend,
        elements: int,
        element_type: str = "float32",
        wire_bits: int = 32,
        magnitude_bits: int = 0,
        blocks: BlockPattern | None = None,
    ) -> None:
        self._backend = backend
        self.tensor = _aligned_vector(elements, element_type)
        self._pattern = blocks or pattern_of(backend.rank, backend.world_size, elements, element_type, magnitude_bits)
        self._allowed_error = self._allowed(allowed_error(backend.name, backend.world_size, element_type, wire_bits))
        pids = os.environ.get("SWITCHML_BENCH_DAEMONS", "")
        self._daemons = [int(pid) for pid in pids.split(",") if pid] if backend.rank == 0 else []

    def run(self, call: Callable[[], float], calls: int, warm_up: int) -> dict[str, Any]:
        """Make the calls, each of which returns its seconds. Raises ValueError for a wrong result."""
        seconds: list[float] = []
        used, daemons_used = counters.Usage(), counters.Usage()
        largest_error = 0.0
        for number in range(warm_up + calls):
            self._fill(number)
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
            error = self._error(number)
            if not error <= self._allowed_error:  # also catches NaN
                raise ValueError(
                    f"call {number} of {self.tensor.size} elements gave a wrong result: an element differs by {error}, "
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

    @property
    def _floats(self) -> Pattern:
        """The pattern of floating-point numbers, of which parts can be compared."""
        assert isinstance(self._pattern, Pattern)
        return self._pattern

    def _allowed(self, of_sum: float) -> float:
        """Return the allowed error of a result, given that of a sum."""
        return of_sum

    def _fill(self, number: int) -> None:
        self._pattern.fill(self.tensor, number)

    def _error(self, number: int) -> float:
        """Return the largest error of a call's result, in units of the call's factor."""
        return self._pattern.largest_error(self.tensor, number)


class Scatters(Series):
    """A series of reduce-scatters; `part` gets the results."""

    def __init__(self, backend: Backend, elements: int, element_type: str = "float32", wire_bits: int = 32) -> None:
        length = elements // backend.world_size
        super().__init__(backend, length * backend.world_size, element_type, wire_bits)
        self.part = _aligned_vector(length, element_type)

    def _error(self, number: int) -> float:
        return self._floats.largest_error(self.part, number, self._backend.rank * self.part.size)


class Gathers(Scatters):
    """A series of all-gathers of `part`; every rank contributes its part of `tensor` as it fills it."""

    def _fill(self, number: int) -> None:
        super()._fill(number)
        first = self._backend.rank * self.part.size
        self.part[:] = self.tensor[first : first + self.part.size]
        self.tensor[:] = 0

    def _allowed(self, _of_sum: float) -> float:
        return 0

    def _error(self, number: int) -> float:
        ranks = range(self._backend.world_size)
        parts = zip(ranks, np.split(self.tensor, len(ranks)), strict=True)
        return max(self._floats.largest_error(part, number, rank * part.size, rank) for rank, part in parts)


class ScattersAndGathers(Scatters):
    """A series of reduce-scatters, each at the same time as an all-gather of other memory."""

    def __init__(self, backend: Backend, elements: int) -> None:
        super().__init__(backend, elements)
        self.gathers = Gathers(backend, elements)

    def _fill(self, number: int) -> None:
        super()._fill(number)
        self.gathers._fill(number)

    def _error(self, number: int) -> float:
        gathered = self.gathers._error(number)
        if gathered != 0:
            raise ValueError(f"call {number} gathered wrong elements: one differs by {gathered}")
        return super()._error(number)


class Broadcasts(Series):
    """A series of broadcasts from rank 0."""

    def _allowed(self, _of_sum: float) -> float:
        return 0

    def _error(self, number: int) -> float:
        return self._floats.largest_error(self.tensor, number, of_rank=0)


def _all_reduce(
    backend: Backend,
    elements: int,
    calls: int,
    warm_up: int,
    element_type: str = "float32",
    wire_bits: int = 32,
    magnitude_bits: int = 0,
) -> dict[str, Any]:
    series = Series(backend, elements, element_type, wire_bits, magnitude_bits)
    return _all_reduces(series, backend, wire_bits, calls, warm_up)


def _all_reduces(series: Series, backend: Backend, wire_bits: int, calls: int, warm_up: int) -> dict[str, Any]:
    prepared = backend.prepare(series.tensor)
    all_reduce = backend.all_reduce_with(wire_bits)
    return series.run(_timed(lambda: all_reduce(prepared)), calls, warm_up)


def _all_reduce_digest(
    backend: Backend, elements: int, calls: int, warm_up: int, element_type: str = "float32", wire_bits: int = 32
) -> dict[str, Any]:
    series = Series(backend, elements, element_type, wire_bits)
    answer = _all_reduces(series, backend, wire_bits, calls, warm_up)
    return answer | {"digest": hashlib.sha256(series.tensor.tobytes()).hexdigest()}


def _reduce_scatter(
    backend: Backend,
    elements: int,
    calls: int,
    warm_up: int,
    element_type: str = "float32",
    wire_bits: int = 32,
) -> dict[str, Any]:
    series = Scatters(backend, elements, element_type, wire_bits)
    whole, part = backend.prepare(series.tensor), backend.prepare(series.part)
    reduce_scatter = backend.reduce_scatter_with(wire_bits)
    return series.run(_timed(lambda: reduce_scatter(whole, part)), calls, warm_up)


def _all_gather(backend: Backend, elements: int, calls: int, warm_up: int) -> dict[str, Any]:
    series = Gathers(backend, elements)
    whole, part = backend.prepare(series.tensor), backend.prepare(series.part)
    return series.run(_timed(lambda: backend.all_gather(part, whole)), calls, warm_up)


def _scatter_and_gather(backend: Backend, elements: int, calls: int, warm_up: int) -> dict[str, Any]:
    series = ScattersAndGathers(backend, elements)
    memory = [backend.prepare(x) for x in (series.tensor, series.part, series.gathers.part, series.gathers.tensor)]
    both = backend.scatter_and_gather()
    return series.run(_timed(lambda: both(*memory)), calls, warm_up)


def _broadcast(backend: Backend, elements: int, calls: int, warm_up: int) -> dict[str, Any]:
    series = Broadcasts(backend, elements)
    tensor = backend.prepare(series.tensor)
    return series.run(_timed(lambda: backend.broadcast(tensor)), calls, warm_up)


def _timed(call: Callable[[], object]) -> Callable[[], float]:
    """Return a function that makes a call and returns its seconds."""

    def timed() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return timed


def _queue(backend: Backend, elements: int, tensors: int, calls: int, warm_up: int) -> dict[str, Any]:
    series = Series(backend, elements * tensors)
    prepared = [backend.prepare(tensor) for tensor in series.tensor.reshape(tensors, elements)]

    return series.run(_timed(lambda: backend.all_reduce_queued(prepared)), calls, warm_up)


def _python_cost(backend: Backend, elements: int, calls: int, warm_up: int) -> dict[str, Any]:
    assert isinstance(backend, SwitchMLBackend)
    series = Series(backend, elements)
    prepared = backend.prepare(series.tensor)
    python: list[tuple[float, float]] = []

    def call() -> float:
        elapsed, python_seconds, python_cpu_seconds = backend.time_python(prepared)
        python.append((python_seconds, python_cpu_seconds))
        return elapsed

    answer = series.run(call, calls, warm_up)
    python_seconds, python_cpu_seconds = zip(*python[warm_up:], strict=True)
    return answer | {"python_seconds": python_seconds, "python_cpu_seconds": python_cpu_seconds}


def _sparse(
    backend: Backend,
    method: str,
    elements: int,
    block: int,
    density: str,
    overlap: str,
    calls: int,
    warm_up: int,
) -> dict[str, Any]:
    owned = owners(backend.world_size, elements // block, float(density), overlap)
    series = Series(backend, elements, blocks=BlockPattern(backend.rank, owned, block))
    reduce = METHODS[method](backend, series.tensor, block)
    blocks: dict[str, int] = {}

    def call() -> float:
        begin = time.perf_counter()
        blocks.update(reduce())
        return time.perf_counter() - begin

    return series.run(call, calls, warm_up) | {"blocks": blocks}


class Urgent(Series):
    """A series of calls of an urgent job, during each of which another job reduces `behind`."""

    def __init__(self, backend: SwitchMLBackend, elements: int, behind: int) -> None:
        super().__init__(backend, elements)
        self._urgent, self._other = backend.urgent(), backend.communicator
        self.behind = _aligned_vector(behind, "float32")
        self._pattern_behind = Pattern(backend.rank, backend.world_size, behind) if behind else None

    def call(self) -> float:
        """Return the seconds of the urgent call. Raises ValueError if the other one has ended before."""
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
        if work.is_completed():
            raise ValueError("the call behind the urgent one ended first; use a larger --size")
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


def _urgent(backend: Backend, elements: int, behind: int, calls: int, warm_up: int) -> dict[str, Any]:
    assert isinstance(backend, SwitchMLBackend)
    series = Urgent(backend, elements, behind)
    return series.run(series.call, calls, warm_up)


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "all_reduce": _all_reduce,
    "all_reduce_digest": _all_reduce_digest,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "scatter_and_gather": _scatter_and_gather,
    "broadcast": _broadcast,
    "queue": _queue,
    "python_cost": _python_cost,
    "sparse": _sparse,
    "urgent": _urgent,
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
                    answer = COMMANDS[command](backend, *arguments)
                except Exception as error:
                    traceback.print_exc()
                    _answer(stream, {"error": f"{type(error).__name__}: {error}"})
                    return 1
                _answer(stream, answer)
    backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
