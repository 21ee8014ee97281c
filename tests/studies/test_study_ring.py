"""The study of a ring against a switch: the rows of both, by the number of hosts."""

from __future__ import annotations

from studies.phub.measurement import PhubOptions, PhubRow, mode_seconds
from studies.ring.study import command
from switchml.benchmarks import report
from switchml.benchmarks.results import BenchmarkResult


def test_the_ratio_is_that_of_the_formulas() -> None:
    size, rate = 1 << 24, 200_000_000
    rows = []
    for hosts in (2, 4):
        for mode in ("ring", "switch"):
            seconds = mode_seconds(mode, size, rate / 8, hosts)
            sent = seconds * rate / 8
            rows.append(
                PhubRow(mode, rate, 0.4, hosts, size, 1, seconds, seconds, seconds, sent, 0, 0, None, None, 0, 1)
            )
    chosen = PhubOptions([rate], [0.4], [2, 4], size, ["ring", "switch"], 1, 1, "python3")
    result = BenchmarkResult.of("ring", chosen, rows)
    [table] = report.tables(result)
    assert [row[3:5] for row in table.rows] == [["1.00", "1.00"], ["1.50", "1.50"]]
    assert table.rows[1][5:] == ["25.2", "16.8"]
    assert command.headline(result) == "ring / switch: 2 hosts 1.00, 4 hosts 1.50"
