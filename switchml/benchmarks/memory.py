"""`bench memory`: the peak memory of agent and switch while tensors of different sizes are summed."""

from __future__ import annotations

import dataclasses

from switchml.benchmarks.footprint import footprints
from switchml.benchmarks.options import size_text
from switchml.benchmarks.record import Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import own_fabric, work_directory
from switchml.benchmarks.turns import Task
from switchml.common.progress import Progress

__all__ = ["MemoryOptions", "MemoryRow", "run"]


@dataclasses.dataclass(frozen=True)
class MemoryOptions:
    """Options: `calls` all-reduces of each size, each size on a new fabric."""

    workers: int
    sizes: list[int]
    transports: list[str]
    calls: int


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """The memory of a process in bytes: when its fabric had just started, and its peak by tensor size.

    `growth` is the peak with the largest tensor / that with the smallest.
    """

    transport: str
    process: str
    at_rest: int
    peaks: dict[str, int]
    growth: float


def run(options: MemoryOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    at_rest: dict[tuple[str, str], int] = {}
    peaks: dict[tuple[str, str], dict[int, int]] = {}
    progress.expect(len(options.transports) * sum(options.sizes))
    with work_directory() as directory:
        for transport in options.transports:
            for size in options.sizes:
                report(f"{transport}: {size_text(size)} on {options.workers} workers")
                with own_fabric(transport, directory) as system:
                    idle = footprints(system.daemons)
                    with system.group(options.workers, directory) as group:
                        group.command(Task(size, 1, options.calls).command)
                        busy = footprints(system.daemons)
                progress.did(size)
                for before, after in zip(idle, busy, strict=True):
                    at_rest.setdefault((transport, before.process), before.resident)
                    peaks.setdefault((transport, before.process), {})[size] = after.peak
    smallest, largest = min(options.sizes), max(options.sizes)
    rows = [
        MemoryRow(
            transport,
            process,
            at_rest[transport, process],
            {str(size): peak for size, peak in found.items()},
            found[largest] / found[smallest],
        )
        for (transport, process), found in peaks.items()
    ]
    return BenchmarkResult.of("memory", options, rows)
