"""`bench kernels`: the arithmetic between a tensor and packets on one core, with each set of instructions."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Final

from benchmarks import machine_state
from benchmarks.results import Result
from benchmarks.turns import Reporter
from dataplane.constants import PROTOCOL_MAX_VALUES

__all__ = ["SMALLEST", "Options", "Row", "run"]

SMALLEST: Final = 4 * PROTOCOL_MAX_VALUES
"""Bytes of a block, below which there is nothing to time."""

_PROCESS_SECONDS: Final = 600


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured: tensors of these sizes, each kernel for `seconds`."""

    sizes: list[int]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Row:
    """GB/s of a kernel (median of the passes) by size. Both count 4 bytes for an element, also of a smaller type."""

    kernel: str
    instructions: str
    gigabytes_per_second: dict[str, float]


def run(options: Options, report: Reporter) -> Result:
    """Measure, in a process with a session of its own."""
    state = machine_state.now()
    report("timing the kernels on one core")
    command = [sys.executable, "-m", "benchmarks.kernel_loop", str(options.seconds), *map(str, options.sizes)]
    measured = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_PROCESS_SECONDS, start_new_session=True
    )
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in measured.stdout.splitlines():
        kernel, instructions, size, seconds = line.split("\t")
        found.setdefault((kernel, instructions), {})[size] = int(size) / 1e9 / float(seconds)
    rows = [Row(kernel, instructions, figures) for (kernel, instructions), figures in found.items()]
    return Result.of("kernels", options, rows, (), [state])
