"""The lanes of an all-reduce: the bits that a value takes in a packet, and how values are rounded to them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from switchml import _native
from switchml.arguments import whole_number

__all__ = [
    "ARITHMETICS",
    "CODES",
    "FORMATS",
    "LANE_BITS",
    "MOST_RANKS_OF_DYNAMIC8",
    "ROUNDINGS",
    "WIDE",
    "Arithmetic",
    "Codes",
    "Lanes",
    "Rounding",
    "lanes_for",
]

Arithmetic = Literal["block", "float"]
Codes = Literal["natural8", "dynamic8"]
Rounding = Literal["nearest", "stochastic"]

LANE_BITS: Final = (32, 16, 8)
ROUNDINGS: Final = ("nearest", "stochastic")
ARITHMETICS: Final[tuple[Arithmetic, ...]] = ("block", "float")
FORMATS: Final[dict[Codes, int]] = {"natural8": _native.FORMAT_NATURAL8, "dynamic8": _native.FORMAT_DYNAMIC8}
"""The formats of packets with codes, by the name of the codes."""
CODES: Final[tuple[Codes, ...]] = ("natural8", "dynamic8")
MOST_RANKS_OF_DYNAMIC8: Final = 64
"""The sums of dynamic8 codes of up to this many ranks fit a word."""

_WORD_BITS: Final = 32
_FLOATS: Final = ("float32", "float16", "bfloat16")
_LARGEST_MAGNITUDES: Final = {"bool": 1, "int8": 2**7, "uint8": 2**8 - 1, "int16": 2**15, "int32": 2**31}
_UNCHANGED: Final = "The array is unchanged."


class Lanes(NamedTuple):
    """The description of a call's lanes. All ranks must make a call with the same one."""

    bits: int = _WORD_BITS
    rounding: Rounding = "nearest"
    seed: int = 0
    bound: int | None = None  # the largest magnitude of the integers, if the caller has named one
    codes: Codes | None = None  # of floating-point numbers, one byte for each in contributions
    arithmetic: Arithmetic = "block"  # of floating-point numbers in the switch

    @property
    def format(self) -> int:
        """The format of contributions (constants.toml, [format])."""
        if self.arithmetic == "float":
            return _native.FORMAT_FLOAT32
        return _native.FORMAT_INT32 if self.codes is None else FORMATS[self.codes]

    @property
    def stochastic(self) -> bool:
        """True if floating-point numbers are rounded stochastically."""
        return self.rounding == "stochastic"

    @property
    def in_full(self) -> str:
        """The text of these lanes with their width, also if it is the usual one."""
        return f" wire_bits={self.bits}{self}" if self.bits == _WORD_BITS else str(self)

    def __str__(self) -> str:
        """Return the arguments that are not the usual ones, each after a space."""
        text = "" if self.bits == _WORD_BITS else f" wire_bits={self.bits}"
        if self.stochastic:
            text += f" rounding={self.rounding} seed={self.seed}"
        if self.codes is not None:
            text += f" codes={self.codes}" + (f" seed={self.seed}" if self.codes == "natural8" else "")
        if self.arithmetic == "float":
            text += " arithmetic=float"
        return text if self.bound is None else f"{text} bound={self.bound}"


WIDE: Final = Lanes()
"""One value in each word, as in every call that does not ask for anything else."""


