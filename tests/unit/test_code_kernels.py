"""Codes of one byte for floating-point numbers, against numpy by the definitions in constants.toml and codes.h."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchml._native import kernels
from switchml._native.kernels import Type
from switchml.dataplane.codes import CODED_FORMATS, integers_of_codes
from switchml.dataplane.constants import DYNAMIC8_UNIT_BITS, Format
from tests.unit.test_lane_kernels import exponent_of, raw, thresholds
from tests.unit.weighed_sums import weighed_sum

Codes = npt.NDArray[np.uint8]
Counter = tuple[int, int, int, int]


def written(values: npt.NDArray[Any], number: Format, shift: int, counter: Counter | None = None) -> Codes:
    codes = np.empty(len(values), np.uint8)
    type_ = Type.FLOAT16 if values.dtype == np.float16 else Type.FLOAT32
    kernels.write_codes(type_, raw(values), number, shift, codes, counter)
    return codes


def natural_codes(values: npt.NDArray[np.float32], shift: int, counter: Counter) -> Codes:
    """Return the codes of stochastic powers of two, computed with fractions instead of the bits of floats."""
    scaled = np.abs(values.astype(np.float64)) * 2.0**shift
    below = scaled < 1
    exponents = np.where(below, -1, np.frexp(scaled)[1] - 1)
    fractions = np.where(below, scaled, scaled / np.exp2(exponents) - 1)
    steps = np.floor(fractions * 2**16 + 0.5).astype(np.int64)  # rounded to 16 bits, halves up
    up = steps + thresholds(counter, len(values)) >= 2**16
    numbers = (exponents + 1 + up).astype(np.uint8)
    codes: Codes = numbers | np.where(np.signbit(values), 0x80, 0).astype(np.uint8)
    return codes


@pytest.mark.parametrize("number", CODED_FORMATS)
def test_words_and_check_are_those_of_the_table(number: Format) -> None:
    codes = np.arange(256, dtype=np.uint8)
    words = np.empty(4 * 256, np.uint8)
    weighed = kernels.expand_codes(codes, number, words)
    table = integers_of_codes(number)
    np.testing.assert_array_equal(words.view(">u4"), [value % 2**32 for value in table])
    assert weighed == weighed_sum(tuple(table))


def test_dynamic_numbers_are_those_of_the_tree() -> None:
    """Compare with the publication's numbers: middles of equal ranges between 0.1 and 1, for each decimal exponent."""
    table = np.array(integers_of_codes(Format.DYNAMIC8)[1:128]) / 2.0**DYNAMIC8_UNIT_BITS
    numbers = []
    for bits in range(7):
        edges = np.linspace(0.1, 1, 2**bits + 1)
        numbers += list((edges[1:] + edges[:-1]) / 2 * 10.0 ** (bits - 6))
    np.testing.assert_allclose(table, numbers, rtol=0.03, atol=0)
    np.testing.assert_allclose(table[15:], numbers[15:], rtol=1e-4, atol=0)


@pytest.mark.parametrize("count", [1, 63, 64, 255, 256, 257, 2048])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64, 4096])
def test_natural_codes_equal_the_reference(count: int, ranks: int) -> None:
    counter = (7, 3, 1, 12345)
    headroom = (ranks - 1).bit_length()
    random = np.random.default_rng((count, ranks))
    for scale in (1.0, 1e-30, 1e30):
        values = (random.standard_normal(count) * np.exp2(random.integers(-40, 1, count)) * scale).astype(np.float32)
        values[::7] = 0
        shift = 30 - headroom - (exponent_of(values) - 126)
        codes = written(values, Format.NATURAL8, shift, counter)
        np.testing.assert_array_equal(codes, natural_codes(values, shift, counter))
        assert (codes & 0x7F).max() <= 31 - headroom  # so that the sums of all ranks fit


@pytest.mark.parametrize("ranks", range(2, 65))
def test_the_largest_sums_fit_words(ranks: int) -> None:
    largest = np.nextafter(np.float32(1), np.float32(0))
    values = np.array([largest, -largest] * 128, np.float32)
    for number, unit_bits in ((Format.NATURAL8, 30 - (ranks - 1).bit_length()), (Format.DYNAMIC8, DYNAMIC8_UNIT_BITS)):
        codes = written(values, number, unit_bits, (0, 0, 0, 0) if number == Format.NATURAL8 else None)
        integers = np.array(integers_of_codes(number), np.int64)[codes]
        assert abs(ranks * integers).max() < 2**31
        np.testing.assert_array_equal(np.sign(integers), np.sign(values))


def test_natural_rounding_has_the_published_moments() -> None:
    """At 4/3 the upper power has the probability 1/3, the second moment is 9/8 of the square, and the mean is exact."""
    repeats = 500
    codes = np.concatenate(
        [written(np.full(2048, 4 / 3, np.float32), Format.NATURAL8, 20, (1, call, 0, 0)) for call in range(repeats)]
    )
    rounded = np.array(integers_of_codes(Format.NATURAL8))[codes] / 2.0**20
    assert set(rounded) == {1.0, 2.0}
    sigma = np.sqrt(2 / 9 / len(rounded))
    assert abs((rounded == 2).mean() - 1 / 3) < 4 * sigma
    assert abs(rounded.mean() - 4 / 3) < 4 * sigma
    assert abs((rounded**2).mean() / (16 / 9) - 9 / 8) < 4 * 3 * sigma / (16 / 9)


def test_natural_rounding_is_unbiased_below_the_unit() -> None:
    codes = np.concatenate(
        [written(np.full(2048, 0.3, np.float32), Format.NATURAL8, 0, (1, call, 0, 0)) for call in range(100)]
    )
    assert set(codes) == {0, 1}
    assert abs(codes.mean() - 0.3) < 4 * np.sqrt(0.21 / len(codes))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dynamic_codes_are_the_nearest(dtype: type[np.floating[Any]]) -> None:
    values = np.random.default_rng(5).standard_normal(2048).astype(dtype)
    values[:4] = [0, -0.0, values.max() / 1000, -values.max() / 30000]
    shift = DYNAMIC8_UNIT_BITS - (exponent_of(values.astype(np.float32)) - 126)
    table = np.array(integers_of_codes(Format.DYNAMIC8), np.float64)
    scaled = values.astype(np.float64) * 2.0**shift
    codes = written(values, Format.DYNAMIC8, shift)
    errors = np.abs(table[codes] - scaled)
    nearest = np.abs(table[None, :] - scaled[:, None]).min(axis=1)
    assert np.all(errors <= nearest + 1)  # bounds are float32 numbers


def test_other_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="format 1"):
        kernels.expand_codes(np.zeros(4, np.uint8), Format.INT32, np.zeros(16, np.uint8))
