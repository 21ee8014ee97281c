"""The study of ByteScheduler without ranks: its options, the rows, and their table and plot."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.bytescheduler import measurement
from studies.bytescheduler.measurement import ByteSchedulerSample, Costs
from studies.bytescheduler.policies import policies, policy
from studies.bytescheduler.simulation import Layer, vgg_like
from switchml.benchmarks import plots, report, results
from switchml.benchmarks.record import Record

RATE = 80_000_000  # ten megabytes a second
MEGABYTE = 1_000_000
PARTITIONED = "bytescheduler:partition=1000000:credit=1000000"


def turn(policy: str, repetition: int, seconds: list[float]) -> ByteSchedulerSample:
    """Return a turn of steps of ten megabytes."""
    link = {"bytes": 30 * MEGABYTE, "packets": 1000, "drops": 10, "idle": 0.5}
    return ByteSchedulerSample(policy, repetition, seconds, {"link": link, "steps_on_link": 3})


@pytest.fixture
def measured() -> results.BenchmarkResult:
    samples = [
        *(turn("fifo", 0, [1.4, 1.4]), turn(PARTITIONED, 0, [1.2, 1.2])),
        *(turn(PARTITIONED, 1, [1.2, 1.2]), turn("fifo", 1, [1.6, 1.6])),
    ]
    # A tenth of the model of three layers whose steps take 14 and 12.
    layers = [Layer(0.1, 0.1, size * MEGABYTE) for size in (2, 2, 6)]
    rows = measurement.summarize(samples, Costs(layers, 10 * MEGABYTE, 1), RATE)
    chosen = measurement.ByteSchedulerOptions([PARTITIONED], 10 * MEGABYTE, 0.3, RATE, 0.05, 4, 2, 2, "python3")
    return results.BenchmarkResult.of(
        "bytescheduler", chosen, rows, Record(samples=samples, systems={"torch": "PyTorch"})
    )


def test_rows(measured: results.BenchmarkResult) -> None:
    fifo, partitioned = measured.rows
    assert (fifo["policy"], fifo["steps"], fifo["ratio"], fifo["simulated_ratio"]) == ("fifo", 4, 1, 1)
    assert fifo["median"] == pytest.approx(1.5)
    assert partitioned["ratio"] == pytest.approx((1.2 / 1.4 + 1.2 / 1.6) / 2)
    assert fifo["simulated"] == pytest.approx(1.4)
    assert partitioned["simulated"] == pytest.approx(1.2)
    assert partitioned["simulated_ratio"] == pytest.approx(12 / 14)
    assert partitioned["busy"] == pytest.approx(1 / 1.2)
    assert partitioned["dropped"] == 0.01


def test_table_and_plot(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    [table] = report.tables(measured)
    assert table.rows[1] == [PARTITIONED, "4", "1.200", "0.804", "1.200", "0.857", "1.000", "83%", "50%", "1.00%"]
    results.save(measured, tmp_path / "schedule.json")
    assert results.load(tmp_path / "schedule.json", report.TABLES) == measured
    pytest.importorskip("matplotlib")
    assert {file.stem for file in plots.draw(measured, tmp_path)} == {"bytescheduler-steps"}


def test_policies() -> None:
    assert policies("p3, tictac-tic") == ["p3", "tictac-tic"]
    found = policy("p3:classes=2:partition=7:credit=9")
    assert (found.order, found.classes, found.partition, found.credit) == ("first use", 2, 7, 9)


@pytest.mark.parametrize("text", ["", "lifo", "p3:", "p3:order=tic", "p3:credit=-1", "p3:credit=0", "p3:classes=9"])
def test_other_text_is_not_a_policy(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|there can be"):
        policies(text)


def test_the_model_is_like_vgg() -> None:
    layers = vgg_like(20 << 20, 0.2, grain=1024)
    assert sum(layer.size for layer in layers) == pytest.approx(20 << 20, rel=0.001)
    assert sum(layer.forward for layer in layers) == pytest.approx(0.2)
    assert sum(layer.size for layer in layers[-3:]) > 0.75 * (20 << 20)
    assert all(layer.size % 1024 == 0 and layer.backward == 2 * layer.forward for layer in layers)
