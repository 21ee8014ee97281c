"""The rows, tables and plots of the study of hosts with several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.leaves.measurement import LeafTurn, LeavesOptions, LeavesRow, summarize
from switchml.benchmarks import plots, report
from switchml.benchmarks.record import Record
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.turns import Turn

OPTIONS = LeavesOptions(200_000_000, 0.4, 2, 4, 1 << 20, 4096, 2, 1, 1, "python")


def turn(system: str, size: int, repetition: int, seconds: float, link_bytes: float) -> LeafTurn:
    return LeafTurn(link_bytes, Turn(system, 8, size, 1, repetition, (seconds,), (seconds,), 0, 0, 0, 0, 1))


def turns() -> list[LeafTurn]:
    found = []
    for repetition, slow in enumerate((1, 10)):  # the machine is slower in the second repetition
        for system, seconds, size in (("leaf", 1.0, 1e6), ("udp", 4.0, 4e6), ("gloo-cyclic", 7.0, 7e6)):
            found.append(turn(system, 1 << 20, repetition, slow * seconds, size))
    return found


def test_ratios_are_of_the_turns_of_one_repetition() -> None:
    assert summarize(turns()) == [
        LeavesRow("leaf", 1 << 20, 2, 5.5, 10.0, 1e6, 1.0),
        LeavesRow("udp", 1 << 20, 2, 22.0, 40.0, 4e6, 4.0),
        LeavesRow("gloo-cyclic", 1 << 20, 2, 38.5, 70.0, 7e6, 7.0),
    ]


def test_tables_and_plots_name_the_systems(tmp_path: Path) -> None:
    result = BenchmarkResult.of("leaves", OPTIONS, summarize(turns()), Record(missing={"gloo": "no torch"}))
    [table] = report.tables(result)
    assert table.title == "All-reduce of 2 hosts with 4 ranks each, links of 200mbit, queues of 400ms"
    assert [row[1] for row in table.rows] == ["a switch on each host", "one switch", "gloo, ranks dealt out"]
    assert [row[-1] for row in table.rows] == ["", "4.00", "7.00"]
    assert "gloo is missing: no torch" in table.remarks
    pytest.importorskip("matplotlib")
    assert [file.name for file in plots.draw(result, tmp_path)] == ["leaves-time.png", "leaves-time.svg"]
