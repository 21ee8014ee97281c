"""The value side: quantization, checks and dequantization between user memory and the shared slot buffers."""

from typing import Final, Literal, TypedDict

KIND_FLOAT32_SUM: Final[int]
KIND_FLOAT32_AVG: Final[int]
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
