"""ByteScheduler (Peng et al., SOSP 2019): what another order of communication saves."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import click

from studies.bytescheduler.measurement import ByteSchedulerOptions, run
from studies.bytescheduler.policies import policies as policy_words
from studies.command import DURATION, StudyCommand, one_queue, one_rate, study
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.report import ReportTable, megabytes
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    chosen = result.options
    columns = ["policy", "steps", "step s", "/ fifo", "simulated s", "simulated / fifo", "measured / simulated"]
    columns += ["link busy", "CPUs idle", "dropped"]
    rows = [
        [
            row["policy"],
            str(row["steps"]),
            f"{row['median']:.3f}",
            f"{row['ratio']:.3f}",
            f"{row['simulated']:.3f}",
            f"{row['simulated_ratio']:.3f}",
            f"{row['median'] / row['simulated']:.3f}",
            f"{row['busy']:.0%}",
            f"{row['idle']:.0%}",
            f"{row['dropped']:.2%}",
        ]
        for row in result.rows
    ]
    link = f"links of {rate_text(chosen['rate'])}, queues of {queue_text(chosen['queue'])}"
    title = f"Steps of a model with {megabytes(chosen['bytes'])} MB, {chosen['workers']} workers, {link}: medians"
    return [ReportTable(title, columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    """Draw the times of steps, and those of the simulation."""
    figure, [panel] = side_by_side([f"{rate_text(result.options['rate'])}, {result.options['workers']} workers"])
    names = [row["policy"].split(":")[0] for row in result.rows]
    panel.barh(names, [row["median"] for row in result.rows])
    simulated = [row["simulated"] for row in result.rows]
    panel.plot(simulated, names, linestyle="", marker="|", markersize=20, color="black")
    panel.invert_yaxis()
    panel.set_xlabel("seconds of a step (line: simulated)")
    return [("steps", figure)]


def _headline(result: BenchmarkResult) -> str:
    best = min(result.rows, key=lambda row: row["ratio"])
    return f"{best['policy']}: {best['ratio']:.3f} of the time of fifo, {best['simulated_ratio']:.3f} simulated"


_SHORT: Final = "--size 4MiB --forward 50ms --workers 2 --repetitions 1"
_HELP: Final = (
    "A model like VGG, with most bytes in its last layers, trains with switchml.torch.scheduling. The table also has"
    " the steps that a simulation predicts. The links are those of `bench links`. The interpreter that --torch-python"
    " names needs torch and switchml."
)


def schedules(name: str, policies: str, text: str) -> StudyCommand:
    """Return a study that compares these policies with fifo, whose question is `text`."""

    @study(
        name,
        _tables,
        _figures,
        short=_SHORT,
        headline=_headline,
        needs=("root", "torch"),
        help=f"{text} Needs root.\n\n{_HELP}",
    )
    @parameters.option(
        "--policies",
        kind=Parsed("policies", policy_words),
        default=policies,
        metavar="POLICY,...",
        help_text="Policies of docs/guides/scheduling.md, NAME:classes=N:partition=BYTES:credit=BYTES. The peer fifo is"
        " always measured.",
    )
    @parameters.size("20MiB")
    @parameters.option(
        "--forward",
        kind=DURATION,
        default="200ms",
        metavar="TIME",
        help_text="Time of the forward pass, in which the ranks sleep, as with a model on a device; backward takes"
        " twice as long.",
    )
    @one_rate("200mbit")
    @one_queue("50ms")
    @parameters.group_size(4)
    @parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each policy.")
    @parameters.count("--steps", high=10_000, default=6, help_text="Steps per turn, after three that are not timed.")
    @parameters.torch_python
    @click.pass_obj
    def command(session: CommandSession, /, size: int, **chosen: Any) -> list[BenchmarkResult]:
        [found] = parameters.measured(run, ByteSchedulerOptions(bytes=size, **chosen), session.settings().run_dir)
        return [dataclasses.replace(found, benchmark=name)]

    return command


command = schedules(
    "bytescheduler",
    "p3,bytescheduler:partition=500000:credit=1000000,tictac-tic,tictac-tac",
    "Compare orders of communication in training that crosses the barrier of steps.",
)
