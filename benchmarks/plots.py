"""Plots of a result, as PNG and as SVG. They need matplotlib, which SwitchML does not require."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switchml.benchmarks.errors import BenchmarkError, MissingPackage, ResultFileError
from switchml.benchmarks.leaves import name_of
from switchml.benchmarks.options import size_text
from switchml.benchmarks.results import Result
from switchml.benchmarks.simulate import PUBLISHED
from switchml.topologies.shaped_links import queue_text, rate_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "require_matplotlib"]

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


def require_matplotlib() -> None:
    """Raise MissingPackage unless it is installed: before the measurement, not after."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingPackage(
            f"plots need matplotlib ({error}); install it with `pip install 'switchml[bench]'`, or omit --plots"
        ) from error


def draw(result: Result, directory: Path) -> list[Path]:
    """Draw all plots of a result into `directory`; return their files. Raises MissingPackage and ResultFileError."""
    require_matplotlib()
    if not result.rows:
        raise BenchmarkError(f"there is nothing to draw: {result.benchmark} has no rows")
    files: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, figure in _FIGURES[result.benchmark](result):
            for suffix in _SUFFIXES:
                files.append(directory / f"{result.benchmark}-{name}{suffix}")
                figure.savefig(files[-1], dpi=_DPI)
    except OSError as error:
        raise ResultFileError(f"{directory}: a picture cannot be written: {error.strerror}") from error
    return files


def _panels(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each title, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * len(titles), _PANEL[1]), layout="constrained")
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title, fontsize=10)
        panel.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _values(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def _where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _size_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=45, fontsize=8)
    axes.minorticks_off()


def _allreduce(result: Result) -> list[tuple[str, Figure]]:
    found = [("size", _time_over_size(result.rows)), ("workers", _time_over_workers(result.rows))]
    return [*found, ("ratios", _ratio_bars(result.rows))] if any(row["ratios"] for row in result.rows) else found


