"""The commands of switchml-ctl that measure."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from switchml.benchmarks import options
from switchml.benchmarks.options import LINK_PEERS, OVERLAPS, PEERS, SPARSE_PEERS, TRANSPORTS
from switchml.commands.command import Parsed, TextCommand, request_json
from switchml.commands.result import Result
from switchml.commands.standard_streams import note
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES, PROTOCOL_MAX_WORKERS

if TYPE_CHECKING:
    from switchml.benchmarks.results import Result as BenchmarkResult
    from switchml.benchmarks.turns import Reporter
    from switchml.commands.session import Session
    from switchml.common.progress import Progress

__all__ = ["Figures", "bench_group"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Options = TypeVar("Options")  # the options class of a benchmark

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


# ---- parameters -----------------------------------------------------------------------------------------------------


def _only(text: str, found: Sequence[T], what: str) -> T:
    if len(found) != 1:
        raise ValueError(f"{text} is not one {what}")
    return found[0]


_SIZES: Final = Parsed("sizes", options.sizes)
_SIZE: Final = Parsed("size", lambda text: _only(text, options.sizes(text), "size"))
_METHODS: Final = Parsed("methods", options.methods)
_POLICIES: Final = Parsed("policies", options.policies)
_FACTORS: Final = Parsed("factors", options.factors)
_MOMENTA: Final = Parsed("momenta", options.momenta)
_TASKS: Final = Parsed("tasks", lambda text: options.names(text, options.TRAININGS))
_WORKERS: Final = Parsed("workers", options.worker_counts)
_RATES: Final = Parsed("rates", options.rates)
_QUEUES: Final = Parsed("queues", options.queues)
_QUEUE: Final = Parsed("queue", lambda text: _only(text, options.queues(text), "queue"))
_SHARES: Final = Parsed("shares", options.shares)
_TRANSPORTS: Final = Parsed("transports", lambda text: options.names(text, TRANSPORTS))
_SUMMING: Final = Parsed("transports", lambda text: options.names(text, (*TRANSPORTS, *options.IN_FLOATS)))
_PEERS: Final = Parsed("peers", lambda text: options.names(text, PEERS))
_SPARSE_PEERS: Final = Parsed("peers", lambda text: options.names(text, SPARSE_PEERS))
_OVERLAPS: Final = Parsed("overlaps", lambda text: options.names(text, OVERLAPS))
_DENSITIES: Final = Parsed("densities", options.densities)
_SPREADS: Final = Parsed("spreads", options.spreads)
_VALUES: Final = Parsed("values", options.packet_values)
_RATE: Final = Parsed("rate", lambda text: _only(text, options.rates(text), "rate"))
_TREES: Final = Parsed("trees", options.trees)
_DURATION: Final = Parsed("duration", lambda text: _only(text, options.durations(text), "duration"))
_DURATIONS: Final = Parsed("durations", options.durations)
_LINK_PEERS: Final = Parsed("peers", lambda text: options.names(text, LINK_PEERS))
_MODES: Final = Parsed("modes", lambda text: options.names(text, options.MODES))


_torch_python = click.option(
    "--torch-python",
    default=sys.executable,
    metavar="PROGRAM",
    # A path, rather than a name to be searched on PATH; symbolic links are kept, because resolving them would leave a
    # virtual environment.
    callback=lambda _context, _option, program: str(Path(program).absolute()) if os.sep in program else program,
    help="A Python interpreter that has torch and numpy, for Gloo.  [default: this one]",
)


def _count(*names: str, low: int = 1, high: int, default: int, help_text: str) -> Callable[[F], F]:
    return click.option(*names, type=click.IntRange(low, high), default=default, show_default=True, help=help_text)


_collective = click.option(
    "--collective",
    type=click.Choice(options.COLLECTIVES),
    default="all_reduce",
    show_default=True,
    metavar="NAME",
    help=f"The operation: {', '.join(options.COLLECTIVES)}. Open MPI is measured with all-reduces only.",
)
_repetitions = _count("--repetitions", high=1000, default=5, help_text="Turns of each system.")
_calls = click.option(
    "--iterations",
    "calls",
    type=click.IntRange(0, 100_000),
    default=0,
    help="Calls per turn.  [default: as many as sum 320 MiB, 5 to 200]",
)


def _workers(default: str) -> Callable[[F], F]:
    return click.option(
        "--workers", type=_WORKERS, default=default, show_default=True, metavar="N,...", help="Numbers of workers."
    )


def _transports(default: str = "shm,udp") -> Callable[[F], F]:
    return click.option(
        "--transport",
        "transports",
        type=_TRANSPORTS,
        default=default,
        show_default=True,
        metavar="NAME,...",
        help="How ranks reach the switch.",
    )


_summing_transports = click.option(
    "--transport",
    "transports",
    type=_SUMMING,
    default="shm,udp",
    show_default=True,
    metavar="NAME,...",
    help="How ranks reach the switch; with shm-float or udp-float it adds up floats as such.",
)


def _peers(default: str) -> Callable[[F], F]:
    return click.option(
        "--peers",
        type=_PEERS,
        default=default,
        show_default=True,
        metavar="NAME,...",
        help=f"Peers to compare with, of {', '.join(PEERS)}; '' for none.",
    )


def _sizes(default: str) -> Callable[[F], F]:
    return click.option(
        "--sizes",
        type=_SIZES,
        default=default,
        show_default=True,
        metavar="SIZE,...",
        help="Sizes of the tensors in bytes.",
    )


def _size(default: str) -> Callable[[F], F]:
    return click.option(
        "--size", type=_SIZE, default=default, show_default=True, metavar="SIZE", help="Size of the tensor in bytes."
    )


def _rates(default: str) -> Callable[[F], F]:
    return click.option(
        "--link",
        "rates",
        type=_RATES,
        default=default,
        show_default=True,
        metavar="RATE,...",
        help="Rates of every host's link.",
    )


_queues = click.option(
    "--queue",
    "queues",
    type=_QUEUES,
    default="400ms",
    show_default=True,
    metavar="TIME,...",
    help="Lengths of the links' queues: the longest time that a packet waits in one before it is dropped.",
)


def _measured(
    run: Callable[[Options, Reporter, Progress], BenchmarkResult], wanted: Options
) -> Sequence[BenchmarkResult]:
    from switchml.commands.displays import ProgressBar

    with ProgressBar() as bar:
        return [run(wanted, bar.note, bar)]


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
@_collective
@_workers("2,4,8")
@_sizes("4KiB,64KiB,1MiB,4MiB,64MiB,256MiB")
@_summing_transports
@_peers("gloo,mpi-tcp,mpi-shm,mpi-shm-apart")
@_repetitions
@_calls
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
@_torch_python
def bench_allreduce(sizes: list[int], element_type: str, collective: str, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time a collective over sizes and numbers of workers, in turns with the peers."""
    from switchml.benchmarks import allreduce

    if element_type == "int64" and any(size % 8 for size in sizes):
        raise click.BadParameter("a tensor of int64 takes a multiple of 8 bytes.")
    if element_type == "int64" and collective != "all_reduce":
        raise click.BadParameter("int64 is measured with all_reduce only.")
    chosen |= {"sizes": sizes, "element_type": element_type, "collective": collective}
    return _measured(allreduce.run, allreduce.Options(**chosen))


