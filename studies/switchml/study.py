"""SwitchML (Sapio et al., NSDI 2021): the time of an all-reduce, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from studies.command import DURATION, durations, one_rate, study
from studies.switchml.simulation import PUBLISHED, SimulationOptions, run, trees
from switchml.benchmarks import options
from switchml.benchmarks.options import size_text
from switchml.benchmarks.plots import distinct, side_by_side, where
from switchml.benchmarks.report import ReportTable, Row, number, percent
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES
from switchml.topologies.shaped_links import rate_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["command"]


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    chosen = result.options
    columns = ["tree", "ranks", "lost", "late ms", "time us", "Melem/s", "/ no loss, none late", "ring / this"]
    columns += ["packets", "sent again", "timeouts", "at the root of each child"]
    rows = [
        [
            row["tree"],
            str(row["ranks"]),
            percent(row["loss"]),
            f"{1e3 * row['late']:g}",
            number(1e6 * row["seconds"]),
            number(row["elements_per_second"] / 1e6),
            f"{row['ratio']:.2f}",
            f"{row['ring'] / row['seconds']:.2f}" if row["loss"] == row["late"] == 0 else "",
            str(row["packets"]),
            f"{row['sent_again']:.1f}",
            f"{row['timeouts']:.1f}",
            f"{row['forwarded']:.0f}",
        ]
        for row in result.rows
    ]
    title = f"Simulated all-reduce of {size_text(chosen['bytes'])} over links of {rate_text(chosen['rate'])}"
    title += f", {chosen['values']} values per packet, {chosen['pool']} slots"
    delays = ", ".join(
        f"{name.replace('_', ' ')} {1e6 * chosen[name]:g} us" for name in ("switch_delay", "host_delay", "host_packet")
    )
    return [ReportTable(title, columns, rows, [f"Simulated, not measured: {delays}."])]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    found = [("scale", _rate_over_ranks(result))]
    if any(row["loss"] for row in result.rows):
        found.append(("loss", _ratios_of_trees(result.rows, "loss", "lost in each direction, %", 100)))
    if any(row["late"] for row in result.rows):
        found.append(("late", _ratios_of_trees(result.rows, "late", "last rank late, ms", 1000)))
    return found


def _rate_over_ranks(result: BenchmarkResult) -> Figure:
    """Draw elements per second over ranks: simulated trees, rings at the same rate, and published measurements."""
    size = size_text(result.options["bytes"])
    figure, [panel] = side_by_side([f"{size}, {rate_text(result.options['rate'])}"])
    plain = sorted(where(result.rows, loss=0, late=0), key=lambda row: int(row["ranks"]))
    for levels in sorted(distinct(plain, "levels")):
        line = where(plain, levels=levels)
        rates = [row["elements_per_second"] / 1e6 for row in line]
        label = f"simulated, {levels} level" + ("s" if levels > 1 else "")
        panel.plot(distinct(line, "ranks"), rates, marker="o", markersize=4, label=label)
    rings = {row["ranks"]: result.options["bytes"] / 4 / row["ring"] / 1e6 for row in plain}
    panel.plot(list(rings), list(rings.values()), linestyle="--", color="0.4", label="a ring, at best")
    for name, marker in (("SwitchML", "x"), ("NCCL", "+")):
        published = PUBLISHED[name]
        panel.plot(list(published), list(published.values()), marker, color="black", label=f"published, {name}, 256 MB")
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(rings), [str(ranks) for ranks in rings], fontsize=8)
    panel.minorticks_off()
    panel.set_xlabel("ranks")
    panel.set_ylabel("million elements/s")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=6)
    return figure


def _ratios_of_trees(rows: Sequence[Row], name: str, label: str, factor: float) -> Figure:
    figure, [panel] = side_by_side(["time / time without it"])
    other = {"loss": "late", "late": "loss"}[name]
    for tree in distinct(rows, "tree"):
        line = where(rows, tree=tree, **{other: 0})
        panel.plot([factor * row[name] for row in line], [row["ratio"] for row in line], marker="o", label=tree)
    panel.set_xscale("symlog", linthresh=min(factor * row[name] for row in rows if row[name]))
    panel.set_yscale("log")
    panel.set_xlabel(label)
    panel.legend(fontsize=6)
    return figure


def _headline(result: BenchmarkResult) -> str:
    plain = [row for row in where(result.rows, loss=0, late=0) if row["levels"] == 1]
    rates = [f"{row['ranks']} ranks {row['elements_per_second'] / 1e6:,.0f}" for row in plain]
    return f"million elements/s: {', '.join(rates)}"


def _delay(name: str, default: str, help_text: str) -> Callable[[parameters.F], parameters.F]:
    return parameters.option(name, kind=DURATION, default=default, metavar="TIME", help_text=help_text)


@study("switchml", _tables, _figures, short="--trees 4,8,16,2x8 --size 256KiB", headline=_headline, needs=("simpy",))
@parameters.option(
    "--trees",
    kind=Parsed("trees", trees),
    default="4,8,16,32,64,2x64,4x64,16x64,4x4x64",
    metavar="TREE,...",
    help_text="Children of each switch, from the root down: 16x64 has 16 leaves with 64 ranks each.",
)
@parameters.size("1MiB")
@parameters.count("--values", high=PROTOCOL_MAX_VALUES, default=256, help_text="Values per packet.")
@parameters.count("--pool", high=1 << 15, default=512, help_text="Slots of the job.")
@one_rate("100gbit")
@_delay("--switch-delay", "1us", "Time from the end of a packet on a link until a switch has it.")
@_delay("--host-delay", "12us", "Time that network card and software of a host delay a packet, in each direction.")
@_delay("--host-packet", "85ns", "Time that a host is busy with each packet, in each direction.")
@parameters.option(
    "--losses",
    kind=Parsed("shares", options.shares),
    default="0,0.01%,0.1%,1%",
    metavar="SHARE,...",
    help_text="Fractions of the packets that each link loses, in each direction.",
)
@parameters.option(
    "--late",
    kind=Parsed("durations", durations),
    default="0,1ms",
    metavar="TIME,...",
    help_text="Times by which the last rank begins after the others.",
)
@parameters.count("--seeds", high=1000, default=1, help_text="Runs with losses, each with another seed.")
def command(size: int, **chosen: Any) -> list[BenchmarkResult]:
    """Simulate all-reduces through trees of switches over fast links, up to 4,096 ranks. Needs SimPy.

    Nothing is measured: the README of this study describes the model. Each case without losses or a late rank is
    compared with a ring all-reduce at the rate of the links.
    """
    return parameters.measured(run, SimulationOptions(bytes=size, **chosen))
