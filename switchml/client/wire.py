"""The wires: forms in which the values of a sum travel in packets, each with only the choices that it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

from switchml import _native
from switchml.client.arguments import whole_number

__all__ = [
    "CODES",
    "FORMATS",
    "LANE_BITS",
    "MOST_RANKS_OF_DYNAMIC8",
    "Blocks",
    "CodeName",
    "Codes",
    "Floats",
    "Integers",
    "Rounding",
    "Wire",
    "parse_wire",
    "refuse_old_keywords",
]

CodeName = Literal["natural8", "dynamic8"]
Rounding = Literal["nearest", "stochastic"]

LANE_BITS: Final = (32, 16, 8)
FORMATS: Final[dict[CodeName, int]] = {"natural8": _native.FORMAT_NATURAL8, "dynamic8": _native.FORMAT_DYNAMIC8}
"""The formats of packets with codes, by the name of the codes."""
CODES: Final[tuple[CodeName, ...]] = ("natural8", "dynamic8")
MOST_RANKS_OF_DYNAMIC8: Final = 64
"""The sums of dynamic8 codes of up to this many ranks fit a word."""


class Wire:
    """The form of the values of a sum in packets, such as `Blocks`. All ranks must make a call with an equal one.

    Its text, such as ``blocks:bits=8,rounding=stochastic``, is what `parse_wire` reads.
    """

    kind: ClassVar[str]
    skips_zeros: ClassVar[bool] = True
    """True if ranks may leave out blocks of zeros, with the same sum."""

    @cached_property
    def text(self) -> str:
        """The kind of wire, and its arguments that are not the default."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        given = [
            (field.name, getattr(self, field.name)) for field in fields if getattr(self, field.name) != field.default
        ]
        return self.kind + (":" if given else "") + ",".join(f"{name}={value}" for name, value in given)

    def __str__(self) -> str:
        return self.text

    def _complete(self, *numbers: str) -> None:
        """Make the fields with these names integers, and check all of them.

        Raises:
            TypeError: such a field is not an integer.
            ValueError: a field is out of its range, or does not fit another one.

        """
        for name in numbers:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(getattr(self, name), name))
        _native.parse_wire(self.text)


@dataclasses.dataclass(frozen=True)
class Blocks(Wire):
    """Floating-point numbers in blocks with a common exponent: the wire of floating-point numbers if none is named.

    A block has the values of one packet. With N ranks, and M the power of two above the largest magnitude in a block of
    any rank, a sum in 32 bits differs from the exact one by at most N/2 * M * 2^-(31 - ceil(log2 N)). With 16 or 8 bits
    there are Q = floor((2^(bits - 1) - 1) / N) levels on both sides of 0, and the difference is at most
    N/2 * M * (1/Q + 2^-23), or below N * M * (1/Q + 2^-23) with stochastic rounding. Roundings to float32 and then to
    the dtype come on top.

    Attributes:
        bits: of a value in packets: 32, 16 or 8. With 16 or 8 two or four values share a word, so that a call takes a
            half or a quarter of the packets.
        rounding: "nearest"; or, with 16 or 8 bits, "stochastic": up or down at random, so that the expected result is
            the exact one.
        seed: chooses the numbers of stochastic rounding, together with the rank, the place in the array, and the
            number of calls before this one. The same seed gives the same bits.

    Raises:
        TypeError: `bits` or `seed` is not an integer.
        ValueError: an argument is not one of those, or is for another one of them.

    """

    kind: ClassVar[str] = "blocks"

    bits: int = 32
    rounding: Rounding = "nearest"
    seed: int = 0

    def __post_init__(self) -> None:
        self._complete("bits", "seed")


@dataclasses.dataclass(frozen=True)
class Integers(Wire):
    """Integers, whose sums are exact: the wire of integers if none is named.

    Attributes:
        bits: of a value in packets: 32, 16 or 8, in which the sums of all ranks must fit, sign included, if it is less
            than 32 or there is a `bound`; otherwise sums wrap around. An int64 takes as many words as it needs.
        bound: the largest magnitude on any rank; None: that of the dtype.

    Raises:
        TypeError: `bits` or `bound` is not an integer.
        ValueError: `bits` is not 8, 16 or 32, or `bound` is not from 1 to 2^31 - 1.

    """

    kind: ClassVar[str] = "integers"

    bits: int = 32
    bound: int | None = None

    def __post_init__(self) -> None:
        self._complete("bits", "bound")


@dataclasses.dataclass(frozen=True)
class Codes(Wire):
    """Floating-point numbers as codes of one byte, which the switches expand to words before they add them up.

    The codes have a common unit in each block. They are a quarter of the bytes that a rank sends; results take 32 bits
    (docs/guides/compression.md). `Communicator.codes` has those that the switches of a job know.

    Attributes:
        name: "natural8": a sign and one of the two powers of two around a number, at random, so that the expected
            result is the exact one; "dynamic8": the nearest of 255 numbers of a dynamic tree.
        seed: chooses the random numbers of "natural8", as that of `Blocks` does.

    Raises:
        TypeError: `seed` is not an integer.
        ValueError: `name` is unknown, or `seed` is not from 0 to 2^64 - 1.

    """

    kind: ClassVar[str] = "codes"
    skips_zeros: ClassVar[bool] = False

    name: CodeName
    seed: int = 0

    def __post_init__(self) -> None:
        self._complete("seed")


@dataclasses.dataclass(frozen=True)
class Floats(Wire):
    """Floating-point numbers as float32, which the switches add up as such, if they can (`Communicator.adds_floats`).

    A result differs from the exact sum by less than N * 2^-47 times the largest contribution, and is rounded to float32
    once for each switch between a rank and the root of its tree, in any order the same bits. NaN and infinities come
    out as of any sum of floats, without an error. Packets are not checked for changed values by more than UDP's and
    Ethernet's checksums (docs/guides/floats.md).
    """

    kind: ClassVar[str] = "floats"
    skips_zeros: ClassVar[bool] = False


_KINDS: Final[dict[str, Any]] = {wire.kind: wire for wire in (Blocks, Integers, Codes, Floats)}


def parse_wire(text: str) -> Wire:
    """Return the wire with this text, such as ``blocks:bits=16`` or ``floats``.

    Raises:
        ValueError: it is not the text of a wire; the message says what is.

    """
    kind, choices = _native.parse_wire(text)
    wire: Wire = _KINDS[kind](**choices)
    return wire


_INSTEAD: Final = {
    "wire_bits": "wire=Blocks(bits=...), or wire=Integers(bits=...) for integers",
    "rounding": "wire=Blocks(bits=..., rounding=...)",
    "seed": 'wire=Blocks(bits=..., rounding="stochastic", seed=...)',
    "bound": "wire=Integers(bits=..., bound=...)",
    "codes": "wire=Codes(...)",
    "arithmetic": "wire=Floats()",
    "sparse": "skip_zeros=...",
}
"""The keywords of version 0.1, and what is written instead."""


def refuse_old_keywords(function: str, given: Mapping[str, object]) -> None:
    """Check that no keywords are left over.

    Raises:
        TypeError: there are; the message says what to write instead of those of version 0.1.

    """
    for name in given:
        instead = f"; write {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TypeError(f"{function}() has no argument {name!r}{instead}")
