"""One rank of a benchmark: `python -m switchml.benchmarks.workers.rank BACKEND SOCKET`.

It joins its group, connects to the benchmark's Unix socket, sends {"rank", "pid", "share"} and then answers commands,
one per line, with one line of JSON. A command is a name, the number of timed calls, that of the calls before them, and
what is called:

    all_reduce CALLS WARM_UP ELEMENTS     one tensor, call after call; TYPE (float32, bfloat16 or int64), WIRE_BITS
                                          (32) and, for int64, MAGNITUDE_BITS may follow
    all_reduce_digest ...                 the same, and also "digest", the SHA-256 of the last result
    reduce_scatter CALLS WARM_UP ELEMENTS ELEMENTS, rounded down to a multiple of the number of ranks, here and below,
                                          are those of all parts; TYPE (float32 or bfloat16) and WIRE_BITS may follow
    all_gather CALLS WARM_UP ELEMENTS     likewise
    scatter_and_gather CALLS WARM_UP ELEMENTS
                                          a reduce_scatter of a tensor and, at the same time, an all_gather of another
    broadcast CALLS WARM_UP ELEMENTS      from rank 0
    queue CALLS WARM_UP ELEMENTS TENSORS  TENSORS tensors of ELEMENTS, queued together: one "call"
    sparse CALLS WARM_UP METHOD ELEMENTS BLOCK DENSITY OVERLAP
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
from switchml.benchmarks.workers.backends import BACKENDS, Backend
from switchml.benchmarks.workers.blocks import METHODS, BlockPattern, owners
from switchml.benchmarks.workers.pattern import TYPES, Elements, Pattern, allowed_error, pattern_of

__all__ = ["COMMANDS", "Calls", "Series", "aligned_vector", "main"]

_ALIGNMENT: Final = 64
"""Alignment of a tensor's memory in bytes, as in PyTorch; numpy's memory begins 16 bytes after a page boundary."""


def aligned_vector(elements: int, element_type: str) -> Elements:
    """Return memory for a tensor, with any content."""
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
        self.tensor = aligned_vector(elements, element_type)
        self._pattern = blocks or pattern_of(backend.rank, backend.world_size, elements, element_type, magnitude_bits)
        self._allowed_error = self._allowed(allowed_error(backend.name, backend.world_size, element_type, wire_bits))
        self.remarks: Callable[[], dict[str, Any]] = dict  # what the answer has in addition
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
        return answer | self.remarks()

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
        self.part = aligned_vector(length, element_type)

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


Calls = tuple[Series, Callable[[], float]]
"""A series, and what makes a call of it and returns its seconds."""


def _all_reduce(
    backend: Backend, elements: int, element_type: str = "float32", wire_bits: int = 32, magnitude_bits: int = 0
) -> Calls:
    series = Series(backend, elements, element_type, wire_bits, magnitude_bits)
    prepared = backend.prepare(series.tensor)
    all_reduce = backend.all_reduce_with(wire_bits)
    return series, _timed(lambda: all_reduce(prepared))


def _all_reduce_digest(backend: Backend, elements: int, element_type: str = "float32", wire_bits: int = 32) -> Calls:
    series, call = _all_reduce(backend, elements, element_type, wire_bits)
    series.remarks = lambda: {"digest": hashlib.sha256(series.tensor.tobytes()).hexdigest()}
    return series, call


def _reduce_scatter(backend: Backend, elements: int, element_type: str = "float32", wire_bits: int = 32) -> Calls:
    series = Scatters(backend, elements, element_type, wire_bits)
    whole, part = backend.prepare(series.tensor), backend.prepare(series.part)
    reduce_scatter = backend.reduce_scatter_with(wire_bits)
    return series, _timed(lambda: reduce_scatter(whole, part))


def _all_gather(backend: Backend, elements: int) -> Calls:
    series = Gathers(backend, elements)
    whole, part = backend.prepare(series.tensor), backend.prepare(series.part)
    return series, _timed(lambda: backend.all_gather(part, whole))


def _scatter_and_gather(backend: Backend, elements: int) -> Calls:
    series = ScattersAndGathers(backend, elements)
    memory = [backend.prepare(x) for x in (series.tensor, series.part, series.gathers.part, series.gathers.tensor)]
    both = backend.scatter_and_gather()
    return series, _timed(lambda: both(*memory))


def _broadcast(backend: Backend, elements: int) -> Calls:
    series = Broadcasts(backend, elements)
    tensor = backend.prepare(series.tensor)
    return series, _timed(lambda: backend.broadcast(tensor))


def _queue(backend: Backend, elements: int, tensors: int) -> Calls:
    series = Series(backend, elements * tensors)
    prepared = [backend.prepare(tensor) for tensor in series.tensor.reshape(tensors, elements)]
    return series, _timed(lambda: backend.all_reduce_queued(prepared))


def _sparse(backend: Backend, method: str, elements: int, block: int, density: str, overlap: str) -> Calls:
    owned = owners(backend.world_size, elements // block, float(density), overlap)
    series = Series(backend, elements, blocks=BlockPattern(backend.rank, owned, block))
    reduce = METHODS[method](backend, series.tensor, block)
    blocks: dict[str, int] = {}
    series.remarks = lambda: {"blocks": blocks}
    return series, _timed(lambda: blocks.update(reduce()))


def _timed(call: Callable[[], object]) -> Callable[[], float]:
    """Return a function that makes a call and returns its seconds."""

    def timed() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return timed


COMMANDS: dict[str, Callable[..., Calls]] = {
    "all_reduce": _all_reduce,
    "all_reduce_digest": _all_reduce_digest,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "scatter_and_gather": _scatter_and_gather,
    "broadcast": _broadcast,
    "queue": _queue,
    "sparse": _sparse,
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
                if line.strip() == "end":
                    break
                try:
                    command, calls, warm_up, *words = line.split()
                    arguments = [int(word) if word.isdecimal() else word for word in words]
                    series, call = COMMANDS[command](backend, *arguments)
                    answer = series.run(call, int(calls), int(warm_up))
                except Exception as error:
                    traceback.print_exc()
                    _answer(stream, {"error": f"{type(error).__name__}: {error}"})
                    return 1
                _answer(stream, answer)
    backend.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
