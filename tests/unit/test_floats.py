"""The sums of floats as a switch computes them, against exact sums with fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchml.dataplane.floats import sum_digits, sum_fpisa, sum_fpisa_a

Floats = npt.NDArray[np.float32]

INFINITY = float("inf")
LARGEST = np.finfo(np.float32).max
SMALLEST = np.finfo(np.float32).smallest_subnormal
ABOVE_FLOATS = Fraction(2**128)  # infinity stands for the numbers from here on

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
near = st.floats(width=32, min_value=-16, max_value=16)
columns = st.lists(finite, min_size=1, max_size=64) | st.lists(near, min_size=1, max_size=64)


def column(values: list[float]) -> Floats:
    """Return one lane's values of all ranks."""
    return np.array(values, np.float32)[:, np.newaxis]


def words(*values: Any) -> list[int]:
    return [int(word) for word in np.array(values, np.float32).view(np.uint32)]


def exact_sum(values: list[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def ulp_of(number: Fraction) -> Fraction:
    """Return the distance between neighbouring floats at a number."""
    exponent = -149
    while abs(number) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return Fraction(2) ** exponent


def as_number(result: np.float32) -> Fraction:
    return (ABOVE_FLOATS if result > 0 else -ABOVE_FLOATS) if np.isinf(result) else Fraction(float(result))


@given(columns, st.randoms())
def test_digits_do_not_depend_on_order(values: list[float], random: Any) -> None:
    shuffled = random.sample(values, len(values))
    assert sum_digits(column(values)).tobytes() == sum_digits(column(shuffled)).tobytes()


@given(columns)
def test_digits_are_exact_up_to_one_rounding_and_what_falls_out(values: list[float]) -> None:
    exact = exact_sum(values)
    bound = ulp_of(exact) / 2 + len(values) * Fraction(1, 2**47) * Fraction(max(map(abs, values)))
    nearest = max(-ABOVE_FLOATS, min(ABOVE_FLOATS, exact))
    assert abs(as_number(sum_digits(column(values))[0]) - nearest) <= bound


@given(st.lists(near, min_size=1, max_size=64))
def test_digits_round_correctly_where_nothing_falls_out(values: list[float]) -> None:
    """Sums of multiples of 2^-20 below 2^11 are exact in float64, whose conversion rounds to nearest even."""
    multiples = np.round(np.array(values) * 2**20) / 2**20
    parts = column(multiples.astype(np.float32).tolist())
    assert sum_digits(parts).tobytes() == (parts.astype(np.float64).sum(axis=0) + 0.0).astype(np.float32).tobytes()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0], 0x00000000),
        ([-0.0, -0.0], 0x00000000),
        ([1.5, -1.5], 0x00000000),
        ([-1.5], 0xBFC00000),
        ([SMALLEST], 0x00000001),
        ([-SMALLEST] * 3, 0x80000003),
        ([SMALLEST] * 64, 0x00000040),
        ([2.0**-126, -SMALLEST], 0x007FFFFF),
        ([2.0**-126 - SMALLEST, SMALLEST], 0x00800000),
        ([LARGEST], 0x7F7FFFFF),
        ([LARGEST] * 2, 0x7F800000),
        ([-LARGEST] * 64, 0xFF800000),
        ([LARGEST, 2.0**103], 0x7F800000),  # half a unit of the last place, which rounds up
        ([LARGEST, 2.0**103 * (1 - 2.0**-24)], 0x7F7FFFFF),
        ([LARGEST, LARGEST, -LARGEST], 0x7F7FFFFF),
        ([1.0, 2.0**-24], 0x3F800000),  # halves round to the even mantissa
        ([1.0, 2.0**-23, 2.0**-24], 0x3F800002),
        ([1.0, 2.0**-24, 2.0**-47], 0x3F800001),
        ([2.0**40, 1.0, -(2.0**40)], 0x3F800000),
        ([2.0**40, 2.0**-60, -(2.0**40)], 0x00000000),  # the second falls out of three digits
        ([INFINITY, -LARGEST], 0x7F800000),
        ([-INFINITY, INFINITY], 0x7FC00000),
        ([-INFINITY, -INFINITY, 1.0], 0xFF800000),
        ([1.0, float("nan")], 0x7FC00000),
        ([float("nan"), INFINITY], 0x7FC00000),
    ],
)
def test_digits_of_special_values(values: list[float], expected: int) -> None:
    for parts in (values, values[::-1]):
        assert words(*sum_digits(column(parts))) == [expected]


def test_lanes_are_independent() -> None:
    generator = np.random.default_rng(1)
    values = (generator.standard_normal((8, 256)) * 2.0 ** generator.integers(-60, 60, (8, 256))).astype(np.float32)
    for add in (sum_digits, sum_fpisa, lambda parts: sum_fpisa_a(parts).sums):
        alone = [add(values[:, lane : lane + 1])[0] for lane in range(256)]
        assert words(*add(values)) == words(*alone)


