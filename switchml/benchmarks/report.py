"""Tables of a result, as cells of text that a terminal or Markdown shows."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from switchml.benchmarks.link_rows import OURS
from switchml.benchmarks.options import size_text
from switchml.benchmarks.results import BenchmarkResult
from switchml.topologies.shaped_links import queue_text, rate_text

__all__ = ["TABLES", "Row", "ReportTable", "ReportTables", "fill", "markdown", "tables"]
__all__ += ["megabytes", "milliseconds", "missing_remarks", "number", "percent"]

Row = Mapping[str, Any]

_BEYOND_CACHES: Final = 64 << 20


@dataclasses.dataclass(frozen=True)
class ReportTable:
    """A title, the names of the columns, rows of cells, and remarks to print below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remarks: Sequence[str] = ()


ReportTables = Callable[[BenchmarkResult], list[ReportTable]]
"""Return the tables of a result, without the state of the machine."""


def tables(result: BenchmarkResult) -> list[ReportTable]:
    """Return the tables of a benchmark, with the machine's state among the remarks of the last one."""
    found = TABLES[result.benchmark](result)
    last = dataclasses.replace(found[-1], remarks=(*found[-1].remarks, *_machine(result)))
    return [*found[:-1], last]


def markdown(table: ReportTable) -> str:
    """Return a table in Markdown."""
    lines = [f"**{table.title}**", "", _line(table.columns)]
    lines.append("|" + "|".join("---" if index == 0 else "---:" for index in range(len(table.columns))) + "|")
    lines += [_line(row) for row in table.rows]
    for remark in table.remarks:
        lines += ["", remark]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def fill(document: str, results: Sequence[tuple[BenchmarkResult, Sequence[str]]]) -> str:
    """Return `document` with tables and plots of each result between `<!-- bench: NAME -->` and `<!-- end -->`.

    A plot is given by its address, relative to the document. Raises ValueError for a result that has no plot there.
    """
    for result, pictures in results:
        begin, end = f"<!-- bench: {result.benchmark} -->", "<!-- end -->"
        head, found, tail = document.partition(begin)
        _, closed, rest = tail.partition(end)
        if not found or not closed:
            raise ValueError(f"it has no place for {result.benchmark}: `{begin}` and, below, `{end}`")
        images = "".join(f"\n![{result.benchmark}: {address}]({address})\n" for address in pictures)
        text = "\n".join(markdown(table) for table in tables(result)) + images
        document = f"{head}{begin}\n{text}{end}{rest}"
    return document


# ---- numbers --------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(seconds: float) -> str:
    """Return a time; "" for none."""
    if seconds == 0:
        return ""
    return f"{1e3 * seconds:.3f}" if seconds < 1e-3 else number(1e3 * seconds)


def megabytes(size: float) -> str:
    """Return a size."""
    return f"{size / 1e6:.1f}"


def missing_remarks(result: BenchmarkResult) -> list[str]:
    """Return a remark for each system that was not measured."""
    return [f"{name} is missing: {why}" for name, why in result.missing.items()]


# ---- each benchmark -------------------------------------------------------------------------------------------------


def _collectives(result: BenchmarkResult) -> list[ReportTable]:
    peers = [peer for peer in result.options["peers"] if peer in result.systems]
    columns = ["workers", "size", "by", "median ms", "p99 ms", "slowest rank ms", "GB/s", "Melem/s per worker"]
    columns += [f"{peer} / this" for peer in peers]
    columns += ["CPU s/GB", "of the memory's limit"]
    rows = [
        [
            str(row["workers"]),
            size_text(row["bytes"]),
            row["system"],
            milliseconds(row["median"]),
            milliseconds(row["p99"]),
            milliseconds(row["slowest"]),
            number(row["bytes_per_second"] / 1e9),
            number(row["elements_per_second"] / 1e6),
            *_ratios(row, peers),
            number(row["cpu_seconds_per_gb"]),
            _share_of_limit(row, result),
        ]
        for row in result.rows
    ]
    if result.missing:
        columns.append("remark")
        rows = [[*row, ""] for row in rows]
        rows += [["", "", name, *[""] * (len(columns) - 4), why] for name, why in result.missing.items()]
    title = f"{_collective(result)} of {_elements(result)}, {result.options['repetitions']} repetitions in turns"
    return [ReportTable(title, columns, rows)]


