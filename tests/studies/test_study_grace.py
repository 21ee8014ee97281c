"""The study of GRACE without ranks: its options, the rows and their tables."""

from pathlib import Path

import pytest

from studies.grace import arguments, measurement
from studies.grace.measurement import GraceSample
from switchml.benchmarks import plots, report, results
from switchml.benchmarks.record import Record

RATE = 8_000_000  # a megabyte takes a second


def step(method: str, seconds: float, *, repetition: int = 0, sent: int | None = None) -> GraceSample:
    """Return a turn of one timed step with a million parameters, after one that is not timed."""
    link = {"bytes": 2_000_000, "packets": 1, "drops": 0, "idle": 0.25}
    found = {
        "rate": RATE,
        "repetition": repetition,
        "seconds": [seconds],
        "steps_on_link": 2,
        "bytes": sent,
        "parameters": 1_000_000,
        "link": link,
    }
    return GraceSample("step", method, found)


def training(method: str, curve: list[list[float]], factor: float = 1.0) -> GraceSample:
    found = {"task": "digits", "learning_rate": factor, "momentum": 0.9, "curve": curve, "parameters": 100}
    return GraceSample("train", method, found)


@pytest.fixture
def measured() -> results.BenchmarkResult:
    samples = [
        GraceSample("compute", "none", {"compress": [], "decompress": []}),
        GraceSample("compute", "topk", {"compress": [0.2, 0.1, 0.3], "decompress": [0.05]}),
        *(step("gloo", 6.0), step("none", 4.0, sent=4_000_000), step("topk", 2.0, sent=80_000)),
        *(step("topk", 1.0, repetition=1, sent=80_000), step("none", 4.0, repetition=1, sent=4_000_000)),
        training("none", [[1, 400, 0.1], [10, 4000, 0.9]]),
        training("none", [[1, 400, 0.7], [10, 4000, 0.8]], 3.0),
        training("topk", [[1, 100, 0.2], [4, 400, 0.4], [10, 1000, 0.6]]),
        training("topk", [[1, 100, 0.2], [4, 400, 0.5], [10, 1000, 0.85]], 3.0),
    ]
    chosen = measurement.GraceOptions(
        ["topk"], 1_000_000, [RATE], 0.4, 4, 2, 1, 1, ["digits"], 10, [1.0, 3.0], [0.9], "python3"
    )
    record = Record(samples=samples, systems={"gloo": "PyTorch"})
    return results.BenchmarkResult.of("grace", chosen, measurement.summarize(samples), record)


def test_methods() -> None:
    assert len(set(arguments.methods("all"))) == 16
    assert arguments.methods("topk, qsgd:levels=15:norm=max") == ["topk", "qsgd:levels=15:norm=max"]
    assert arguments.method_arguments("qsgd:levels=15:norm=max") == ("qsgd", {"levels": 15, "norm": "max"})
    assert arguments.method_arguments("topk:density=1e-2") == ("topk", {"density": 0.01})


@pytest.mark.parametrize("text", ["", "topk,", "topk:", "topk:density", "topk:density=", "a b", "topk:x=1 2"])
def test_other_text_is_not_a_method(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a method|is not an argument"):
        arguments.methods(text)


def test_factors() -> None:
    assert arguments.factors("0.5, 1,3,1.0") == [0.5, 1, 3]


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1,x"])
def test_other_text_is_not_a_factor(text: str) -> None:
    with pytest.raises(ValueError, match="is not a factor of the learning rate"):
        arguments.factors(text)


def test_momenta() -> None:
    assert arguments.momenta("0.9, 0,0.5") == [0.9, 0, 0.5]


@pytest.mark.parametrize("text", ["", "1", "-0.1", "nan", "x"])
def test_other_text_is_not_a_momentum(text: str) -> None:
    with pytest.raises(ValueError, match="is not a momentum"):
        arguments.momenta(text)


def test_rows(measured: results.BenchmarkResult) -> None:
    rows = {row["method"]: row for row in measured.rows}
    assert list(rows) == ["none", "topk", "gloo"]
    assert (rows["topk"]["compress"], rows["topk"]["decompress"]) == (0.2, 0.05)
    assert rows["none"]["compress"] is None
    assert [rows[name]["bits"] for name in rows] == [32, 0.64, None]
    [steps] = rows["topk"]["steps"]
    assert steps["none"] == pytest.approx((4 / 2 + 4 / 1) / 2)
    assert steps["gloo"] == pytest.approx(3)  # Gloo has one repetition
    assert (steps["link_bytes"], steps["busy"]) == (1_000_000, pytest.approx(1 / 1.5))
    assert rows["gloo"]["steps"][0]["none"] == pytest.approx(4 / 6)


def test_accuracy_at_equal_bytes_is_that_of_the_last_point_within_them(measured: results.BenchmarkResult) -> None:
    accuracies = {row["method"]: row["accuracies"] for row in measured.rows}
    assert accuracies["gloo"] == []
    [none], [topk] = accuracies["none"], accuracies["topk"]
    assert (none["learning_rate"], topk["learning_rate"]) == (1, 3)  # of the training with the best accuracy
    assert (none["final"], none["at_budget"], none["steps"], none["bits"]) == (0.9, 0.1, 1, 32)
    assert (topk["final"], topk["at_budget"], topk["steps"], topk["bits"]) == (0.85, 0.5, 4, 8)


def test_tables(measured: results.BenchmarkResult) -> None:
    computing, steps, accuracy = report.tables(measured)
    assert computing.rows[1] == ["topk", "200", "50.0", "0.64"]
    assert [row[:5] for row in steps.rows] == [
        ["8mbit", "none", "4.000", "1.00", "1.50"],
        ["8mbit", "topk", "1.500", "3.00", "3.00"],
        ["8mbit", "gloo", "6.000", "0.67", "1.00"],
    ]
    assert accuracy.rows[1] == ["topk", "8.00", "3", "0.9", "85.0%", "-5.0", "50.0%", "4"]


def test_results_survive_a_file_and_are_drawn(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    results.save(measured, tmp_path / "compression.json")
    assert results.load(tmp_path / "compression.json", report.TABLES) == measured
    pytest.importorskip("matplotlib")
    names = {file.stem for file in plots.draw(measured, tmp_path)}
    assert names == {"grace-steps", "grace-accuracy"}
