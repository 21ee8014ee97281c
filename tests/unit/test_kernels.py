"""The native arithmetic against numpy, with every set of instructions that this processor has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dataplane.constants import PROTOCOL_MAX_VALUES
from dataplane.wire import check_of
from switchml._native import kernels

AVAILABLE = [i for i in kernels.Instructions if kernels.processor_has(i)]

examples = settings(max_examples=150, deadline=None)

floats = hnp.arrays(
    np.float32,
    st.integers(0, 70) | st.sampled_from([255, 256, PROTOCOL_MAX_VALUES]),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)
integers = hnp.arrays(np.int32, st.integers(0, 70) | st.just(PROTOCOL_MAX_VALUES))


@pytest.fixture(autouse=True, params=AVAILABLE, ids=lambda i: i.name.lower(), scope="module")
def _instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels.use_instructions(request.param)
    yield
    kernels.use_instructions(kernels.best_instructions())


def exponent_of(values: np.ndarray) -> int:
    return int((values.view(np.uint32) >> 23 & 0xFF).max(initial=0))


def big_endian(words: np.ndarray) -> np.ndarray:
    return words.view(">i4").astype(np.int32)


@examples
@given(floats)
def test_block_exponent_is_the_largest_exponent_field(values: np.ndarray) -> None:
    assert kernels.block_exponent(values) == exponent_of(values)


@examples
@given(floats.map(np.nan_to_num), st.integers(0, 6))
def test_quantize_rounds_to_nearest_even_and_weighs(values: np.ndarray, headroom: int) -> None:
    shift = 31 - headroom - (exponent_of(values) - 126)
    words = np.empty(4 * len(values), np.uint8)
    weighed = kernels.quantize(values, shift, words)
    expected = np.rint(np.ldexp(values.astype(np.float64), shift))
    assert np.abs(expected).max(initial=0) <= 2.0 ** (31 - headroom)
    np.testing.assert_array_equal(big_endian(words), expected.astype(np.int32))
    assert weighed == check_of(tuple(expected.astype(np.int64).tolist()), 0, 0, 0)


@examples
@given(integers, st.integers(-103, 157), st.sampled_from([1, 2, 3, 7, 64]))
def test_dequantize_rounds_once(values: np.ndarray, shift: int, divisor: int) -> None:
    words = np.frombuffer(values.astype(">i4").tobytes(), np.uint8)
    result = np.empty(len(values), np.float32)
    weighed = kernels.dequantize(words, shift, divisor, result)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.ldexp(values.astype(np.float64), -shift).astype(np.float32) / np.float32(divisor)
    np.testing.assert_array_equal(result, expected)
    assert weighed == check_of(tuple(values.tolist()), 0, 0, 0)


@examples
@given(integers)
def test_integers_travel_unchanged(values: np.ndarray) -> None:
    words = np.empty(4 * len(values), np.uint8)
    check = check_of(tuple(values.tolist()), 0, 0, 0)
    assert kernels.pack(values, words) == check
    np.testing.assert_array_equal(big_endian(words), values)
    back = np.empty_like(values)
    assert kernels.unpack(words, back) == check
    np.testing.assert_array_equal(back, values)


def test_every_single_bit_flip_changes_the_weighed_sum() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-(2**31), 2**31, 256).astype(np.int32)
    words = np.frombuffer(values.astype(">i4").tobytes(), np.uint8).copy()
    into = np.empty_like(values)
    right = kernels.unpack(words, into)
    for byte in range(words.size):
        for bit in range(8):
            words[byte] ^= 1 << bit
            assert kernels.unpack(words, into) != right
            words[byte] ^= 1 << bit


def test_a_block_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="2048"):
        kernels.quantize(np.zeros(4, np.float32), 0, np.zeros(15, np.uint8))