def _collective(result: BenchmarkResult) -> str:
    """Return the name of the measured operation; older results have only all-reduces."""
    return str(result.options.get("collective", "all_reduce")).replace("_", "-").capitalize()


def _elements(result: BenchmarkResult) -> str:
    """Return what the tensors of `bench allreduce` hold."""
    kind: str = result.options.get("element_type", "float32")  # absent from results of earlier benchmarks
    return f"int64 with magnitudes below 2^{result.options['magnitude_bits']}" if kind == "int64" else kind


def _share_of_limit(row: Row, result: BenchmarkResult) -> str:
    """Return the fraction of the memory's limit that all-reduces over shared memory reach, beyond the caches.

    That limit is the bandwidth of all CPUs, divided by `_memory_traffic_of_byte`.
    """
    if row["system"] != "shm" or row["bytes"] < _BEYOND_CACHES or _collective(result) != "All-reduce":
        return ""
    traffic = row["bytes_per_second"] * _memory_traffic_of_byte(row["workers"])
    return f"{traffic / result.machine['memory_bytes_per_second']:.0%}"


def _memory_traffic_of_byte(workers: int) -> int:
    """Return the bytes to and from memory for one byte of a tensor, if caches hold everything but the tensors.

    Each worker reads it, and writes that of the sum. Contributions and results are in memory that is used again and
    again.
    """
    return 2 * workers


def _ratios(row: Row, peers: Sequence[str]) -> list[str]:
    return [f"{row['ratios'][peer]:.2f}" if peer in row["ratios"] else "" for peer in peers]


def _latency(result: BenchmarkResult) -> list[ReportTable]:
    peers = [peer for peer in result.options["peers"] if peer in result.systems]
    ratios = [f"{peer} / this" for peer in peers]
    size = size_text(result.options["bytes"])
    single = [row for row in result.rows if row["tensors"] == 1]
    queued = [row for row in result.rows if row["tensors"] != 1]
    columns = ["workers", "by", "median us", "p99 us", "slowest rank us", *ratios, "wake-ups", "context switches"]
    rows = [
        [
            str(row["workers"]),
            row["system"],
            *(number(1e6 * row[name]) for name in ("median", "p99", "slowest")),
            *_ratios(row, peers),
            number(row["wake_ups"]),
            number(row["switches"]),
        ]
        for row in single
    ]
    title = f"All-reduce of {size}, one at a time; wake-ups and context switches of all processes in one call"
    many = [
        [
            str(row["workers"]),
            row["system"],
            number(1e3 * row["median"]),
            number(row["tensors"] / row["median"]),
            *_ratios(row, peers),
            number(row["wake_ups"] / row["tensors"]),
        ]
        for row in queued
    ]
    columns_of_many = ["workers", "by", "median ms of all", "tensors/s", *ratios, "wake-ups per tensor"]
    heading = f"{result.options['tensors']} tensors of {size}, queued together"
    return [ReportTable(title, columns, rows), ReportTable(heading, columns_of_many, many, missing_remarks(result))]


