"""The kernels of the soft switch compared with numpy and zlib, for every instruction set of this CPU."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchml.dataplane.constants import PROTOCOL_MAX_VALUES, PROTOCOL_MAX_WORKERS
from switchml.dataplane.floats import sum_digits
from switchml.dataplane.softswitch._native import kernels

AVAILABLE = kernels.instructions()
MOST = PROTOCOL_MAX_WORKERS + 1  # buffers: those of the ranks, and the slot's memory

examples = settings(max_examples=60)
lengths = st.integers(0, 70) | st.sampled_from([255, 256, PROTOCOL_MAX_VALUES])
seeds = st.integers(0, 2**32 - 1)

Words = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.uint32]


def wire_words(numbers: Numbers) -> Words:
    """Return the values in big-endian order, aligned to 64 bytes."""
    memory = np.empty(numbers.nbytes + 64, np.uint8)
    words = memory[-memory.ctypes.data % 64 :][: numbers.nbytes]
    words[:] = numbers.astype(">u4").view(np.uint8)
    return words


def numbers_of(words: Words) -> Numbers:
    return words.view(">u4").astype(np.uint32)


def random_numbers(generator: np.random.Generator, count: int) -> Numbers:
    """Return large and small values, so that sums wrap around and carry."""
    numbers: Numbers = generator.integers(0, 2**32, count, np.uint32) >> generator.integers(0, 32, count, np.uint32)
    return numbers


@pytest.mark.parametrize("instructions", AVAILABLE)
@examples
@given(lengths, seeds)
def test_add(instructions: str, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    sums, values = random_numbers(generator, count), random_numbers(generator, count)
    words = wire_words(sums)
    anywhere = np.append(np.uint8(0), wire_words(values))[1:]
    kernels.add(instructions, words, anywhere, 256)
    np.testing.assert_array_equal(numbers_of(words), sums + values)


@pytest.mark.parametrize("instructions", AVAILABLE)
@examples
@given(
    lengths,
    st.integers(1, 9) | st.just(PROTOCOL_MAX_WORKERS),
    st.sampled_from([0, 0, 1, 3, 7]),
    st.sampled_from([0, 0, 1, 3, PROTOCOL_MAX_WORKERS]),
    seeds,
)
def test_sum(instructions: str, count: int, source_count: int, other_count: int, kept: int, seed: int) -> None:
    """Test that the other sources and all other buffers get the sum of the sources."""
    kept = min(kept, source_count)
    generator = np.random.default_rng(seed)
    sources = [random_numbers(generator, count) for _ in range(source_count)]
    buffers = [wire_words(source) for source in sources]
    others = [wire_words(random_numbers(generator, count)) for _ in range(min(other_count, MOST - source_count))]
    kernels.sum_buffers(instructions, buffers, others, 256, kept)
    for buffer, source in zip(buffers[:kept], sources, strict=False):
        np.testing.assert_array_equal(numbers_of(buffer), source)
    for buffer in (*buffers[kept:], *others):
        np.testing.assert_array_equal(numbers_of(buffer), np.sum(sources, axis=0, dtype=np.uint32))


def test_what_does_not_fit_is_refused() -> None:
    words = wire_words(np.zeros(16, np.uint32))
    with pytest.raises(ValueError, match="same number of words"):
        kernels.add("portable", words, words[:60], 16)
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        kernels.add("portable", words[4:], words[4:], 16)
    with pytest.raises(ValueError, match="1 to 65 buffers"):
        kernels.sum_buffers("portable", [], [words], 16)
    with pytest.raises(ValueError, match="more than the number of sources"):
        kernels.sum_buffers("portable", [words], [], 16, kept=2)
    with pytest.raises(ValueError, match='no instructions called "mmx"'):
        kernels.add("mmx", words, words, 16)


def any_floats(generator: np.random.Generator, ranks: int, lanes: int) -> npt.NDArray[np.float32]:
    """Return numbers of all magnitudes, and some that cancel, are the same at all ranks, or are not finite."""
    values = generator.integers(0, 2**32, (ranks, lanes), np.uint32).view(np.float32)
    values[:, : lanes // 2] = generator.standard_normal((ranks, lanes // 2)) * np.exp2(
        generator.integers(-30, 30, (ranks, lanes // 2))
    )
    values[::2, : lanes // 4] = -values[:1, : lanes // 4]
    values[:, -8:] = generator.choice(np.array([0.0, -0.0, np.inf, 1e-45, -3e38], np.float32), (ranks, 8))
    return values


@pytest.mark.parametrize("instructions", AVAILABLE)
@examples
@given(st.sampled_from([16, 64, 80, 256]), st.integers(1, 9) | st.just(PROTOCOL_MAX_WORKERS), st.data(), seeds)
def test_sum_floats(instructions: str, lanes: int, ranks: int, data: st.DataObject, seed: int) -> None:
    values = any_floats(np.random.default_rng(seed), ranks, lanes)
    sources = [wire_words(row.view(np.uint32)) for row in values]
    result = wire_words(np.zeros(lanes, np.uint32))
    kernels.sum_floats(instructions, sources, data.draw(st.integers(0, ranks), "in_buffers"), result)
    np.testing.assert_array_equal(numbers_of(result), sum_digits(values).view(np.uint32))


def sums_of(columns: npt.NDArray[np.float32], instructions: str) -> Numbers:
    """Return the kernel's sums of columns with a number of each rank, as bits."""
    result = wire_words(np.zeros(columns.shape[1], np.uint32))
    kernels.sum_floats(instructions, [wire_words(row.view(np.uint32)) for row in columns], len(columns), result)
    return numbers_of(result)


