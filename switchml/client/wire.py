"""The wires: forms in which the values of a sum travel in packets, each with only the choices that it has."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, NamedTuple

from switchml import _native
from switchml.client.arguments import whole_number
from switchml.client.tensors import Buffer

__all__ = [
    "CODES",
    "FORMATS",
    "LANE_BITS",
    "MOST_RANKS_OF_DYNAMIC8",
    "PLAIN",
    "Blocks",
    "CodeName",
    "Codes",
    "Floats",
    "Integers",
    "NativeWire",
    "Rounding",
    "Wire",
    "parse_wire",
    "refuse_old_keywords",
    "wire_for",
]

CodeName = Literal["natural8", "dynamic8"]
Rounding = Literal["nearest", "stochastic"]

LANE_BITS: Final = (32, 16, 8)
FORMATS: Final[dict[CodeName, int]] = {"natural8": _native.FORMAT_NATURAL8, "dynamic8": _native.FORMAT_DYNAMIC8}
"""The formats of packets with codes, by the name of the codes."""
CODES: Final[tuple[CodeName, ...]] = ("natural8", "dynamic8")
MOST_RANKS_OF_DYNAMIC8: Final = 64
"""The sums of dynamic8 codes of up to this many ranks fit a word."""

_ROUNDINGS: Final = ("nearest", "stochastic")
_FLOATS: Final = ("float32", "float16", "bfloat16")
_LARGEST_MAGNITUDES: Final = {"bool": 1, "int8": 2**7, "uint8": 2**8 - 1, "int16": 2**15, "int32": 2**31}
_LEVELS: Final = {bits: 2 ** (bits - 1) - 1 for bits in LANE_BITS}  # the largest sum that a lane holds
_UNCHANGED: Final = "The array is unchanged."


def _lane_bits(bits: int) -> int:
    bits = whole_number(bits, "bits")
    if bits not in LANE_BITS:
        raise ValueError(f"bits is {bits}; it must be 8, 16 or 32")
    return bits


def _seed(seed: int) -> int:
    seed = whole_number(seed, "seed")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed}; it must be from 0 to 2^64 - 1")
    return seed


class NativeWire(NamedTuple):
    """A wire as the native code knows it: the bits of a lane, how numbers are rounded, and the format of packets."""

    bits: int = 32
    stochastic: bool = False
    seed: int = 0
    format: int = _native.FORMAT_INT32


PLAIN: Final = NativeWire()
"""That of calls without a sum, and of sums that ask for nothing else."""


class Wire(ABC):
    """The form of the values of a sum in packets, such as `Blocks`. All ranks must make a call with an equal one.

    Its text, such as ``blocks:bits=8,rounding=stochastic``, is what `parse_wire` reads.
    """

    kind: ClassVar[str]
    skips_zeros: ClassVar[bool] = True
    """True if ranks may leave out blocks of zeros, with the same sum."""
    native: NativeWire

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

    @abstractmethod
    def require(self, dtype: str, world_size: int) -> None:
        """Check that arrays of `dtype` of `world_size` ranks can be summed so.

        Raises:
            ValueError: they cannot.

        """

    def require_values(self, kind: int, values: Buffer) -> None:  # noqa: B027 - most wires take all values
        """Check that the sums of such `values`, in a call of this native `kind`, fit this wire.

        Raises:
            ValueError: they may not.

        """

    def _require_floats(self, dtype: str) -> None:
        if dtype not in _FLOATS:
            raise ValueError(
                f"wire {self} is for {', '.join(_FLOATS)}, not for {dtype}. {_UNCHANGED} Leave it out: integers are "
                "exact as they are."
            )

    def _require_room(self, dtype: str, world_size: int, bits: int, largest: int, remedy: str) -> None:
        most = _LEVELS[bits] // largest  # ranks
        if world_size > most:
            values = dtype if largest == 1 else f"{dtype} up to {largest}"
            raise ValueError(
                f"lanes of {bits} bits hold the sums of at most {most} ranks with values of {values}, and this job has "
                f"{world_size}. {_UNCHANGED} {remedy}"
            )


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
        object.__setattr__(self, "bits", _lane_bits(self.bits))
        object.__setattr__(self, "seed", _seed(self.seed))
        if self.rounding not in _ROUNDINGS:
            raise ValueError(f'rounding is {self.rounding!r}; it must be "nearest" or "stochastic"')
        if self.rounding == "stochastic" and self.bits == 32:
            raise ValueError('rounding="stochastic" is for bits of 16 or 8')
        if self.rounding == "nearest" and self.seed:
            raise ValueError(f'seed={self.seed} is for rounding="stochastic"')

    @cached_property
    def native(self) -> NativeWire:  # type: ignore[override]
        """The numbers for the native code."""
        return NativeWire(self.bits, self.rounding == "stochastic", self.seed)

    def require(self, dtype: str, world_size: int) -> None:
        """Check that `dtype` has blocks, and that a lane holds the sums of at least one level of each rank."""
        self._require_floats(dtype)
        if self.bits != 32:
            self._require_room(dtype, world_size, self.bits, 1, "Use more bits.")


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
        object.__setattr__(self, "bits", _lane_bits(self.bits))
        if self.bound is not None:
            object.__setattr__(self, "bound", whole_number(self.bound, "bound"))
            if not 1 <= self.bound < 2**31:
                raise ValueError(f"bound is {self.bound}; it must be from 1 to 2^31 - 1")

    @cached_property
    def native(self) -> NativeWire:  # type: ignore[override]
        """The numbers for the native code."""
        return NativeWire(self.bits)

    def require(self, dtype: str, world_size: int) -> None:
        """Check that `dtype` is of integers, and that a lane holds the sums of all ranks."""
        if self == _WHOLE and dtype not in _FLOATS:
            return
        if dtype == "int64":
            raise ValueError(
                "int64 takes as many words as the values of its packet need; bits and bound are for other dtypes. "
                f"{_UNCHANGED}"
            )
        largest = _LARGEST_MAGNITUDES.get(dtype)
        if largest is None:
            raise ValueError(f"wire {self} is for integers, not for {dtype}. {_UNCHANGED}")
        if self.bound is not None:
            largest = min(largest, self.bound)
        self._require_room(dtype, world_size, self.bits, largest, "Use more bits, or values with a smaller bound.")

    def require_values(self, kind: int, values: Buffer) -> None:
        """Check that no value is beyond the bound."""
        if self.bound is not None and not _native.all_within(kind, values.address, values.elements, self.bound):
            raise ValueError(f"the array holds a value beyond the bound {self.bound}. It is unchanged")


@dataclasses.dataclass(frozen=True)
class Codes(Wire):
    """Floating-point numbers as codes of one byte, which the switches expand to words before they add them up.

    The codes have a common unit in each block. They are a quarter of the bytes that a rank sends; results take 32 bits
    (docs/compression.md). `Communicator.codes` has those that the switches of a job know.

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
        object.__setattr__(self, "seed", _seed(self.seed))
        if self.name not in CODES:
            raise ValueError(f"codes are {self.name!r}; they must be {' or '.join(map(repr, CODES))}")

    @cached_property
    def native(self) -> NativeWire:  # type: ignore[override]
        """The numbers for the native code."""
        return NativeWire(seed=self.seed, format=FORMATS[self.name])

    def require(self, dtype: str, world_size: int) -> None:
        """Check that `dtype` has codes, and that a word holds the sums of those of all ranks."""
        self._require_floats(dtype)
        if self.name == "dynamic8" and world_size > MOST_RANKS_OF_DYNAMIC8:
            raise ValueError(
                f"the sums of dynamic8 codes fit words for at most {MOST_RANKS_OF_DYNAMIC8} ranks, and this job has "
                f"{world_size}. {_UNCHANGED} Use natural8, or blocks of fewer bits."
            )


