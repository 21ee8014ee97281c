"""The bytes, the error and the accuracy of methods of compression, before and after the sum inside a host."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from studies.torchrun import run_ranks
from switchml.benchmarks.errors import RankFailed
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress

__all__ = ["ORDERS", "OrdersOptions", "OrdersRow", "run"]

ORDERS: Final = ("intra-compress-inter", "compress-intra-inter")
_RANK: Final = Path(__file__).with_name("rank.py")


@dataclasses.dataclass(frozen=True)
class OrdersOptions:
    """Options: `steps` of a training on `hosts` with `ranks` each."""

    methods: list[str]
    hosts: int
    ranks: int
    steps: int
    seed: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class OrdersRow:
    """The bytes that a host sends of a gradient, and the error of the first average relative to the exact one."""

    method: str
    order: str
    bytes: int
    bits: float
    error: float
    accuracy: float


def run(options: OrdersOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises RankFailed."""
    record = Record(report)
    rows = []
    progress.expect(len(options.methods) * len(ORDERS))
    for method in options.methods:
        for order in ORDERS:
            found = _trained(options, method, order)
            bits = 8 * found["bytes"] / found["elements"]
            rows.append(OrdersRow(method, order, found["bytes"], bits, found["error"], found["accuracy"]))
            report(f"  {method} {order}: {bits:.2f} bits an element, error {found['error']:.3f}")
            progress.did(1)
    return BenchmarkResult.of("orders", options, rows, record)


def _trained(options: OrdersOptions, method: str, order: str) -> dict[str, Any]:
    numbers = {"hosts": options.hosts, "steps": options.steps, "seed": options.seed}
    arguments = [f"--{name}={value}" for name, value in numbers.items()]
    workers = options.hosts * options.ranks
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        try:
            return run_ranks(
                _RANK,
                workers,
                [*arguments, f"--method={method}", f"--order={order}"],
                Path(directory),
                python=options.torch_python,
            )
        except subprocess.SubprocessError as error:
            raise RankFailed(f"{method}, {order}: {error}") from error
