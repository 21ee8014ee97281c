"""The tensors of `bench sparse`, the packets that follow from them, its cases and the way from turns to a table."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from switchml.benchmarks import plots, report, sparse, sparse_rows
from switchml.benchmarks.options import OVERLAPS, densities, packet_values
from switchml.benchmarks.record import Record
from switchml.benchmarks.results import BenchmarkResult, save
from switchml.benchmarks.sparse_rows import BlockCounts, SparseTurn, summarize
from switchml.benchmarks.turns import Turn
from switchml.benchmarks.workers.blocks import METHODS, BlockPattern, owners, packets_with_values
from switchml.benchmarks.workers.pattern import allowed_error
from switchml.commands.root import cli

BLOCK = 256
KIB = 1 << 10
PAGE = Path(__file__).parents[2] / "docs" / "results" / "performance.md"


def contribution(rank: int, owned: np.ndarray, call: int, block: int = BLOCK) -> np.ndarray:
    tensor = np.full(owned.shape[1] * block, np.nan, np.float32)
    BlockPattern(rank, owned, block).fill(tensor, call)
    return tensor


def summed(owned: np.ndarray, call: int, block: int = BLOCK) -> np.ndarray:
    tensors = [contribution(rank, owned, call, block) for rank in range(len(owned))]
    return np.asarray(np.sum(tensors, axis=0, dtype=np.float32))


def packets_of(tensor: np.ndarray, values: int) -> int:
    """Count packets with values in a tensor, whose last packet may be shorter."""
    return sum(bool(tensor[first : first + values].any()) for first in range(0, len(tensor), values))


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("density", [0, 0.001, 0.1, 0.25])
def test_every_rank_has_its_share_of_the_blocks(density: float, overlap: str) -> None:
    owned = owners(4, 1000, density, overlap)
    assert [own.sum() for own in owned] == [1000 * density] * 4
    assert (owned == owners(4, 1000, density, overlap)).all()  # alike at every rank and in the table


def test_what_ranks_have_in_common() -> None:
    assert owners(8, 10_000, 0.1, "all").any(axis=0).sum() == 1000
    assert owners(8, 10_000, 0.1, "none").any(axis=0).sum() == 8000
    by_chance = owners(8, 10_000, 0.1, "random").any(axis=0).mean()
    assert by_chance == pytest.approx(1 - 0.9**8, rel=0.02)
    assert owners(2, 3, 0.01, "random").any(axis=1).all()  # at least one block each
    with pytest.raises(ValueError, match="8 ranks with 5000 blocks each"):
        owners(8, 10_000, 0.5, "none")


@pytest.mark.parametrize(("block", "values"), [(256, 256), (256, 64), (256, 2048), (96, 64), (1, 7), (300, 256)])
@pytest.mark.parametrize("density", [0, 0.01, 0.3, 1])
def test_packets_are_those_with_a_value_of_the_tensor(block: int, values: int, density: float) -> None:
    owned = owners(3, 101, density, "random")
    for rank, own in enumerate(owned):
        assert packets_with_values(own, block, values) == packets_of(contribution(rank, owned, 0, block), values)
    assert packets_with_values(np.any(owned, axis=0), block, values) == packets_of(summed(owned, 0, block), values)


@pytest.mark.parametrize("call", [0, 1, 5])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_sum_is_the_expected_one(call: int, overlap: str) -> None:
    owned = owners(8, 500, 0.1, overlap)
    assert BlockPattern(5, owned, BLOCK).largest_error(summed(owned, call), call) == 0


def test_a_wrong_sum_is_found() -> None:
    owned = owners(8, 500, 0.1, "random")
    pattern, right, allowed = BlockPattern(0, owned, BLOCK), summed(owned, 0), allowed_error("switchml", 8)
    assert pattern.largest_error(summed(owned, 2), 0) > allowed  # that of an earlier call
    for rank in range(8):
        assert pattern.largest_error(right - contribution(rank, owned, 0), 0) > allowed
    full, empty = (BLOCK * int(np.flatnonzero(np.any(owned, axis=0) == value)[-1]) + 9 for value in (True, False))
    for place, wrong in ((full, np.nan), (full, right[full] + np.float32(1e-3)), (empty, np.nan), (empty, 1e-30)):
        tensor = right.copy()
        tensor[place] = wrong
        assert not pattern.largest_error(tensor, 0) <= allowed


def test_cases_leave_out_what_is_impossible_or_told() -> None:
    found = [(case.overlap, case.density) for case in sparse.cases(8, [0.1, 0.5, 1], OVERLAPS)]
    assert found == [("random", 0.1), ("random", 0.5), ("random", 1), ("all", 0.1), ("all", 0.5), ("none", 0.1)]
    assert sparse.cases(2, [0.5, 1], ["none", "all"]) == [
        sparse.SparseCase(0.5, "none"),
        sparse.SparseCase(0.5, "all"),
        sparse.SparseCase(1, "all"),
    ]


def test_options() -> None:
    assert densities("0.1%, 0.5,1") == [0.001, 0.5, 1]
    assert packet_values("256,2048") == [256, 2048]
    for parse, text in ((densities, "1.5"), (packet_values, "0"), (packet_values, "2049"), (packet_values, "x")):
        with pytest.raises(ValueError, match=text):
            parse(text)
    assert set(sparse_rows.PEER_METHODS.values()) <= set(METHODS)


def turn(
    system: str, method: str, repetition: int, *seconds: float, blocks: tuple[BlockCounts, ...] = ()
) -> SparseTurn:
    slowest = tuple(second + 0.001 for second in seconds)
    measured = Turn(system, 2, 256 * KIB, 1, repetition, seconds, slowest, 0.5, 10, 2, 1e-9, 1e-7)
    return SparseTurn(method, 64, 0.1, "random", blocks, measured)


@pytest.fixture
def measured() -> BenchmarkResult:
    """Return the turns of a transport and a peer, of which the second repetition is slow."""
    owned = owners(2, 256, 0.1, "random")
    received = packets_with_values(np.any(owned, axis=0), BLOCK, 64)
    sent = [packets_with_values(own, BLOCK, 64) for own in owned]
    blocks = tuple(BlockCounts(number, received, 1024, 1) for number in sent)
    turns = [
        *(turn("shm", "dense", 0, 0.012, 0.010, 0.011), turn("shm", "sparse", 0, 0.001, 0.002, blocks=blocks)),
        *(turn("gloo", "dense", 0, 0.030), turn("gloo", "allgather-sparse", 0, 0.003)),
        *(turn("shm", "sparse", 1, 0.010, 0.010, blocks=blocks), turn("shm", "dense", 1, 0.050, 0.050)),
        turn("gloo", "dense", 1, 0.060),
    ]
    chosen = sparse.SparseOptions(
        workers=[2],
        bytes=256 * KIB,
        values=[64],
        densities=[0.1],
        overlaps=["random"],
        block=BLOCK,
        transports=["shm"],
        peers=["gloo", "allgather-sparse"],
        repetitions=2,
        calls=0,
        torch_python="python3",
    )
    return BenchmarkResult.of(
        "sparse", chosen, summarize(turns, 256 * KIB, BLOCK), Record(samples=turns, systems={"shm": "SwitchML"})
    )


def test_rows(measured: BenchmarkResult) -> None:
    [row] = measured.rows
    assert (row["system"], row["values"], row["density"], row["overlap"]) == ("shm", 64, 0.1, "random")
    assert row["ratio"] == pytest.approx((0.011 / 0.0015 + 5) / 2)  # the median of the repetitions' ratios
    assert row["ratios"] == {
        "gloo": pytest.approx((0.030 / 0.0015 + 6) / 2),
        "allgather-sparse": pytest.approx(0.003 / 0.0015),
    }
    assert (row["dense"], row["sparse"], row["calls"]) == (pytest.approx(0.012), pytest.approx(0.006), 4)
    assert row["peers"] == {"gloo": pytest.approx(0.045), "allgather-sparse": pytest.approx(0.003)}
    assert row["union"] == pytest.approx(1 - 0.9**2, rel=0.1)
    assert (row["sent"], row["received"]) == (row["expected_sent"], row["expected_received"])
    assert row["sent"] / row["blocks"] == pytest.approx(0.1, rel=0.05)
    assert row["received"] / row["blocks"] == row["union"]
    assert row["is_sparse"]


@pytest.mark.parametrize(("values", "words"), [(64, 64), (256, 256), (512, 256), (2048, 256), (300, 300)])
def test_blocks_of_large_packets_have_256_values(values: int, words: int) -> None:
    blocks = 256 * BLOCK // words
    turns = [
        dataclasses.replace(turn("shm", method, 0, 1.0, blocks=(BlockCounts(0, 0, blocks, 1),) * 2), values=values)
        for method in ("dense", "sparse")
    ]
    [row] = summarize(turns, 256 * KIB, BLOCK)
    owned = owners(2, 256, 0.1, "random")
    assert row.expected_sent == sum(packets_with_values(own, BLOCK, words) for own in owned)
    assert row.expected_received == 2 * packets_with_values(np.any(owned, axis=0), BLOCK, words)


def test_the_table_says_which_blocks_were_expected_if_there_were_others(measured: BenchmarkResult) -> None:
    [table] = report.tables(measured)
    assert table.title == "Sparse all-reduce of 256 KiB of float32 in blocks of 256 values, 2 repetitions in turns"
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["by"], cells["blocks with values"], cells["gloo ms"]) == ("shm", "10 %", "45.0")
    assert "expected" not in cells["sent"] + cells["received"]
    measured.rows[0]["sent"] = measured.rows[0]["blocks"]
    [table] = report.tables(measured)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["sent"].startswith("100 % (expected 1")
    measured.rows[0]["is_sparse"] = False
    [table] = report.tables(measured)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["sent"], cells["received"]) == ("dense", "dense")


def test_a_peer_that_is_missing_has_no_columns(measured: BenchmarkResult) -> None:
    measured.rows[0]["peers"].clear()
    measured.missing["gloo"] = "install torch"
    [table] = report.tables(measured)
    assert not [column for column in table.columns if "gloo" in column]
    assert "gloo is missing: install torch" in table.remarks


def test_the_page_on_performance_has_a_place_for_the_table(measured: BenchmarkResult, tmp_path: Path) -> None:
    page, stored = tmp_path / "performance.md", tmp_path / "sparse.json"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    save(measured, stored)
    for _ in range(2):  # the second time it replaces the first table
        shown = CliRunner().invoke(cli, ["bench", "show", str(stored), "--into", str(page)])
        assert shown.exit_code == 0, shown.output
    [_, place] = page.read_text(encoding="utf-8").split("<!-- bench: sparse -->")
    filled = place.partition("<!-- end -->")[0]
    assert filled.count("**Sparse all-reduce of 256 KiB of float32") == 1
    assert "| 64 | 2 | shm | random | 10 % |" in filled


def test_lines_of_the_picture(measured: BenchmarkResult) -> None:
    pytest.importorskip("matplotlib")
    [(name, figure)] = plots.FIGURES["sparse"](measured)
    [panel] = figure.axes
    assert (name, panel.get_title()) == ("ratio", "2 workers, 64 values per packet")
    assert [line.get_label() for line in panel.lines[:1]] == ["shm, random in common"]
