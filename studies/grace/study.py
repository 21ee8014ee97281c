"""GRACE (Xu et al., ICDCS 2021): methods of gradient compression, compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from studies.command import StudyCommand, one_queue, study
from studies.grace import arguments
from studies.grace.measurement import TRAININGS, GraceOptions, run
from switchml.benchmarks.plots import line_style, side_by_side, where
from switchml.benchmarks.report import ReportTable, Row, megabytes, milliseconds
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed
from switchml.topologies.shaped_links import rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from switchml.commands.session import CommandSession

__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    """Return tables of the computing, of the steps, and of the accuracy."""
    elements, workers = result.options["elements"], result.options["workers"]
    computing = [
        [row["method"], *(_time(row[name]) for name in ("compress", "decompress")), _optional(row["bits"], ".2f")]
        for row in result.rows
    ]
    steps = [
        [
            rate_text(found["rate"]),
            row["method"],
            f"{found['median']:.3f}",
            _optional(found["none"], ".2f"),
            _optional(found["gloo"], ".2f"),
            megabytes(found["link_bytes"]),
            f"{found['busy']:.0%}",
            f"{found['idle']:.0%}",
        ]
        for row, found in _steps_by_rate(result.rows)
    ]
    found = [
        ReportTable(
            f"One gradient of {elements:,} elements, {workers} workers: medians, and bits that a rank sends",
            ["method", "compress ms", "decompress ms", "bits per element"],
            computing,
        ),
        ReportTable(
            f"Training steps with {elements:,} parameters, {workers} workers, over shaped links: medians",
            ["link", "method", "step s", "none / this", "gloo / this", "link MB", "link busy", "CPUs idle"],
            steps,
        ),
    ]
    return [*found, *(_accuracies(result, task) for task in result.options["tasks"])]


def _steps_by_rate(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    pairs = [(row, found) for row in rows for found in row["steps"]]
    return sorted(pairs, key=lambda pair: pair[1]["rate"])


def _accuracies(result: BenchmarkResult, task: str) -> ReportTable:
    trained = [(row, found) for row in result.rows for found in row["accuracies"] if found["task"] == task]
    [base] = [found["final"] for row, found in trained if row["method"] == "none"]
    rows = [
        [
            row["method"],
            f"{found['bits']:.2f}",
            f"{found['learning_rate']:g}",
            f"{found['momentum']:g}",
            f"{found['final']:.1%}",
            f"{100 * (found['final'] - base):+.1f}",
            _optional(found["at_budget"], ".1%"),
            str(found["steps"]),
        ]
        for row, found in trained
    ]
    columns = ["method", "bits per element", "learning rate x", "momentum", TRAININGS[task], "points to none"]
    columns += ["at a tenth of the bytes", "after steps"]
    return ReportTable(
        f"{TRAININGS[task].capitalize()} on {task} after {result.options['training_steps']} steps, one training each",
        columns,
        rows,
    )


def _time(seconds: float | None) -> str:
    return "" if seconds is None else milliseconds(seconds)


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    """Draw the times of steps, a panel for each rate, and accuracies over bytes, a panel for each task.

    A method has a line in each panel: its best training.
    """
    figure, panels = side_by_side([rate_text(rate) for rate in result.options["rates"]])
    for panel, rate in zip(panels, result.options["rates"], strict=True):
        medians = {row["method"]: found["median"] for row in result.rows for found in where(row["steps"], rate=rate)}
        panel.barh(list(medians), list(medians.values()))
        panel.axvline(medians["none"], color="0.2", linewidth=1)
        panel.invert_yaxis()
        panel.tick_params(axis="y", labelsize=6)
        panel.set_xlabel("seconds of a step")
    tasks = result.options["tasks"]
    return [("steps", figure), *([("accuracy", _accuracy_over_bytes(result, tasks))] if tasks else [])]


def _accuracy_over_bytes(result: BenchmarkResult, tasks: Sequence[str]) -> Figure:
    figure, panels = side_by_side(tasks)
    trained = [sample for sample in result.samples if sample["kind"] == "train"]
    for panel, task in zip(panels, tasks, strict=True):
        best = [
            (row["method"], found["learning_rate"], found["momentum"])
            for row in result.rows
            for found in where(row["accuracies"], task=task)
        ]
        lines = [sample for sample in trained if sample["found"]["task"] == task]
        for number, sample in enumerate(
            line
            for line in lines
            if (line["method"], line["found"]["learning_rate"], line["found"]["momentum"]) in best
        ):
            _, sent, accuracy = zip(*sample["found"]["curve"], strict=True)
            style = line_style(number)
            panel.plot([size / 1e6 for size in sent], accuracy, style, linewidth=1, label=sample["method"])
        panel.set_xscale("log")
        panel.set_xlabel("MB sent by a rank")
    panels[0].set_ylabel("accuracy")
    panels[0].legend(fontsize=5)
    return figure


def _headline(result: BenchmarkResult) -> str:
    """Return the method with the shortest step, on the slowest links."""
    rate = min(result.options["rates"])
    steps = {row["method"]: step["median"] for row in result.rows for step in where(row["steps"], rate=rate)}
    best = min(steps, key=lambda method: steps[method])
    return f"{rate_text(rate)}: a step takes {steps[best]:.2f} s with {best}, {steps['none']:.2f} s with none"


_SHORT: Final = "--elements 1000000 --link 200mbit --workers 2 --repetitions 1 --iterations 1 --tasks ''"
_HELP: Final = (
    "The links are those of `bench links`. The interpreter that --torch-python names needs torch and switchml."
)


def compression(name: str, methods: str, text: str) -> StudyCommand:
    """Return a study that compares these methods, whose question is `text`."""

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
        "--methods",
        kind=Parsed("methods", arguments.methods),
        default=methods,
        metavar="METHOD,...",
        help_text="Methods of docs/guides/compression.md with their arguments, NAME:ARGUMENT=VALUE, or `all` for the 16"
        " of GRACE; also wire:bits=16 or 8 (the option of a process group) and powersgd:rank=N:start=S (its first S"
        " steps are sums; 2 without `start`). The peers none and gloo are always measured.",
    )
    @parameters.count("--elements", low=64, high=1 << 30, default=25_000_000, help_text="Elements of the gradient.")
    @parameters.rates("200mbit,1gbit")
    @one_queue("400ms")
    @parameters.group_size(4)
    @parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each method.")
    @parameters.count("--steps", high=10_000, default=1, help_text="Steps per turn, after one that is not timed.")
    @parameters.count("--iterations", "calls", high=1000, default=3, help_text="Times to compress and decompress.")
    @parameters.named(
        "--tasks",
        known=list(TRAININGS),
        default=",".join(TRAININGS),
        help_text="Trainings whose accuracy is compared: images (digits needs scikit-learn), language (text reads the"
        " sources of Python's standard library), recommendation (ratings) and segmentation (shapes), whose data are"
        " made; '' for none.",
    )
    @parameters.count("--training-steps", high=1_000_000, default=300, help_text="Steps of each training.")
    @parameters.option(
        "--learning-rates",
        kind=Parsed("factors", arguments.factors),
        default="1",
        metavar="FACTOR,...",
        help_text="Factors of the learning rate. Each method, also none, trains with each of them and each momentum;"
        " its best accuracy counts.",
    )
    @parameters.option(
        "--momenta",
        kind=Parsed("momenta", arguments.momenta),
        default="0.9",
        metavar="MOMENTUM,...",
        help_text="Momenta of SGD on digits, or the first beta of AdamW on text.",
    )
    @parameters.torch_python
    @click.pass_obj
    def command(session: CommandSession, /, **chosen: Any) -> list[BenchmarkResult]:
        [found] = parameters.measured(run, GraceOptions(**chosen), session.settings().run_dir)
        return [dataclasses.replace(found, benchmark=name)]

    return command


command = compression(
    "grace",
    "wire:bits=16,wire:bits=8,int8,qsgd:levels=15,thc,powersgd:rank=2,shared_topk:density=0.01,block_topk:density=0.01,"
    "topk:density=0.01,sidco:density=0.01,onebit",
    "Compare methods of gradient compression: computing, bytes, steps over links, accuracy.",
)
