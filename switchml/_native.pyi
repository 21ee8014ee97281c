"""The value side: quantization, checks and dequantization between user memory and the shared slot buffers."""

from enum import Enum
from typing import Final, Literal, TypedDict

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]

KIND_FLOAT32_SUM: Final[int]
KIND_FLOAT32_AVG: Final[int]
KIND_FLOAT16_SUM: Final[int]
KIND_FLOAT16_AVG: Final[int]
KIND_BFLOAT16_SUM: Final[int]
KIND_BFLOAT16_AVG: Final[int]
KIND_INT32_SUM: Final[int]
KIND_BYTES: Final[int]
KIND_BARRIER: Final[int]

class Outcome:
    """How a call stands."""

    @property
    def status(self) -> Literal["pending", "done", "non_finite", "failed"]: ...
    @property
    def non_finite_count(self) -> int: ...
    @property
    def non_finite_indices(self) -> list[int]: ...

class Spent(TypedDict):
    """Nanoseconds of the progress thread, and the calls that have ended with the bytes of their tensors.

    `call_time` is from submission to end, all of them together; bucket i of `calls_took` counts those below 1.024 us
    times 2^i, and the last one all others.
    """

    quantize: int
    waiting: int
    dequantize: int
    sleeps: int
    calls: int
    bytes: int
    call_time: int
    calls_took: list[int]

class Communicator:
    """One rank's end of the memory that it shares with its agent, and the thread that works on it."""

    # `results_fd` where the switch shares the rank's memory: the job's results.
    def __init__(self, memory_fd: int, doorbell_fd: int, results_fd: int = -1) -> None: ...
    def submit(self, kind: int, address: int, size: int, contributes: bool, call_hash: int) -> int: ...
    def wait(self, ticket: int, timeout: float) -> bool: ...
    def outcome(self, ticket: int) -> Outcome: ...
    def release(self, ticket: int) -> None: ...
    def abandon(self) -> None: ...
    # As `abandon`, once the results that are there by now have been taken.
    def settle(self) -> None: ...
    @property
    def attention_fd(self) -> int: ...
    def spent(self) -> Spent: ...
    def check_failure(self) -> tuple[int, int] | None: ...
    @property
    def position(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def values_per_packet(self) -> int: ...
    def close(self) -> None: ...

class kernels:  # noqa: N801 - a submodule
    """The arithmetic between a tensor and the words of a packet, for tests and benchmarks.

    Arrays are numpy vectors of uint8: views of the values, in this machine's byte order, and of the words, big-endian.
    """

    class Instructions(Enum):
        """Sets of instructions; `processor_has` tells whether one is there."""

        PORTABLE = ...
        NEON = ...
        AVX2 = ...
        AVX512 = ...

    class Type(Enum):
        """What values are."""

        FLOAT32 = ...
        FLOAT16 = ...
        BFLOAT16 = ...
        INT32 = ...

    @staticmethod
    def best_instructions() -> Instructions: ...
    @staticmethod
    def processor_has(instructions: Instructions) -> bool: ...
    @staticmethod
    def use_instructions(instructions: Instructions) -> None: ...
    @staticmethod
    def block_exponent(dtype: Type, values: _Bytes) -> int: ...
    @staticmethod
    def quantize(dtype: Type, values: _Bytes, shift: int, words: _Bytes, streaming: bool = False) -> int: ...
    @staticmethod
    def dequantize(dtype: Type, words: _Bytes, shift: int, divisor: float, values: _Bytes) -> int: ...
    @staticmethod
    def widen(dtype: Type, values: _Bytes, floats: _Bytes) -> None: ...
    @staticmethod
    def narrow(dtype: Type, floats: _Bytes, values: _Bytes) -> None: ...
    @staticmethod
    def pack(values: _Bytes, words: _Bytes, streaming: bool = False) -> int: ...
    @staticmethod
    def unpack(words: _Bytes, values: _Bytes) -> int: ...
    @staticmethod
    def weigh(words: _Bytes, first: int = 0) -> int: ...
    # One pass over whole arrays, in blocks. `kernel`: quantize, dequantize or block_exponent of a floating-point type;
    # widen (values to words, which are float32 then) or narrow (back) of a half; pack, unpack or weigh of INT32.
    # Nothing else may be running in this process.
    @staticmethod
    def run(
        kernel: str,
        dtype: Type,
        instructions: Instructions,
        values: _Bytes,
        words: _Bytes,
        block: int,
        streaming: bool = False,
    ) -> None: ...
