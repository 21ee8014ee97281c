"""Parameter servers, as PHub and BytePS have them, compared with a ring and a switch on the same links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from studies.command import study
from studies.phub.measurement import FORMULAS, MODES, PhubOptions, run
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import side_by_side, where
from switchml.benchmarks.report import ReportTable, missing_remarks
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["link", "queue", "workers", "mode", "median s", "formula", "s", "/ formula", "MB over a link"]
    columns += ["servers' load", "same bits", "CPUs idle", "dropped"]
    rows = [
        [
            rate_text(row["rate"]),
            queue_text(row["queue"]),
            str(row["workers"]),
            row["mode"],
            f"{row['median']:.3f}",
            FORMULAS[row["mode"]],
            f"{row['formula']:.3f}",
            f"{row['median'] / row['formula']:.3f}",
            f"{row['link_bytes'] / 1e6:.1f}",
            "" if row["load"] is None else f"{row['load']:.3f}",
            {None: "", True: "yes", False: "no"}[row["same_bits"]],
            f"{row['idle']:.0%}",
            f"{row['dropped']:.2%}",
        ]
        for row in result.rows
    ]
    size = size_text(result.options["bytes"])
    title = f"All-reduce of {size} (S) of float32 on N workers, over links shaped by token buckets to B bytes a second"
    return [ReportTable(title, columns, rows, missing_remarks(result))]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    places = list(dict.fromkeys((row["workers"], row["rate"], row["queue"]) for row in result.rows))
    names = [f"{count} workers, {rate_text(rate)}, {queue_text(queue)}" for count, rate, queue in places]
    figure, panels = side_by_side(names)
    for panel, (count, rate, queue) in zip(panels, places, strict=True):
        rows = where(result.rows, workers=count, rate=rate, queue=queue)
        labels = [row["mode"] for row in rows]
        panel.bar(labels, [row["median"] for row in rows])
        panel.plot(labels, [row["formula"] for row in rows], linestyle="", marker="_", markersize=30, color="black")
    panels[0].set_ylabel("seconds (line: formula)")
    return [("time", figure)]


def _headline(result: BenchmarkResult) -> str:
    last = result.rows[-1]
    rows = where(result.rows, workers=last["workers"], rate=last["rate"], queue=last["queue"])
    times = [f"{row['mode']} {row['median']:.3f} s" for row in rows]
    return f"{last['workers']} workers, {rate_text(last['rate'])}: {', '.join(times)}"


@study(
    "phub",
    _tables,
    _figures,
    short="--workers 2 --queue 50ms --size 4MiB --repetitions 1",
    headline=_headline,
    needs=("root", "torch"),
)
@parameters.rates("200mbit,1gbit")
@parameters.queues
@parameters.workers("4,8")
@parameters.size("16MiB")
@parameters.named(
    "--modes",
    known=MODES,
    default=",".join(MODES),
    help_text=f"Ways to all-reduce float32, of {', '.join(MODES)}: one parameter server, one on the host of each"
    " worker, Gloo's ring, a switch, and 16 bits an element.",
)
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@parameters.calls_after_one(high=10_000, default=1)
@parameters.torch_python
@click.pass_obj
def command(session: CommandSession, /, size: int, **chosen: Any) -> list[BenchmarkResult]:
    """Time all-reduces by parameter servers, by a ring and by a switch, with the formula of each. Needs root.

    The links are those of `bench links`.
    """
    return parameters.measured(run, PhubOptions(bytes=size, **chosen), session.settings().run_dir)
