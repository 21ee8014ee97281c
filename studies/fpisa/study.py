"""FPISA (Yuan et al., NSDI 2022): how exact sums of floats are, added as switches can add them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from studies.command import study
from studies.fpisa.rounding import FpisaOptions, run
from switchml.benchmarks.options import each
from switchml.benchmarks.plots import distinct, side_by_side, where
from switchml.benchmarks.report import ReportTable, percent
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["command"]


_NAMES: Final = {
    "float32": "float32 on a CPU",
    "blocks": "integers, scaled in blocks",
    "fpisa": "FPISA",
    "fpisa-a": "FPISA-A",
    "fpisa-a-safe": "FPISA-A without overflow",
    "digits": "three digits",
}


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = [
        "spread",
        "workers",
        "added as",
        "mean error",
        "largest error",
        "not nearest",
        "depends on order",
        "none",
    ]
    rows = [
        [
            f"2^{row['spread']}",
            str(row["workers"]),
            _NAMES[row["way"]],
            *(f"{row[name]:.1e}" for name in ("mean", "largest")),
            *(percent(row[name]) for name in ("inexact", "reordered", "overflowed")),
        ]
        for row in result.rows
    ]
    chosen = result.options
    title = f"Errors of {chosen['lanes']} sums of floats, relative to the magnitudes in them; {chosen['orders']} orders"
    return [ReportTable(title, columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    counts: list[int] = result.options["workers"]
    figure, panels = side_by_side([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        for way in distinct(result.rows, "way"):
            rows = where(result.rows, workers=count, way=way)
            panel.plot(distinct(rows, "spread"), [row["mean"] for row in rows], marker="o", label=way)
        panel.set_yscale("log")
        panel.set_xlabel("spread of magnitudes, powers of two")
    panels[0].set_ylabel("mean error / magnitudes")
    panels[-1].legend(fontsize=8)
    return [("error", figure)]


def _headline(result: BenchmarkResult) -> str:
    last = result.rows[-1]
    errors = [
        f"{_NAMES[row['way']]} {row['mean']:.1e}"
        for row in where(result.rows, spread=last["spread"], workers=last["workers"])
    ]
    return f"mean errors with a spread of 2^{last['spread']}: {', '.join(errors)}"


def spreads(text: str) -> list[int]:
    """Return the powers of two of "0,20". Raises ValueError for one above 200: the numbers would not be floats."""

    def power(word: str) -> int:
        if not word.isdecimal() or int(word) > 200:
            raise ValueError(f"{word!r} is not a power of two from 0 to 200")
        return int(word)

    return each(text, power)


@study("fpisa", _tables, _figures, short="--workers 8 --spreads 0,20", headline=_headline)
@parameters.workers("2,8,64")
@parameters.option(
    "--spreads",
    kind=Parsed("spreads", spreads),
    default="0,10,20,40",
    metavar="N,...",
    help_text="Largest distances of magnitudes, in powers of two.",
)
@parameters.count("--lanes", high=1 << 24, default=1 << 16, help_text="Number of sums.")
@parameters.count(
    "--orders", high=1000, default=5, help_text="Orders in which numbers are added, to count sums that change."
)
@parameters.count("--seed", low=0, high=(1 << 32) - 1, default=1, help_text="Seed of the numbers.")
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Compute how exact sums of floats are in each way to add, in FPISA's as well. Nothing is measured."""
    return parameters.measured(run, FpisaOptions(**chosen))
