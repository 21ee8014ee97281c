"""`bench links` without links: its options, the bounds, the rule of validity, the rows and their table."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from switchml.benchmarks import links, options, plots, report, results
from switchml.benchmarks.link_rows import (
    ElementKind,
    LinkRow,
    LinkTurn,
    in_network_bound,
    ring_bound,
    summarize,
    why_not_link_bound,
)
from switchml.benchmarks.record import Record
from switchml.benchmarks.turns import Task, Turn
from switchml.benchmarks.workers.pattern import PERIOD, TYPES, Pattern, allowed_error
from switchml.topologies.shaped_links import Shape, queue_text, rate_text

MIB = 1 << 20
RATE = 8 * MIB  # a MiB takes a second
FLOAT, BRAIN = ElementKind("float32"), ElementKind("bfloat16")


def link_turn(
    system: str, kind: ElementKind, seconds: float, *, repetition: int = 0, idle: float = 0.5, busy: float = 0.99
) -> LinkTurn:
    """Return a turn of two workers, with tensors of as many elements as a MiB holds of float32."""
    turn = Turn(
        system=system,
        workers=2,
        bytes=MIB // 4 * kind.bytes,
        tensors=1,
        repetition=repetition,
        seconds=(seconds,),
        slowest=(seconds,),
        cpu_seconds=0.1,
        wake_ups=1,
        preemptions=0,
        largest_error=0.0,
        allowed_error=1.0,
    )
    carried = round(2 * busy * seconds * RATE / 8)
    return LinkTurn(RATE, 0.05, kind, 2, carried, packets=999, drops=1, idle=idle, turn=turn)


def rows_of(*turns: LinkTurn) -> dict[tuple[str, str], LinkRow]:
    return {(row.system, row.element_type): row for row in summarize(turns, ["gloo", "mpi-tcp"])}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200mbit,1gbit", [200 * 10**6, 10**9]), ("2.5Gbit", [2_500_000_000]), ("1000kbit, 1mbit", [10**6])],
)
def test_rates(text: str, expected: list[int]) -> None:
    assert options.rates(text) == expected


@pytest.mark.parametrize("text", ["", "200", "200mb", "-1gbit", "0mbit", "101gbit", "1gbit,,", "999kbit"])
def test_other_text_is_not_a_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|outside"):
        options.rates(text)


def test_queues() -> None:
    assert options.queues("50ms,0.4s,500us") == [pytest.approx(value) for value in (0.05, 0.4, 0.0005)]
    for text in ("", "50", "0ms", "11s", "50 minutes", "-1ms"):
        with pytest.raises(ValueError, match=r"queue|outside"):
            options.queues(text)


def test_rates_and_queues_are_written_as_they_are_read() -> None:
    for text in ("200mbit", "1gbit", "2500mbit", "1500kbit"):
        assert rate_text(options.rates(text)[0]) == text
    for text in ("50ms", "400ms", "0.5ms"):
        assert queue_text(options.queues(text)[0]) == text


def test_a_link_as_tc_takes_it() -> None:
    assert Shape(200 * 10**6, 0.05).token_bucket() == "tbf rate 200000000bit burst 131072 latency 50000us"


def test_bounds() -> None:
    assert in_network_bound(25e6, 25e6) == 1
    assert ring_bound(25e6, 25e6, 2) == 1  # two workers send each other a half twice
    assert ring_bound(25e6, 25e6, 4) == 1.5
    assert ring_bound(25e6, 25e6, 64) == pytest.approx(2, rel=0.02)
    assert ring_bound(25e6, 25e6, 4, "reduce_scatter") == ring_bound(25e6, 25e6, 4, "all_gather") == 0.75
    assert ring_bound(25e6, 25e6, 4, "broadcast") == 1
    assert in_network_bound(25e6, 25e6, 4, "scatter_and_gather") == 1
    assert in_network_bound(25e6, 25e6, 4, "reduce_scatter") == in_network_bound(25e6, 25e6, 4, "all_gather") == 0.75
    assert ring_bound(25e6, 25e6, 4, "scatter_and_gather") == 1.5


@pytest.mark.parametrize(
    ("dense_share", "idle", "busy", "reason"),
    [
        (0.95, 0.5, 0.5, ""),  # CPUs have time left: it is the algorithm that leaves the link idle
        (0.95, 0.0, 0.9, ""),  # the link is busy, whatever the CPUs do
        (0.95, 0.05, 0.5, "CPUs idle 5%, link busy 50%"),
        (0.89, 0.5, 0.99, "float32 row reaches 89% of its bound"),
        (None, 0.5, 0.99, "float32 row is missing"),
    ],
)
def test_when_a_row_tells_the_speed_of_a_link(dense_share: float | None, idle: float, busy: float, reason: str) -> None:
    why = why_not_link_bound(dense_share, idle, busy)
    assert why.startswith("not link-bound") == bool(reason)
    assert reason in why


def test_rows_have_the_bound_of_their_algorithm() -> None:
    rows = rows_of(link_turn("gloo", BRAIN, 0.55), link_turn("udp", BRAIN, 1.05), link_turn("udp", FLOAT, 1.02))
    assert list(rows) == [("udp", "float32"), ("udp", "bfloat16"), ("gloo", "bfloat16")]
    assert [row.bound for row in rows.values()] == [1, 1, 0.5]  # a bfloat16 takes 32 bits in the network, 16 in a ring
    assert [row.wire_bits for row in rows.values()] == [32, 32, 16]
    assert {row.elements for row in rows.values()} == {MIB // 4}
    assert rows["udp", "float32"].busy == pytest.approx(0.99)
    assert rows["udp", "float32"].dropped == 0.001


def test_narrow_lanes_have_a_bound_of_their_own() -> None:
    [dense, narrow] = summarize([link_turn("udp", ElementKind("float32", 16), 0.6), link_turn("udp", FLOAT, 1.02)], [])
    assert (dense.wire_bits, dense.bound) == (32, 1)
    assert (narrow.wire_bits, narrow.bound) == (16, 0.5)


def test_ratios_compare_the_same_type_within_a_repetition() -> None:
    turns = [
        *(link_turn("udp", FLOAT, 1.0), link_turn("gloo", FLOAT, 1.5), link_turn("gloo", BRAIN, 0.5)),
        *(link_turn("udp", FLOAT, 1.1, repetition=1), link_turn("gloo", FLOAT, 2.75, repetition=1)),
    ]
    rows = rows_of(*turns)
    assert rows["udp", "float32"].ratios == {"gloo": pytest.approx(2)}
    assert rows["gloo", "float32"].ratios == {}


def test_rows_that_links_did_not_limit_have_no_ratios() -> None:
    busy_peer = rows_of(link_turn("udp", FLOAT, 1.0), link_turn("gloo", FLOAT, 3.0, idle=0, busy=0.4))
    assert busy_peer["udp", "float32"].ratios == {}
    assert busy_peer["udp", "float32"].why_not == ""
    assert "CPUs idle 0%" in busy_peer["gloo", "float32"].why_not
    slow = rows_of(link_turn("udp", FLOAT, 1.3), link_turn("gloo", FLOAT, 1.5))
    assert all("77% of its bound" in row.why_not and not row.ratios for row in slow.values())


@pytest.fixture
def measured() -> results.BenchmarkResult:
    turns = [
        *(link_turn("udp", FLOAT, 1.0), link_turn("udp", BRAIN, 1.0), link_turn("gloo", FLOAT, 1.5)),
        *(link_turn("gloo", BRAIN, 0.5), link_turn("mpi-tcp", FLOAT, 3.0, idle=0, busy=0.4)),
    ]
    chosen = links.LinksOptions([RATE], [0.05], [2], MIB, ["gloo", "mpi-tcp"], 1, 1, "python3")
    systems = {"udp": "SwitchML", "gloo": "PyTorch", "mpi-tcp": "Open MPI"}
    return results.BenchmarkResult.of(
        "links", chosen, summarize(turns, chosen.peers), Record(samples=turns, systems=systems)
    )


def test_the_table_says_which_rows_are_not_link_bound(measured: results.BenchmarkResult) -> None:
    [table] = report.tables(measured)
    rows = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    assert [row["gloo / this"] for row in rows] == ["1.50", "0.50", "", "", ""]
    assert [row["mpi-tcp / this"] for row in rows] == ["mpi-tcp not link-bound", "", "", "", "not link-bound"]
    assert [row["bound s"] for row in rows] == ["1.000", "1.000", "1.000", "0.500", "1.000"]
    assert any("CPUs idle 0%, link busy 40% (mpi-tcp float32)" in remark for remark in table.remarks)


def test_results_survive_a_file(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    results.save(measured, tmp_path / "links.json")
    assert results.load(tmp_path / "links.json", report.TABLES) == measured
    assert json.loads((tmp_path / "links.json").read_text())["rows"][0]["rate"] == RATE


def test_pictures_are_drawn(measured: results.BenchmarkResult, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert {file.name for file in plots.draw(measured, tmp_path)} == {"links-time.png", "links-time.svg"}


def test_commands_to_the_ranks() -> None:
    assert Task(4096, 1, 1).command == "all_reduce 1 1 1024"
    assert Task(4096, 1, 1, "bfloat16").command == "all_reduce 1 1 2048 bfloat16 32"
    assert Task(4096, 1, 1, "float32", 16).command == "all_reduce 1 1 1024 float32 16"
    assert Task(4096, 1, 1, collective="all_gather").command == "all_gather 1 1 1024"


def test_the_pattern_of_a_part_and_of_one_rank() -> None:
    """The check of a part knows its place, also beyond the period of the pattern, and the ranks' contributions."""
    whole = np.zeros(PERIOD + 500, np.float32)
    pattern = Pattern(1, 4, whole.size)
    pattern.fill(whole, 0)
    for first in (0, 700, PERIOD - 3, PERIOD + 100):
        part = whole[first : first + 300]
        assert pattern.largest_error(part, 0, first, of_rank=1) == 0
        assert pattern.largest_error(part, 0, first, of_rank=2) > 0.1
        assert pattern.largest_error(part, 0, first + 1, of_rank=1) > 0.1
        assert pattern.largest_error(part * 5, 0, first) < 1e-5  # of 10 base values, of which rank 1 contributes 2


