"""A ring against a switch: the bytes over a link and the time of an all-reduce, by the number of hosts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import click

from studies.command import one_queue, one_rate, study
from studies.phub.measurement import PhubOptions, run
from switchml.benchmarks import gloo
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side, where
from switchml.benchmarks.report import ReportTable, Row, megabytes, missing_remarks
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.topologies.shaped_links import rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]

_MODES: Final = ("ring", "switch")


def _pairs(result: BenchmarkResult) -> list[tuple[int, Row, Row]]:
    """Return the rows of both for each number of hosts."""
    rings, switches = (where(result.rows, mode=mode) for mode in _MODES)
    return [(switch["workers"], ring, switch) for ring, switch in zip(rings, switches, strict=True)]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["hosts", "ring s", "switch s", "ring / switch", "2 (N - 1) / N", "ring MB", "switch MB"]
    rows = [
        [
            str(hosts),
            f"{ring['median']:.3f}",
            f"{switch['median']:.3f}",
            f"{ring['median'] / switch['median']:.2f}",
            f"{2 * (hosts - 1) / hosts:.2f}",
            megabytes(ring["link_bytes"]),
            megabytes(switch["link_bytes"]),
        ]
        for hosts, ring, switch in _pairs(result)
    ]
    chosen = result.options
    title = (
        f"All-reduce of {size_text(chosen['bytes'])} over links of {rate_text(chosen['rates'][0])}, Gloo's ring and a"
    )
    title += " switch: medians, and bytes over the busiest link"
    return [ReportTable(title, columns, rows, missing_remarks(result))]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side([rate_text(result.options["rates"][0])])
    for mode in _MODES:
        rows = where(result.rows, mode=mode)
        hosts = [row["workers"] for row in rows]
        [line] = panel.plot(hosts, [row["median"] for row in rows], marker="o", label=mode)
        formula = [row["formula"] for row in rows]
        panel.plot(hosts, formula, linestyle=":", color=line.get_color(), label=f"{mode}, formula")
    panel.set_xticks(result.options["workers"])
    panel.set_xlabel("hosts")
    panel.set_ylabel("seconds")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return [("time", figure)]


def _headline(result: BenchmarkResult) -> str:
    ratios = [f"{hosts} hosts {ring['median'] / switch['median']:.2f}" for hosts, ring, switch in _pairs(result)]
    return f"ring / switch: {', '.join(ratios)}"


@study(
    "ring",
    _tables,
    _figures,
    short="--workers 2,4 --size 4MiB --repetitions 1",
    headline=_headline,
    needs=("root", "torch"),
)
@one_rate("200mbit")
@one_queue("400ms")
@parameters.workers("2,4,8")
@parameters.size("16MiB")
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@parameters.calls_after_one(high=10_000, default=1)
@parameters.torch_python
@click.pass_obj
def command(session: CommandSession, /, size: int, rate: int, queue: float, **chosen: Any) -> list[BenchmarkResult]:
    """Time all-reduces by Gloo's ring and by a switch, by the number of hosts. Needs root.

    The links are those of `bench links`. A ring sends 2 (N - 1) / N times the tensor over each link, a switch once.
    """
    gloo.version(chosen["torch_python"])  # without a ring there is nothing to compare
    options = PhubOptions(bytes=size, rates=[rate], queues=[queue], modes=list(_MODES), **chosen)
    [found] = parameters.measured(run, options, session.settings().run_dir)
    return [dataclasses.replace(found, benchmark="ring")]
