"""The study of parameter servers without links: the formulas, the rows and their table."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.phub.measurement import FORMULAS, MODES, ModeTurn, PhubOptions, mode_seconds, summarize
from switchml.benchmarks import plots, report
from switchml.benchmarks.record import Record
from switchml.benchmarks.results import BenchmarkResult, load, save
from switchml.benchmarks.turns import Turn

RATE = 200_000_000
SIZE = 16_000_000
OPTIONS = PhubOptions([RATE], [0.4], [4], SIZE, list(MODES), 2, 1, "python")


def turn(mode: str, seconds: float, digest: str = "a", loads: tuple[int, ...] = (), repetition: int = 0) -> ModeTurn:
    times = (seconds,)
    return ModeTurn(
        mode, RATE, 0.4, 1e6, 0.01, 0.5, loads, digest, Turn(mode, 4, SIZE, 1, repetition, times, times, 0, 0, 0, 0, 1)
    )


def test_formulas() -> None:
    assert list(FORMULAS) == list(MODES)
    seconds = [mode_seconds(mode, SIZE, RATE / 8, 4) for mode in MODES]
    assert seconds == pytest.approx([2.56, 0.96, 0.96, 0.64, 0.32])


def test_rows_have_the_loads_and_bits_of_all_turns() -> None:
    turns = [turn("switch", 0.7), turn("psN", 1.0, loads=(10, 10)), turn("psN", 3.0, loads=(14, 10), repetition=1)]
    turns += [turn("ring", 0.9, "b"), turn("switch16", 0.4, "c")]
    rows = {row.mode: row for row in summarize(turns)}
    assert list(rows) == ["psN", "ring", "switch", "switch16"]
    assert rows["psN"].median == 2.0
    assert rows["psN"].load == pytest.approx(24 / 22)
    assert [row.same_bits for row in rows.values()] == [True, None, True, None]
    assert {row.same_bits for row in summarize([*turns, turn("ps1", 2.0, "d")])} == {False, None}


def test_tables_and_plots(tmp_path: Path) -> None:
    turns = [turn("ps1", 2.56, loads=(100,)), turn("switch", 0.8)]
    result = BenchmarkResult.of("phub", OPTIONS, summarize(turns), Record(samples=turns, missing={"ring": "no torch"}))
    save(result, tmp_path / "modes.json")
    assert load(tmp_path / "modes.json", report.TABLES) == result
    [table] = report.tables(result)
    found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [(row["mode"], row["/ formula"], row["servers' load"], row["same bits"]) for row in found] == [
        ("ps1", "1.000", "1.000", "yes"),
        ("switch", "1.250", "", "yes"),
    ]
    assert "ring is missing: no torch" in table.remarks
    pytest.importorskip("matplotlib")
    assert {file.name for file in plots.draw(result, tmp_path)} == {"phub-time.png", "phub-time.svg"}
