"""The study of the order of compression and the sum inside a host: its table and its plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.orders.measurement import ORDERS, OrdersOptions, OrdersRow
from switchml.benchmarks import plots, report, results
from switchml.benchmarks.record import Record


@pytest.fixture
def measured() -> results.BenchmarkResult:
    rows = [OrdersRow("topk:density=0.01", order, 1000, 0.5, 0.25, 0.9) for order in ORDERS]
    chosen = OrdersOptions(["topk:density=0.01"], 2, 4, 150, 1, "python3")
    return results.BenchmarkResult.of("orders", chosen, rows, Record())


def test_table_and_plot(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    [table] = report.tables(measured)
    assert table.rows[0] == ["topk:density=0.01", "intra-compress-inter", "1000", "0.50", "0.250", "90 %"]
    results.save(measured, tmp_path / "orders.json")
    assert results.load(tmp_path / "orders.json", report.TABLES) == measured
    pytest.importorskip("matplotlib")
    assert {file.stem for file in plots.draw(measured, tmp_path)} == {"orders-error"}
