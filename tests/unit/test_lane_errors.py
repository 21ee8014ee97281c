"""The errors of sums in narrow lanes, and the claims about them in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import lane_errors

PROTOCOL = Path(__file__).parents[2] / "docs" / "understand" / "protocol.md"


@pytest.mark.parametrize("distribution", lane_errors.DISTRIBUTIONS)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_lanes_of_16_bits_are_more_exact_than_a_ring_of_bfloat16(distribution: str, ranks: int) -> None:
    assert lane_errors.relative_error(distribution, ranks, 16) < lane_errors.ring_error(distribution, ranks)


@pytest.mark.parametrize(
    ("distribution", "ranks", "most"),
    [
        ("Gauss", 8, 7.5e-4),
        ("Laplace", 8, 1.4e-3),
        ("Student-3", 8, 3.8e-3),
        ("Gauss", 32, 4.0e-3),
        ("Laplace", 32, 6.4e-3),
        ("Student-3", 32, 2.9e-2),
    ],
)
def test_errors_of_16_bits_are_below_those_of_the_design(distribution: str, ranks: int, most: float) -> None:
    assert lane_errors.relative_error(distribution, ranks, 16) <= most


@pytest.mark.parametrize("bits", [16, 8])
def test_stochastic_rounding_costs_a_factor_of_the_square_root_of_two(bits: int) -> None:
    nearest, stochastic = (lane_errors.relative_error("Gauss", 4, bits, how) for how in (False, True))
    assert stochastic / nearest == pytest.approx(2**0.5, rel=0.05)


def test_the_documented_table_is_the_computed_one() -> None:
    assert lane_errors.table() in PROTOCOL.read_text(encoding="utf-8")
