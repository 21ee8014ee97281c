"""Parameters that commands which measure have in common, and the run of a benchmark with a progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from switchml.benchmarks import options
from switchml.benchmarks.options import OVERLAPS, PEERS, SPARSE_PEERS, TRANSPORTS
from switchml.commands.command import Parsed
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS

if TYPE_CHECKING:
    from switchml.benchmarks.results import BenchmarkResult

__all__ = ["SIZE", "block", "calls", "calls_after_one", "collective", "count", "group_size", "measured"]
__all__ += ["measured_sparse", "named", "one", "option", "overlaps", "packet_values", "peers", "queues", "rates"]
__all__ += ["repetitions", "size", "sizes", "sparse_peers", "summing_transports", "torch_python", "transports"]
__all__ += ["workers"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def one(what: str, parse: Callable[[str], Sequence[T]]) -> Parsed:
    """Return the type of a parameter with one value of those that `parse` finds in a list."""

    def only(text: str) -> T:
        found = parse(text)
        if len(found) != 1:
            raise ValueError(f"{text} is not one {what}")
        return found[0]

    return Parsed(what, only)


SIZE: Final = one("size", options.sizes)

torch_python = click.option(
    "--torch-python",
    default=sys.executable,
    metavar="PROGRAM",
    # A path, rather than a name to be searched on PATH; symbolic links are kept, because resolving them would leave a
    # virtual environment.
    callback=lambda _context, _option, program: str(Path(program).absolute()) if os.sep in program else program,
    help="A Python interpreter that has torch and numpy, for Gloo.  [default: this one]",
)


def count(*names: str, low: int = 1, high: int, default: int, help_text: str) -> Callable[[F], F]:
    """Return the decorator of an option with a whole number."""
    return click.option(*names, type=click.IntRange(low, high), default=default, show_default=True, help=help_text)


def option(*names: str, kind: Parsed, default: str, metavar: str, help_text: str) -> Callable[[F], F]:
    """Return the decorator of an option whose text `kind` parses."""
    return click.option(*names, type=kind, default=default, show_default=True, metavar=metavar, help=help_text)


def named(*names: str, known: Sequence[str], default: str, help_text: str) -> Callable[[F], F]:
    """Return the decorator of an option with names of `known`."""
    kind = Parsed(names[-1].removeprefix("--"), lambda text: options.names(text, known))
    return option(*names, kind=kind, default=default, metavar="NAME,...", help_text=help_text)


def workers(default: str) -> Callable[[F], F]:
    """Return the decorator of `--workers`."""
    kind = Parsed("workers", options.worker_counts)
    return option("--workers", kind=kind, default=default, metavar="N,...", help_text="Numbers of workers.")


def group_size(default: int) -> Callable[[F], F]:
    """Return the decorator of `--workers` with one number."""
    return count("--workers", low=2, high=PROTOCOL_MAX_WORKERS, default=default, help_text="Number of workers.")


def sizes(default: str) -> Callable[[F], F]:
    """Return the decorator of `--sizes`."""
    kind, text = Parsed("sizes", options.sizes), "Sizes of the tensors in bytes."
    return option("--sizes", kind=kind, default=default, metavar="SIZE,...", help_text=text)


def size(default: str) -> Callable[[F], F]:
    """Return the decorator of `--size`."""
    return option("--size", kind=SIZE, default=default, metavar="SIZE", help_text="Size of the tensor in bytes.")


def rates(default: str) -> Callable[[F], F]:
    """Return the decorator of `--link`."""
    kind, text = Parsed("rates", options.rates), "Rates of every host's link."
    return option("--link", "rates", kind=kind, default=default, metavar="RATE,...", help_text=text)


def peers(default: str, known: Sequence[str] = PEERS, remark: str = "") -> Callable[[F], F]:
    """Return the decorator of `--peers`."""
    text = f"Peers to compare with, of {', '.join(known)}; '' for none.{remark}"
    return named("--peers", known=known, default=default, help_text=text)


collective = click.option(
    "--collective",
    type=click.Choice(options.COLLECTIVES),
    default="all_reduce",
    show_default=True,
    metavar="NAME",
    help=f"The operation: {', '.join(options.COLLECTIVES)}. Open MPI is measured with all-reduces only.",
)
transports = named(
    *("--transport", "transports"), known=TRANSPORTS, default="shm,udp", help_text="How ranks reach the switch."
)
summing_transports = named(
    *("--transport", "transports"),
    known=(*TRANSPORTS, *options.VARIANTS),
    default="shm,udp",
    help_text="How ranks reach the switch, which adds up floats as such with -float, and all values with shm-switch.",
)
queues = option(
    *("--queue", "queues"),
    kind=Parsed("queues", options.queues),
    default="400ms",
    metavar="TIME,...",
    help_text="Lengths of the links' queues: the longest time that a packet waits in one before it is dropped.",
)
packet_values = option(
    "--values",
    kind=Parsed("values", options.packet_values),
    default="256,2048",
    metavar="N,...",
    help_text="Values per packet; each number has a separate fabric.",
)
overlaps = named(
    *("--overlap", "overlaps"),
    known=OVERLAPS,
    default=",".join(OVERLAPS),
    help_text="Blocks that all ranks have in common. Densities that this share makes impossible are left out.",
)
block = count("--block", high=1 << 20, default=256, help_text="Values of a block.")
sparse_peers = peers(
    ",".join(SPARSE_PEERS), SPARSE_PEERS, " The latter gathers the numbers and values of blocks over Gloo."
)
repetitions = count("--repetitions", high=1000, default=5, help_text="Turns of each system.")
calls = click.option(
    "--iterations",
    "calls",
    type=click.IntRange(0, 100_000),
    default=0,
    help="Calls per turn.  [default: as many as sum 320 MiB, 5 to 200]",
)


def calls_after_one(high: int, default: int) -> Callable[[F], F]:
    """Return the decorator of `--iterations` for calls that follow one which is not timed."""
    text = "Calls per turn, after one that is not timed."
    return count("--iterations", "calls", high=high, default=default, help_text=text)


def measured(run: Callable[..., BenchmarkResult], wanted: object, *run_dir: Path) -> list[BenchmarkResult]:
    """Run a benchmark with these options, and the run directory if it takes one; return its result in a list."""
    from switchml.commands.displays import ProgressBar

    with ProgressBar() as bar:
        return [run(wanted, *run_dir, bar.note, bar)]


def measured_sparse(size: int, block: int, **chosen: Any) -> list[BenchmarkResult]:
    """Run the benchmark of sparse all-reduces. Raises BadParameter for a size with a part of a block."""
    from switchml.benchmarks import sparse

    if size % (4 * block):
        raise click.BadParameter(
            f"{options.size_text(size)} are not a whole number of blocks of {block} float32 values."
        )
    return measured(sparse.run, sparse.SparseOptions(bytes=size, block=block, **chosen))
