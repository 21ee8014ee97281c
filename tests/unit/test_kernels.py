"""The native arithmetic compared with numpy, for every instruction set of this CPU."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from switchml._native import kernels
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES
from tests.unit.weighed_sums import weighed_sum

Type = kernels.Type

AVAILABLE = [i for i in kernels.Instructions if kernels.cpu_has(i)]

examples = settings(max_examples=100)

lengths = st.integers(0, 70) | st.sampled_from([255, 256, PROTOCOL_MAX_VALUES])
floats = hnp.arrays(np.float32, lengths, elements=st.floats(width=32, allow_nan=True, allow_infinity=True))
integers = hnp.arrays(np.int32, st.integers(0, 70) | st.just(PROTOCOL_MAX_VALUES))
half_types = st.sampled_from([Type.FLOAT16, Type.BFLOAT16])
half_bits = hnp.arrays(np.uint16, lengths)
MANY = [65, 1000, 1023, 2047, 2049, 3001, 4095, 4096]  # ranks of large jobs, by which averages are divided
ALL_HALVES = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
INFINITY = {Type.FLOAT16: 0x7C00, Type.BFLOAT16: 0x7F80}


@pytest.fixture(autouse=True, params=AVAILABLE, ids=lambda i: i.name.lower(), scope="module")
def _instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels.use_instructions(request.param)
    yield
    kernels.use_instructions(kernels.best_instructions())


def raw(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return values.view(np.uint8)


def unset_words(count: int) -> npt.NDArray[np.uint8]:
    return np.empty(4 * count, np.uint8)


def exponent_of(values: npt.NDArray[np.float32]) -> int:
    return int((values.view(np.uint32) >> 23 & 0xFF).max(initial=0))


def big_endian(words: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    return words.view(">i4").astype(np.int32)


def wire_words(values: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(values.astype(">i4").tobytes(), np.uint8)


def floats_of_halves(type_: Type, bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return numpy's result."""
    if type_ == Type.FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def halves_nearest(type_: Type, values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
    """Round float64 numbers to the nearest half (ties to even), by finding the two halves around each."""
    magnitudes = floats_of_halves(type_, np.arange(INFINITY[type_], dtype=np.uint16)).astype(np.float64)
    # Return the number that would follow the largest one if there were no infinity.
    grid = np.append(magnitudes, 2 * magnitudes[-1] - magnitudes[-2])
    above = np.searchsorted(grid, np.minimum(np.abs(values), grid[-1]))  # the first half that is not less
    below = np.maximum(above, 1) - 1
    to_below, to_above = np.abs(values) - grid[below], grid[above] - np.abs(values)
    nearest = np.where((to_below < to_above) | ((to_below == to_above) & (below % 2 == 0)), below, above)
    return np.asarray(nearest | np.where(np.signbit(values), 0x8000, 0), np.uint16)


def quieted(type_: Type, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the expected NaN: quiet, with the sign and the upper bits of the payload."""
    bits = values.view(np.uint32)
    if type_ == Type.BFLOAT16:
        return (bits >> 16 | 0x40).astype(np.uint16)
    return (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF).astype(np.uint16)


def narrowed(type_: Type, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    result = np.empty(len(values), np.uint16)
    kernels.narrow(type_, raw(values), raw(result))
    return result


def check_narrowing(type_: Type, values: npt.NDArray[np.float32]) -> None:
    nan = np.isnan(values)
    with np.errstate(invalid="ignore"):
        expected = np.where(nan, quieted(type_, values), halves_nearest(type_, np.where(nan, 0, values)))
    np.testing.assert_array_equal(narrowed(type_, values), expected)
    if type_ == Type.FLOAT16:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(
                narrowed(type_, values)[~nan], values[~nan].astype(np.float16).view(np.uint16)
            )


@examples
@given(floats)
def test_block_exponent_is_the_largest_exponent_field(values: npt.NDArray[np.float32]) -> None:
    assert kernels.block_exponent(Type.FLOAT32, raw(values)) == exponent_of(values)


@examples
@given(half_types, half_bits)
def test_block_exponent_of_halves_is_that_of_their_floats(type_: Type, bits: npt.NDArray[np.uint16]) -> None:
    assert kernels.block_exponent(type_, raw(bits)) == exponent_of(floats_of_halves(type_, bits))


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
def test_block_exponent_of_every_half(type_: Type) -> None:
    with np.errstate(invalid="ignore"):
        expected = floats_of_halves(type_, ALL_HALVES).view(np.uint32) >> 23 & 0xFF
    for bits, exponent in zip(ALL_HALVES, expected, strict=True):
        block = np.full(33, 0, np.uint16)
        block[int(bits) % 33] = bits
        assert kernels.block_exponent(type_, raw(block)) == exponent


@examples
@given(floats.map(np.nan_to_num), st.integers(0, 6))
def test_quantize_rounds_to_nearest_even_and_weighs(values: npt.NDArray[np.float32], headroom: int) -> None:
    shift = 31 - headroom - (exponent_of(values) - 126)
    words = unset_words(len(values))
    weighed = kernels.quantize(Type.FLOAT32, raw(values), shift, words)
    expected = np.rint(np.ldexp(values.astype(np.float64), shift))
    assert np.abs(expected).max(initial=0) <= 2.0 ** (31 - headroom)
    np.testing.assert_array_equal(big_endian(words), expected.astype(np.int32))
    assert weighed == weighed_sum(tuple(expected.astype(np.int64).tolist()))


@examples
@given(half_types, half_bits, st.integers(0, 6))
def test_halves_are_quantized_as_their_floats(type_: Type, bits: npt.NDArray[np.uint16], headroom: int) -> None:
    finite = np.where(bits & INFINITY[type_] == INFINITY[type_], bits & 0x80FF, bits).astype(np.uint16)
    values = floats_of_halves(type_, finite)
    shift = 31 - headroom - (exponent_of(values) - 126)
    words, of_floats = unset_words(len(values)), unset_words(len(values))
    weighed = kernels.quantize(type_, raw(finite), shift, words)
    assert weighed == kernels.quantize(Type.FLOAT32, raw(values), shift, of_floats)
    np.testing.assert_array_equal(words, of_floats)


@examples
@given(integers, st.integers(-103, 157), st.sampled_from([1, 2, 3, 7, 61, 64, *MANY]))
def test_dequantize_rounds_once(values: npt.NDArray[np.int32], shift: int, divisor: int) -> None:
    words = wire_words(values)
    result = np.empty(len(values), np.float32)
    weighed = kernels.dequantize(Type.FLOAT32, words, shift, divisor, raw(result))
    with np.errstate(over="ignore", under="ignore"):
        # The float64 quotient is as near to the exact one as in the test of halves below.
        expected = (np.ldexp(values.astype(np.float64), -shift) / divisor).astype(np.float32)
    np.testing.assert_array_equal(result, expected)
    assert weighed == weighed_sum(tuple(values.tolist()))


@pytest.mark.parametrize("type_", [Type.FLOAT32, Type.FLOAT16, Type.BFLOAT16])
@pytest.mark.parametrize("shift", [120, 121, 126, 127, 150])
def test_zeros_are_positive_zeros_and_no_word_is_taken_for_one(type_: Type, shift: int) -> None:
    for count in (1, 7, 64, 257, 2048):
        integers = np.zeros(count, np.int32)
        result = np.full(count, 0xFFFF, np.uint32 if type_ == Type.FLOAT32 else np.uint16)
        assert kernels.dequantize(type_, wire_words(integers), shift, 3, raw(result)) == 0
        assert not result.any()
        if type_ == Type.FLOAT16:
            continue  # it has no numbers as small as those below
        for place in {0, count // 2, count - 1}:
            for word in (1 << 30, 1 << 22, -(1 << 30)):  # one that is not 0 in its first byte, one that is
                integers[place] = word
                weighed = kernels.dequantize(type_, wire_words(integers), shift, 1, raw(result))
                assert weighed == weighed_sum(tuple(integers.tolist()))
                assert np.flatnonzero(result).tolist() == [place]
            integers[place] = 0


@pytest.mark.parametrize("divisor", [2, 3, 7, 61, 64, *MANY])
def test_averages_next_to_what_lies_between_two_floats(divisor: int) -> None:
    """Return sums whose quotient is close or equal to a midpoint, and sums that overflow while it does not."""
    rng = np.random.default_rng(divisor)
    midpoints = (rng.integers(1 << 23, 1 << 24, 8000) * 2 + 1) * divisor
    if divisor > 64:  # the products do not fit a word, but the nearest words to them, divided by a power of two, do
        midpoints >>= np.floor(np.log2(midpoints)).astype(int) - 30
    sums = midpoints + rng.integers(-1, 2, len(midpoints))
    sums = sums[sums < 2**31] * rng.choice([-1, 1], np.count_nonzero(sums < 2**31))
    for shift in (0, -98):
        for part in np.array_split(sums.astype(np.int32), 4):
            result = np.empty(len(part), np.float32)
            kernels.dequantize(Type.FLOAT32, wire_words(part), shift, divisor, raw(result))
            exact = np.ldexp(part.astype(np.float64), -shift) / divisor
            np.testing.assert_array_equal(result, exact.astype(np.float32))


@examples
@given(half_types, integers, st.integers(-103, 157), st.sampled_from([1, 2, 3, 7, 48, 63, 64, *MANY]))
def test_halves_are_the_exact_quotient_rounded_once(
    type_: Type, values: npt.NDArray[np.int32], shift: int, divisor: int
) -> None:
    result = np.empty(len(values), np.uint16)
    weighed = kernels.dequantize(type_, wire_words(values), shift, divisor, raw(result))
    # A quotient in float64 is within 2^-53 of the exact one. The quotient of integers of 31 and 24 bits is never that
    # near to a midpoint between two halves, unless it is equal to the midpoint.
    expected = halves_nearest(type_, np.ldexp(values.astype(np.float64), -shift) / divisor)
    np.testing.assert_array_equal(result & 0x7FFF, expected & 0x7FFF)
    assert np.all((result >> 15 == expected >> 15) | (values == 0))
    assert weighed == weighed_sum(tuple(values.tolist()))


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
@pytest.mark.parametrize("divisor", [1, 3, 7, 11, 61, 64, *MANY])
def test_halves_next_to_what_lies_between_two_of_them(type_: Type, divisor: int) -> None:
    """Return sums whose quotient is close to a midpoint or equal to it, where rounding twice gives a wrong result."""
    bits = {Type.FLOAT16: 11, Type.BFLOAT16: 8}[type_]
    rng = np.random.default_rng(divisor)
    midpoints = (rng.integers(1 << bits - 1, 1 << bits, 8000) * 2 + 1) * divisor
    room = 30 - np.floor(np.log2(midpoints)).astype(int)
    scaled = midpoints << rng.integers(0, room + 1)
    sums = (scaled + rng.integers(-1, 2, len(scaled))).clip(-(2**31), 2**31 - 1) * rng.choice([-1, 1], len(scaled))
    for part in np.array_split(sums.astype(np.int32), 4):
        result = np.empty(len(part), np.uint16)
        kernels.dequantize(type_, wire_words(part), 16, divisor, raw(result))
        np.testing.assert_array_equal(result, halves_nearest(type_, part.astype(np.float64) / 2**16 / divisor))


def test_the_reference_rounds_exact_quotients() -> None:
    """Compare `halves_nearest` itself with exact fractions."""
    rng = np.random.default_rng(3)
    magnitudes = [Fraction(float(x)) for x in floats_of_halves(Type.BFLOAT16, np.arange(0x7F80, dtype=np.uint16))]
    for _ in range(200):
        word, divisor, shift = int(rng.integers(1, 2**31)), int(rng.integers(1, 4097)), int(rng.integers(-60, 60))
        exact = Fraction(word, divisor) * Fraction(2) ** -shift
        found = int(halves_nearest(Type.BFLOAT16, np.array([float(np.ldexp(word, -shift)) / divisor]))[0])
        distance = abs(magnitudes[found] - exact)
        assert distance <= abs(magnitudes[found - 1] - exact)
        assert distance <= abs(magnitudes[found + 1] - exact)


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
def test_every_half_is_widened_exactly(type_: Type) -> None:
    result = np.empty(1 << 16, np.float32)
    kernels.widen(type_, raw(ALL_HALVES), raw(result))
    expected = floats_of_halves(type_, ALL_HALVES)
    if type_ == Type.FLOAT16:  # a signalling NaN becomes quiet
        expected = np.where(np.isnan(expected), (expected.view(np.uint32) | 0x400000).view(np.float32), expected)
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
def test_every_half_comes_back(type_: Type) -> None:
    nan = np.isnan(floats_of_halves(type_, ALL_HALVES))
    quiet = {Type.FLOAT16: 0x200, Type.BFLOAT16: 0x40}[type_]
    widened = np.empty(1 << 16, np.float32)
    kernels.widen(type_, raw(ALL_HALVES), raw(widened))
    np.testing.assert_array_equal(narrowed(type_, widened), np.where(nan, ALL_HALVES | quiet, ALL_HALVES))


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
def test_narrowing_around_every_half_and_every_midpoint(type_: Type) -> None:
    """Return each half, each midpoint between two of them, and the float32 numbers next to all of these."""
    magnitudes = floats_of_halves(type_, np.arange(INFINITY[type_], dtype=np.uint16))
    beyond = np.float32(65536 if type_ == Type.FLOAT16 else np.inf)
    # Within one power of two, the midpoint of two adjacent halves is also the midpoint of their bits, except near 0.
    bits = np.append(magnitudes, beyond).view(np.uint32).astype(np.int64)
    between = np.append(bits[:-1] + np.diff(bits) // 2, np.float32(magnitudes[1] / 2).view(np.uint32))
    around = np.concatenate([bits, between])[:, None] + np.arange(-2, 3)
    magnitude_bits = around.clip(0, 0x7FFFFFFF).astype(np.uint32).ravel()
    check_narrowing(type_, magnitude_bits.view(np.float32))
    check_narrowing(type_, (magnitude_bits | 0x80000000).view(np.float32))


@pytest.mark.parametrize("type_", [Type.FLOAT16, Type.BFLOAT16])
def test_narrowing_a_stratified_sample_of_float32(type_: Type) -> None:
    """Return every combination of sign, exponent and leading bits of the significand, with random lower bits."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    rest = np.random.default_rng(5).integers(0, 1 << 16, (4, 1 << 16), np.uint32)
    for lower in rest:
        check_narrowing(type_, (upper | lower).view(np.float32))


@examples
@given(half_types, floats)
def test_narrowing_anything(type_: Type, values: npt.NDArray[np.float32]) -> None:
    check_narrowing(type_, values)


@examples
@given(integers)
def test_integers_travel_unchanged(values: npt.NDArray[np.int32]) -> None:
    words = unset_words(len(values))
    check = weighed_sum(tuple(values.tolist()))
    assert kernels.pack(raw(values), words) == check
    np.testing.assert_array_equal(big_endian(words), values)
    back = np.empty_like(values)
    assert kernels.unpack(words, raw(back)) == check
    np.testing.assert_array_equal(back, values)


@examples
@given(integers, st.integers(0, PROTOCOL_MAX_VALUES))
def test_words_weigh_what_their_places_do(values: npt.NDArray[np.int32], first: int) -> None:
    first = min(first, PROTOCOL_MAX_VALUES - len(values))
    assert kernels.weigh(wire_words(values), first) == weighed_sum((0,) * first + tuple(values.tolist()))


def test_every_single_bit_flip_changes_the_weighed_sum() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-(2**31), 2**31, 256).astype(np.int32)
    words = wire_words(values).copy()
    into = np.empty_like(values)
    right = kernels.unpack(words, raw(into))
    for byte in range(words.size):
        for bit in range(8):
            words[byte] ^= 1 << bit
            assert kernels.unpack(words, raw(into)) != right
            words[byte] ^= 1 << bit


@pytest.mark.parametrize("type_", [Type.FLOAT32, Type.FLOAT16, Type.BFLOAT16])
def test_a_pass_over_an_array_is_block_after_block(type_: Type) -> None:
    """Test the pattern as the benchmark creates it, with every instruction set."""
    rng = np.random.default_rng(2)
    dtype = np.float32 if type_ == Type.FLOAT32 else np.uint16
    floats = (rng.standard_normal(1000) * 100).astype(np.float32)
    values = floats if type_ == Type.FLOAT32 else narrowed(type_, floats)
    expected = np.empty(4000, np.uint8)
    for first in range(0, 1000, 256):
        kernels.quantize(type_, raw(values[first:][:256]), 20, expected[4 * first :][:1024])
    back = np.empty(1000, dtype)
    for instructions in AVAILABLE:
        words = unset_words(1000)
        kernels.run("quantize", type_, instructions, raw(values), words, 256)
        np.testing.assert_array_equal(words, expected)
        kernels.run("dequantize", type_, instructions, raw(back), words, 256)
        assert np.abs(back.view(dtype) != values).sum() == 0 or type_ == Type.FLOAT32


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2048"):
        kernels.quantize(Type.FLOAT32, raw(np.zeros(4, np.float32)), 0, np.zeros(15, np.uint8))
    with pytest.raises(ValueError, match="2048"):
        kernels.quantize(Type.FLOAT16, raw(np.zeros(2049, np.uint16)), 0, np.zeros(4 * 2049, np.uint8))
    with pytest.raises(ValueError, match="only float16 and bfloat16"):
        kernels.widen(Type.FLOAT32, raw(np.zeros(4, np.float32)), np.zeros(16, np.uint8))
    with pytest.raises(ValueError, match='no kernel "divide"'):
        kernels.run("divide", Type.FLOAT32, AVAILABLE[0], np.zeros(4, np.uint8), np.zeros(4, np.uint8), 1)
