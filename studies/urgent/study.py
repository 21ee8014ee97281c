"""Priorities: the time of an urgent all-reduce behind a large one of another job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from studies.command import study
from studies.urgent.measurement import UrgentOptions, run
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.report import ReportTable
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    places, times = ["link", "queue", "workers"], ["alone ms", "behind ms", "behind / alone", "bound ms"]
    rows = [
        [
            rate_text(row["rate"]) if row["rate"] else "shared memory",
            queue_text(row["queue"]) if row["rate"] else "",
            str(row["workers"]),
            f"{1e3 * row['alone']:.1f}",
            f"{1e3 * row['behind']:.1f}",
            f"{row['ratio']:.2f}",
            f"{1e3 * row['bound']:.1f}" if row["rate"] else "",
            f"{row['dropped']:.2%}",
            str(row["ended_first"]),
        ]
        for row in result.rows
    ]
    sizes = (
        f"{size_text(result.options['urgent'])}, alone and behind {size_text(result.options['bytes'])} of priority 0"
    )
    return [ReportTable(f"Urgent all-reduce of {sizes}: medians", [*places, *times, "dropped", "ended first"], rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["urgent all-reduce"])
    names = [
        f"{row['workers']} workers\n{rate_text(row['rate']) if row['rate'] else 'shared memory'}" for row in result.rows
    ]
    panel.bar(names, [row["ratio"] for row in result.rows])
    panel.set_ylabel("time behind another job / alone")
    return [("urgent", figure)]


def _headline(result: BenchmarkResult) -> str:
    row = result.rows[0]
    link = rate_text(row["rate"]) if row["rate"] else "shared memory"
    return f"{link}: {1e3 * row['behind']:.1f} ms behind another job, {1e3 * row['alone']:.1f} ms alone"


@study(
    "urgent",
    _tables,
    _figures,
    short="--link 100mbit --workers 2 --size 16MiB --urgent 256KiB --repetitions 1",
    headline=_headline,
    needs=("root",),
)
@parameters.rates("200mbit,1gbit")
@parameters.queues
@parameters.workers("4,8")
@parameters.size("16MiB")
@parameters.option(
    "--urgent",
    kind=parameters.SIZE,
    default="1MiB",
    metavar="SIZE",
    help_text="Size of the tensor of priority 7; that of --size has priority 0.",
)
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@parameters.calls_after_one(high=10_000, default=1)
@click.pass_obj
def command(session: CommandSession, /, size: int, **chosen: Any) -> list[BenchmarkResult]:
    """Time an all-reduce of priority 7, alone and behind a large one of priority 0. Needs root.

    The links are those of `bench links`; the last row is over shared memory.
    """
    return parameters.measured(run, UrgentOptions(bytes=size, **chosen), session.settings().run_dir)
