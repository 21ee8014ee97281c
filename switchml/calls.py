"""The description of one collective call of a rank."""

from __future__ import annotations

import zlib
from typing import Final, Literal, NamedTuple

from switchml import _native
from switchml.lanes import WIDE, Lanes
from switchml.tensors import Buffer

__all__ = ["REDUCTIONS", "Call", "Operation"]

Operation = Literal["all_reduce", "broadcast", "barrier"]

REDUCTIONS: Final = {
    ("float32", "sum"): _native.KIND_FLOAT32_SUM,
    ("float32", "avg"): _native.KIND_FLOAT32_AVG,
    ("float16", "sum"): _native.KIND_FLOAT16_SUM,
    ("float16", "avg"): _native.KIND_FLOAT16_AVG,
    ("bfloat16", "sum"): _native.KIND_BFLOAT16_SUM,
    ("bfloat16", "avg"): _native.KIND_BFLOAT16_AVG,
    ("int64", "sum"): _native.KIND_INT64_SUM,
    ("int32", "sum"): _native.KIND_INT32_SUM,
    ("int16", "sum"): _native.KIND_INT16_SUM,
    ("int8", "sum"): _native.KIND_INT8_SUM,
    ("uint8", "sum"): _native.KIND_UINT8_SUM,
    ("bool", "sum"): _native.KIND_BOOL_SUM,
}
"""The kinds of all-reduce in the native code, by the names of dtype and operation. All others are unsupported."""


_LONGEST_NAME: Final = 64  # characters of a dtype's name that an agent accepts


class Call(NamedTuple):
    """One collective call of this rank."""

    sequence: int
    operation: Operation
    op: str  # for an all_reduce
    buffer: Buffer | None  # keeps the user's memory alive while the native threads use it
    root: int  # for a broadcast
    lanes: Lanes = WIDE  # for an all_reduce

    @property
    def dtype(self) -> str:
        """Name of the array's dtype; empty for a barrier."""
        return self.buffer.dtype if self.buffer else ""

    @property
    def elements(self) -> int:
        """Number of the array's elements."""
        return self.buffer.elements if self.buffer else 0

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Address and bytes of the array's memory."""
        return [(self.buffer.address, self.buffer.size)] if self.buffer else []

    @property
    def fingerprint(self) -> int:
        """Return a 32-bit hash by which ranks notice that their calls differ; native code adds the sequence number."""
        text = f"{self.operation}|{self.op}{self.lanes}|{self.dtype}|{self.elements}|{self.root}"
        return zlib.crc32(text.encode())

    def __str__(self) -> str:
        details = {
            "all_reduce": f" ({self.op} of {self.elements} {self.dtype}{self.lanes})",
            "broadcast": f" ({self.elements} {self.dtype} from rank {self.root})",
            "barrier": "",
        }
        return f"{self.operation} number {self.sequence}{details[self.operation]}"

    def to_message(self) -> dict[str, object]:
        """Return the call in the form of messages to the agent."""
        return {
            "sequence": self.sequence,
            "operation": self.operation,
            # The controller names the calls of ranks that differ by these texts, so each names its width.
            "op": f"{self.op}{self.lanes.in_full}" if self.operation == "all_reduce" else "",
            "dtype": _short(self.dtype),
            "elements": self.elements,
            "root": self.root,
        }


def _short(dtype: str) -> str:
    """Return a name that the agent accepts: a long one is cut, and a digest at its end keeps it unique."""
    if len(dtype) <= _LONGEST_NAME:
        return dtype
    digest = f"...{zlib.crc32(dtype.encode()):08x}"
    return dtype[: _LONGEST_NAME - len(digest)] + digest
