"""Hard threshold (Sahu et al., NeurIPS 2021): the total error of sparsification with error feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from studies.command import study
from studies.grace.arguments import methods
from studies.hard_threshold.measurement import HARD, HardThresholdOptions, run
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.report import ReportTable, Row
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["command"]

_SIDCO: Final = ",".join(
    f"sidco:density={density}:fit={fit}" for density in ("0.1", "0.01") for fit in ("pareto", "exponential")
)


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = [
        "method",
        "sent",
        "first steps",
        "last steps",
        "sent / wanted",
        "least",
        "most",
        "total error",
        "accuracy",
    ]
    rows = [
        [
            row["method"],
            *(f"{row[name]:.2%}" for name in ("density", "first", "last")),
            *(f"{value:.2f}" for value in row["quality"] or ()),
            *([] if row["quality"] else [""] * 3),
            f"{row['total_error']:.3g}",
            f"{row['accuracy']:.1%}",
        ]
        for row in result.rows
    ]
    chosen = result.options
    title = (
        f"Digits with error feedback, {chosen['workers']} ranks, {chosen['steps']} steps; each hard threshold with a"
    )
    title += " Top-k that sends as much"
    return [ReportTable(title, columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["error that is not sent"])
    for name in dict.fromkeys(_kind(row) for row in result.rows):
        rows = sorted((row for row in result.rows if _kind(row) == name), key=lambda row: float(row["density"]))
        shares = [100 * row["density"] for row in rows]
        panel.plot(shares, [row["total_error"] for row in rows], marker="o", label=name)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("elements sent, %")
    panel.set_ylabel("total error of a rank")
    panel.legend(fontsize=8)
    return [("error", figure)]


def _kind(row: Row) -> str:
    kind: str = row["method"].split(":")[0]
    return kind


def _headline(result: BenchmarkResult) -> str:
    pairs = zip(result.rows, result.rows[1:], strict=False)
    ratios = [
        f"{hard['density']:.2%} sent {topk['total_error'] / hard['total_error']:.2f}"
        for hard, topk in pairs
        if _kind(hard) == HARD and _kind(topk) == "topk"
    ]
    if ratios:
        return f"total error of Top-k / of a hard threshold: {', '.join(ratios)}"
    return "sent / wanted: " + ", ".join(
        f"{row['method']} {row['quality'][0]:.2f}" for row in result.rows if row["quality"]
    )


@study(
    "hard_threshold",
    _tables,
    _figures,
    short="--methods hard_threshold:threshold=0.01,sidco:density=0.01 --steps 40 --workers 2",
    headline=_headline,
    needs=("torch",),
)
@parameters.option(
    "--methods",
    kind=Parsed("methods", methods),
    default=f"hard_threshold:threshold=0.003,hard_threshold:threshold=0.01,hard_threshold:threshold=0.03,{_SIDCO}",
    metavar="METHOD,...",
    help_text="Methods of docs/guides/compression.md with error feedback. A Top-k follows each hard threshold.",
)
@parameters.group_size(4)
@parameters.count("--steps", high=1_000_000, default=150, help_text="Steps of each training.")
@parameters.count("--seed", low=0, high=1 << 30, default=1, help_text="Seed of the model and of the batches.")
@parameters.torch_python
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Compare hard thresholds with a Top-k that sends as much, and estimated thresholds with what they should send."""
    return parameters.measured(run, HardThresholdOptions(**chosen))