@given(columns)
def test_fpisa_is_within_one_unit_of_the_largest_place_for_each_rank(values: list[float]) -> None:
    exact = exact_sum(values)
    unit = ulp_of(Fraction(max(map(abs, values))))
    result = as_number(sum_fpisa(column(values))[0])
    nearest = max(-ABOVE_FLOATS, min(ABOVE_FLOATS, exact))
    assert abs(result - nearest) <= len(values) * unit + ulp_of(max(abs(result), abs(exact)))


def test_fpisa_depends_on_order_and_digits_do_not() -> None:
    generator = np.random.default_rng(1)
    numbers = (generator.standard_normal(8) * 2.0 ** generator.integers(0, 12, 8)).astype(np.float32)
    shuffled = generator.permuted(np.repeat(numbers[:, np.newaxis], 1000, axis=1), axis=0)
    assert len(set(words(*sum_digits(shuffled)))) == 1
    assert len(set(words(*sum_fpisa(shuffled)))) > 1
    assert len(set(words(*sum_fpisa_a(shuffled).sums))) > 1


def test_fpisa_rounds_down() -> None:
    """The error, relative to the magnitudes, has a mean of -4.2e-8 and a maximum of 3.8e-7 over a million lanes."""
    values = np.random.default_rng(2).standard_normal((8, 1 << 14)).astype(np.float32)
    exact = values.astype(np.float64).sum(axis=0)
    error = (sum_fpisa(values) - exact) / np.abs(values.astype(np.float64)).sum(axis=0)
    assert error.mean() == pytest.approx(-4.2e-8, rel=0.1)
    assert np.abs(error).max() < 3.8e-7


def test_fpisa_holds_128_of_the_largest_mantissa() -> None:
    largest = np.float32(2 - 2.0**-23)
    assert sum_fpisa(column([largest] * 128))[0] == 128 * largest
    assert not sum_fpisa_a(column([largest] * 128)).overflowed[0]
    sums, overflowed = sum_fpisa_a(column([largest] * 129))
    assert overflowed[0]
    assert words(*sums) == [0x7FC00000]


@pytest.mark.parametrize(
    ("values", "headroom", "expected"),
    [
        ([1.0, 2.0**7], 7, 129.0),  # shifted to the left
        ([1.0, 2.0**8], 7, 256.0),  # replaced
        ([1.0, 2.0**5], 4, 32.0),
        ([2.0**8, 1.0], 7, 257.0),
        ([1.0, -(2.0**-24)], 7, 1.0 - 2.0**-23),  # rounds down
        ([0.0, 3.0], 7, 3.0),
        ([SMALLEST, 2.0**-126], 7, 2.0**-126 + SMALLEST),
        ([2.0 - 2.0**-23, -(2.0**8)], 7, -256.0),
    ],
)
def test_fpisa_a_shifts_to_the_left_or_replaces(values: list[float], headroom: int, expected: float) -> None:
    sums, overflowed = sum_fpisa_a(column(values), headroom)
    assert words(*sums) == words(expected)
    assert not overflowed[0]


def test_fpisa_a_loses_sums_or_overflows() -> None:
    """Over a million lanes, 0.6 % overflow and the mean error is 2.8e-4; with a headroom of 4, none and 4.6e-3."""
    generator = np.random.default_rng(3)
    values = generator.standard_normal((8, 1 << 16)).astype(np.float32)
    exact = values.astype(np.float64).sum(axis=0)
    magnitude = np.abs(values.astype(np.float64)).sum(axis=0)
    sums, overflowed = sum_fpisa_a(values)
    error = np.abs(sums - exact)[~overflowed] / magnitude[~overflowed]
    assert overflowed.mean() == pytest.approx(0.006, rel=0.15)
    assert error.mean() == pytest.approx(2.8e-4, rel=0.3)
    sums, overflowed = sum_fpisa_a(values, headroom=4)
    assert not overflowed.any()
    assert (np.abs(sums - exact) / magnitude).mean() == pytest.approx(4.6e-3, rel=0.1)


@pytest.mark.parametrize("values", [np.ones(4, np.float32), np.ones((2, 4)), np.empty((0, 4), np.float32)])
def test_other_arrays_are_refused(values: npt.NDArray[Any]) -> None:
    for add in (sum_digits, sum_fpisa, sum_fpisa_a):
        with pytest.raises(ValueError, match="must be float32 of shape"):
            add(values)


def test_headroom_is_that_of_a_word() -> None:
    with pytest.raises(ValueError, match="headroom is 8; it must be 0 to 7"):
        sum_fpisa_a(np.ones((2, 4), np.float32), 8)
