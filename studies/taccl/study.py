"""TACCL (Shah et al., NSDI 2023): synthesized schedules, compared with a ring and with a sum in a switch."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final

import click

from studies.command import study
from switchml.benchmarks.options import each
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.report import ReportTable, number
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed
from switchml.common.progress import Progress
from switchml.common.schedules import COLLECTIVES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TacclOptions", "TacclRow", "command", "run"]

_CASES: Final = (
    "all-gather:ndv2-1mb:ndv2-x1,all-gather:ndv2-1mb:ndv2-x2,all-gather:ndv2-1mb:ndv2-x4,all-gather:dgx2-1mb:dgx2-x1,"
    "all-gather:dgx2-1mb:dgx2-x2,all-gather:ndv2-1kb:ndv2-x2,all-reduce:ndv2-switchml-1mb:ndv2-x4"
)
_SHORT: Final = "--cases all-gather:ndv2-1mb:ndv2-x1,all-gather:ndv2-1mb:ndv2-x2,all-gather:ndv2-1kb:ndv2-x2"


@dataclasses.dataclass(frozen=True)
class TacclOptions:
    """Options: cases as COLLECTIVE:TOPOLOGY:SKETCH, and the longest search for the routes of each."""

    cases: list[str]
    seconds: float


@dataclasses.dataclass(frozen=True)
class TacclRow:
    """The shortest schedule of a case. Times are in microseconds, `search` in seconds.

    `relaxed` is the time of the same routes if no chunk waited for another; `proven`, whether there are no better
    routes. `around` is the schedule without the aggregation switch, if the topology has one.
    """

    collective: str
    topology: str
    sketch: str
    relaxed: float
    proven: bool
    makespan: float
    ring: float
    around: float | None
    search: float


def run(options: TacclOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Search. Raises what `synthesize` raises."""
    from switchml.topologies.synthesis.sketch import load
    from switchml.topologies.synthesis.synthesize import synthesize

    rows = []
    progress.expect(len(options.cases))
    for case in options.cases:
        collective, topology, sketch = case.split(":")
        begin = time.monotonic()
        found = synthesize(load(topology, sketch), collective, options.seconds)
        assert found.ring is not None  # only an all-to-all has none
        best = found.best
        around = next((one.makespan for one in found.candidates if not one.through_switch), None)
        rows.append(
            TacclRow(
                collective,
                topology,
                sketch,
                best.relaxed,
                best.proven,
                best.makespan,
                found.ring,
                around if best.through_switch else None,
                time.monotonic() - begin,
            )
        )
        report(f"  {case}: {best.makespan:g} us, a ring {found.ring:g} us")
        progress.did(1)
    return BenchmarkResult.of("taccl", options, rows, Record(report))


def cases(text: str) -> list[str]:
    """Return the cases of "all-gather:ndv2-1mb:ndv2-x1". Raises ValueError for other text."""

    def case(word: str) -> str:
        parts = word.split(":")
        if len(parts) != 3 or parts[0] not in COLLECTIVES or parts[0] == "all-to-all":
            raise ValueError(f"{word!r} is not a case; write COLLECTIVE:TOPOLOGY:SKETCH, without all-to-all")
        return word

    return each(text, case)


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["collective", "topology", "sketch", "relaxed us", "proven", "makespan us", "a ring us", "ring / this"]
    columns += ["around the switch / this", "search s"]
    rows = [
        [
            *(row[name] for name in ("collective", "topology", "sketch")),
            f"{row['relaxed']:.0f}",
            "yes" if row["proven"] else "no",
            f"{row['makespan']:.0f}",
            f"{row['ring']:.0f}",
            f"{row['ring'] / row['makespan']:.2f}",
            "" if row["around"] is None else f"{row['around'] / row['makespan']:.2f}",
            number(row["search"]),
        ]
        for row in result.rows
    ]
    return [ReportTable("Synthesized schedules; nothing is measured but the search", columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["ring / synthesized schedule"])
    names = [f"{row['collective']}\n{row['topology']}\n{row['sketch']}" for row in result.rows]
    panel.bar(names, [row["ring"] / row["makespan"] for row in result.rows])
    panel.tick_params(axis="x", labelsize=5)
    panel.axhline(1.0, color="0.2", linewidth=1)
    return [("ratio", figure)]


def _headline(result: BenchmarkResult) -> str:
    ratios = [f"{row['topology']} {row['sketch']} {row['ring'] / row['makespan']:.2f}" for row in result.rows]
    return f"a ring / this: {', '.join(ratios)}"


@study("taccl", _tables, _figures, short=_SHORT, headline=_headline, needs=("highspy",))
@parameters.option(
    "--cases",
    kind=Parsed("cases", cases),
    default=_CASES,
    metavar="CASE,...",
    help_text="COLLECTIVE:TOPOLOGY:SKETCH, with the names or files of `switchml-ctl synthesize`.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    show_default=True,
    metavar="S",
    help="The longest search for the routes of a half of a collective.",
)
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Search schedules of collectives for TACCL's topologies, and compare them with a ring. Needs HiGHS (highspy).

    A simulator checks each schedule; nothing is sent.
    """
    return parameters.measured(run, TacclOptions(**chosen))
