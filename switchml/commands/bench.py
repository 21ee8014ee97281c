"""The commands of switchml-ctl that measure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from switchml.benchmarks import options
from switchml.benchmarks.options import LINK_PEERS, TRANSPORTS
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed, TextCommand, request_json
from switchml.commands.result import Result
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.benchmarks.results import BenchmarkResult
    from switchml.commands.session import CommandSession

__all__ = ["BenchCommand", "Figures", "bench_group", "bench_show"]

_STANDARD_OUTPUT: Final = "-"


# ---- results --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Figures(Result):
    """The results of benchmarks, which text shows as tables, or in Markdown."""

    results: Sequence[BenchmarkResult]
    markdown: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the only result as JSON-compatible data."""
        [result] = self.results
        return result.as_dict()


@dataclasses.dataclass(frozen=True)
class _ForDocument:
    """Results to be inserted at their places in a document."""

    results: Sequence[BenchmarkResult]
    document: Path


class BenchCommand(TextCommand):
    """A command that returns results of benchmarks, with the options for their output."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params += [
            click.Option(
                ["--json", "json_file"],
                is_flag=False,
                flag_value=_STANDARD_OUTPUT,
                metavar="[FILE]",
                help="Write the result as one JSON object to FILE, or without FILE to standard output.",
            ),
            click.Option(["--markdown"], is_flag=True, help="Print the tables as Markdown."),
            click.Option(
                ["--plots", "pictures"],
                type=click.Path(file_okay=False, path_type=Path),
                metavar="DIRECTORY",
                help="Draw plots, PNG and SVG, into this directory. Needs matplotlib.",
            ),
        ]

    def invoke(self, context: click.Context) -> Figures | None:
        """Run the command, and write the requested files."""
        pictures: Path | None = context.params.pop("pictures")
        markdown: bool = context.params.pop("markdown")
        json_file: str | None = context.params.pop("json_file")
        if pictures is not None:
            from switchml.benchmarks.plots import require_matplotlib

            require_matplotlib()  # before anything is measured
        found: _ForDocument | Sequence[BenchmarkResult] = super().invoke(context)
        if isinstance(found, _ForDocument):
            _fill(found, pictures)
            return None
        if json_file is not None and len(found) != 1:
            raise click.UsageError("--json is for one result", context)
        if json_file == _STANDARD_OUTPUT:
            request_json(context)
        elif json_file is not None:
            _save(found[0], Path(json_file))  # before anything else can fail
        for result in found:
            for file in _drawn(result, pictures):
                note(f"wrote {file}")
        return Figures(found, markdown)


def _save(result: BenchmarkResult, file: Path) -> None:
    from switchml.benchmarks.results import save

    save(result, file)
    note(f"wrote {file}")


def _drawn(result: BenchmarkResult, pictures: Path | None) -> Sequence[Path]:
    if pictures is None:
        return []
    from switchml.benchmarks import plots

    return plots.draw(result, pictures)


def _fill(wanted: _ForDocument, pictures: Path | None) -> None:
    """Insert tables, and the plots as SVG, into a document."""
    from switchml.benchmarks import report
    from switchml.benchmarks.errors import ResultFileError

    document = wanted.document
    illustrated = []
    for result in wanted.results:
        drawn = _drawn(result, pictures)
        places = [os.path.relpath(file, document.parent) for file in drawn if file.suffix == ".svg"]
        illustrated.append((result, places))
    try:
        filled = report.fill(document.read_text(encoding="utf-8"), illustrated)
        document.write_text(filled, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ResultFileError(f"{document}: {error}") from error
    note(f"filled {document}")


# ---- commands -------------------------------------------------------------------------------------------------------


class BenchGroup(click.Group):
    """The group of the commands that measure."""

    command_class = BenchCommand


@click.group("bench", cls=BenchGroup)
def bench_group() -> None:
    """Measure all-reduces, compared with Gloo and Open MPI, and their parts.

    Everything that is measured is started on this machine and ended afterwards: a separate fabric, ranks, peers. Every
    result is verified. Close other programs first; as root the measured processes get a fair share of the CPUs when
    other programs run.
    """


@bench_group.command(
    "allreduce",
    epilog="""\b
