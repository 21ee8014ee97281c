"""The sums of float32 values as a switch computes them, in numpy: for tools and tests, never on the data path.

A pipeline that takes `Format.FLOAT32` adds the values of a lane in one of three ways:

- `sum_digits`, which all switches of this project announce: three digits at fixed places, so that the sum depends on no
  order;
- `sum_fpisa` and `sum_fpisa_a`, for study: an exponent and a mantissa that is not normalized between packets, as in
  FPISA (Yuan et al., NSDI 2022). FPISA-A is its form for switches that cannot shift a stored mantissa. Their sums
  depend on the order. Unlike the publication, they treat infinities and NaN as the first form does.

Values have shape (ranks, lanes) and dtype float32. They are added in the order of the first axis, from its start. A
value is plus or minus m * 2^(p - 149) with a mantissa m below 2^24 and a place p >= 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["DIGIT_BITS", "HEADROOM", "FpisaSums", "sum_digits", "sum_fpisa", "sum_fpisa_a"]

DIGIT_BITS: Final = 24
"""Bits of a digit of `sum_digits`, which are also the bits of a mantissa."""
HEADROOM: Final = 7
"""Bits of an int32 above a mantissa and its sign: the largest distance by which FPISA-A shifts a value to the left."""

_FRACTION_BITS: Final = 23
_INFINITY: Final = 0x7F800000
_NAN: Final = 0x7FC00000
_SIGN: Final = 0x80000000
_WORD_BITS: Final = 32

_Floats = npt.NDArray[np.float32]
_Integers = npt.NDArray[np.int64]
_Marks = npt.NDArray[np.bool_]


class FpisaSums(NamedTuple):
    """The sums of FPISA-A, and in which lanes a mantissa did not fit an int32; the sum of such a lane is NaN."""

    sums: _Floats
    overflowed: _Marks


class _Parts(NamedTuple):
    """Mantissas with their signs, places, and marks of what is not finite, each of shape (ranks, lanes)."""

    mantissas: _Integers
    places: _Integers
    infinite: _Marks
    negative: _Marks
    nan: _Marks


def sum_digits(values: _Floats) -> _Floats:
    """Return the sums of digits, of shape (lanes,); they are the same for every order of the ranks.

    With k = p div 24, a mantissa shifted by p mod 24 is cut into the digits of places k and k + 1. A lane keeps the
    sums of three places: `top`, the highest that any rank has reached, and the two below. Each rank loses less than
    2^-47 of the largest magnitude. The result is rounded once, to nearest even.

    Raises:
        ValueError: `values` is not a float32 array of shape (ranks, lanes) with at least one rank.

    """
    parts = _parts_of(values)
    top = np.zeros(values.shape[1], np.int64)
    sums = np.zeros((3, values.shape[1]), np.int64)  # of places top, top - 1 and top - 2
    for mantissas, places in zip(parts.mantissas, parts.places, strict=True):
        low_place, shift = np.divmod(places, DIGIT_BITS)
        magnitudes = np.abs(mantissas) << shift
        digits = np.stack([magnitudes >> DIGIT_BITS, magnitudes % (1 << DIGIT_BITS), np.zeros_like(magnitudes)])
        raised = np.maximum(top, low_place + 1)
        sums = _lowered(sums, raised - top) + np.sign(mantissas) * _lowered(digits, raised - (low_place + 1))
        top = raised
    high = (sums[0] << DIGIT_BITS) + sums[1]
    return _marked(parts, _packed(high, sums[2], DIGIT_BITS * (top - 2), nearest=True))


def sum_fpisa(values: _Floats) -> _Floats:
    """Return the sums of FPISA, of shape (lanes,).

    The place of a lane is the largest one so far; the stored mantissa, or that of the value, is shifted to the right to
    it, which rounds down. The result is cut to 24 bits. At most 128 ranks always fit.

    Raises:
        ValueError: `values` is not a float32 array of shape (ranks, lanes) with at least one rank.

    """
    parts = _parts_of(values)
    stored, place = parts.mantissas[0], parts.places[0]
    for mantissas, places in zip(parts.mantissas[1:], parts.places[1:], strict=True):
        raised = np.maximum(place, places)
        stored = _shifted_right(stored, raised - place) + _shifted_right(mantissas, raised - places)
        place = raised
    return _marked(parts, _packed(np.zeros_like(stored), stored, place, nearest=False))


def sum_fpisa_a(values: _Floats, headroom: int = HEADROOM) -> FpisaSums:
    """Return the sums of FPISA-A, of shape (lanes,).

    A value whose place is above that of the lane is shifted to the left, by at most `headroom` bits; if it is further
    above, it replaces the stored sum. A value below is shifted to the right, which rounds down. The result is cut to 24
    bits.

    Raises:
        ValueError: `values` is not a float32 array of shape (ranks, lanes) with at least one rank.
        ValueError: `headroom` is not 0 to 7.

    """
    if not 0 <= headroom <= HEADROOM:
        raise ValueError(f"headroom is {headroom}; it must be 0 to {HEADROOM}")
    parts = _parts_of(values)
    stored, place = parts.mantissas[0], parts.places[0]
    overflowed = np.zeros(values.shape[1], np.bool_)
    for mantissas, places in zip(parts.mantissas[1:], parts.places[1:], strict=True):
        distance = places - place
        raised = mantissas << np.clip(distance, 0, headroom)
        shifted = np.where(distance > 0, raised, _shifted_right(mantissas, np.maximum(-distance, 0)))
        replaced = distance > headroom
        stored = np.where(replaced, mantissas, stored + shifted)
        place = np.where(replaced, places, place)
        overflowed |= (stored < -(2**31)) | (stored >= 2**31)
        stored = stored.astype(np.int32).astype(np.int64)
    sums = _marked(parts, _packed(np.zeros_like(stored), stored, place, nearest=False))
    sums.view(np.uint32)[overflowed] = _NAN
    return FpisaSums(sums, overflowed)


def _parts_of(values: _Floats) -> _Parts:
    if values.ndim != 2 or values.dtype != np.float32 or not len(values):
        raise ValueError(
            f"values have shape {values.shape} and dtype {values.dtype}; they must be float32 of shape (ranks, lanes), "
            "with one rank at least"
        )
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.int64)
    exponents = bits >> _FRACTION_BITS & 0xFF
    fractions = bits & ((1 << _FRACTION_BITS) - 1)
    negative = bits >= _SIGN
    finite = exponents < 0xFF
    mantissas = np.where(finite, fractions | (exponents > 0).astype(np.int64) << _FRACTION_BITS, 0)
    infinite = ~finite & (fractions == 0)
    return _Parts(
        np.where(negative, -mantissas, mantissas),
        np.where(finite, np.maximum(exponents, 1) - 1, 0),
        infinite,
        negative,
        ~finite & ~infinite,
    )


def _lowered(digits: _Integers, distance: _Integers) -> _Integers:
    """Return three digits of each lane that have moved down by a distance; digits below the third fall out."""
    with_zero = np.concatenate([np.zeros_like(digits[:1]), digits])
    rows = np.maximum(np.arange(3)[:, np.newaxis] - distance + 1, 0)
    lowered: _Integers = np.take_along_axis(with_zero, rows, axis=0)
    return lowered


def _shifted_right(mantissas: _Integers, distance: _Integers) -> _Integers:
    """Return mantissas shifted as a switch shifts words: arithmetically, and distances of a word or more alike."""
    shifted: _Integers = mantissas >> np.minimum(distance, _WORD_BITS - 1)
    return shifted


def _packed(high: _Integers, low: _Integers, unit: _Integers, *, nearest: bool) -> npt.NDArray[np.uint32]:
    """Return the bits of the floats (high * 2^24 + low) * 2^(unit - 149), rounded to nearest even or toward zero.

    `high` is below 2^56 and `low` below 2^31 in magnitude. Precondition: a multiple of 2^-149.
    """
    high = high + (low >> DIGIT_BITS)
    low = low % (1 << DIGIT_BITS)
    negative = high < 0
    high, low = np.where(negative, ~high + (low == 0), high), np.where(negative, -low % (1 << DIGIT_BITS), low)
    # A large number in 63 bits: of its low digit, only whether it is zero decides how the number is rounded.
    large = high >= 1 << 38
    number = np.where(large, high << 1 | (low != 0), high << DIGIT_BITS | low)
    unit = unit + np.where(large, DIGIT_BITS - 1, 0)

    shift = np.maximum(_bit_length(number) - DIGIT_BITS, -unit)  # to the right, if it is positive
    mantissa = np.where(shift < 0, number << np.maximum(-shift, 0), number >> np.maximum(shift, 0))
    if nearest:
        rest = number - (mantissa << np.maximum(shift, 0))
        half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 1)  # without a shift, the rest is 0
        mantissa += np.where(shift > 0, (rest > half) | ((rest == half) & (mantissa % 2 == 1)), 0)
    # The leading 1 of a mantissa adds 1 to the exponent field, and so does a mantissa that was rounded up to 2^24.
    bits = np.minimum(((unit + shift) << _FRACTION_BITS) + mantissa, _INFINITY)
    return np.where(number == 0, 0, bits | negative.astype(np.int64) << 31).astype(np.uint32)


def _bit_length(numbers: _Integers) -> _Integers:
    """Return for each number, which is 0 or positive, how many bits it has without leading zeros."""
    length = np.zeros_like(numbers)
    for step in (32, 16, 8, 4, 2, 1):
        wide = numbers >> step > 0
        numbers = np.where(wide, numbers >> step, numbers)
        length += wide * step
    return length + numbers


def _marked(parts: _Parts, bits: npt.NDArray[np.uint32]) -> _Floats:
    """Return sums from their bits, with infinity or NaN where a value was not finite."""
    up = (parts.infinite & ~parts.negative).any(axis=0)
    down = (parts.infinite & parts.negative).any(axis=0)
    bits = np.where(up, _INFINITY, np.where(down, _INFINITY | _SIGN, bits))
    bits = np.where(parts.nan.any(axis=0) | (up & down), _NAN, bits)
    return bits.astype(np.uint32).view(np.float32)
