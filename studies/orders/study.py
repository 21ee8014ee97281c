"""Hosts with several accelerators: compression before or after the sum inside a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from studies.command import study
from studies.grace.arguments import methods
from studies.orders.measurement import ORDERS, OrdersOptions, run
from switchml.benchmarks.plots import distinct, side_by_side, where
from switchml.benchmarks.report import ReportTable, percent
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["method", "order", "bytes of a host", "bits an element", "error", "accuracy"]
    rows = [
        [
            *(row["method"], row["order"], str(row["bytes"])),
            *(f"{row['bits']:.2f}", f"{row['error']:.3f}", percent(row["accuracy"])),
        ]
        for row in result.rows
    ]
    chosen = result.options
    title = f"{chosen['hosts']} hosts of {chosen['ranks']} ranks, digits, accuracy after {chosen['steps']} steps"
    return [ReportTable(title, columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["error of the first average"])
    for order in ORDERS:
        rows = where(result.rows, order=order)
        panel.plot([row["bits"] for row in rows], [row["error"] for row in rows], "o", label=order)
    for method in distinct(result.rows, "method"):
        best = min(where(result.rows, method=method), key=lambda row: float(row["bits"]))
        panel.annotate(method, (best["bits"], best["error"]), fontsize=7)
    panel.set_xlabel("bits of an element that a host sends")
    panel.set_ylabel("error / exact average")
    panel.set_xscale("log")
    panel.legend(fontsize=8)
    return [("error", figure)]


def _headline(result: BenchmarkResult) -> str:
    method = result.rows[-1]["method"]
    bits = [f"{row['order']} {row['bits']:.2f}" for row in where(result.rows, method=method)]
    return f"{method}, bits an element: {', '.join(bits)}"


@study(
    "orders",
    _tables,
    _figures,
    short="--methods onebit,topk:density=0.01 --steps 20",
    headline=_headline,
    needs=("torch",),
)
@parameters.option(
    "--methods",
    kind=Parsed("methods", methods),
    default="none,topk:density=0.01,topk:density=0.1,int8,onebit",
    metavar="METHOD,...",
    help_text="Methods of compression that know what they send.",
)
@parameters.count("--hosts", low=2, high=64, default=2, help_text="Hosts.")
@parameters.count("--ranks", low=1, high=64, default=4, help_text="Ranks of each host.")
@parameters.count("--steps", low=2, high=10_000, default=150, help_text="Steps of each training.")
@parameters.count("--seed", low=0, high=(1 << 32) - 1, default=1, help_text="Seed of the model, data and methods.")
@parameters.torch_python
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Compress gradients before or after the sum inside each host: bytes between hosts, errors, and a training."""
    return parameters.measured(run, OrdersOptions(**chosen))
