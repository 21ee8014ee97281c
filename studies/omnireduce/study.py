"""OmniReduce (Fei et al., SIGCOMM 2021): what blocks of zeros save at the densities of published gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from studies.command import study
from switchml.benchmarks import plots, report
from switchml.benchmarks.report import ReportTable
from switchml.benchmarks.results import BenchmarkResult
from switchml.commands import bench_parameters as parameters

__all__ = ["GRADIENTS", "command"]

GRADIENTS: Final = {"DeepLight": 0.01, "LSTM": 0.06, "NCF": 0.16, "VGG19": 0.68, "ResNet152": 0.79, "BERT": 0.91}
"""Densities of the gradients of six models, as the paper reports them."""


def _tables(result: BenchmarkResult) -> list[ReportTable]:
    """Return the table of `bench sparse`, with the names of the models."""
    [table] = report.TABLES["sparse"](result)
    names = {density: name for name, density in GRADIENTS.items()}
    column = table.columns.index("blocks with values")

    def named(cells: Sequence[str], density: float) -> list[str]:
        return [*cells[:column], f"{cells[column]} {names[density]}", *cells[column + 1 :]]

    rows = [named(cells, row["density"]) for cells, row in zip(table.rows, result.rows, strict=True)]
    return [dataclasses.replace(table, rows=rows)]


def _headline(result: BenchmarkResult) -> str:
    best = max(result.rows, key=lambda row: row["ratio"])
    last = plots.where(result.rows, system=best["system"], overlap=best["overlap"], values=best["values"])[-1]
    ratios = [f"{row['density']:.0%} of the blocks {row['ratio']:.2f} times as fast" for row in (best, last)]
    return f"{best['system']}, {best['overlap']} in common: {', '.join(ratios)} as the dense call"


@study(
    "omnireduce",
    _tables,
    plots.FIGURES["sparse"],
    short="--workers 4 --size 8MiB --values 256 --repetitions 1",
    headline=_headline,
    needs=("torch",),
)
@parameters.workers("8")
@parameters.size("64MiB")
@parameters.packet_values
@parameters.overlaps
@parameters.block
@parameters.transports
@parameters.sparse_peers
@parameters.repetitions
@parameters.calls_after_one(high=100_000, default=3)
@parameters.torch_python
def command(**chosen: Any) -> list[BenchmarkResult]:
    """Time sparse all-reduces at the densities of six models' gradients, in turns with dense ones and with Gloo."""
    [found] = parameters.measured_sparse(densities=list(GRADIENTS.values()), **chosen)
    return [dataclasses.replace(found, benchmark="omnireduce")]
