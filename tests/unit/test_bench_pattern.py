"""The tensors that benchmarks sum, the check of the results, and the counters of a rank."""

import os
import time

import numpy as np
import pytest

from switchml.benchmarks.workers import counters
from switchml.benchmarks.workers.pattern import PERIOD, IntegerPattern, Pattern, allowed_error

SIZES = [1, 1024, PERIOD, PERIOD + 5]


def summed(world_size: int, elements: int, call: int) -> np.ndarray:
    """Return the float32 nearest to the sum over all ranks."""
    total = np.zeros(elements, np.float64)
    for rank in range(world_size):
        tensor = np.empty(elements, np.float32)
        Pattern(rank, world_size, elements).fill(tensor, call)
        total += tensor
    return total.astype(np.float32)


@pytest.mark.parametrize("elements", SIZES)
@pytest.mark.parametrize("call", [0, 1, 5])
def test_the_sum_is_the_expected_one(elements: int, call: int) -> None:
    assert Pattern(1, 3, elements).largest_error(summed(3, elements, call), call) == 0


@pytest.mark.parametrize("elements", SIZES)
def test_a_contribution_alone_is_no_result_nor_is_that_of_the_call_before(elements: int) -> None:
    pattern = Pattern(0, 2, elements)
    tensor = np.empty(elements, np.float32)
    pattern.fill(tensor, 3)
    allowed = allowed_error("gloo", 2)
    assert pattern.largest_error(tensor, 3) > 100 * allowed
    assert pattern.largest_error(summed(2, elements, 2), 3) > 100 * allowed


def test_one_wrong_element_is_found_wherever_it_is() -> None:
    elements = PERIOD + 70_000
    right = summed(2, elements, 0)
    for place in (0, 65_535, 65_536, PERIOD - 1, PERIOD, elements - 1):
        for wrong in (right[place] + np.float32(1e-3), np.float32(np.nan), np.float32(np.inf)):
            tensor = right.copy()
            tensor[place] = wrong
            assert not Pattern(0, 2, elements).largest_error(tensor, 0) <= allowed_error("gloo", 2)


def test_chunks_in_each_others_place_are_found() -> None:
    tensor = summed(2, 4 * PERIOD, 0)
    chunk = 2048
    for distance in (1, 8, 256, 488):  # 488 chunks are almost one period
        moved = tensor.copy()
        moved[:chunk] = tensor[distance * chunk : (distance + 1) * chunk]
        assert not Pattern(0, 2, 4 * PERIOD).largest_error(moved, 0) <= allowed_error("gloo", 2)


def summed_integers(world_size: int, elements: int, call: int, magnitude_bits: int) -> np.ndarray:
    """Return the sum over all ranks modulo 2^64."""
    total = np.zeros(elements, np.int64)
    for rank in range(world_size):
        tensor = np.empty(elements, np.int64)
        IntegerPattern(rank, world_size, elements, magnitude_bits).fill(tensor, call)
        total += tensor
    return total


@pytest.mark.parametrize("magnitude_bits", [1, 20, 40, 62, 63])
def test_integers_have_the_magnitude_and_their_sum_is_exact(magnitude_bits: int) -> None:
    elements = PERIOD + 5
    pattern = IntegerPattern(2, 3, elements, magnitude_bits)
    tensor = np.empty(elements, np.int64)
    for call in (0, 1, 5):
        pattern.fill(tensor, call)
        # All bits are used, so that values take as many words as the magnitude says.
        assert 2 ** (magnitude_bits - 1) <= tensor.max() < 2**magnitude_bits
        assert -(2**magnitude_bits) < tensor.min() <= -(2 ** (magnitude_bits - 1))
        assert pattern.largest_error(summed_integers(3, elements, call, magnitude_bits), call) == 0


@pytest.mark.parametrize("elements", SIZES)
def test_wrong_integers_are_found(elements: int) -> None:
    pattern = IntegerPattern(0, 2, elements, 62)
    right = summed_integers(2, elements, 3, 62)
    for wrong in (summed_integers(2, elements, 2, 62), right + 1, right ^ np.int64(-(2**63))):
        assert pattern.largest_error(wrong, 3) > allowed_error("switchml", 2, "int64")
    for place in (0, elements // 2, elements - 1):
        one_wrong = right.copy()
        one_wrong[place] -= 1
        assert pattern.largest_error(one_wrong, 3) == 1


def test_the_bounds_are_those_of_the_documents() -> None:
    assert allowed_error("switchml", 8) == 8 / 2 * 16 * 2.0**-28 + np.spacing(np.float32(36))
    assert allowed_error("gloo", 8) == 7 * 2.0**-24 * 36 + np.spacing(np.float32(36))


def test_counters_of_this_process_from_inside_and_outside() -> None:
    before = counters.own(), counters.of_processes([os.getpid()])
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    time.sleep(0.001)
    for since, used in zip(before, (counters.own(), counters.of_processes([os.getpid()])), strict=True):
        assert 0.05 <= (used - since).cpu_seconds < 1
        assert (used - since).wake_ups >= 1


def test_a_process_that_has_ended_counts_nothing() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert counters.of_processes([child]) == counters.Usage()