@dataclasses.dataclass(frozen=True)
class Floats(Wire):
    """Floating-point numbers as float32, which the switches add up as such, if they can (`Communicator.adds_floats`).

    A result differs from the exact sum by less than N * 2^-47 times the largest contribution, and is rounded to float32
    once for each switch between a rank and the root of its tree, in any order the same bits. NaN and infinities come
    out as of any sum of floats, without an error. Packets are not checked for changed values by more than UDP's and
    Ethernet's checksums (docs/floats.md).
    """

    kind: ClassVar[str] = "floats"
    skips_zeros: ClassVar[bool] = False
    native: ClassVar[NativeWire] = NativeWire(format=_native.FORMAT_FLOAT32)  # type: ignore[misc]

    def require(self, dtype: str, world_size: int) -> None:  # noqa: ARG002
        """Check that `dtype` is of floating-point numbers."""
        self._require_floats(dtype)


_WHOLE: Final = Integers()
_KINDS: Final[dict[str, Any]] = {wire.kind: wire for wire in (Blocks, Integers, Codes, Floats)}
_USUAL: Final[dict[str, Wire]] = dict.fromkeys(_FLOATS, Blocks()) | dict.fromkeys(
    (*_LARGEST_MAGNITUDES, "int64"), _WHOLE
)


def wire_for(dtype: str, world_size: int, wire: Wire | None = None) -> Wire:
    """Return the wire of a sum of `dtype` over `world_size` ranks: `wire`, or the usual one of this dtype.

    Raises:
        TypeError: `wire` is not a wire.
        ValueError: the dtype cannot be summed so, or the sums of `world_size` ranks do not fit.

    """
    if wire is None:
        return _USUAL[dtype]
    if not isinstance(wire, Wire):
        raise TypeError(
            f"wire is {wire!r}; it must be Blocks(...), Integers(...), Codes(...) or Floats() of switchml. {_UNCHANGED}"
        )
    wire.require(dtype, world_size)
    return wire


def parse_wire(text: str) -> Wire:
    """Return the wire with this text, such as ``blocks:bits=16`` or ``floats``.

    Raises:
        ValueError: it is not the text of a wire; the message says what is.

    """
    kind, _, rest = text.partition(":")
    if kind not in _KINDS:
        raise ValueError(f"{text!r} is not a wire: it must begin with {', '.join(_KINDS)}")
    names = [field.name for field in dataclasses.fields(_KINDS[kind])]
    given: dict[str, Any] = {}
    for argument in filter(None, rest.split(",")):
        name, equals, value = argument.partition("=")
        if name not in names or not equals:
            allowed = f"takes {', '.join(f'{one}=' for one in names)}" if names else "takes no arguments"
            raise ValueError(f"{text!r} is not a wire: {kind} {allowed}, not {argument!r}")
        given[name] = int(value) if value.isdecimal() else value
    try:
        if kind == Codes.kind and "name" not in given:
            raise ValueError(f"codes need a name: {' or '.join(f'name={name}' for name in CODES)}")
        wire: Wire = _KINDS[kind](**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a wire: {error}") from None
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
