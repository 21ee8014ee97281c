"""The errors of sums of floats that the study of FPISA computes, and its table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.fpisa.rounding import WAYS, FpisaOptions, FpisaRow, row_of, run, values_of
from studies.fpisa.study import spreads
from switchml.benchmarks import plots, report
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress

PAGE = Path(__file__).parents[2] / "studies" / "fpisa" / "README.md"
OF_PAGE = FpisaOptions([8, 64], [0, 20, 40], 1 << 16, 5, 1)
SMALL = FpisaOptions([2, 16], [0, 30], 512, 3, 1)


def ignore(text: str) -> None:
    """Report nothing."""


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, int, int], FpisaRow]:
    found = run(SMALL, ignore, Progress()).rows
    return {(row["way"], row["spread"], row["workers"]): FpisaRow(**row) for row in found}


def test_digits_are_the_nearest_floats_in_any_order(rows: dict[tuple[str, int, int], FpisaRow]) -> None:
    for spread in SMALL.spreads:
        for workers in SMALL.workers:
            row = rows["digits", spread, workers]
            assert (row.inexact, row.reordered, row.overflowed) == (0, 0, 0)
            assert row.largest <= 2.0**-24


def test_blocks_lose_small_elements_and_depend_on_no_order(rows: dict[tuple[str, int, int], FpisaRow]) -> None:
    assert all(row.reordered == 0 for row in rows.values() if row.way == "blocks")
    assert rows["blocks", 0, 16].mean < rows["float32", 0, 16].mean
    assert rows["blocks", 30, 2].mean > 1e3 * rows["float32", 30, 2].mean


def test_fpisa_a_overflows_unless_it_shifts_less(rows: dict[tuple[str, int, int], FpisaRow]) -> None:
    assert rows["fpisa-a", 0, 16].overflowed > 0
    assert rows["fpisa-a-safe", 0, 16].overflowed == 0
    assert rows["fpisa-a-safe", 0, 16].mean > rows["fpisa-a", 0, 16].mean > 100 * rows["fpisa", 0, 16].mean


def test_a_sum_of_two_floats_is_the_same_in_both_orders(rows: dict[tuple[str, int, int], FpisaRow]) -> None:
    assert rows["float32", 30, 2].reordered == 0
    assert rows["float32", 30, 16].reordered > 0.5


@pytest.mark.parametrize("way", ["digits", "fpisa-a"])
def test_rows_of_the_page_are_those_that_are_computed(way: str) -> None:
    row = row_of(way, OF_PAGE, 20, values_of(OF_PAGE, 20, 8))
    [table] = report.tables(BenchmarkResult.of("fpisa", OF_PAGE, [row]))
    assert report.markdown(table).splitlines()[4] in PAGE.read_text(encoding="utf-8").splitlines()


def test_tables_and_plots_have_all_ways(tmp_path: Path, rows: dict[tuple[str, int, int], FpisaRow]) -> None:
    result = BenchmarkResult.of("fpisa", SMALL, rows.values())
    [table] = report.tables(result)
    assert len(table.rows) == 4 * len(WAYS)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    pytest.importorskip("matplotlib")
    assert [file.name for file in plots.draw(result, tmp_path)] == ["fpisa-error.png", "fpisa-error.svg"]


def test_small_shares_are_told_from_none() -> None:
    row = FpisaRow("fpisa-a", 0, 8, 0.0, 0.0, inexact=0.5, reordered=0.00004, overflowed=0.0)
    [table] = report.tables(BenchmarkResult.of("fpisa", SMALL, [row]))
    assert table.rows[0][-3:] == ["50 %", "0.004 %", "0 %"]


def test_spreads_are_those_of_floats() -> None:
    assert spreads("0,200") == [0, 200]
    for text in ("201", "-1", "1.5"):
        with pytest.raises(ValueError, match="is not a power of two from 0 to 200"):
            spreads(text)


def test_values_have_the_spread() -> None:
    exponents = np.frexp(values_of(SMALL, 30, 16))[1]
    assert 30 <= np.ptp(exponents) <= 50
