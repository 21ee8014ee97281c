"""The rule by which the soak test decides whether a series is flat."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.flatness import Allowance, judge

TIMES = list(range(0, 3600, 15))
MIB = 2**20
MEMORY = Allowance(MIB, 0.02)


def noise(size: float, seed: int = 1) -> list[float]:
    return [float(x) for x in np.random.default_rng(seed).normal(0, size, len(TIMES))]


def test_noise_is_no_growth() -> None:
    for seed in range(20):
        verdict = judge(TIMES, [30 * MIB + x for x in noise(0.5 * MIB, seed)], MEMORY)
        assert verdict.flat, verdict


def test_a_leak_is_found_in_the_noise() -> None:
    values = [30 * MIB + 2 * MIB * t / 3600 + x for t, x in zip(TIMES, noise(0.2 * MIB), strict=True)]
    verdict = judge(TIMES, values, MEMORY)
    assert not verdict.flat
    assert verdict.growth == pytest.approx(2 * MIB * 2 / 3, rel=0.1)  # of the judged part


def test_one_descriptor_too_many_for_each_of_some_jobs_is_found() -> None:
    assert not judge(TIMES, [20 + t // 1000 for t in TIMES], Allowance(0.5)).flat


def test_filling_caches_peaks_and_a_single_step_are_no_growth() -> None:
    values = [30 * MIB - 20 * MIB * max(0, 1 - t / 1000) for t in TIMES]  # in the warm-up
    values[100::40] = [60 * MIB] * len(values[100::40])
    values = [value + (0.5 * MIB if t > 3000 else 0) for t, value in zip(TIMES, values, strict=True)]
    assert judge(TIMES, values, MEMORY).flat


def test_too_few_samples_are_not_judged() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge([0, 1, 2], [1, 1, 1], MEMORY)
