"""The part of an all-reduce that is spent in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studies.command import study
from studies.python_cost.measurement import PythonCostOptions, run
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.report import ReportTable, number
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["by", "size", "workers", "call us", "outside of native calls us", "share", "CPU us of that"]
    rows = [
        [
            row["transport"],
            size_text(row["bytes"]),
            str(row["workers"]),
            number(1e6 * row["median"]),
            number(1e6 * row["python"]),
            f"{row['share']:.2%}",
            number(1e6 * row["python_cpu"]),
        ]
        for row in result.rows
    ]
    return [ReportTable("All-reduce: what Python costs", columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["time in Python"])
    names = [f"{row['transport']}\n{size_text(row['bytes'])}" for row in result.rows]
    panel.bar(names, [1e6 * row["python"] for row in result.rows])
    panel.set_ylabel("us of a call")
    return [("cost", figure)]


def _headline(result: BenchmarkResult) -> str:
    shares = [f"{row['transport']}, {size_text(row['bytes'])}: {row['share']:.1%}" for row in result.rows]
    return f"in Python: {'; '.join(shares)}"


@study("python_cost", _tables, _figures, short="--sizes 4KiB,16MiB", headline=_headline)
@parameters.group_size(2)
@parameters.sizes("4KiB,64MiB")
@parameters.transports
@parameters.calls
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Measure the part of an all-reduce that is spent in Python."""
    return parameters.measured(run, PythonCostOptions(**chosen))
