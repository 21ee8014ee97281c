"""RDMA in SwitchML (Sapio et al., NSDI 2021, and its artifact): the ceilings that packets set to sums."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from studies.command import one_rate, study
from switchml.benchmarks import options as words
from switchml.benchmarks.plots import side_by_side
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.report import ReportTable, number
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters
from switchml.commands.command import Parsed
from switchml.common.progress import Progress
from switchml.dataplane.constants import ROCEV2_OVERHEAD_BYTES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RdmaOptions", "RdmaRow", "command", "run"]

_PUBLISHED: Final = 2820e6
"""Elements per second of 4 to 16 ranks with links of 100 Gb/s, read from a figure; packets had 256 values."""
_HEADER: Final = 32  # of SwitchML
_FRAME: Final = 20 + 14 + 20 + 8 + 4  # preamble and gap, Ethernet, IPv4, UDP, check sequence
_MTUS: Final = (256, 512, 1024, 2048, 4096)  # of RDMA


@dataclasses.dataclass(frozen=True)
class RdmaOptions:
    """Options: values of each packet, and the rate of the link in bits per second."""

    values: list[int]
    rate: int


@dataclasses.dataclass(frozen=True)
class RdmaRow:
    """The bytes of a packet on the link, and what a link carries of such packets in a second.

    `mtu` is the RDMA MTU that a message of these values needs, 0 for a packet over UDP without RDMA.
    """

    values: int
    mtu: int
    bytes: int
    goodput: float
    packets_per_second: float
    elements_per_second: float


def run(options: RdmaOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Compute."""
    progress.expect(1)
    rows = [_row(values, rdma, options.rate) for values in options.values for rdma in (True, False)]
    progress.did(1)
    return BenchmarkResult.of("rdma", options, rows, Record(report))


def _row(values: int, rdma: bool, rate: int) -> RdmaRow:
    message = _HEADER + 4 * values
    size = _FRAME + message + (ROCEV2_OVERHEAD_BYTES if rdma else 0)
    mtu = next(mtu for mtu in _MTUS if mtu >= message) if rdma else 0
    packets = rate / 8 / size
    return RdmaRow(values, mtu, size, 4 * values / size, packets, values * packets)


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    columns = ["values", "RDMA MTU", "bytes on the link", "goodput", "million packets/s", "million elements/s"]
    rows = [
        [
            str(row["values"]),
            str(row["mtu"] or "UDP"),
            str(row["bytes"]),
            f"{row['goodput']:.1%}",
            number(row["packets_per_second"] / 1e6),
            f"{row['elements_per_second'] / 1e6:,.0f}",
        ]
        for row in result.rows
    ]
    return [ReportTable("Ceilings of sums, computed from the bytes of packets", columns, rows)]


def _figures(result: BenchmarkResult) -> list[tuple[str, Figure]]:
    figure, [panel] = side_by_side(["ceilings by packet size"])
    for label, of_kind in (("RDMA", True), ("UDP", False)):
        rows = [row for row in result.rows if bool(row["mtu"]) == of_kind]
        rates = [row["elements_per_second"] / 1e6 for row in rows]
        panel.plot([row["values"] for row in rows], rates, marker="o", label=label)
    panel.plot([256], [_PUBLISHED / 1e6], "x", color="black", label="published, 100 Gb/s")
    panel.set_xlabel("values of a packet")
    panel.set_ylabel("million elements/s")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=7)
    return [("ceiling", figure)]


def _headline(result: BenchmarkResult) -> str:
    ceilings = [f"{row['values']} values {row['elements_per_second'] / 1e6:,.0f}" for row in result.rows if row["mtu"]]
    return f"million elements/s at most: {', '.join(ceilings)}"


def message_values(text: str) -> list[int]:
    """Return the values of "64,248". Raises ValueError for more than a message of RDMA holds, 1016."""

    def count(word: str) -> int:
        if not word.isdecimal() or not 0 < int(word) <= (_MTUS[-1] - _HEADER) // 4:
            raise ValueError(f"{word!r} is not a number of values from 1 to {(_MTUS[-1] - _HEADER) // 4}")
        return int(word)

    return words.each(text, count)


@study("rdma", _tables, _figures, short="--values 64,248,1016", headline=_headline)
@parameters.option(
    "--values",
    kind=Parsed("values", message_values),
    default="64,248,256,504,1016",
    metavar="N,...",
    help_text="Values of a packet, which is one message of a card.",
)
@one_rate("100gbit")
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Compute the ceilings that headers set to sums of RDMA cards. Nothing is measured."""
    return parameters.measured(run, RdmaOptions(**chosen))
