"""The description of one collective call of a rank."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from switchml import _native
from switchml.errors import UnsupportedTensor
from switchml.lanes import WIDE, Arithmetic, Codes, Lanes, lanes_for
from switchml.tensors import Buffer

__all__ = ["FORMS", "REDUCTIONS", "Call", "Operation", "Sparse", "checked_sum"]

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]

Sparse = Literal["auto"] | bool

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
"""The kinds of sums in the native code, by the names of dtype and operation. All others are unsupported."""

FORMS: Final[dict[Sparse, int]] = {
    False: _native.FORM_DENSE,
    True: _native.FORM_SPARSE,
    "auto": _native.FORM_AUTOMATIC,
}
"""The forms of an all-reduce in the native code."""


_IN_WORDS: Final[dict[Sparse, str]] = {False: "", True: " sparse", "auto": " sparse=auto"}
_DIVISIONS: Final = {"reduce_scatter": _native.DIVISION_SCATTER, "all_gather": _native.DIVISION_GATHER}
_LONGEST_NAME: Final = 64  # characters of a dtype's name that an agent accepts
_LONGEST_OP: Final = 80  # likewise, of an operation with all of its options


class Call(NamedTuple):
    """One collective call of this rank."""

    sequence: int
    operation: Operation
    op: str  # of a sum; for an all_gather, its purpose, if it must be the same on all ranks
    buffer: Buffer | None  # keeps the user's memory alive while the native threads use it
    root: int  # for a broadcast
    lanes: Lanes = WIDE  # for a sum
    sparse: Sparse = False  # for an all_reduce
    output: Buffer | None = None  # gets the result, if `buffer` does not: of a reduce_scatter or an all_gather

    @property
    def dtype(self) -> str:
        """Name of the array's dtype; empty for a barrier."""
        return self.buffer.dtype if self.buffer else ""

    @property
    def whole(self) -> Buffer | None:
        """The array that has the elements of all ranks' parts; None for a barrier."""
        return self.output if self.operation == "all_gather" else self.buffer

    @property
    def elements(self) -> int:
        """Number of the elements of all parts."""
        return self.whole.elements if self.whole else 0

    @property
    def bytes(self) -> int:
        """Bytes of the elements of all parts."""
        return self.whole.size if self.whole else 0

    @property
    def division(self) -> int:
        """The native number of the way in which the elements are divided among the ranks."""
        return _DIVISIONS.get(self.operation, _native.DIVISION_WHOLE)

    @property
    def written(self) -> list[tuple[int, int]]:
        """Address and bytes of the memory that gets the result."""
        result = self.output or self.buffer
        return [(result.address, result.size)] if result else []

    @property
    def read(self) -> list[tuple[int, int]]:
        """Address and bytes of memory that is only read, or of an input that has the output's memory in it."""
        return [(self.buffer.address, self.buffer.size)] if self.buffer and self.output else []

    @property
    def fingerprint(self) -> int:
        """Return a 32-bit hash by which ranks notice that their calls differ; native code adds the sequence number."""
        return _fingerprint(self.operation, self.op, self.lanes, self.sparse, self.dtype, self.elements, self.root)

    @property
    def _sparse(self) -> str:
        return _IN_WORDS[self.sparse]

    def __str__(self) -> str:
        details = {
            "all_reduce": f" ({self.op} of {self.elements} {self.dtype}{self.lanes}{self._sparse})",
            "reduce_scatter": f" ({self.op} of {self.elements} {self.dtype}{self.lanes})",
            "all_gather": f" ({self.elements} {self.dtype})",
            "broadcast": f" ({self.elements} {self.dtype} from rank {self.root})",
            "barrier": "",
        }
        return f"{self.operation} number {self.sequence}{details[self.operation]}"

    @property
    def _op_in_full(self) -> str:
        """The text by which the controller names the calls of ranks that differ, so that of a sum names its width."""
        is_sum = self.operation in ("all_reduce", "reduce_scatter")
        return f"{self.op}{self.lanes.in_full}{self._sparse}" if is_sum else self.op

    def to_message(self) -> dict[str, object]:
        """Return the call in the form of messages to the agent."""
        return {
            "sequence": self.sequence,
            "operation": self.operation,
            "op": _short(self._op_in_full, _LONGEST_OP),
            "dtype": _short(self.dtype, _LONGEST_NAME),
            "elements": self.elements,
            "root": self.root,
        }


def checked_sum(
    operation: Operation,
    buffer: Buffer,
    op: str,
    world_size: int,
    wire_bits: int,
    rounding: str,
    seed: int,
    bound: int | None,
    codes: Codes | None = None,
    arithmetic: Arithmetic = "block",
) -> tuple[int, Lanes]:
    """Return the native kind and the lanes of a sum of `buffer`.

    Raises:
        TypeError: `wire_bits`, `seed` or `bound` is not an integer.
        UnsupportedTensor: the dtype has no such sum.
        ValueError: an argument is not one of those that `Communicator.all_reduce` lists.

    """
    if op not in ("sum", "avg"):
        raise ValueError(f'op is {op!r}; it must be "sum" or "avg". The array is unchanged')
    kind = REDUCTIONS.get((buffer.dtype, op))
    if kind is None:
        integers = ", bfloat16, int64, int32, int16, int8, uint8 or bool"
        allowed = f"float32, float16{' or bfloat16' if op == 'avg' else integers}"
        raise UnsupportedTensor(
            f'{operation} with op="{op}" takes {allowed}, not {buffer.dtype}. The array is unchanged; convert it first.'
        )
    lanes = lanes_for(buffer.dtype, world_size, wire_bits, rounding, seed, bound, codes, arithmetic)
    if lanes.bound is not None and not _native.all_within(kind, buffer.address, buffer.elements, lanes.bound):
        raise ValueError(f"the array holds a value beyond the bound {lanes.bound}. It is unchanged")
    return kind, lanes


@lru_cache(maxsize=1024)  # a training makes the same calls again
def _fingerprint(
    operation: Operation, op: str, lanes: Lanes, sparse: Sparse, dtype: str, elements: int, root: int
) -> int:
    return zlib.crc32(f"{operation}|{op}{lanes}{_IN_WORDS[sparse]}|{dtype}|{elements}|{root}".encode())


def _short(text: str, longest: int) -> str:
    """Return a text that the agent accepts: a long one is cut, and a digest at its end keeps it unique."""
    if len(text) <= longest:
        return text
    digest = f"...{zlib.crc32(text.encode()):08x}"
    return text[: longest - len(digest)] + digest
