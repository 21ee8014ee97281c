"""The way from benchmark turns to tables: sizes and fractions as text, medians of ratios, cells, Markdown, files."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from switchml.benchmarks import allreduce, kernels, loss, options, plots, report, results
from switchml.benchmarks.errors import MissingPackage, ResultFileError
from switchml.benchmarks.figures import median_ratio, percentile
from switchml.benchmarks.record import Record
from switchml.benchmarks.summary import summarize
from switchml.benchmarks.turns import Task, Turn, calls_of, turn_of
from switchml.common.installation import install_command

MIB = 1 << 20


def turn(
    system: str,
    repetition: int,
    *seconds: float,
    workers: int = 2,
    size: int = MIB,
    tensors: int = 1,
    element_type: str = "float32",
) -> Turn:
    return Turn(
        system=system,
        workers=workers,
        bytes=size,
        tensors=tensors,
        repetition=repetition,
        seconds=seconds,
        slowest=tuple(second + 0.001 for second in seconds),
        cpu_seconds=0.5 * len(seconds),
        wake_ups=10 * len(seconds),
        preemptions=2 * len(seconds),
        largest_error=1e-9,
        allowed_error=1e-7,
        element_type=element_type,
    )


@pytest.fixture
def measured() -> results.BenchmarkResult:
    """Return turns of two transports and one of two peers; in the second of two repetitions, the machine is slow."""
    turns = [
        *(turn("shm", 0, 0.010, 0.012, 0.011), turn("udp", 0, 0.020, 0.020), turn("gloo", 0, 0.033, 0.033)),
        *(turn("shm", 1, 0.020, 0.022, 0.024), turn("udp", 1, 0.050, 0.050), turn("gloo", 1, 0.055, 0.055)),
    ]
    chosen = allreduce.AllreduceOptions([2], [MIB], ["shm", "udp"], ["gloo", "mpi-tcp"], 2, 0, "python3")
    rows = summarize(turns, chosen.transports, chosen.peers)
    missing = {"mpi-tcp": "mpirun not found on PATH: install it"}
    record = Record(samples=turns, systems={"shm": "SwitchML", "gloo": "PyTorch"}, missing=missing)
    return results.BenchmarkResult.of("allreduce", chosen, rows, record)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4KiB", [4096]), ("64MiB, 1GiB", [64 * MIB, 1 << 30]), ("4", [4]), ("1kb,1KB", [1000]), ("8 GiB", [1 << 33])],
)
def test_sizes(text: str, expected: list[int]) -> None:
    assert options.sizes(text) == expected


@pytest.mark.parametrize("text", ["", "x", "-4", "3", "6KiB1", "9GiB", "4KiB,,", "1.5MiB", "0"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        options.sizes(text)


def test_sizes_are_written_as_they_are_read() -> None:
    for text in ("4 KiB", "64 MiB", "1 GiB", "1000 B", "4098 KiB"):
        assert options.size_text(options.sizes(text)[0]) == text


def test_shares_worker_counts_and_names() -> None:
    assert options.shares("0,0.1%,0.01") == [0.0, 0.001, 0.01]
    assert options.worker_counts("8,2,8") == [8, 2]
    assert options.names("", ("a", "b")) == []
    assert options.names("b,a", ("a", "b")) == ["b", "a"]
    for parse, text in ((options.shares, "1"), (options.shares, "x%"), (options.worker_counts, "65")):
        with pytest.raises(ValueError, match=re.escape(text)):
            parse(text)


def test_percentile_is_the_nearest_rank() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.5) == 50
    assert percentile([3, 1, 2], 0.99) == 3
    assert percentile([7], 0) == 7
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 0.5)


def test_the_ratio_is_the_median_of_the_repetitions_ratios() -> None:
    # Both systems are slow in the second repetition; the median over all calls would give another ratio.
    theirs = [turn("gloo", 0, 4.0, 4.0), turn("gloo", 1, 30.0), turn("gloo", 2, 5.0), turn("gloo", 3, 99.0)]
    ours = [turn("shm", 2, 1.0), turn("shm", 0, 2.0), turn("shm", 1, 10.0)]
    assert median_ratio(theirs, ours) == 3
    assert median_ratio(theirs, []) is None


def test_calls_of_a_turn_suit_the_size() -> None:
    assert [calls_of(size, 0) for size in (4096, 4 * MIB, 64 * MIB, 1 << 30)] == [200, 80, 10, 10]
    assert calls_of(4096, 7) == 7


def test_commands_to_the_ranks() -> None:
    assert Task(4096, 1, 200).command == "all_reduce 200 20 1024"
    assert Task(4096, 1000, 3).command == "queue 3 1 1024 1000"
    assert Task(4096, 1, 3, "int64", magnitude_bits=40).command == "all_reduce 3 1 512 int64 32 40"


def test_a_turn_adds_up_all_processes_and_takes_the_slowest_rank() -> None:
    used = {"cpu_seconds": 0.25, "wake_ups": 3, "preemptions": 1, "largest_error": 0.0, "allowed_error": 1.0}
    daemons = {"daemon_cpu_seconds": 0.5, "daemon_wake_ups": 10, "daemon_preemptions": 5}
    answers: list[dict[str, Any]] = [
        used | daemons | {"seconds": [1.0, 4.0]},
        used | {"seconds": [3.0, 2.0], "largest_error": 0.5},
    ]
    found = turn_of(answers, "shm", Task(4096, 1, 2), 0)
    assert (found.seconds, found.slowest) == ((1.0, 4.0), (3.0, 4.0))
    assert turn_of(answers, "shm", Task(4096, 1, 2, collective="broadcast"), 0).seconds == (3.0, 4.0)
    assert (found.cpu_seconds, found.wake_ups, found.preemptions, found.largest_error) == (1.0, 16, 7, 0.5)


def test_rows(measured: results.BenchmarkResult) -> None:
    rows = {row["system"]: row for row in measured.rows}
    assert list(rows) == ["shm", "udp", "gloo"]
    assert rows["shm"]["ratios"] == {"gloo": pytest.approx((3 + 2.5) / 2)}
    assert rows["gloo"]["ratios"] == {}
    assert rows["shm"]["median"] == pytest.approx(0.016)
    assert rows["shm"]["p99"] == pytest.approx(0.024)
    assert rows["shm"]["slowest"] == pytest.approx(0.017)
    assert rows["shm"]["bytes_per_second"] == pytest.approx(MIB / 0.016)
    assert rows["shm"]["elements_per_second"] == pytest.approx(MIB / 4 / 0.016)
    assert rows["shm"]["cpu_seconds_per_gb"] == pytest.approx(0.5 / (MIB / 1e9))
    assert (rows["shm"]["wake_ups"], rows["shm"]["switches"]) == (10, 12)


def test_the_rate_of_queued_tensors_counts_all_of_them() -> None:
    [row] = summarize([turn("shm", 0, 0.5, size=4096, tensors=1000)], ["shm"], [])
    assert row.bytes_per_second == pytest.approx(4096 * 1000 / 0.5)


def test_rows_of_int64_count_elements_of_eight_bytes(measured: results.BenchmarkResult) -> None:
    [row] = summarize([turn("shm", 0, 0.032, size=64 * MIB, element_type="int64")], ["shm"], [])
    assert row.elements_per_second == pytest.approx(8 * MIB / 0.032)
    measured.machine["memory_bytes_per_second"] = 16e9
    measured.rows = [dataclasses.asdict(row)]
    measured.options |= {"element_type": "int64", "magnitude_bits": 40}
    [table] = report.tables(measured)
    assert table.title == "All-reduce of int64 with magnitudes below 2^40, 2 repetitions in turns"
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["Melem/s per worker"], cells["of the memory's limit"]) == ("262", "52%")


def test_the_table_has_ratios_and_says_what_is_missing(measured: results.BenchmarkResult) -> None:
    [table] = report.tables(measured)
    assert "gloo / this" in table.columns
    assert "mpi-tcp / this" not in table.columns
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first | {"by": "shm", "size": "1 MiB", "median ms": "16.0", "gloo / this": "2.75"} == first
    assert table.rows[-1][2] == "mpi-tcp"
    assert table.rows[-1][-1] == "mpirun not found on PATH: install it"
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert any(" CPUs" in remark for remark in table.remarks)


def test_how_near_the_memorys_limit_a_transport_is(measured: results.BenchmarkResult) -> None:
    measured.machine["memory_bytes_per_second"] = 16e9  # 1000 million elements with two workers: 16 bytes each
    rows = summarize([turn(name, 0, 0.032, size=64 * MIB) for name in ("shm", "udp")], ["shm", "udp"], [])
    measured.rows = [dataclasses.asdict(row) for row in rows]
    [table] = report.tables(measured)
    column = list(table.columns).index("of the memory's limit")
    assert [row[column] for row in table.rows[:2]] == ["52%", ""]


def test_markdown_fills_its_place_in_a_document(measured: results.BenchmarkResult) -> None:
    document = "before\n<!-- bench: allreduce -->\nold\n<!-- end -->\nafter\n<!-- end -->\n"
    filled = report.fill(document, [(measured, ["pictures/a.svg"])])
    assert "old" not in filled
    assert filled.startswith("before\n<!-- bench: allreduce -->\n**All-reduce")
    assert filled.endswith("<!-- end -->\nafter\n<!-- end -->\n")
    assert "| 2 | 1 MiB | shm | 16.0 |" in filled
    assert "](pictures/a.svg)\n<!-- end -->" in filled
    assert report.fill(filled, [(measured, ["pictures/a.svg"])]) == filled
    with pytest.raises(ValueError, match="no place for allreduce"):
        report.fill("nothing", [(measured, [])])


def test_results_survive_a_file(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.save(measured, path)
    assert results.load(path, report.TABLES) == measured
    for content in ("[", "{}", json.dumps(measured.as_dict() | {"benchmark": "other"})):
        path.write_text(content)
        with pytest.raises(ResultFileError, match=r"result\.json"):
            results.load(path, report.TABLES)
    with pytest.raises(ResultFileError, match="cannot be written"):
        results.save(measured, tmp_path / "absent" / "result.json")


def test_losses_are_compared_within_a_repetition() -> None:
    def sample(share: float, repetition: int, seconds: float) -> loss.LossTurn:
        return loss.LossTurn(share, 1000 * share, turn("udp", repetition, seconds, seconds))

    found = loss.summarize([sample(0, 0, 1), sample(0.01, 0, 2), sample(0.01, 1, 6), sample(0, 1, 4)])
    assert [(row.share, row.ratio, row.lost) for row in found] == [(0, 1, 0), (0.01, 1.75, 10)]


def test_pictures_are_drawn(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = plots.draw(measured, tmp_path / "pictures")
    names = {"allreduce-size", "allreduce-workers", "allreduce-ratios"}
    assert {file.name for file in files} == {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
    assert all(file.stat().st_size > 1000 for file in files)


def test_kernels_are_drawn_by_type_with_the_best_instructions() -> None:
    pytest.importorskip("matplotlib")
    names = ("quantize float32", "quantize_lanes 8 bfloat16", "pack_limb int64", "add")
    rows = [kernels.KernelRow("memcpy", "C library", {"65536": 40.0})]
    sets = ("portable", "avx2")
    rows += [kernels.KernelRow(name, instructions, {"65536": 20.0}) for instructions in sets for name in names]
    result = results.BenchmarkResult.of("kernels", kernels.KernelsOptions([65536], 0.1), rows)
    [(_, figure)] = plots.FIGURES["kernels"](result)
    drawn = {panel.get_title(): [line.get_label() for line in panel.lines] for panel in figure.axes}
    assert drawn == {
        "float32, avx2": ["memcpy", "quantize float32"],
        "bfloat16, avx2": ["memcpy", "quantize_lanes 8 bfloat16"],
        "integers and sums, avx2": ["memcpy", "pack_limb int64", "add"],
    }


def test_without_matplotlib_pictures_are_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackage, match=re.escape(install_command("bench"))):
        plots.require_matplotlib()


def test_every_benchmark_has_tables_and_pictures() -> None:
    assert set(report.TABLES) == set(plots.FIGURES)
    assert {field.name for field in dataclasses.fields(results.BenchmarkResult)} >= {"rows", "samples", "states"}