def _time_over_size(rows: Sequence[Row]) -> Figure:
    counts = _values(rows, "workers")
    figure, panels = _panels([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        for name in _values(rows, "system"):
            line = _where(rows, workers=count, system=name)
            times = [1e3 * row["median"] for row in line]
            panel.plot(_values(line, "bytes"), times, marker="o", markersize=3, color=_COLOURS.get(name), label=name)
        _size_ticks(panel, _values(rows, "bytes"))
        panel.set_yscale("log")
    panels[0].set_ylabel("median time, ms")
    panels[0].legend(fontsize=8)
    return figure


def _time_over_workers(rows: Sequence[Row]) -> Figure:
    sizes = _values(rows, "bytes")
    figure, panels = _panels([size_text(size) for size in sizes])
    for panel, size in zip(panels, sizes, strict=True):
        for name in _values(rows, "system"):
            line = _where(rows, bytes=size, system=name)
            times = [1e3 * row["median"] for row in line]
            panel.plot(_values(line, "workers"), times, marker="o", markersize=3, color=_COLOURS.get(name), label=name)
        panel.set_xticks(_values(rows, "workers"))
        panel.set_xlabel("workers")
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("median time, ms")
    panels[0].legend(fontsize=8)
    return figure


def _ratio_bars(rows: Sequence[Row]) -> Figure:
    """Draw the ratios: a panel for each size, bars for each number of workers, transport and peer."""
    sizes, counts = _values(rows, "bytes"), _values(rows, "workers")
    bars = list(dict.fromkeys((row["system"], peer) for row in rows for peer in row["ratios"]))
    figure, panels = _panels([size_text(size) for size in sizes])
    width = 0.8 / len(bars)
    hatches = {"shm": "", "udp": "//"}
    for panel, size in zip(panels, sizes, strict=True):
        for number, (name, peer) in enumerate(bars):
            found = {row["workers"]: row["ratios"].get(peer, 0.0) for row in _where(rows, bytes=size, system=name)}
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


def _latency(result: Result) -> list[tuple[str, Figure]]:
    single = _where(result.rows, tensors=1)
    counts = _values(single, "workers")
    figure, panels = _panels([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        line = _where(single, workers=count)
        names = [row["system"] for row in line]
        panel.bar(names, [1e6 * row["p99"] for row in line], color="0.85", label="p99")
        panel.bar(names, [1e6 * row["median"] for row in line], color=[_COLOURS.get(name) for name in names])
        panel.set_yscale("log")
    panels[0].set_ylabel(f"{size_text(result.options['bytes'])}: median and p99 (grey), us")
    return [("calls", figure)]


def _loss(result: Result) -> list[tuple[str, Figure]]:
    figure, [panel] = _panels([f"{size_text(result.options['bytes'])} over udp"])
    for count in _values(result.rows, "workers"):
        line = _where(result.rows, workers=count)
        shares = [100 * row["share"] for row in line]
        panel.plot(shares, [row["ratio"] for row in line], marker="o", label=f"{count} workers")
    panel.set_xlabel("packets lost in each direction, %")
    panel.set_ylabel("time / time without losses")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return [("ratio", figure)]


def _jobs(result: Result) -> list[tuple[str, Figure]]:
    line = _where(result.rows, kind="sequence")
    figure, [times, memory] = _panels(["time of a job", "resident memory"])
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


def _kernels(result: Result) -> list[tuple[str, Figure]]:
    """Draw the copy and the best instruction set's kernels: a panel for each type."""
    copy, best = result.rows[0], result.rows[-1]["instructions"]
    by_type: dict[str, list[Row]] = {}
    for row in _where(result.rows, instructions=best):
        kind = row["kernel"].split()[-1]
        by_type.setdefault(kind if kind in _FLOATS else "integers and sums", []).append(row)
    figure, panels = _panels([f"{kind}, {best}" for kind in by_type])
    sizes: list[int] = result.options["sizes"]
    for panel, rows in zip(panels, by_type.values(), strict=True):
        for number, row in enumerate((copy, *rows)):
            speeds = [row["gigabytes_per_second"][str(size)] for size in sizes]
            style = "--" if row is copy else _LINES[number // _LINE_COLOURS % len(_LINES)]
            panel.plot(sizes, speeds, linestyle=style, marker="o", markersize=3, label=row["kernel"])
        _size_ticks(panel, sizes)
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=5)
    panels[0].set_ylabel("GB/s")
    return [("speed", figure)]


def _memory(result: Result) -> list[tuple[str, Figure]]:
    sizes: list[int] = result.options["sizes"]
    figure, [panel] = _panels(["peak resident memory"])
    for row in result.rows:
        peaks = [row["peaks"][str(size)] / 1e6 for size in sizes]
        panel.plot(sizes, peaks, marker="o", label=f"{row['process']}, {row['transport']}")
    _size_ticks(panel, sizes)
    panel.set_ylabel("MB")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return [("peak", figure)]


def _rounding(result: Result) -> list[tuple[str, Figure]]:
    counts: list[int] = result.options["workers"]
    figure, panels = _panels([f"{count} workers" for count in counts])
    for panel, count in zip(panels, counts, strict=True):
        for way in _values(result.rows, "way"):
            rows = _where(result.rows, workers=count, way=way)
            panel.plot(_values(rows, "spread"), [row["mean"] for row in rows], marker="o", label=way)
        panel.set_yscale("log")
        panel.set_xlabel("spread of magnitudes, powers of two")
    panels[0].set_ylabel("mean error / magnitudes")
    panels[-1].legend(fontsize=8)
    return [("error", figure)]


def _python(result: Result) -> list[tuple[str, Figure]]:
    figure, [panel] = _panels(["time in Python"])
    names = [f"{row['transport']}\n{size_text(row['bytes'])}" for row in result.rows]
    panel.bar(names, [1e6 * row["python"] for row in result.rows])
    panel.set_ylabel("us of a call")
    return [("cost", figure)]


def _urgent(result: Result) -> list[tuple[str, Figure]]:
    figure, [panel] = _panels(["urgent all-reduce"])
    names = [
        f"{row['workers']} workers\n{rate_text(row['rate']) if row['rate'] else 'shared memory'}" for row in result.rows
    ]
    panel.bar(names, [row["ratio"] for row in result.rows])
    panel.set_ylabel("time behind another job / alone")
    return [("urgent", figure)]


def _links(result: Result) -> list[tuple[str, Figure]]:
    places = list(dict.fromkeys((row["workers"], row["rate"], row["queue"]) for row in result.rows))
    names = [f"{count} workers, {rate_text(rate)}, {queue_text(queue)}" for count, rate, queue in places]
    figure, panels = _panels(names)
    for panel, (count, rate, queue) in zip(panels, places, strict=True):
        rows = _where(result.rows, workers=count, rate=rate, queue=queue)
        labels = [f"{row['system']}\n{row['element_type']}\n{row['wire_bits']} bits" for row in rows]
        panel.bar(labels, [row["median"] for row in rows], color=[_COLOURS.get(row["system"]) for row in rows])
        panel.plot(labels, [row["bound"] for row in rows], linestyle="", marker="_", markersize=30, color="black")
        panel.tick_params(axis="x", labelsize=6)
    panels[0].set_ylabel("seconds (line: bound)")
    return [("time", figure)]


def _modes(result: Result) -> list[tuple[str, Figure]]:
    places = list(dict.fromkeys((row["workers"], row["rate"], row["queue"]) for row in result.rows))
    names = [f"{count} workers, {rate_text(rate)}, {queue_text(queue)}" for count, rate, queue in places]
    figure, panels = _panels(names)
    for panel, (count, rate, queue) in zip(panels, places, strict=True):
        rows = _where(result.rows, workers=count, rate=rate, queue=queue)
        labels = [row["mode"] for row in rows]
        panel.bar(labels, [row["median"] for row in rows])
        panel.plot(labels, [row["formula"] for row in rows], linestyle="", marker="_", markersize=30, color="black")
    panels[0].set_ylabel("seconds (line: formula)")
    return [("time", figure)]


def _leaves(result: Result) -> list[tuple[str, Figure]]:
    sizes = list(dict.fromkeys(row["bytes"] for row in result.rows))
    figure, panels = _panels([size_text(size) for size in sizes])
    for panel, size in zip(panels, sizes, strict=True):
        rows = _where(result.rows, bytes=size)
        panel.bar([name_of(row["system"]).replace(", ", ",\n") for row in rows], [row["median"] for row in rows])
        panel.tick_params(axis="x", labelsize=6)
    panels[0].set_ylabel("seconds")
    return [("time", figure)]


def _steps(result: Result) -> list[tuple[str, Figure]]:
    places = list(dict.fromkeys((row["workers"], row["rate"], row["queue"]) for row in result.rows))
    names = [f"{count} workers, {rate_text(rate)}, {queue_text(queue)}" for count, rate, queue in places]
    figure, panels = _panels(names)
    for panel, (count, rate, queue) in zip(panels, places, strict=True):
        rows = _where(result.rows, workers=count, rate=rate, queue=queue)
        labels = [f"{row['wrapper']}\n{row['backend']}" for row in rows]
        panel.bar(labels, [row["median"] for row in rows])
        panel.plot(labels, [row["bound"] for row in rows], linestyle="", marker="_", markersize=30, color="black")
    panels[0].set_ylabel("seconds (line: bound)")
    return [("steps", figure)]


def _compression(result: Result) -> list[tuple[str, Figure]]:
    """Draw the times of steps, a panel for each rate, and accuracies over bytes, a panel for each task.

    A method has a line in each panel: its best training.
    """
    figure, panels = _panels([rate_text(rate) for rate in result.options["rates"]])
    for panel, rate in zip(panels, result.options["rates"], strict=True):
        medians = {row["method"]: found["median"] for row in result.rows for found in _where(row["steps"], rate=rate)}
        panel.barh(list(medians), list(medians.values()))
        panel.axvline(medians["none"], color="0.2", linewidth=1)
        panel.invert_yaxis()
        panel.tick_params(axis="y", labelsize=6)
        panel.set_xlabel("seconds of a step")
    tasks = result.options["tasks"]
    return [("steps", figure), *([("accuracy", _accuracy_over_bytes(result, tasks))] if tasks else [])]


def _schedule(result: Result) -> list[tuple[str, Figure]]:
    """Draw the times of steps, and those of the simulation."""
    figure, [panel] = _panels([f"{rate_text(result.options['rate'])}, {result.options['workers']} workers"])
    names = [row["policy"].split(":")[0] for row in result.rows]
    panel.barh(names, [row["median"] for row in result.rows])
    simulated = [row["simulated"] for row in result.rows]
    panel.plot(simulated, names, linestyle="", marker="|", markersize=20, color="black")
    panel.invert_yaxis()
    panel.set_xlabel("seconds of a step (line: simulated)")
    return [("steps", figure)]


def _accuracy_over_bytes(result: Result, tasks: Sequence[str]) -> Figure:
    figure, panels = _panels(tasks)
    trained = [sample for sample in result.samples if sample["kind"] == "train"]
    for panel, task in zip(panels, tasks, strict=True):
        best = [
            (row["method"], found["learning_rate"], found["momentum"])
            for row in result.rows
            for found in _where(row["accuracies"], task=task)
        ]
        lines = [sample for sample in trained if sample["found"]["task"] == task]
        for number, sample in enumerate(
            line
            for line in lines
            if (line["method"], line["found"]["learning_rate"], line["found"]["momentum"]) in best
        ):
            _, sent, accuracy = zip(*sample["found"]["curve"], strict=True)
            style = _LINES[number // _LINE_COLOURS % len(_LINES)]
            panel.plot([size / 1e6 for size in sent], accuracy, style, linewidth=1, label=sample["method"])
        panel.set_xscale("log")
        panel.set_xlabel("MB sent by a rank")
    panels[0].set_ylabel("accuracy")
    panels[0].legend(fontsize=5)
    return figure


def _sparse(result: Result) -> list[tuple[str, Figure]]:
    """Draw dense / sparse over the share of blocks with values: a panel for each packet size and number of workers."""
    places = list(dict.fromkeys((row["values"], row["workers"]) for row in result.rows))
    figure, panels = _panels([f"{count} workers, {values} values per packet" for values, count in places])
    lines = list(dict.fromkeys((row["system"], row["overlap"]) for row in result.rows))
    for panel, (values, count) in zip(panels, places, strict=True):
        for system, overlap in lines:
            line = _where(result.rows, values=values, workers=count, system=system, overlap=overlap)
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


def _simulated(result: Result) -> list[tuple[str, Figure]]:
    found = [("scale", _rate_over_ranks(result))]
    if any(row["loss"] for row in result.rows):
        found.append(("loss", _ratios_of_trees(result.rows, "loss", "lost in each direction, %", 100)))
    if any(row["late"] for row in result.rows):
        found.append(("late", _ratios_of_trees(result.rows, "late", "last rank late, ms", 1000)))
    return found


def _rate_over_ranks(result: Result) -> Figure:
    """Draw elements per second over ranks: simulated trees, rings at the same rate, and published measurements."""
    size = size_text(result.options["bytes"])
    figure, [panel] = _panels([f"{size}, {rate_text(result.options['rate'])}"])
    plain = sorted(_where(result.rows, loss=0, late=0), key=lambda row: int(row["ranks"]))
    for levels in sorted(_values(plain, "levels")):
        line = _where(plain, levels=levels)
        rates = [row["elements_per_second"] / 1e6 for row in line]
        label = f"simulated, {levels} level" + ("s" if levels > 1 else "")
        panel.plot(_values(line, "ranks"), rates, marker="o", markersize=4, label=label)
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
    figure, [panel] = _panels(["time / time without it"])
    other = {"loss": "late", "late": "loss"}[name]
    for tree in _values(rows, "tree"):
        line = _where(rows, tree=tree, **{other: 0})
        panel.plot([factor * row[name] for row in line], [row["ratio"] for row in line], marker="o", label=tree)
    panel.set_xscale("symlog", linthresh=min(factor * row[name] for row in rows if row[name]))
    panel.set_yscale("log")
    panel.set_xlabel(label)
    panel.legend(fontsize=6)
    return figure


_FIGURES: Final[dict[str, Callable[[Result], list[tuple[str, Figure]]]]] = {
    "allreduce": _allreduce,
    "latency": _latency,
    "loss": _loss,
    "jobs": _jobs,
    "kernels": _kernels,
    "memory": _memory,
    "rounding": _rounding,
    "python": _python,
    "links": _links,
    "urgent": _urgent,
    "leaves": _leaves,
    "modes": _modes,
    "ddp": _steps,
    "sparse": _sparse,
    "simulate": _simulated,
    "compression": _compression,
    "schedule": _schedule,
}
