"""Plots of a result, as PNG and as SVG. They need matplotlib, which SwitchML does not require."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switchml.benchmarks.errors import BenchmarkError, MissingPackage, ResultFileError
from switchml.benchmarks.options import size_text
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.installation import install_command
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Plots", "distinct", "draw", "line_style", "require_matplotlib", "side_by_side", "where"]

_SUFFIXES: Final = (".png", ".svg")
_DPI: Final = 120
_PANEL: Final = (4.2, 3.2)  # inches
_COLOURS: Final = {
    "shm": "tab:blue",
    "udp": "tab:cyan",
    "gloo": "tab:orange",
    "mpi-tcp": "tab:green",
    "mpi-shm": "tab:olive",
    "mpi-shm-apart": "tab:brown",
}

_FLOATS: Final = ("float32", "float16", "bfloat16")
_LINES: Final = ("-", ":")
_LINE_COLOURS: Final = 10  # of matplotlib, before they begin again

_OVERLAP_LINES: Final = {"random": "-", "all": "--", "none": ":"}

Row = Mapping[str, Any]
Plots = Callable[[BenchmarkResult], "list[tuple[str, Figure]]"]
"""Return the plots of a result, by name."""


def require_matplotlib() -> None:
    """Raise MissingPackage unless it is installed: before the measurement, not after."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingPackage(
            f"plots need matplotlib ({error}); install it with `{install_command('bench')}`, or omit --plots"
        ) from error


def draw(result: BenchmarkResult, directory: Path) -> list[Path]:
    """Draw all plots of a result into `directory`; return their files. Raises MissingPackage and ResultFileError."""
    require_matplotlib()
    if not result.rows:
        raise BenchmarkError(f"there is nothing to draw: {result.benchmark} has no rows")
    files: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, figure in FIGURES[result.benchmark](result):
            for suffix in _SUFFIXES:
                files.append(directory / f"{result.benchmark}-{name}{suffix}")
                figure.savefig(files[-1], dpi=_DPI)
    except OSError as error:
        raise ResultFileError(f"{directory}: a picture cannot be written: {error.strerror}") from error
    return files


def side_by_side(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * len(titles), _PANEL[1]), layout="constrained")
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, fontsize=10)
        panel.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def line_style(number: int) -> str:
    """Return the style of a line, which changes when matplotlib's colours begin again."""
    return _LINES[number // _LINE_COLOURS % len(_LINES)]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """Return the values of a column, each once."""
    return list(dict.fromkeys(row[name] for row in rows))


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _size_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=45, fontsize=8)
    axes.minorticks_off()


