"""`bench ddp` without links: the bounds of a step, the rows and their table."""

from pathlib import Path

import pytest

from switchml.benchmarks import ddp, plots, report, results
from switchml.benchmarks.ddp import StepTurn
from switchml.benchmarks.record import Record

RATE = 8 << 20  # a MiB takes a second


def turn(backend: str, wrapper: str, seconds: float, *, repetition: int = 0, idle: float = 0.5) -> StepTurn:
    """Return a turn of four workers, with a MiB of parameters; the link is busy for a second."""
    return StepTurn(
        backend=backend,
        wrapper=wrapper,
        rate=RATE,
        queue=0.05,
        workers=4,
        repetition=repetition,
        parameters=1 << 18,
        seconds=(seconds, seconds),
        all_steps=3,
        bytes=3 << 20,
        packets=999,
        drops=1,
        idle=idle,
    )


@pytest.fixture
def measured() -> results.BenchmarkResult:
    turns = [
        *(turn("switchml", "ddp", 1.1), turn("gloo", "ddp", 1.65), turn("switchml", "fsdp", 2.5)),
        *(turn("gloo", "ddp", 2.2, repetition=1), turn("switchml", "ddp", 1.0, repetition=1)),
        turn("gloo", "fsdp", 2.6, idle=0.01),
        *(turn("switchml", "fsdp-overlap", 1.8), turn("gloo", "fsdp-overlap", 2.6)),
    ]
    chosen = ddp.DdpOptions([RATE], [0.05], [4], 2, 2, "python3")
    return results.BenchmarkResult.of(
        "ddp", chosen, ddp.summarize(turns), Record(samples=turns, systems={"switchml": "SwitchML"})
    )


def test_rows(measured: results.BenchmarkResult) -> None:
    rows = {(row["wrapper"], row["backend"]): row for row in measured.rows}
    assert list(rows) == [(wrapper, backend) for wrapper in ddp.WRAPPERS for backend in ddp.BACKENDS]
    # One pass in the network; a ring; for FSDP three halves of a ring. With overlap a quarter of a half is saved, and
    # in the network the scatter's three quarters leave a rank together with a quarter of what is gathered then.
    assert [row["bound"] for row in rows.values()] == [1, 1.5, 2.25, 2.25, 0.75 + 0.75 + 0.1875, 2.0625]
    assert rows["ddp", "switchml"]["ratio"] == pytest.approx((1.5 + 2.2) / 2)
    assert rows["ddp", "gloo"]["ratio"] is None
    assert rows["ddp", "switchml"]["busy"] == pytest.approx(1 / 1.05)
    assert rows["ddp", "switchml"]["dropped"] == 0.001


def test_rows_that_the_cpus_limited_have_no_ratio(measured: results.BenchmarkResult) -> None:
    [table] = report.tables(measured)
    cells = [dict(zip(table.columns, row, strict=True))["gloo / this"] for row in table.rows]
    assert cells == ["1.85", "", "", "not link-bound", "1.44", ""]


def test_a_missing_backend_leaves_the_other_without_a_ratio() -> None:
    [row] = ddp.summarize([turn("switchml", "ddp", 1.0)])
    assert row.ratio is None


def test_pictures_are_drawn(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert {file.name for file in plots.draw(measured, tmp_path)} == {"ddp-steps.png", "ddp-steps.svg"}
