"""The description of one collective call of a rank."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final, Literal

from switchml import _native
from switchml.client.errors import UnsupportedTensor
from switchml.client.tensors import Buffer
from switchml.client.wire import PLAIN, Wire, wire_for

__all__ = ["REDUCTIONS", "Call", "Operation", "SkipZeros", "checked_skipping", "checked_sum"]

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]

SkipZeros = Literal["auto"] | bool

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

_FORMS: Final[dict[SkipZeros, int]] = {
    False: _native.FORM_DENSE,
    True: _native.FORM_SPARSE,
    "auto": _native.FORM_AUTOMATIC,
}
_IN_WORDS: Final[dict[SkipZeros, str]] = {False: "", True: " skip_zeros", "auto": " skip_zeros=auto"}
_DIVISIONS: Final = {"reduce_scatter": _native.DIVISION_SCATTER, "all_gather": _native.DIVISION_GATHER}
_LONGEST_NAME: Final = 64  # characters of a dtype's name that an agent accepts
_LONGEST_OP: Final = 80  # likewise, of an operation with all of its options


@dataclass(eq=False)
class Call:
    """One collective call of this rank.

    Attributes:
        kind: the native code's number of the operation on the elements.
        op: of a sum; of an all_gather, its purpose, if it must be the same on all ranks.
        buffer: keeps the user's memory alive while the native threads use it; None for a barrier.
        root: for a broadcast.
        wire: of a sum.
        skip_zeros: for an all_reduce.
        output: gets the result, if `buffer` does not: of a reduce_scatter or an all_gather.
        sequence: the number of this call in its epoch, which it gets when it is submitted.

    """

    kind: int
    operation: Operation
    op: str = ""
    buffer: Buffer | None = None
    root: int = 0
    wire: Wire | None = None
    skip_zeros: SkipZeros = False
    output: Buffer | None = None
    sequence: int = -1

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

    def description(self, rank: int) -> _native.CallDescription:
        """Return what the native code must know about the call at this rank, except for its memory."""
        wire = PLAIN if self.wire is None else self.wire.native
        return _native.CallDescription(
            kind=self.kind,
            size=self.bytes if self.kind == _native.KIND_BYTES else self.elements,
            division=_DIVISIONS.get(self.operation, _native.DIVISION_WHOLE),
            call_hash=self.fingerprint,
            contributes=self.operation != "broadcast" or self.root == rank,
            lane_bits=wire.bits,
            stochastic=wire.stochastic,
            seed=wire.seed,
            form=_FORMS[self.skip_zeros],
            format=wire.format,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """All that `description` depends on: calls of the same identity at one rank have the same."""
        return self.operation, self.op, self.dtype, self.elements, self.root, self.wire, self.skip_zeros

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of the memory that is read and of that which gets the result; 0 for a barrier."""
        if self.buffer is None:
            return 0, 0
        return self.buffer.address, (self.output or self.buffer).address

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
        wire = "" if self.wire is None else self.wire.text
        how = f"{self.operation}|{self.op} {wire}{_IN_WORDS[self.skip_zeros]}"
        return zlib.crc32(f"{how}|{self.dtype}|{self.elements}|{self.root}".encode())

    def __str__(self) -> str:
        details = {
            "all_reduce": f" ({self.op} of {self.elements} {self.dtype}{self._how})",
            "reduce_scatter": f" ({self.op} of {self.elements} {self.dtype}{self._how})",
            "all_gather": f" ({self.elements} {self.dtype})",
            "broadcast": f" ({self.elements} {self.dtype} from rank {self.root})",
            "barrier": "",
        }
        return f"{self.operation} number {self.sequence}{details[self.operation]}"

    @property
    def _how(self) -> str:
        """The wire of a sum, and which blocks are not sent."""
        return ("" if self.wire is None else f" as {self.wire}") + _IN_WORDS[self.skip_zeros]

    def to_message(self) -> dict[str, object]:
        """Return the call in the form of messages to the agent."""
        return {
            "sequence": self.sequence,
            "operation": self.operation,
            "op": _short(self.op + self._how, _LONGEST_OP),
            "dtype": _short(self.dtype, _LONGEST_NAME),
            "elements": self.elements,
            "root": self.root,
        }


def checked_sum(operation: Operation, buffer: Buffer, op: str, world_size: int, wire: Wire | None) -> tuple[int, Wire]:
    """Return the native kind and the wire of a sum of `buffer`.

    Raises:
        TypeError: `wire` is not a wire.
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
    wire = wire_for(buffer.dtype, world_size, wire)
    wire.require_values(kind, buffer)
    return kind, wire


def checked_skipping(skip_zeros: SkipZeros, wire: Wire) -> SkipZeros:
    """Return `skip_zeros` if a sum over `wire` can leave out blocks of zeros.

    Raises:
        ValueError: it is unknown, or such a wire needs the values of all ranks.

    """
    if skip_zeros not in _FORMS:
        raise ValueError(f'skip_zeros is {skip_zeros!r}; it must be False, True or "auto". The array is unchanged')
    if skip_zeros and not wire.skips_zeros:
        raise ValueError(f"a call over {wire} has no skip_zeros. The array is unchanged; leave one of both out")
    return skip_zeros


def _short(text: str, longest: int) -> str:
    """Return a text that the agent accepts: a long one is cut, and a digest at its end keeps it unique."""
    if len(text) <= longest:
        return text
    digest = f"...{zlib.crc32(text.encode()):08x}"
    return text[: longest - len(digest)] + digest