def _allreduce(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    found = [("size", _time_over_size(result.rows)), ("workers", _time_over_workers(result.rows))]
    return [*found, ("ratios", _ratio_bars(result.rows))] if any(row["ratios"] for row in result.rows) else found


def _time_over_size(rows: Sequence[Row]) -> Figure:
    counts = distinct(rows, "workers")
    figure, panels = side_by_side([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        for name in distinct(rows, "system"):
            line = where(rows, workers=count, system=name)
            times = [1e3 * row["median"] for row in line]
            panel.plot(distinct(line, "bytes"), times, marker="o", markersize=3, color=_COLOURS.get(name), label=name)
        _size_ticks(panel, distinct(rows, "bytes"))
        panel.set_yscale("log")
    panels[0].set_ylabel("median time, ms")
    panels[0].legend(fontsize=8)
    return figure


def _time_over_workers(rows: Sequence[Row]) -> Figure:
    sizes = distinct(rows, "bytes")
    figure, panels = side_by_side([size_text(size) for size in sizes])
    for panel, size in zip(panels, sizes, strict=True):
        for name in distinct(rows, "system"):
            line = where(rows, bytes=size, system=name)
            times = [1e3 * row["median"] for row in line]
            panel.plot(distinct(line, "workers"), times, marker="o", markersize=3, color=_COLOURS.get(name), label=name)
        panel.set_xticks(distinct(rows, "workers"))
        panel.set_xlabel("workers")
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("median time, ms")
    panels[0].legend(fontsize=8)
    return figure


def _ratio_bars(rows: Sequence[Row]) -> Figure:
    """Draw the ratios: a panel for each size, bars for each number of workers, transport and peer."""
    sizes, counts = distinct(rows, "bytes"), distinct(rows, "workers")
    bars = list(dict.fromkeys((row["system"], peer) for row in rows for peer in row["ratios"]))
    figure, panels = side_by_side([size_text(size) for size in sizes])
    width = 0.8 / len(bars)
    hatches = {"shm": "", "udp": "//"}
    for panel, size in zip(panels, sizes, strict=True):
        for number, (name, peer) in enumerate(bars):
            found = {row["workers"]: row["ratios"].get(peer, 0.0) for row in where(rows, bytes=size, system=name)}
            panel.bar(
                [place - 0.4 + (number + 0.5) * width for place in range(len(counts))],
                [found.get(count, 0.0) for count in counts],
                width,
                color=_COLOURS.get(peer),
                hatch=hatches.get(name),
                edgecolor="white",
                label=f"{peer} / {name}",
            )
        panel.axhline(1.0, color="0.2", linewidth=1)
        panel.set_xticks(range(len(counts)), [str(count) for count in counts])
        panel.set_xlabel("workers")
    panels[0].set_ylabel("peer's time / SwitchML's")
    panels[0].legend(fontsize=7)
    return figure


def _latency(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    single = where(result.rows, tensors=1)
    counts = distinct(single, "workers")
    figure, panels = side_by_side([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        line = where(single, workers=count)
        names = [row["system"] for row in line]
        panel.bar(names, [1e6 * row["p99"] for row in line], color="0.85", label="p99")
        panel.bar(names, [1e6 * row["median"] for row in line], color=[_COLOURS.get(name) for name in names])
        panel.set_yscale("log")
    panels[0].set_ylabel(f"{size_text(result.options['bytes'])}: median and p99 (grey), us")
    return [("calls", figure)]


def _loss(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side([f"{size_text(result.options['bytes'])} over udp"])
    for count in distinct(result.rows, "workers"):
        line = where(result.rows, workers=count)
        shares = [100 * row["share"] for row in line]
        panel.plot(shares, [row["ratio"] for row in line], marker="o", label=f"{count} workers")
    panel.set_xlabel("packets lost in each direction, %")
    panel.set_ylabel("time / time without losses")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return [("ratio", figure)]


def _jobs(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    line = where(result.rows, kind="sequence")
    figure, [times, memory] = side_by_side(["time of a job", "resident memory"])
    jobs = [row["jobs"] for row in line]
    times.plot(jobs, [1e3 * row["start_median"] for row in line], marker="o", label="start to READY")
    times.plot(jobs, [1e3 * row["stop_median"] for row in line], marker="o", label="stop")
    times.set_ylabel("median, ms")
    for index, footprint in enumerate(line[0]["footprints"]):
        held = [row["footprints"][index]["resident"] / 1e6 for row in line]
        memory.plot(jobs, held, marker="o", label=footprint["process"])
    memory.set_ylabel("MB")
    for panel in (times, memory):
        panel.set_xlabel("jobs so far")
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=8)
    return [("count", figure)]


def _kernels(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    """Draw the copy and the best instruction set's kernels: a panel for each type."""
    copy, best = result.rows[0], result.rows[-1]["instructions"]
    by_type: dict[str, list[Row]] = {}
    for row in where(result.rows, instructions=best):
        kind = row["kernel"].split()[-1]
        by_type.setdefault(kind if kind in _FLOATS else "integers and sums", []).append(row)
    figure, panels = side_by_side([f"{kind}, {best}" for kind in by_type])
    sizes: list[int] = result.options["sizes"]
    for panel, rows in zip(panels, by_type.values(), strict=True):
        for number, row in enumerate((copy, *rows)):
            speeds = [row["gigabytes_per_second"][str(size)] for size in sizes]
            style = "--" if row is copy else line_style(number)
            panel.plot(sizes, speeds, linestyle=style, marker="o", markersize=3, label=row["kernel"])
        _size_ticks(panel, sizes)
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=5)
    panels[0].set_ylabel("GB/s")
    return [("speed", figure)]


def _memory(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    sizes: list[int] = result.options["sizes"]
    figure, [panel] = side_by_side(["peak resident memory"])
    for row in result.rows:
        peaks = [row["peaks"][str(size)] / 1e6 for size in sizes]
        panel.plot(sizes, peaks, marker="o", label=f"{row['process']}, {row['transport']}")
    _size_ticks(panel, sizes)
    panel.set_ylabel("MB")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return [("peak", figure)]


def _links(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure = _bars_with_bounds(
        result.rows, lambda row: (row["system"], row["element_type"], f"{row['wire_bits']} bits")
    )
    for panel in figure.axes:
        panel.tick_params(axis="x", labelsize=6)
    return [("time", figure)]


def _steps(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    return [("steps", _bars_with_bounds(result.rows, lambda row: (row["wrapper"], row["backend"])))]


def _bars_with_bounds(rows: Sequence[Row], labels_of: Callable[[Row], Sequence[str]]) -> Figure:
    """Draw the median of each row as a bar and its bound as a line: a panel for each kind of link."""
    places = list(dict.fromkeys((row["workers"], row["rate"], row["queue"]) for row in rows))
    names = [f"{count} workers, {rate_text(rate)}, {queue_text(queue)}" for count, rate, queue in places]
    figure, panels = side_by_side(names)
    for panel, (count, rate, queue) in zip(panels, places, strict=True):
        here = where(rows, workers=count, rate=rate, queue=queue)
        labels = ["\n".join(labels_of(row)) for row in here]
        colours = [_COLOURS.get(row["system"]) for row in here if "system" in row]
        panel.bar(labels, [row["median"] for row in here], color=colours or None)
        panel.plot(labels, [row["bound"] for row in here], linestyle="", marker="_", markersize=30, color="black")
    panels[0].set_ylabel("seconds (line: bound)")
    return figure


def _sparse(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    """Draw dense / sparse over the share of blocks with values: a panel for each packet size and number of workers."""
    places = list(dict.fromkeys((row["values"], row["workers"]) for row in result.rows))
    figure, panels = side_by_side([f"{count} workers, {values} values per packet" for values, count in places])
    lines = list(dict.fromkeys((row["system"], row["overlap"]) for row in result.rows))
    for panel, (values, count) in zip(panels, places, strict=True):
        for system, overlap in lines:
            line = where(result.rows, values=values, workers=count, system=system, overlap=overlap)
            panel.plot(
                [100 * row["density"] for row in line],
                [row["ratio"] for row in line],
                color=_COLOURS.get(system),
                linestyle=_OVERLAP_LINES[overlap],
                marker="o",
                markersize=3,
                label=f"{system}, {overlap} in common",
            )
        panel.axhline(1.0, color="0.2", linewidth=1)
        panel.set_xscale("symlog", linthresh=0.1)
        panel.set_xlim(left=0)
        panel.set_yscale("log")
        panel.set_xlabel("blocks with values at a rank, %")
    panels[0].set_ylabel("dense time / sparse time")
    panels[0].legend(fontsize=7, handlelength=4)
    return [("ratio", figure)]


FIGURES: Final[dict[str, Plots]] = {
    "allreduce": _allreduce,
    "latency": _latency,
    "loss": _loss,
    "jobs": _jobs,
    "kernels": _kernels,
    "memory": _memory,
    "links": _links,
    "ddp": _steps,
    "sparse": _sparse,
}