@pytest.mark.parametrize("instructions", AVAILABLE)
@pytest.mark.parametrize("distance", range(20, 28))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 32, 33, 64])
def test_sums_of_numbers_at_a_distance(instructions: str, distance: int, ranks: int) -> None:
    """Exponents that differ by about as much as those of numbers whose sums in doubles are exact, at all places."""
    generator = np.random.default_rng(64 * distance + ranks)
    random = generator.integers(2**23, 2**24, (ranks, 128)) * generator.choice([-1.0, 1.0], (ranks, 128))
    random[generator.random((ranks, 128)) < 0.5] *= 2.0**-distance
    ties = np.zeros((ranks, 128))  # between two floats, which the last bit of a number far below decides
    ties[:4] = np.array([1, 2.0**-24, 2.0**-distance * (1 + 2.0**-23), -(2.0**-distance)])[:ranks, None]
    for columns in (random, ties):
        values = (columns * np.exp2(np.arange(128) - 64)).astype(np.float32)
        np.testing.assert_array_equal(sums_of(values, instructions), sum_digits(values).view(np.uint32))


@pytest.mark.parametrize("instructions", AVAILABLE)
@pytest.mark.parametrize("ranks", [36, 64])
def test_sums_of_one_bit_more_than_a_double_has(instructions: str, ranks: int) -> None:
    """The last of 54 bits decides a tie between two floats."""
    numbers = [2**48 - 2**24] * (ranks - 3) + [2**23 + 1, 2**23]
    numbers.append(2**48 - 2**31 + (2**29 + 1 - sum(numbers)) % 2**31)
    values = np.repeat(np.array(numbers, np.float32)[:, None], 64, axis=1)
    assert values[:, 0].tolist() == numbers
    assert sum(numbers).bit_length() == 54
    expected = np.uint32((sum(numbers) >> 30) + 1)
    assert (sums_of(values, instructions).view(np.float32) == np.float32(expected) * np.float32(2.0**30)).all()


@pytest.mark.parametrize("instructions", AVAILABLE)
def test_places_of_all_exponents(instructions: str) -> None:
    """A number alone is its own sum, for every exponent."""
    bits = np.append(np.arange(1, 255, dtype=np.uint32) << 23 | 0x2AAAAB, np.arange(1, 3, dtype=np.uint32))
    result = wire_words(np.zeros_like(bits))
    for in_buffers in (0, 1):
        kernels.sum_floats(instructions, [wire_words(bits)], in_buffers, result)
        np.testing.assert_array_equal(numbers_of(result), bits)


@pytest.mark.parametrize("instructions", AVAILABLE)
@pytest.mark.parametrize("in_buffers", [0, 1, 3])
def test_sums_just_beyond_a_tie(instructions: str, in_buffers: int) -> None:
    """The digits below a tie between two floats decide, also where a double cannot hold them."""
    half, little = 2.0**-24, 2.0**-53  # of the last place of 1, and the last digit's unit
    columns = [(1, half, little), (1, half, 0), (1, half, -little), (1, 3 * half, -little), (1, 3 * half, little)]
    expected = [1 + 2 * half, 1, 1, 1 + 2 * half, 1 + 4 * half]
    values = np.zeros((3, 16), np.float32)
    values[:, :5], values[:, 5:10] = np.transpose(columns), -np.transpose(columns)
    sums = np.zeros(16, np.float32)
    sums[:5], sums[5:10] = expected, np.negative(expected)
    assert sum_digits(values).tolist() == sums.tolist()
    result = wire_words(np.zeros(16, np.uint32))
    kernels.sum_floats(instructions, [wire_words(row.view(np.uint32)) for row in values], in_buffers, result)
    np.testing.assert_array_equal(numbers_of(result).view(np.float32), sums)


@pytest.mark.parametrize("fastest", [False, True])
@examples
@given(size=st.integers(0, 600), block=st.integers(1, 600), start=st.integers(0, 17), seed=seeds)
def test_crc32_is_that_of_zlib(fastest: bool, size: int, block: int, start: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, 256, start + size, np.uint8)[start:]
    last = data[(len(data) - 1) // block * block :] if len(data) else data
    assert kernels.crc32(fastest, data, block) == zlib.crc32(last.tobytes())