@bench_group.command(
    "latency",
    epilog="""\b
Examples:
  switchml-ctl bench latency
  switchml-ctl bench latency --workers 2,8 --peers '' --json""",
)
@_workers("8")
@_size("4KiB")
@_count("--tensors", low=2, high=100_000, default=1000, help_text="Tensors that are queued together.")
@_summing_transports
@_peers("gloo,mpi-tcp")
@_repetitions
@_count("--iterations", "calls", high=100_000, default=200, help_text="Calls per turn.")
@_count(
    "--queue-iterations", "queue_calls", high=10_000, default=3, help_text="How often all tensors are queued in a turn."
)
@_torch_python
def bench_latency(size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time small all-reduces, one at a time and many queued together, and count wake-ups and context switches."""
    from switchml.benchmarks import latency

    return _measured(latency.run, latency.Options(bytes=size, **chosen))


@bench_group.command(
    "loss",
    epilog="""\b
Examples:
  switchml-ctl bench loss
  switchml-ctl bench loss --workers 2,4,8 --shares 0,0.01%,0.1%,1% --json loss.json""",
)
@_workers("4")
@_size("64MiB")
@click.option(
    "--shares",
    type=_SHARES,
    default="0,0.1%,1%",
    show_default=True,
    metavar="SHARE,...",
    help="Fractions of the packets to drop in each direction; 0 is always included.",
)
@_repetitions
@_count("--iterations", "calls", high=100_000, default=5, help_text="Calls per turn.")
def bench_loss(size: int, shares: list[float], **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time all-reduces over udp while the switch drops single packets on purpose."""
    from switchml.benchmarks import loss

    return _measured(loss.run, loss.Options(bytes=size, shares=sorted({0.0, *shares}), **chosen))


@bench_group.command(
    "jobs",
    epilog="""\b
Examples:
  switchml-ctl bench jobs
  switchml-ctl bench jobs --jobs 100 --at-once 10 --json""",
)
@_workers("8,64")
@_count("--starts", high=10_000, default=20, help_text="Jobs of each number of workers.")
@_count("--jobs", high=30_000, default=1000, help_text="Jobs of two workers, started and stopped one after the other.")
@_count("--at-once", high=1000, default=100, help_text="Jobs of two workers, started together.")
@click.option(
    "--transport", type=click.Choice(TRANSPORTS), default="shm", show_default=True, help="How ranks reach the switch."
)
def bench_jobs(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Time the start of jobs, and measure what grows with their number."""
    from switchml.benchmarks import jobs

    return _measured(jobs.run, jobs.Options(**chosen))


@bench_group.command("kernels", epilog="\b\nExample:\n  switchml-ctl bench kernels --sizes 64KiB,1MiB")
@_sizes("64KiB,1MiB,16MiB,256MiB")
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
    return _measured(kernels.run, kernels.Options(**chosen))


@bench_group.command("rounding", epilog="\b\nExample:\n  switchml-ctl bench rounding --workers 8 --spreads 0,20")
@_workers("2,8,64")
@click.option(
    "--spreads",
    type=_SPREADS,
    default="0,10,20,40",
    show_default=True,
    metavar="N,...",
    help="Largest distances of magnitudes, in powers of two.",
)
@_count("--lanes", high=1 << 24, default=1 << 16, help_text="Number of sums.")
@_count("--orders", high=1000, default=5, help_text="Orders in which numbers are added, to count sums that change.")
@_count("--seed", low=0, high=(1 << 32) - 1, default=1, help_text="Seed of the numbers.")
def bench_rounding(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Compute how exact sums of floats are in each way to add, in FPISA's as well. Nothing is measured."""
    from switchml.benchmarks import rounding

    return _measured(rounding.run, rounding.Options(**chosen))


@bench_group.command("memory", epilog="\b\nExample:\n  switchml-ctl bench memory --sizes 64MiB,1GiB")
@_count("--workers", low=2, high=PROTOCOL_MAX_WORKERS, default=2, help_text="Number of workers.")
@_sizes("64MiB,4GiB")
@_transports()
@_count("--iterations", "calls", high=1000, default=1, help_text="Calls with each size.")
def bench_memory(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Measure the memory of agent and switch while tensors of different sizes are summed."""
    from switchml.benchmarks import memory

    return _measured(memory.run, memory.Options(**chosen))


@bench_group.command("python", epilog="\b\nExample:\n  switchml-ctl bench python --transport shm")
@_count("--workers", low=2, high=PROTOCOL_MAX_WORKERS, default=2, help_text="Number of workers.")
@_sizes("4KiB,64MiB")
@_transports()
@_calls
def bench_python(**chosen: Any) -> Sequence[BenchmarkResult]:
    """Measure the part of an all-reduce that is spent in Python."""
    from switchml.benchmarks import python_cost

    return _measured(python_cost.run, python_cost.Options(**chosen))


@bench_group.command(
    "links",
    epilog="""\b
Examples:
  switchml-ctl bench links --torch-python venv/bin/python
  switchml-ctl bench links --link 200mbit --queue 50ms,400ms --workers 4 --peers '' --json links.json
  switchml-ctl bench links --link 200mbit --workers 4 --modes ps1,psN,ring,switch,switch16
  switchml-ctl bench links --link 200mbit --workers 4 --size 64MiB --urgent 1MiB""",
)
@_collective
@_rates("200mbit,1gbit")
@_queues
@_workers("4,8")
@_size("16MiB")
@click.option(
    "--peers",
    type=_LINK_PEERS,
    default=",".join(LINK_PEERS),
    show_default=True,
    metavar="NAME,...",
    help=f"Peers to compare with, of {', '.join(LINK_PEERS)}; '' for none.",
)
@click.option(
    "--modes",
    type=_MODES,
    default="",
    metavar="NAME,...",
    help=f"In place of SwitchML and its peers, compare ways to all-reduce float32, of {', '.join(options.MODES)}: one"
    " parameter server, one on the host of each worker, Gloo's ring, a switch, and 16 bits an element.",
)
@_count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@_count("--iterations", "calls", high=10_000, default=1, help_text="Calls per turn, after one that is not timed.")
@click.option(
    "--urgent",
    type=_SIZE,
    metavar="SIZE",
    help="Measure instead an all-reduce of this size and of priority 7, alone and behind one of --size and priority 0.",
)
@_torch_python
@click.pass_obj
def bench_links(
    session: Session, /, size: int, modes: list[str], urgent: int | None, **chosen: Any
) -> Sequence[BenchmarkResult]:
    """Time collectives over links of a chosen rate, with the bound that the link sets to each algorithm. Needs root.

    Each worker has a network namespace and a link to a bridge, with a token bucket at both ends. SwitchML and its
    peers use the same links. A row that something other than its link has limited says so, and has no ratio. A
    link adds no delay except in its queue: this would need a queueing discipline that few kernels have (netem).
    """
    if modes and urgent is not None:
        raise click.UsageError("--modes and --urgent are separate measurements; give one of them")
    run_dir = session.settings().run_dir
    if modes:
        return _measured_modes(run_dir, modes, size, chosen)
    if urgent is not None:
        return _urgent(run_dir, size, urgent, **chosen)

    from switchml.benchmarks import links

    wanted = links.Options(bytes=size, **chosen)
    return _measured(lambda options, report, bar: links.run(options, run_dir, report, bar), wanted)


def _urgent(
    run_dir: Path,
    size: int,
    urgent_size: int,
    *,
    rates: list[int],
    queues: list[float],
    workers: list[int],
    repetitions: int,
    calls: int,
    collective: str,
    **_for_peers: Any,
) -> Sequence[BenchmarkResult]:
    from switchml.benchmarks import urgent

    if collective != "all_reduce":
        raise click.UsageError("--urgent measures all-reduces; leave --collective out")
    wanted = urgent.Options(rates, queues, workers, size, urgent_size, repetitions, calls)
    return _measured(lambda options, report, bar: urgent.run(options, run_dir, report, bar), wanted)


def _measured_modes(run_dir: Path, modes: list[str], size: int, chosen: dict[str, Any]) -> Sequence[BenchmarkResult]:
    from switchml.benchmarks import modes as ways

    if chosen.pop("collective") != "all_reduce":
        raise click.UsageError("--modes are ways to all-reduce; omit --collective")
    del chosen["peers"]
    wanted = ways.Options(bytes=size, modes=modes, **chosen)
    return _measured(lambda options, report, bar: ways.run(options, run_dir, report, bar), wanted)


@bench_group.command(
    "leaves", epilog="\b\nExample:\n  switchml-ctl bench leaves --link 200mbit --torch-python venv/bin/python"
)
@_count("--hosts", low=2, high=PROTOCOL_MAX_WORKERS, default=2, help_text="Number of hosts.")
@_count("--ranks", high=PROTOCOL_MAX_WORKERS, default=4, help_text="Ranks of each host.")
@click.option("--link", "rate", type=_RATE, default="200mbit", show_default=True, metavar="RATE", help="Rate of links.")
@click.option(
    "--queue", type=_QUEUE, default="400ms", show_default=True, metavar="TIME", help="Length of the links' queues."
)
@_size("64MiB")
@click.option(
    "--small",
    "small_bytes",
    type=_SIZE,
    default="4KiB",
    show_default=True,
    metavar="SIZE",
    help="Size of a second, small tensor.",
)
@_count("--repetitions", high=1000, default=3, help_text="Turns of each system.")
@_count("--iterations", "calls", high=10_000, default=1, help_text="Calls per turn, after one that is not timed.")
@_count("--small-iterations", "small_calls", high=100_000, default=200, help_text="Calls of the small tensor per turn.")
@_torch_python
@click.pass_obj
def bench_leaves(session: Session, /, size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time all-reduces of hosts with several ranks, with and without a switch on each host. Needs root.

    The links are those of `bench links`. With a switch on each host the ranks share memory with it, and it sends one
    contribution for all of them; otherwise each rank sends its own. Gloo uses the same links.
    """
    from switchml.benchmarks import leaves

    run_dir = session.settings().run_dir
    wanted = leaves.Options(bytes=size, **chosen)
    return _measured(lambda options, report, bar: leaves.run(options, run_dir, report, bar), wanted)


@bench_group.command(
    "ddp",
    epilog="""\b
Examples:
  switchml-ctl bench ddp --torch-python venv/bin/python
  switchml-ctl bench ddp --link 200mbit,1gbit --workers 4,8 --torch-python venv/bin/python --json ddp.json""",
)
@_rates("200mbit")
@_queues
@_workers("4")
@_count("--repetitions", high=1000, default=3, help_text="Turns of each backend.")
@_count("--steps", high=10_000, default=2, help_text="Steps per turn, after one that is not timed.")
@_torch_python
@click.pass_obj
def bench_ddp(session: Session, /, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Time training steps with DDP and FSDP over links of a chosen rate, compared with Gloo. Needs root.

    The links are those of `bench links`. The interpreter that --torch-python names needs torch and switchml.
    """
    from switchml.benchmarks import ddp

    run_dir = session.settings().run_dir
    return _measured(lambda options, report, bar: ddp.run(options, run_dir, report, bar), ddp.Options(**chosen))


@bench_group.command(
    "compression",
    epilog="""\b
Examples:
  switchml-ctl bench compression --torch-python venv/bin/python
  switchml-ctl bench compression --methods lanes:bits=8,qsgd:levels=15:norm=max --tasks '' --json compression.json
  switchml-ctl bench compression --elements 1000000 --link 200mbit --repetitions 1 --plots pictures""",
)
@click.option(
    "--methods",
    type=_METHODS,
    default=",".join(options.COMPRESSION_METHODS),
    show_default=True,
    metavar="METHOD,...",
    help="Methods of docs/compression.md with their arguments, NAME:ARGUMENT=VALUE; also wire:bits=16 or 8 (the option"
    " of a process group) and powersgd:rank=N:start=S (its first S steps are sums; 2 without `start`). The peers none"
    " and gloo are always measured.",
)
@_count("--elements", low=64, high=1 << 30, default=25_000_000, help_text="Elements of the gradient.")
@_rates("200mbit,1gbit")
@click.option(
    "--queue", type=_QUEUE, default="400ms", show_default=True, metavar="TIME", help="Length of the links' queues."
)
@_count("--workers", low=2, high=PROTOCOL_MAX_WORKERS, default=4, help_text="Number of workers.")
@_count("--repetitions", high=1000, default=3, help_text="Turns of each method.")
@_count("--steps", high=10_000, default=1, help_text="Steps per turn, after one that is not timed.")
@_count("--iterations", "calls", high=1000, default=3, help_text="Times to compress and decompress.")
@click.option(
    "--tasks",
    type=_TASKS,
    default=",".join(options.TRAININGS),
    show_default=True,
    metavar="NAME,...",
    help="Trainings whose accuracy is compared: digits needs scikit-learn, text reads the sources of Python's standard"
    " library; '' for none.",
)
@_count("--training-steps", high=1_000_000, default=300, help_text="Steps of each training.")
@click.option(
    "--learning-rates",
    type=_FACTORS,
    default="1",
    show_default=True,
    metavar="FACTOR,...",
    help="Factors of the learning rate. Each method, also none, trains with each of them and each momentum; its best"
    " accuracy counts.",
)
@click.option(
    "--momenta",
    type=_MOMENTA,
    default="0.9",
    show_default=True,
    metavar="MOMENTUM,...",
    help="Momenta of SGD on digits, or the first beta of AdamW on text.",
)
@_torch_python
@click.pass_obj
def bench_compression(session: Session, /, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Compare methods of gradient compression: computing, bytes, steps over links, accuracy. Needs root.

    The links are those of `bench links`. The interpreter that --torch-python names needs torch and switchml.
    """
    from switchml.benchmarks import compression

    run_dir = session.settings().run_dir
    wanted = compression.Options(**chosen)
    return _measured(lambda options, report, bar: compression.run(options, run_dir, report, bar), wanted)


@bench_group.command(
    "schedule",
    epilog="""\b
Examples:
  switchml-ctl bench schedule --torch-python venv/bin/python
  switchml-ctl bench schedule --policies p3:classes=8,bytescheduler:partition=1000000:credit=2000000 --forward 50ms
  switchml-ctl bench schedule --workers 2 --size 4MiB --repetitions 1 --json schedule.json --plots pictures""",
)
@click.option(
    "--policies",
    type=_POLICIES,
    default=",".join(options.SCHEDULES),
    show_default=True,
    metavar="POLICY,...",
    help="Policies of docs/scheduling.md, NAME:classes=N:partition=BYTES:credit=BYTES. The peer fifo is always"
    " measured.",
)
@_size("20MiB")
@click.option(
    "--forward",
    type=_DURATION,
    default="200ms",
    show_default=True,
    metavar="TIME",
    help="Time of the forward pass, in which the ranks sleep, as with a model on a device; backward takes twice as"
    " long.",
)
@click.option("--link", "rate", type=_RATE, default="200mbit", show_default=True, metavar="RATE", help="Rate of links.")
@click.option(
    "--queue", type=_QUEUE, default="50ms", show_default=True, metavar="TIME", help="Length of the links' queues."
)
@_count("--workers", low=2, high=PROTOCOL_MAX_WORKERS, default=4, help_text="Number of workers.")
@_count("--repetitions", high=1000, default=3, help_text="Turns of each policy.")
@_count("--steps", high=10_000, default=6, help_text="Steps per turn, after three that are not timed.")
@_torch_python
@click.pass_obj
def bench_schedule(session: Session, /, size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Compare orders of communication in training that crosses the barrier of steps. Needs root.

    A model like VGG, with most bytes in its last layers, trains with switchml.torch.scheduling. The table also has the
    steps that a simulation predicts. The links are those of `bench links`. The interpreter that --torch-python names
    needs torch and switchml.
    """
    from switchml.benchmarks import schedule

    run_dir = session.settings().run_dir
    wanted = schedule.Options(bytes=size, **chosen)
    return _measured(lambda options, report, bar: schedule.run(options, run_dir, report, bar), wanted)


@bench_group.command(
    "sparse",
    epilog="""\b
Examples:
  switchml-ctl bench sparse --torch-python venv/bin/python
  switchml-ctl bench sparse --workers 4 --values 64 --densities 0.1%,1% --overlap random --peers ''
  switchml-ctl bench sparse --gradients --json sparse.json --plots pictures""",
)
@_workers("8")
@_size("64MiB")
@click.option(
    "--values",
    type=_VALUES,
    default="256,2048",
    show_default=True,
    metavar="N,...",
    help="Values per packet; each number has a separate fabric.",
)
@click.option(
    "--densities",
    type=_DENSITIES,
    default="0.001,0.01,0.1,0.5,1",
    show_default=True,
    metavar="SHARE,...",
    help="Fractions of the blocks in which each rank has values.",
)
@click.option(
    "--gradients",
    is_flag=True,
    help=f"Take the densities of published gradients instead: {', '.join(options.GRADIENTS)}.",
)
@click.option(
    "--overlap",
    "overlaps",
    type=_OVERLAPS,
    default=",".join(OVERLAPS),
    show_default=True,
    metavar="NAME,...",
    help="Blocks that all ranks have in common. Densities at which the ranks cannot have none in common are left out.",
)
@_count("--block", high=1 << 20, default=256, help_text="Values of a block.")
@_transports()
@click.option(
    "--peers",
    type=_SPARSE_PEERS,
    default=",".join(SPARSE_PEERS),
    show_default=True,
    metavar="NAME,...",
    help=f"Peers to compare with, of {', '.join(SPARSE_PEERS)}; '' for none. The latter gathers the numbers and values"
    " of blocks over Gloo.",
)
@_repetitions
@_count("--iterations", "calls", high=100_000, default=3, help_text="Calls per turn, after one that is not timed.")
@_torch_python
def bench_sparse(
    size: int, block: int, densities: list[float], gradients: bool, **chosen: Any
) -> Sequence[BenchmarkResult]:
    """Time sparse all-reduces over the share of blocks with values, in turns with dense ones and with Gloo.

    The table also has the packets with values that a rank has sent and received.
    """
    from switchml.benchmarks import sparse

    if size % (4 * block):
        raise click.BadParameter(
            f"{options.size_text(size)} are not a whole number of blocks of {block} float32 values."
        )
    densities = list(options.GRADIENTS.values()) if gradients else densities
    wanted = sparse.Options(bytes=size, block=block, densities=densities, gradients=gradients, **chosen)
    return _measured(sparse.run, wanted)


def _duration(name: str, default: str, help_text: str) -> Callable[[F], F]:
    return click.option(name, type=_DURATION, default=default, show_default=True, metavar="TIME", help=help_text)


@bench_group.command(
    "simulate",
    epilog="""\b
Examples:
  switchml-ctl bench simulate --trees 4,8,16 --losses 0 --late 0
  switchml-ctl bench simulate --json simulate.json --plots pictures
  switchml-ctl bench simulate --trees 64x64 --size 256KiB --losses 0.01%""",
)
@click.option(
    "--trees",
    type=_TREES,
    default="4,8,16,32,64,2x64,4x64,16x64,4x4x64",
    show_default=True,
    metavar="TREE,...",
    help="Children of each switch, from the root down: 16x64 has 16 leaves with 64 ranks each.",
)
@_size("1MiB")
@_count("--values", high=PROTOCOL_MAX_VALUES, default=256, help_text="Values per packet.")
@_count("--pool", high=1 << 15, default=512, help_text="Slots of the job.")
@click.option("--link", "rate", type=_RATE, default="100gbit", show_default=True, metavar="RATE", help="Rate of links.")
@_duration("--switch-delay", "1us", "Time from the end of a packet on a link until a switch has it.")
@_duration("--host-delay", "12us", "Time that network card and software of a host delay a packet, in each direction.")
@_duration("--host-packet", "85ns", "Time that a host is busy with each packet, in each direction.")
@click.option(
    "--losses",
    type=_SHARES,
    default="0,0.01%,0.1%,1%",
    show_default=True,
    metavar="SHARE,...",
    help="Fractions of the packets that each link loses, in each direction.",
)
@click.option(
    "--late",
    type=_DURATIONS,
    default="0,1ms",
    show_default=True,
    metavar="TIME,...",
    help="Times by which the last rank begins after the others.",
)
@_count("--seeds", high=1000, default=1, help_text="Runs with losses, each with another seed.")
def bench_simulate(size: int, **chosen: Any) -> Sequence[BenchmarkResult]:
    """Simulate all-reduces through trees of switches over fast links, up to 4,096 ranks. Needs SimPy.

    Nothing is measured: docs/scaling.md describes the model. Each case without losses or a late rank is compared
    with a ring all-reduce at the rate of the links.
    """
    from switchml.benchmarks import simulate

    return _measured(simulate.run, simulate.Options(bytes=size, **chosen))


@bench_group.command(
    "show",
    epilog="""\b
Examples:
  switchml-ctl bench show allreduce.json --plots pictures
  switchml-ctl bench show allreduce.json latency.json --markdown
  switchml-ctl bench show *.json --into docs/performance.md --plots docs/performance""",
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
    from switchml.benchmarks.results import load

    results = [load(file) for file in files]
    return results if document is None else _ForDocument(results, document)