Examples:
  switchml-ctl bench allreduce
  switchml-ctl bench allreduce --workers 2 --sizes 64MiB --transport shm --peers gloo --torch-python venv/bin/python
  switchml-ctl bench allreduce --json allreduce.json --plots pictures
  switchml-ctl bench allreduce --dtype int64 --magnitude 40 --peers gloo --torch-python venv/bin/python""",
)
@parameters.collective
@parameters.workers("2,4,8")
@parameters.sizes("4KiB,64KiB,1MiB,4MiB,64MiB,256MiB")
@parameters.summing_transports
@parameters.peers("gloo,mpi-tcp,mpi-shm,mpi-shm-apart")
@parameters.repetitions
@parameters.calls
@click.option(
    "--dtype",
    "element_type",
    type=click.Choice(options.ELEMENT_TYPES),
    default="float32",
    show_default=True,
    help="Type of the elements; gloo is the only peer with int64.",
)
@click.option(
    "--magnitude",
    "magnitude_bits",
    type=click.IntRange(1, 63),
    default=options.MAGNITUDE_BITS,
    show_default=True,
    metavar="BITS",
    help="Values of int64 are below 2^BITS in magnitude. With 2 to 8 workers, an element takes one word in packets with"
    " up to 28 bits, two with 31 to 57 bits, and three with 62 or 63 bits.",
)
@parameters.torch_python
def bench_allreduce(sizes: list[int], element_type: str, collective: str, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time a collective over sizes and numbers of workers, in turns with the peers."""
    from switchml.benchmarks import allreduce

    if element_type == "int64" and any(size % 8 for size in sizes):
        raise click.BadParameter("a tensor of int64 takes a multiple of 8 bytes.")
    if element_type == "int64" and collective != "all_reduce":
        raise click.BadParameter("int64 is measured with all_reduce only.")
    chosen |= {"sizes": sizes, "element_type": element_type, "collective": collective}
    return parameters.measured(allreduce.run, allreduce.AllreduceOptions(**chosen))


