"""The description of one collective call of a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from switchml import _native
from switchml.client.tensors import Buffer
from switchml.client.wire import Wire

__all__ = ["Call", "Operation", "SkipZeros", "checked_skipping"]

Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]

SkipZeros = Literal["auto"] | bool

_WORDS: Final[dict[SkipZeros, str]] = {False: "no", True: "yes", "auto": "auto"}  # of native code


@dataclass(eq=False)
class Call:
    """One collective call of this rank.

    Attributes:
        op: of a sum; of an all_gather, its purpose, if it must be the same on all ranks.
        buffer: keeps the user's memory alive while the native threads use it; None for a barrier.
        root: for a broadcast.
        wire: of a sum; None for the usual one.
        skip_zeros: for an all_reduce.
        output: gets the result, if `buffer` does not: of a reduce_scatter or an all_gather.

    """

    operation: Operation
    op: str = ""
    buffer: Buffer | None = None
    root: int = 0
    wire: Wire | None = None
    skip_zeros: SkipZeros = False
    output: Buffer | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """All that `described` depends on: calls of the same identity in one job have the same description."""
        whole = self._whole
        array = () if whole is None else (whole.dtype, whole.elements, whole.size)
        return self.operation, self.op, array, self.root, self.wire, self.skip_zeros

    @property
    def _whole(self) -> Buffer | None:
        """The array that has the elements of all ranks' parts; None for a barrier."""
        return self.output if self.operation == "all_gather" else self.buffer

    def described(self, world_size: int, formats: int) -> _native.Collective:
        """Return the call without its memory, in a job of `world_size` ranks whose switches take these `formats`.

        Raises:
            TypeError: `wire` is not a wire.
            UnsupportedTensor: the dtype has no such sum.
            ValueError: an argument is not one of those that `Communicator` lists.

        """
        wire, whole = self.wire, self._whole
        if wire is not None and not isinstance(wire, Wire):
            raise TypeError(
                f"wire is {wire!r}; it must be Blocks(...), Integers(...), Codes(...) or Floats() of switchml. The "
                "array is unchanged."
            )
        elements = whole.elements if whole else 0
        return _native.describe(
            self.operation,
            op=self.op,
            dtype=whole.dtype if whole else "",
            element_bytes=whole.size // elements if whole and elements else 1,
            elements=elements,
            root=self.root,
            wire=None if wire is None else wire.text,
            skip_zeros=_WORDS[self.skip_zeros],
            world_size=world_size,
            formats=formats,
        )

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of the memory that is read and of that which gets the result; 0 for a barrier."""
        if self.buffer is None:
            return 0, 0
        return self.buffer.address, (self.output or self.buffer).address


def checked_skipping(skip_zeros: SkipZeros, wire: Wire | None) -> SkipZeros:
    """Return `skip_zeros` if a sum over `wire` can leave out blocks of zeros.

    Raises:
        ValueError: it is unknown, or such a wire needs the values of all ranks.

    """
    if skip_zeros not in _WORDS:
        raise ValueError(f'skip_zeros is {skip_zeros!r}; it must be False, True or "auto". The array is unchanged')
    if skip_zeros and isinstance(wire, Wire) and not wire.skips_zeros:
        raise ValueError(f"a call over {wire} has no skip_zeros. The array is unchanged; leave one of both out")
    return skip_zeros
