"""Time the kernels of the native modules: `python -m switchml.benchmarks.kernel_loop SECONDS SIZE...`.

It is a separate program because the choice of an instruction set holds for the whole process. It writes the number of
lines that will follow, and then one line for each kernel, instruction set and size: these three and the seconds of CPU
time of a pass, separated by tabs. CPU time does not include the time in which other programs have the CPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from switchml._native import kernels
from switchml.benchmarks.workers.counters import take_share
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES
from switchml.dataplane.softswitch._native import kernels as additions

__all__ = ["main", "passes"]

Bytes = npt.NDArray[np.uint8]
Pass = Callable[[int], None]
"""One pass over this many elements."""

_HALF: Final = {
    kernels.Type.FLOAT32: np.array([0.5], np.float32).tobytes(),
    kernels.Type.FLOAT16: np.array([0.5], np.float16).tobytes(),
    kernels.Type.BFLOAT16: b"\x00\x3f" if sys.byteorder == "little" else b"\x3f\x00",
    kernels.Type.INT32: np.array([1], np.int32).tobytes(),
    kernels.Type.INT8: b"\x01",
    kernels.Type.BOOL: b"\x01",
    kernels.Type.INT64: np.array([1], np.int64).tobytes(),
}
_NOT_KERNELS: Final = ("best_instructions", "cpu_has", "use_instructions", "run")
_LANES: Final = tuple(
    f"{name} {bits}" for bits in (16, 8) for name in ("quantize_lanes", "quantize_lanes stochastic", "dequantize_lanes")
)
_INTEGER_LANES: Final = {kernels.Type.INT8: 16, kernels.Type.BOOL: 8}
"""The bits of a lane that holds the sums of such values from any number of ranks."""

_CODES: Final = tuple(f"{name} {kind}" for name in ("write_codes", "expand_codes") for kind in ("natural8", "dynamic8"))
_LIMBS: Final = ("bits_of_largest", "pack_limb", *(f"join_limbs {words}" for words in (1, 2, 3)))
_ICRC_BLOCKS: Final = (288, 1056, 4096)
"""SwitchML header and values of RoCEv2 packets with 64, 256 and 1016 values, in bytes."""

_ALIGNMENT: Final = 64
_FEWEST: Final = 3  # minimum number of passes
_EMPTY_CALLS: Final = 200


def _bytes(pattern: bytes, elements: int) -> Bytes:
    """Return memory, aligned to 64 bytes, that repeats `pattern`."""
    size = len(pattern) * elements
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    aligned = memory[start : start + size]
    aligned.reshape(elements, len(pattern))[:] = np.frombuffer(pattern, np.uint8)
    return aligned


def passes(elements: int) -> Iterator[tuple[str, str, Pass]]:
    """Yield every kernel with every instruction set of this CPU, over at most `elements` elements.

    The first is a plain copy of as many bytes: no kernel that writes as much as it reads can be much faster.
    """
    words = _bytes(b"\x00\x00\x01\x00", elements)
    copy = np.empty_like(words)
    yield "memcpy", "C library", lambda count: np.copyto(copy[: 4 * count], words[: 4 * count])
    for kind, pattern in _HALF.items():
        values = _bytes(pattern, elements)
        for name in _names(kind):
            for instructions in filter(kernels.cpu_has, kernels.Instructions):
                one = _pass(name, kind, instructions, values, words)
                yield f"{name} {kind.name.lower()}", instructions.name.lower(), one
    contribution = words.copy() if words.ctypes.data % _ALIGNMENT else _bytes(b"\x00\x00\x01\x00", elements)
    for instructions_to_add in additions.instructions():
        yield "add", instructions_to_add, _addition(instructions_to_add, words, contribution)
        yield "sum of 2", instructions_to_add, _sum(instructions_to_add, words, contribution)
    for block in _ICRC_BLOCKS:
        for fastest in (False, True):
            yield f"crc32 {block}", "fastest" if fastest else "portable", _crc(fastest, words, block)


def _names(kind: kernels.Type) -> Iterator[str]:
    functions = (name for name, value in vars(kernels).items() if callable(value) and not isinstance(value, type))
    for name in (*functions, *_LANES, *_CODES, *_LIMBS):
        if name not in _NOT_KERNELS and _offered(name, kind):
            yield name
    if kind in _INTEGER_LANES:
        yield from (f"{name} {_INTEGER_LANES[kind]}" for name in ("pack_lanes", "unpack_lanes"))


def _offered(name: str, kind: kernels.Type) -> bool:
    nothing = np.empty(0, np.uint8)
    try:
        kernels.run(name, kind, kernels.best_instructions(), nothing, nothing, PROTOCOL_MAX_VALUES)
    except ValueError:  # a kernel for other types
        return False
    return True


def _pass(name: str, kind: kernels.Type, instructions: kernels.Instructions, values: Bytes, words: Bytes) -> Pass:
    size = len(_HALF[kind])

    def one(elements: int) -> None:
        of_values, of_words = values[: size * elements], words[: 4 * elements]
        kernels.run(name, kind, instructions, of_values, of_words, PROTOCOL_MAX_VALUES)

    return one


def _addition(instructions: str, sums: Bytes, values: Bytes) -> Pass:
    return lambda elements: additions.add(
        instructions, sums[: 4 * elements], values[: 4 * elements], PROTOCOL_MAX_VALUES
    )


def _sum(instructions: str, sums: Bytes, values: Bytes) -> Pass:
    return lambda elements: additions.sum_buffers(
        instructions, [sums[: 4 * elements], values[: 4 * elements]], [], PROTOCOL_MAX_VALUES
    )


def _crc(fastest: bool, data: Bytes, block: int) -> Pass:
    def one(elements: int) -> None:
        additions.crc32(fastest, data[: 4 * elements], block)

    return one


def _seconds(run: Pass, elements: int, limit: float) -> float:
    """Return the median time of a pass, less the least overhead of a call, which matters for small tensors."""
    call = min(_timed(run, 0) for _ in range(_EMPTY_CALLS))
    run(elements)
    times: list[float] = []
    end = time.perf_counter() + limit
    while len(times) < _FEWEST or time.perf_counter() < end:
        times.append(_timed(run, elements))
    return max(statistics.median(times) - call, 1e-9)


def _timed(run: Pass, elements: int) -> float:
    begin = time.thread_time()
    run(elements)
    return time.thread_time() - begin


def main() -> None:
    """Time all kernels."""
    take_share()
    limit, sizes = float(sys.argv[1]), [int(size) for size in sys.argv[2:]]
    sys.stdout.write(f"{len(sizes) * sum(1 for _ in passes(PROTOCOL_MAX_VALUES))}\n")
    for name, instructions, run in passes(max(sizes) // 4):
        for size in sizes:
            sys.stdout.write(f"{name}\t{instructions}\t{size}\t{_seconds(run, size // 4, limit)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
