"""Cloud Collectives (Luo et al., 2021): what another order of ranks saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from studies.cloud_collectives.measurement import RACKS, CloudCollectivesOptions, run
from studies.command import one_queue, one_rate, study
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side, where
from switchml.benchmarks.report import ReportTable, megabytes
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.topologies.shaped_links import rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["where", "order", "crossings", "cost of the ring", "s", "MB between the racks", "/ found"]
    rows = [
        [
            row["where"],
            row["order"],
            f"{row['crossings']:.3g}",
            f"{row['cost']:.1f}",
            "" if row["seconds"] is None else f"{row['seconds']:.2f}",
            "" if row["trunk_bytes"] is None else megabytes(row["trunk_bytes"]),
            f"{row['ratio']:.2f}",
        ]
        for row in result.rows
    ]
    chosen = result.options
    title = f"Orders of a ring: 16 machines in a model, and {chosen['hosts']} hosts in two racks with"
    title += f" {rate_text(chosen['rate'])} between these, {size_text(chosen['bytes'])} over Gloo: medians"
    return [ReportTable(title, columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    rows = where(result.rows, where=RACKS)
    figure, [panel] = side_by_side([f"{result.options['hosts']} hosts in two racks"])
    panel.plot([row["crossings"] for row in rows], [row["seconds"] for row in rows], "o")
    panel.set_xlabel("crossings of the ring between the racks")
    panel.set_ylabel("seconds of an all-reduce")
    panel.set_ylim(bottom=0)
    return [("orders", figure)]


def _headline(result: BenchmarkResult) -> str:
    rows = where(result.rows, where=RACKS)
    others = [row["ratio"] for row in rows[1:]]
    return f"found {rows[0]['seconds']:.2f} s, other orders {min(others):.1f} to {max(others):.1f} times as long"


@study(
    "cloud_collectives",
    _tables,
    _figures,
    short="--hosts 4 --orders 1 --size 4MiB --iterations 2",
    headline=_headline,
    needs=("root", "torch"),
)
@click.option(
    "--hosts", type=click.IntRange(4, 64), default=8, show_default=True, help="Number of hosts, half in each rack."
)
@one_rate("200mbit")
@one_queue("400ms")
@parameters.size("16MiB")
@parameters.count("--orders", high=100, default=4, help_text="Random orders.")
@parameters.calls_after_one(high=1000, default=5)
@parameters.count("--seed", low=0, high=1 << 30, default=1, help_text="Seed of the racks and of the orders.")
@parameters.torch_python
@click.pass_obj
def command(session: CommandSession, /, size: int, **chosen: Any) -> list[BenchmarkResult]:
    """Time Gloo's ring in the order that a probe finds and in others, over two racks. Needs root.

    The hosts are network namespaces on two bridges; the link between these has the rate of --link. The table also has
    the cost of orders in a model of 16 machines.
    """
    return parameters.measured(run, CloudCollectivesOptions(bytes=size, **chosen), session.settings().run_dir)