@pytest.mark.parametrize("call", [0, 1, 2])
def test_the_pattern_of_bfloat16(call: int) -> None:
    """The sum of the contributions of four ranks, rounded to bfloat16, is within the bound; another call's is not."""
    total = np.zeros(1000, np.float64)
    for rank in range(4):
        bits = np.zeros(1000, TYPES["bfloat16"])
        Pattern(rank, 4, 1000, "bfloat16").fill(bits, call)
        total += (bits.astype(np.uint32) << 16).view(np.float32)
    nearest = (total.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype(np.uint16)
    pattern = Pattern(0, 4, 1000, "bfloat16")
    assert 0 < pattern.largest_error(nearest, call) <= allowed_error("switchml", 4, "bfloat16")
    assert pattern.largest_error(nearest, call + 1) > allowed_error("gloo", 4, "bfloat16")


def test_allowed_errors_grow_as_lanes_become_narrower() -> None:
    errors = [allowed_error("switchml", 4, "float32", bits) for bits in (32, 16, 8)]
    assert errors == sorted(errors)
    # Half a level for each rank, of 31 levels for the largest magnitude, 8.
    assert errors[-1] == pytest.approx(4 / 2 * 8 / 31, rel=1e-5)
    assert math.isclose(allowed_error("switchml", 4, "bfloat16") - errors[0], 2.0**3 * 2.0**-7 / 2)