def lanes_for(
    dtype: str,
    world_size: int,
    wire_bits: int = 32,
    rounding: str = "nearest",
    seed: int = 0,
    bound: int | None = None,
    codes: Codes | None = None,
    arithmetic: Arithmetic = "block",
) -> Lanes:
    """Return the lanes for an all-reduce of `dtype` over `world_size` ranks.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is not one of those that `Communicator.all_reduce` lists, or the lanes cannot hold the
            sums of `world_size` ranks.

    """
    bits = whole_number(wire_bits, "wire_bits")
    if bits not in LANE_BITS:
        raise ValueError(f"wire_bits is {bits}; it must be 8, 16 or 32. {_UNCHANGED}")
    if rounding not in ROUNDINGS:
        raise ValueError(f'rounding is {rounding!r}; it must be "nearest" or "stochastic". {_UNCHANGED}')
    seed = whole_number(seed, "seed")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed is {seed}; it must be from 0 to 2^64 - 1. {_UNCHANGED}")
    if arithmetic not in ARITHMETICS:
        raise ValueError(f'arithmetic is {arithmetic!r}; it must be "block" or "float". {_UNCHANGED}')
    narrows = bits != _WORD_BITS or rounding != "nearest" or bound is not None
    if arithmetic == "float":
        if narrows or codes is not None:
            raise ValueError(
                'arithmetic="float" has no wire_bits, rounding, bound or codes. '
                f"{_UNCHANGED} Leave these arguments out."
            )
        return _as_floats(dtype)
    if codes is not None:
        if narrows:
            raise ValueError(f"codes have no wire_bits, rounding or bound. {_UNCHANGED} Leave these arguments out.")
        return _coded(codes, dtype, world_size, seed)
    if dtype == "int64" and (bits != _WORD_BITS or bound is not None):
        raise ValueError(
            "int64 takes as many words as the values of its packet need; wire_bits and bound are for other dtypes. "
            f"{_UNCHANGED}"
        )
    largest = _LARGEST_MAGNITUDES.get(dtype)
    if rounding == "stochastic" and (largest is not None or bits == _WORD_BITS):
        raise ValueError(
            f'rounding="stochastic" is for floating-point numbers with wire_bits of 16 or 8, not for {dtype} with '
            f"{bits}. {_UNCHANGED}"
        )
    if bound is not None:
        bound = whole_number(bound, "bound")
        if largest is None:
            raise ValueError(f"bound is for integers, not for {dtype}. {_UNCHANGED}")
        if not 1 <= bound < 2**31:
            raise ValueError(f"bound is {bound}; it must be from 1 to 2^31 - 1. {_UNCHANGED}")
    if largest is None and bits != _WORD_BITS:
        _require_levels(dtype, world_size, bits)
    if largest is not None and (bits != _WORD_BITS or bound is not None):
        _require_room(dtype, world_size, bits, largest if bound is None else min(bound, largest))
    return Lanes(bits, "stochastic" if rounding == "stochastic" else "nearest", seed, bound)


def _as_floats(dtype: str) -> Lanes:
    if dtype not in _FLOATS:
        raise ValueError(
            f'arithmetic="float" is for {", ".join(_FLOATS)}, not for {dtype}. {_UNCHANGED} Leave it out: integers are '
            "exact as they are."
        )
    return Lanes(arithmetic="float")


def _coded(codes: Codes, dtype: str, world_size: int, seed: int) -> Lanes:
    if codes not in CODES:
        raise ValueError(f"codes is {codes!r}; it must be {' or '.join(map(repr, CODES))}. {_UNCHANGED}")
    if dtype not in _FLOATS:
        raise ValueError(f"codes are for {', '.join(_FLOATS)}, not for {dtype}. {_UNCHANGED}")
    if codes == "dynamic8" and world_size > MOST_RANKS_OF_DYNAMIC8:
        raise ValueError(
            f"the sums of dynamic8 codes fit words for at most {MOST_RANKS_OF_DYNAMIC8} ranks, and this job has "
            f"{world_size}. {_UNCHANGED} Use natural8, or wire_bits."
        )
    return Lanes(seed=seed, codes=codes)


def _require_levels(dtype: str, world_size: int, bits: int) -> None:
    """Raise ValueError unless a lane holds the sums of at least one level of each rank."""
    most = 2 ** (bits - 1) - 1
    if world_size > most:
        raise ValueError(
            f"lanes of {bits} bits hold the sums of at most {most} ranks with values of {dtype}, and this job has "
            f"{world_size}. {_UNCHANGED} Use more wire_bits."
        )


def _require_room(dtype: str, world_size: int, bits: int, largest: int) -> None:
    most = (2 ** (bits - 1) - 1) // largest  # ranks
    if world_size > most:
        raise ValueError(
            f"lanes of {bits} bits hold the sums of at most {most} ranks with values of {dtype} up to {largest}, and "
            f"this job has {world_size}. {_UNCHANGED} Use more wire_bits, or values with a smaller bound."
        )