def _loss(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["workers", "lost each way", "median ms", "p99 ms", "/ no loss", "packets lost", "CPU s/GB", "cores busy"]
    columns.append("largest error / bound")
    rows = [
        [
            str(row["workers"]),
            f"{row['share']:.2%}",
            milliseconds(row["median"]),
            milliseconds(row["p99"]),
            f"{row['ratio']:.2f}",
            number(row["lost"]),
            number(row["cpu_seconds_per_gb"]),
            number(row["cores"]),
            f"{row['largest_error'] / row['allowed_error']:.2f}",
        ]
        for row in result.rows
    ]
    size = size_text(result.options["bytes"])
    return [ReportTable(f"All-reduce of {size} over udp, single packets lost in each direction", columns, rows)]


_KINDS: Final = {
    "idle": "none yet",
    "start": "started and stopped",
    "sequence": "in sequence, so far",
    "at once": "started at once",
    "stopped": "stopped at once",
}


def _jobs(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["jobs", "", "workers", "to READY ms", "p99 ms", "stop ms", "all s", "store MB"]
    columns += [f"{name} MB (files)" for name in _held(result.rows[0])]
    rows = [
        [
            str(row["jobs"]),
            _KINDS[row["kind"]],
            str(row["workers"]),
            milliseconds(row["start_median"]),
            milliseconds(row["start_p99"]),
            milliseconds(row["stop_median"]),
            number(row["elapsed"]),
            megabytes(row["store_bytes"]),
            *_held(row).values(),
        ]
        for row in result.rows
    ]
    return [ReportTable(f"Jobs over {result.options['transport']}", columns, rows)]


def _held(row: Row) -> dict[str, str]:
    """Return resident memory and open files by process, with all agents summed."""
    resident: dict[str, int] = defaultdict(int)
    descriptors: dict[str, int] = defaultdict(int)
    for found in row["footprints"]:
        name = "agents" if found["process"].startswith("agent-") else found["process"]
        resident[name] += found["resident"]
        descriptors[name] += found["descriptors"]
    return {name: f"{megabytes(size)} ({descriptors[name]})" for name, size in resident.items()}


def _kernels(result: BenchmarkResult) -> list[ReportTable]:
    sizes = result.options["sizes"]
    rows = [
        [
            row["kernel"],
            row["instructions"],
            *(number(row["gigabytes_per_second"][str(size)]) for size in sizes),
        ]
        for row in result.rows
    ]
    columns = ["kernel", "instructions", *(size_text(size) for size in sizes)]
    return [ReportTable("GB/s on one core, by the tensor's size; both count 4 bytes an element", columns, rows)]


def _memory(result: BenchmarkResult) -> list[ReportTable]:
    sizes = result.options["sizes"]
    columns = ["by", "process", "at rest MB", *(f"peak MB, {size_text(size)}" for size in sizes), "growth"]
    rows = [
        [
            row["transport"],
            row["process"],
            megabytes(row["at_rest"]),
            *(megabytes(row["peaks"][str(size)]) for size in sizes),
            f"{row['growth']:.2f}",
        ]
        for row in result.rows
    ]
    return [ReportTable(f"Resident memory with tensors of {result.options['workers']} workers", columns, rows)]


def _links(result: BenchmarkResult) -> list[ReportTable]:
    peers = [peer for peer in result.options["peers"] if peer in result.systems]
    columns = ["link", "queue", "workers", "by", "type", "bits sent", "median s", "bound s", "/ bound"]
    columns += [f"{peer} / this" for peer in peers]
    columns += ["link busy", "CPUs idle", "dropped"]
    limited = {(*_link_place(row), row["system"], row["element_type"]): not row["why_not"] for row in result.rows}
    rows = [
        [
            rate_text(row["rate"]),
            queue_text(row["queue"]),
            str(row["workers"]),
            row["system"],
            row["element_type"],
            str(row["wire_bits"]),
            f"{row['median']:.3f}",
            f"{row['bound']:.3f}",
            f"{row['median'] / row['bound']:.2f}",
            *(_link_ratio(row, peer, limited) for peer in peers),
            f"{row['busy']:.0%}",
            f"{row['idle']:.0%}",
            f"{row['dropped']:.2%}",
        ]
        for row in result.rows
    ]
    size = size_text(result.options["bytes"])
    title = f"{_collective(result)} of as many elements as {size} hold of float32, over links shaped by token buckets"
    remarks = missing_remarks(result)
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in result.rows:
        if row["why_not"]:
            where = f"{rate_text(row['rate'])}, {queue_text(row['queue'])}, {row['workers']} workers"
            reasons[f"{where}: {row['why_not']}"].append(f"{row['system']} {row['element_type']}")
    remarks += [f"{why} ({', '.join(names)})" for why, names in reasons.items()]
    return [ReportTable(title, columns, rows, remarks)]


def _steps(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["link", "queue", "workers", "wrapper", "backend", "step s", "bound s", "gloo / this"]
    columns += ["link busy", "CPUs idle", "dropped"]
    rows = [
        [
            rate_text(row["rate"]),
            queue_text(row["queue"]),
            str(row["workers"]),
            row["wrapper"],
            row["backend"],
            f"{row['median']:.3f}",
            f"{row['bound']:.3f}",
            "not link-bound" if row["why_not"] else f"{row['ratio']:.2f}" if row["ratio"] is not None else "",
            f"{row['busy']:.0%}",
            f"{row['idle']:.0%}",
            f"{row['dropped']:.2%}",
        ]
        for row in result.rows
    ]
    title = f"Training steps of a model with {result.rows[0]['parameters']:,} parameters, over shaped links"
    return [ReportTable(title, columns, rows)]


def _sparse(result: BenchmarkResult) -> list[ReportTable]:
    peers = [name for name in result.options["peers"] if any(name in row["peers"] for row in result.rows)]
    columns = ["values", "workers", "by", "in common", "blocks with values", "at any rank", "dense ms", "sparse ms"]
    columns += ["dense / sparse", "sent", "received"]
    columns += [text for peer in peers for text in (f"{peer} ms", f"{peer} / sparse")]
    rows = [
        [
            str(row["values"]),
            str(row["workers"]),
            row["system"],
            row["overlap"],
            percent(row["density"]),
            percent(row["union"]),
            milliseconds(row["dense"]),
            milliseconds(row["sparse"]),
            f"{row['ratio']:.2f}",
            _blocks(row, "sent"),
            _blocks(row, "received"),
            *(text for peer in peers for text in _time_and_ratio(row, peer)),
        ]
        for row in result.rows
    ]
    size, block = size_text(result.options["bytes"]), result.options["block"]
    title = f"Sparse all-reduce of {size} of float32 in blocks of {block} values"
    title += f", {result.options['repetitions']} repetitions in turns"
    return [ReportTable(title, columns, rows, missing_remarks(result))]


def percent(value: float) -> str:
    """Return a fraction as a percentage with three significant digits."""
    return f"{100 * value:.3g} %"


def _blocks(row: Row, name: str) -> str:
    """Return the share of blocks with values, with the expected share if it differs; or "dense"."""
    if not row["is_sparse"]:
        return "dense"
    found, expected = row[name] / row["blocks"], row[f"expected_{name}"] / row["blocks"]
    return percent(found) + ("" if row[name] == row[f"expected_{name}"] else f" (expected {percent(expected)})")


def _time_and_ratio(row: Row, peer: str) -> list[str]:
    return [milliseconds(row["peers"][peer]), f"{row['ratios'][peer]:.2f}"] if peer in row["peers"] else ["", ""]


def _link_ratio(row: Row, peer: str, limited: Mapping[Any, bool]) -> str:
    """Return the cell that compares a row with a peer, in which nothing is compared that a link did not limit."""
    if row["system"] not in (OURS, peer):
        return ""
    if row["why_not"]:
        return "not link-bound"
    if row["system"] == OURS and not limited.get((*_link_place(row), peer, row["element_type"]), True):
        return f"{peer} not link-bound"
    return f"{row['ratios'][peer]:.2f}" if peer in row["ratios"] else ""


def _link_place(row: Row) -> tuple[Any, ...]:
    return row["rate"], row["queue"], row["workers"]


TABLES: Final[dict[str, ReportTables]] = {
    "allreduce": _collectives,
    "latency": _latency,
    "loss": _loss,
    "jobs": _jobs,
    "kernels": _kernels,
    "memory": _memory,
    "links": _links,
    "ddp": _steps,
    "sparse": _sparse,
}


def _machine(result: BenchmarkResult) -> list[str]:
    machine = result.machine
    about = (
        f"{machine['processor']}, {machine['processors']} CPUs, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux "
        f"{machine['kernel']}, Python {machine['python']}, "
        + ", ".join(dict.fromkeys(result.systems.values()) or [f"SwitchML {result.version}"])
        + f", {machine['memory_bytes_per_second'] / 1e9:.0f} GB/s to and from memory"
        + time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(result.time))
    )
    if not result.states:
        return [about]
    loads = [state["load"] for state in result.states]
    lines = [state["cache_line_ns"] for state in result.states if state["cache_line_ns"] is not None]
    share = "raised" if all(state["share"] for state in result.states) else "not permitted to be raised"
    when = f"load {min(loads):.1f} to {max(loads):.1f}; autogroup {machine['autogroup']}, its weight {share}"
    if lines:
        when += f"; cache line between two CPUs and back {min(lines):.0f} to {max(lines):.0f} ns"
    return [about, when]
