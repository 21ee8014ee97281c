"""Hosts with several ranks: what a switch on each host saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from studies.command import one_queue, one_rate, study
from studies.leaves.measurement import LeavesOptions, name_of, run
from switchml.benchmarks.linked_systems import LEAVES
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side, where
from switchml.benchmarks.report import ReportTable, milliseconds, missing_remarks
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    chosen = result.options
    columns = ["size", "by", "median ms", "p99 ms", "MB over a link", "/ with a switch on each host"]
    rows = [
        [
            size_text(row["bytes"]),
            name_of(row["system"]),
            milliseconds(row["median"]),
            milliseconds(row["p99"]),
            f"{row['link_bytes'] / 1e6:.3g}",
            "" if row["system"] == LEAVES or row["ratio"] is None else f"{row['ratio']:.2f}",
        ]
        for row in result.rows
    ]
    link = f"links of {rate_text(chosen['rate'])}, queues of {queue_text(chosen['queue'])}"
    title = f"All-reduce of {chosen['hosts']} hosts with {chosen['ranks']} ranks each, {link}"
    return [ReportTable(title, columns, rows, missing_remarks(result))]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    sizes = list(dict.fromkeys(row["bytes"] for row in result.rows))
    figure, panels = side_by_side([size_text(size) for size in sizes])
    for panel, size in zip(panels, sizes, strict=True):
        rows = where(result.rows, bytes=size)
        panel.bar([name_of(row["system"]).replace(", ", ",\n") for row in rows], [row["median"] for row in rows])
        panel.tick_params(axis="x", labelsize=6)
    panels[0].set_ylabel("seconds")
    return [("time", figure)]


def _headline(result: BenchmarkResult) -> str:
    large = max(row["bytes"] for row in result.rows)
    times = [
        f"{name_of(row['system'])} {1e3 * row['median']:,.0f} ms, {row['link_bytes'] / 1e6:.3g} MB"
        for row in where(result.rows, bytes=large)
    ]
    return f"{size_text(large)}: {'; '.join(times)}"


@study("leaves", _tables, _figures, short="--size 8MiB --repetitions 1", headline=_headline, needs=("root", "torch"))
@parameters.count("--hosts", low=2, high=PROTOCOL_MAX_WORKERS, default=2, help_text="Number of hosts.")
@parameters.count("--ranks", high=PROTOCOL_MAX_WORKERS, default=4, help_text="Ranks of each host.")
@one_rate("200mbit")
@one_queue("400ms")
@parameters.size("64MiB")
@parameters.option(
    *("--small", "small_bytes"),
    kind=parameters.SIZE,
    default="4KiB",
    metavar="SIZE",
    help_text="Size of a second, small tensor.",
)
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@parameters.calls_after_one(high=10_000, default=1)
@parameters.count(
    "--small-iterations", "small_calls", high=100_000, default=200, help_text="Calls of the small tensor per turn."
)
@parameters.torch_python
@click.pass_obj
def command(session: CommandSession, /, size: int, **chosen: Any) -> list[BenchmarkResult]:
    """Time all-reduces of hosts with several ranks, with and without a switch on each host. Needs root.

    The links are those of `bench links`. With a switch on each host the ranks share memory with it, and it sends one
    contribution for all of them; otherwise each rank sends its own. Gloo uses the same links.
    """
    return parameters.measured(run, LeavesOptions(bytes=size, **chosen), session.settings().run_dir)