@bench_group.command(
    "latency",
    epilog="""\b
Examples:
  switchml-ctl bench latency
  switchml-ctl bench latency --workers 2,8 --peers '' --json""",
)
@parameters.workers("8")
@parameters.size("4KiB")
@parameters.count("--tensors", low=2, high=100_000, default=1000, help_text="Tensors that are queued together.")
@parameters.summing_transports
@parameters.peers("gloo,mpi-tcp")
@parameters.repetitions
@parameters.count("--iterations", "calls", high=100_000, default=200, help_text="Calls per turn.")
@parameters.count(
    "--queue-iterations", "queue_calls", high=10_000, default=3, help_text="How often all tensors are queued in a turn."
)
@parameters.torch_python
def bench_latency(size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time small all-reduces, one at a time and many queued together, and count wake-ups and context switches."""
    from switchml.benchmarks import latency

    return parameters.measured(latency.run, latency.LatencyOptions(bytes=size, **chosen))


@bench_group.command(
    "loss",
    epilog="""\b
Examples:
  switchml-ctl bench loss
  switchml-ctl bench loss --workers 2,4,8 --shares 0,0.01%,0.1%,1% --json loss.json""",
)
@parameters.workers("4")
@parameters.size("64MiB")
@parameters.option(
    "--shares",
    kind=Parsed("shares", options.shares),
    default="0,0.1%,1%",
    metavar="SHARE,...",
    help_text="Fractions of the packets to drop in each direction; 0 is always included.",
)
@parameters.repetitions
@parameters.count("--iterations", "calls", high=100_000, default=5, help_text="Calls per turn.")
def bench_loss(size: int, shares: list[float], **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time all-reduces over udp while the switch drops single packets on purpose."""
    from switchml.benchmarks import loss

    return parameters.measured(loss.run, loss.LossOptions(bytes=size, shares=sorted({0.0, *shares}), **chosen))


@bench_group.command(
    "jobs",
    epilog="""\b
Examples:
  switchml-ctl bench jobs
  switchml-ctl bench jobs --jobs 100 --at-once 10 --json""",
)
@parameters.workers("8,64")
@parameters.count("--starts", high=10_000, default=20, help_text="Jobs of each number of workers.")
@parameters.count(
    "--jobs", high=30_000, default=1000, help_text="Jobs of two workers, started and stopped one after the other."
)
@parameters.count("--at-once", high=1000, default=100, help_text="Jobs of two workers, started together.")
@click.option(
    "--transport", type=click.Choice(TRANSPORTS), default="shm", show_default=True, help="How ranks reach the switch."
)
def bench_jobs(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Time the start of jobs, and measure what grows with their number."""
    from switchml.benchmarks import jobs

    return parameters.measured(jobs.run, jobs.JobsOptions(**chosen))


@bench_group.command("kernels", epilog="\b\nExample:\n  switchml-ctl bench kernels --sizes 64KiB,1MiB")
@parameters.sizes("64KiB,1MiB,16MiB,256MiB")
@click.option(
    "--seconds",
    type=click.FloatRange(0.001, 10),
    default=0.1,
    show_default=True,
    help="Seconds for each kernel at each size.",
)
def bench_kernels(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Time quantization, addition and the other kernels on one core, with each instruction set."""
    from switchml.benchmarks import kernels

    if min(chosen["sizes"]) < kernels.SMALLEST:
        raise click.BadParameter(f"kernels are timed over at least {options.size_text(kernels.SMALLEST)}.")
    return parameters.measured(kernels.run, kernels.KernelsOptions(**chosen))


@bench_group.command("memory", epilog="\b\nExample:\n  switchml-ctl bench memory --sizes 64MiB,1GiB")
@parameters.group_size(2)
@parameters.sizes("64MiB,4GiB")
@parameters.transports
@parameters.count("--iterations", "calls", high=1000, default=1, help_text="Calls with each size.")
def bench_memory(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Measure the memory of agent and switch while tensors of different sizes are summed."""
    from switchml.benchmarks import memory

    return parameters.measured(memory.run, memory.MemoryOptions(**chosen))


@bench_group.command(
    "links",
    epilog="""\b
Examples:
  switchml-ctl bench links --torch-python venv/bin/python
  switchml-ctl bench links --link 200mbit --queue 50ms,400ms --workers 4 --peers '' --json links.json""",
)
@parameters.collective
@parameters.rates("200mbit,1gbit")
@parameters.queues
@parameters.workers("4,8")
@parameters.size("16MiB")
@parameters.peers(",".join(LINK_PEERS), LINK_PEERS)
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@parameters.calls_after_one(high=10_000, default=1)
@parameters.torch_python
@click.pass_obj
def bench_links(session: CommandSession, /, size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time collectives over links of a chosen rate, with the bound that the link sets to each algorithm. Needs root.

    Each worker has a network namespace and a link to a bridge, with a token bucket at both ends. SwitchML and its
    peers use the same links. A row that something other than its link has limited says so, and has no ratio. A
    link adds no delay except in its queue: this would need a queueing discipline that few kernels have (netem).
    """
    from switchml.benchmarks import links

    return parameters.measured(links.run, links.LinksOptions(bytes=size, **chosen), session.settings().run_dir)


@bench_group.command(
    "ddp",
    epilog="""\b
Examples:
  switchml-ctl bench ddp --torch-python venv/bin/python
  switchml-ctl bench ddp --link 200mbit,1gbit --workers 4,8 --torch-python venv/bin/python --json ddp.json""",
)
@parameters.rates("200mbit")
@parameters.queues
@parameters.workers("4")
@parameters.count("--repetitions", high=1000, default=3, help_text="Turns of each backend.")
@parameters.count("--steps", high=10_000, default=2, help_text="Steps per turn, after one that is not timed.")
@parameters.torch_python
@click.pass_obj
def bench_ddp(session: CommandSession, /, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time training steps with DDP and FSDP over links of a chosen rate, compared with Gloo. Needs root.

    The links are those of `bench links`. The interpreter that --torch-python names needs torch and switchml.
    """
    from switchml.benchmarks import ddp

    return parameters.measured(ddp.run, ddp.DdpOptions(**chosen), session.settings().run_dir)


@bench_group.command(
    "sparse",
    epilog="""\b
Examples:
  switchml-ctl bench sparse --torch-python venv/bin/python
  switchml-ctl bench sparse --workers 4 --values 64 --densities 0.1%,1% --overlap random --peers ''
  switchml-ctl bench sparse --json sparse.json --plots pictures""",
)
@parameters.workers("8")
@parameters.size("64MiB")
@parameters.packet_values
@parameters.option(
    "--densities",
    kind=Parsed("densities", options.densities),
    default="0.001,0.01,0.1,0.5,1",
    metavar="SHARE,...",
    help_text="Fractions of the blocks in which each rank has values.",
)
@parameters.overlaps
@parameters.block
@parameters.transports
@parameters.sparse_peers
@parameters.repetitions
@parameters.calls_after_one(high=100_000, default=3)
@parameters.torch_python
def bench_sparse(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Time sparse all-reduces over the share of blocks with values, in turns with dense ones and with Gloo.

    The table also has the packets with values that a rank has sent and received.
    """
    return parameters.measured_sparse(**chosen)


@bench_group.command(
    "show",
    epilog="""\b
Examples:
  switchml-ctl bench show allreduce.json --plots pictures
  switchml-ctl bench show allreduce.json latency.json --markdown
  switchml-ctl bench show *.json --into docs/results/performance.md --plots docs/results/performance""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--into",
    "document",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.md",
    help="Insert tables, and plots with --plots, into FILE.md, between `<!-- bench: NAME -->` and `<!-- end -->`.",
)
def bench_show(files: Sequence[Path], document: Path | None) -> _ForDocument | Sequence[BenchmarkResult]:
    """Show stored results: as tables, as plots, or in a document."""
    from switchml.benchmarks.report import TABLES
    from switchml.benchmarks.results import load

    results = [load(file, TABLES) for file in files]
    return results if document is None else _ForDocument(results, document)
