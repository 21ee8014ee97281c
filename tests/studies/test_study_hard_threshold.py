"""The study of hard thresholds: its table, and the figure that it is about."""

from __future__ import annotations

from studies.hard_threshold.measurement import HardThresholdOptions, HardThresholdRow
from studies.hard_threshold.study import command
from switchml.benchmarks import report
from switchml.benchmarks.results import BenchmarkResult


def test_the_table_and_the_figure() -> None:
    rows = [
        HardThresholdRow("hard_threshold:threshold=0.01", 0.02, 0.1, 0.01, None, 50.0, 0.95),
        HardThresholdRow("topk:density=0.02000", 0.02, 0.02, 0.02, (1.0, 0.9, 1.1), 75.0, 0.94),
    ]
    chosen = HardThresholdOptions(["hard_threshold:threshold=0.01"], 4, 150, 1, "python3")
    result = BenchmarkResult.of("hard_threshold", chosen, rows)
    [table] = report.tables(result)
    assert table.rows[0][1:] == ["2.00%", "10.00%", "1.00%", "", "", "", "50", "95.0%"]
    assert table.rows[1][4:7] == ["1.00", "0.90", "1.10"]
    assert command.headline(result) == "total error of Top-k / of a hard threshold: 2.00% sent 1.50"

    quality = BenchmarkResult.of("hard_threshold", chosen, rows[1:])
    assert command.headline(quality) == "sent / wanted: topk:density=0.02000 1.00"
