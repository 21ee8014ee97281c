"""The study of Cloud Collectives: the cost of orders in its model, and its table."""

from __future__ import annotations

from studies.cloud_collectives.measurement import (
    MODEL,
    RACKS,
    CloudCollectivesOptions,
    OrderRow,
    crossings,
    model_rows,
)
from studies.cloud_collectives.study import command
from switchml.benchmarks import report
from switchml.benchmarks.results import BenchmarkResult


def test_a_ring_crosses_as_often_as_neighbours_differ() -> None:
    assert crossings([0, 1, 2, 3], [0, 0, 1, 1]) == 2
    assert crossings([0, 2, 1, 3], [0, 0, 1, 1]) == 4


def test_the_found_order_of_the_model_is_the_best_one_with_noise_as_well() -> None:
    found, noisy, random = model_rows(seed=1)
    assert (found.where, found.cost, found.crossings) == (MODEL, 30, 4)
    assert (noisy.cost, noisy.crossings) == (30, 4)
    assert 66 < random.cost < 69  # 67.3 in the mean of all orders
    assert 12 < random.crossings < 13.5


def test_the_table_and_the_figure() -> None:
    rows = [OrderRow(RACKS, "found", 2, 4.0, 1.15, 59e6, 1.0), OrderRow(RACKS, "random 1", 4, 8.0, 2.3, 118e6, 2.0)]
    chosen = CloudCollectivesOptions(8, 200_000_000, 0.4, 1 << 24, 1, 5, 1, "python3")
    result = BenchmarkResult.of("cloud_collectives", chosen, [model_rows(1)[0], *rows])
    [table] = report.tables(result)
    assert table.rows[0] == [MODEL, "found", "4", "30.0", "", "", "1.00"]
    assert table.rows[2] == [RACKS, "random 1", "4", "8.0", "2.30", "118.0", "2.00"]
    assert command.headline(result) == "found 1.15 s, other orders 2.0 to 2.0 times as long"
