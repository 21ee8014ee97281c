"""The native arithmetic of narrow lanes compared with numpy, for every instruction set of this CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchml._native import kernels
from tests.unit.weighed_sums import weighed_sum

Type = kernels.Type

AVAILABLE = [i for i in kernels.Instructions if kernels.cpu_has(i)]
FLOATS: dict[Type, Any] = {Type.FLOAT32: np.float32, Type.FLOAT16: np.float16, Type.BFLOAT16: np.uint16}
INTEGERS: dict[Type, Any] = {
    Type.INT32: np.int32,
    Type.INT16: np.int16,
    Type.INT8: np.int8,
    Type.UINT8: np.uint8,
    Type.BOOL: np.bool_,
}
COUNTS = [*range(70), 127, 128, 129, 511, 512, 1021]


@pytest.fixture(autouse=True, params=AVAILABLE, ids=lambda i: i.name.lower(), scope="module")
def _instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels.use_instructions(request.param)
    yield
    kernels.use_instructions(kernels.best_instructions())


def raw(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return values.view(np.uint8)


def floats_of(type_: Type, values: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    if type_ == Type.BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def rounded_to(type_: Type, values: npt.NDArray[np.float32]) -> npt.NDArray[np.generic]:
    if type_ == Type.BFLOAT16:
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype(FLOATS[type_])


def random_values(type_: Type, count: int, rng: np.random.Generator) -> npt.NDArray[np.generic]:
    values = (rng.standard_normal(count) * np.exp2(rng.integers(-12, 12, count))).astype(np.float32)
    return rounded_to(type_, values)


def joined(lanes: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.uint32]:
    """Return the words of lanes, by the definition."""
    lanes_of_word = 32 // bits
    padded = np.zeros(-(-len(lanes) // lanes_of_word) * lanes_of_word, np.int64)
    padded[: len(lanes)] = lanes
    weights = 1 << bits * np.arange(lanes_of_word, dtype=np.int64)
    words: npt.NDArray[np.uint32] = ((padded.reshape(-1, lanes_of_word) * weights).sum(1) & 0xFFFFFFFF).astype(
        np.uint32
    )
    return words


def wire_words(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(words.astype(">u4").tobytes(), np.uint8)


def native_words(words: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    return words.view(">u4").astype(np.uint32)


def weighed(words: npt.NDArray[np.uint32]) -> int:
    return weighed_sum(tuple(words.view(np.int32).tolist()))


def scaled(values: npt.NDArray[np.float32], exponent: int, levels: int) -> npt.NDArray[np.float32]:
    """Return value * 2^(126 - exponent) * levels in float32."""
    factor = np.float32(np.ldexp(1.0, max(-126, 126 - exponent)))
    rest = np.float32(np.ldexp(float(levels), min(0, 252 - exponent)))
    levels_of: npt.NDArray[np.float32] = values * factor * rest
    return levels_of


def mixed(bits: int) -> int:
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return bits ^ bits >> 31


def thresholds(counter: tuple[int, int, int, int], count: int) -> npt.NDArray[np.int64]:
    """Return the random numbers of a block, by the definition in native/kernels/lanes.h."""
    key = 0
    for part in counter:
        key = mixed((key ^ part) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    groups = -(-count // 64)
    state = np.uint32(key & 0xFFFFFFFF) + np.arange(16 * groups, dtype=np.uint32) * np.uint32(0x9E3779B9)
    product = (state ^ state >> 15 ^ np.uint32(key >> 32)) * np.uint32(0x846CA68B)
    words = (product ^ product >> 16).reshape(groups, 16)
    both = np.concatenate([words, words << 8 | words >> 24], axis=1)
    halves = np.stack([both & 0xFFFF, both >> 16], axis=-1)
    return halves.reshape(-1)[:count].astype(np.int64)


def exponent_of(values: npt.NDArray[np.float32]) -> int:
    return int((values.view(np.uint32) >> 23 & 0xFF).max(initial=0))


def quantized(
    type_: Type,
    values: npt.NDArray[np.generic],
    bits: int,
    exponent: int,
    levels: int,
    counter: tuple[int, int, int, int] | None = None,
) -> npt.NDArray[np.uint32]:
    words = np.empty(4 * -(-len(values) * bits // 32), np.uint8)
    check = kernels.quantize_lanes(type_, raw(values), bits, 126 - exponent, levels, words, counter)
    assert check == weighed(native_words(words))
    return native_words(words)


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("type_", FLOATS, ids=lambda t: t.name)
def test_values_are_rounded_to_the_nearest_level(type_: Type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    for count in COUNTS:
        values = random_values(type_, count, rng)
        floats = floats_of(type_, values)
        for ranks in (1, 2, 3, 8, 64):
            levels = kernels.levels_for(bits, ranks)
            exponent = min(254, exponent_of(floats) + int(rng.integers(0, 3)))
            expected = np.rint(scaled(floats, exponent, levels)).astype(np.int64)
            assert np.abs(expected).max(initial=0) <= levels
            np.testing.assert_array_equal(quantized(type_, values, bits, exponent, levels), joined(expected, bits))


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("type_", FLOATS, ids=lambda t: t.name)
def test_stochastic_rounding_depends_on_the_counter_alone(type_: Type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    for count in COUNTS:
        values = random_values(type_, count, rng)
        floats = floats_of(type_, values)
        levels = kernels.levels_for(bits, 4)
        exponent = exponent_of(floats)
        counter = (int(rng.integers(2**63)), 7, 3, 2**32 - 40)
        exact = scaled(floats, exponent, levels)
        number = np.rint(exact.astype(np.float64) * 2**16).astype(np.int64)
        expected = number + thresholds(counter, count) >> 16
        assert np.abs(expected).max(initial=0) <= levels
        found = quantized(type_, values, bits, exponent, levels, counter)
        np.testing.assert_array_equal(found, joined(expected, bits))


def test_stochastic_rounding_has_the_right_mean() -> None:
    count, levels = 2048, 31
    values = np.full(count, 0.3, np.float32)
    values[0] = 0.75  # sets the exponent: 1 is the power of two above it
    total = 0.0
    for call in range(200):
        lanes = np.empty(count, np.float32)
        words = wire_words(quantized(Type.FLOAT32, values, 8, 126, levels, (1, call, 0, 0)))
        kernels.dequantize_lanes(Type.FLOAT32, words, 8, 0, 1, raw(lanes))
        assert set(lanes[1:].tolist()) == {9.0, 10.0}
        total += float(lanes[1:].mean())
    # The standard deviation of the mean of 400,000 such numbers is 0.0007.
    assert total / 200 == pytest.approx(0.3 * levels, abs=0.004)


@pytest.mark.parametrize("rounding", [None, (5, 6, 7, 8)], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("bits", [16, 8])
def test_largest_values_of_all_ranks_fit_their_lanes(bits: int, rounding: tuple[int, int, int, int] | None) -> None:
    """Sum words in which the lanes are as large as they can be, with all patterns of signs in adjacent lanes."""
    largest = np.nextafter(np.float32(1), np.float32(0))  # its exponent field is 126
    signs = np.array([1 - 2 * (i >> j & 1) for i in range(16) for j in range(4)] * 2, np.float32)
    for ranks in range(2, 65):
        levels = kernels.levels_for(bits, ranks)
        words = quantized(Type.FLOAT32, largest * signs, bits, 126, levels, rounding)
        np.testing.assert_array_equal(words, joined(signs.astype(np.int64) * levels, bits))
        sums = words * np.uint32(ranks)
        lanes = np.empty(len(signs), np.float32)
        kernels.dequantize_lanes(Type.FLOAT32, wire_words(sums), bits, 0, 1, raw(lanes))
        np.testing.assert_array_equal(lanes, signs * levels * ranks)


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize("type_", FLOATS, ids=lambda t: t.name)
def test_lanes_are_scaled_back(type_: Type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    most = 2 ** (bits - 1) - 1
    for count in COUNTS:
        lanes = rng.integers(-most, most + 1, count)
        words = joined(lanes, bits)
        for exponent in (0, 1, 100, 140, 254):
            for divisor in (1, 15, 63, most):
                result = np.empty(count, FLOATS[type_])
                check = kernels.dequantize_lanes(type_, wire_words(words), bits, 126 - exponent, divisor, raw(result))
                assert check == weighed(words)
                first = np.float32(np.ldexp(1.0, max(0, exponent - 252))) / np.float32(divisor)
                second = np.float32(np.ldexp(1.0, min(126, exponent - 126)))
                with np.errstate(over="ignore"):
                    expected = rounded_to(type_, lanes.astype(np.float32) * first * second)
                np.testing.assert_array_equal(raw(result), raw(expected))


@pytest.mark.parametrize(("bits", "ranks"), [(16, 1), (16, 6), (16, 8), (8, 1), (8, 4)])
def test_lanes_are_within_half_a_level_and_half_a_last_place(bits: int, ranks: int) -> None:
    """Look at the float32 next to each tie, whose products are rounded to float32 before they are rounded to lanes."""
    levels = kernels.levels_for(bits, ranks)
    ties = (np.arange(levels) + 0.5) / levels
    near = ties.astype(np.float32)[:, None].view(np.int32) + np.arange(-3, 4, dtype=np.int32)
    values = near.view(np.float32).ravel()
    values = values[values < 1]
    largest = 0.0
    for part in np.array_split(values, -(-len(values) // 1024)):
        words = quantized(Type.FLOAT32, part, bits, 126, levels)
        lanes = np.empty(len(part), np.float32)
        kernels.dequantize_lanes(Type.FLOAT32, wire_words(words), bits, 0, 1, raw(lanes))
        largest = max(largest, np.abs(lanes - part.astype(np.float64) * levels).max())
    assert largest <= 0.5 + levels * 2.0**-24
    if bits == 16:
        assert largest > 0.5 + levels * 2.0**-26  # so half a level alone would not be true


@pytest.mark.parametrize("bits", [16, 8])
def test_blocks_of_subnormal_numbers(bits: int) -> None:
    values = np.array([1, 3, 0x7FFFFF, 0x400000, 0, 0x80000001, 0x807FFFFF] * 10, np.uint32).view(np.float32)
    levels = kernels.levels_for(bits, 2)
    words = quantized(Type.FLOAT32, values, bits, 0, levels)
    expected = np.rint(values.astype(np.float64) * 2.0**126 * levels).astype(np.int64)
    np.testing.assert_array_equal(words, joined(expected, bits))
    back = np.empty(len(values), np.float32)
    kernels.dequantize_lanes(Type.FLOAT32, wire_words(words), bits, 126, levels, raw(back))
    assert np.abs(back.astype(np.float64) - values).max() <= 0.51 * 2.0**-126 / levels


@pytest.mark.parametrize("bits", [32, 16, 8])
@pytest.mark.parametrize("type_", INTEGERS, ids=lambda t: t.name)
def test_integers_are_packed_and_summed_exactly(type_: Type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    dtype = INTEGERS[type_]
    for count in COUNTS:
        most = min(2 ** (bits - 1) - 1, 2**31 - 1 if dtype == np.bool_ else np.iinfo(dtype).max)
        low = 0 if dtype in (np.uint8, np.bool_) else -most
        values = rng.integers(low, most + 1 if dtype != np.bool_ else 2, count).astype(dtype)
        words = np.empty(4 * -(-count * bits // 32), np.uint8)
        assert kernels.pack_lanes(type_, raw(values), bits, words) == weighed(native_words(words))
        np.testing.assert_array_equal(native_words(words), joined(values.astype(np.int64), bits))
        back = np.empty(count, dtype)
        assert kernels.unpack_lanes(type_, words, bits, raw(back)) == weighed(native_words(words))
        np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("bits", [16, 8])
def test_sums_of_narrow_integers_wrap_around_as_in_numpy(bits: int) -> None:
    lanes = np.arange(-128 if bits == 8 else -16384, 127 if bits == 8 else 16384, dtype=np.int64)
    for part in np.array_split(lanes, -(-len(lanes) // 4000)):
        for type_, dtype in INTEGERS.items():
            back: npt.NDArray[Any] = np.empty(len(part), dtype)
            kernels.unpack_lanes(type_, wire_words(joined(part, bits)), bits, raw(back))
            np.testing.assert_array_equal(back, part.astype(dtype))


def test_every_byte_but_zero_is_true() -> None:
    values = np.arange(256, dtype=np.uint8)
    words = np.empty(256, np.uint8)
    kernels.pack_lanes(Type.BOOL, values, 8, words)
    np.testing.assert_array_equal(native_words(words), joined((values != 0).astype(np.int64), 8))


@pytest.mark.parametrize("type_", INTEGERS, ids=lambda t: t.name)
def test_values_beyond_the_bound_are_found_anywhere(type_: Type) -> None:
    dtype = INTEGERS[type_]
    for count in (0, 1, 17, 4096, 4097, 10_000):
        values: npt.NDArray[Any] = np.ones(count, dtype)
        assert kernels.all_within(type_, raw(values), 1)
        assert kernels.all_within(type_, raw(values), 0) == (count == 0)
        for place in {0, count // 2, count - 1} if count and type_ != Type.BOOL else ():
            values[:] = 5
            values[place] = 6
            assert not kernels.all_within(type_, raw(values), 5)
            assert kernels.all_within(type_, raw(values), 6)
            if type_ != Type.UINT8:
                values[place] = np.iinfo(dtype).min
                assert not kernels.all_within(type_, raw(values), 5)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="one lane for each value"):
        kernels.pack_lanes(Type.INT8, np.zeros(5, np.uint8), 8, np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="8, 16 or 32"):
        kernels.pack_lanes(Type.INT8, np.zeros(4, np.uint8), 4, np.zeros(4, np.uint8))
