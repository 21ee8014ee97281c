"""`bench kernels`: the arithmetic between a tensor and packets on one core, with each set of instructions."""

from __future__ import annotations

import dataclasses
import importlib
import statistics
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
    """GB/s (10^9 bytes of float32 elements in a second, medians over passes) of a kernel, by bytes of the tensor."""

    kernel: str
    instructions: str
    gigabytes_per_second: dict[str, float]


def run(options: Options, report: Reporter) -> Result:
    """Measure, in a process with a session of its own."""
    state = machine_state.now()
    report("timing the kernels on one core")
    command = [sys.executable, "-m", "benchmarks.kernels", str(options.seconds), *map(str, options.sizes)]
    measured = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_PROCESS_SECONDS, start_new_session=True
    )
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in measured.stdout.splitlines():
        kernel, instructions, size, figure = line.split("\t")
        found.setdefault((kernel, instructions), {})[size] = float(figure)
    rows = [Row(kernel, instructions, figures) for (kernel, instructions), figures in found.items()]
    return Result.of("kernels", options, rows, (), [state])


def _measure(seconds: float, sizes: list[int]) -> None:
    from benchmarks import _probes
    from benchmarks.workers.counters import take_share

    kernels = importlib.import_module("switchml._native").kernels
    take_share()
    for name, chooses in _probes.kernel_names():
        for instructions in kernels.Instructions if chooses else [kernels.best_instructions()]:
            for size in sizes:
                try:
                    times = _probes.time_kernel(name, instructions.value, size, seconds)
                except ValueError:  # this processor lacks these instructions
                    break
                label = instructions.name.lower() if chooses else "best"
                sys.stdout.write(f"{name}\t{label}\t{size}\t{size / 1e9 / statistics.median(times)}\n")


if __name__ == "__main__":
    _measure(float(sys.argv[1]), [int(size) for size in sys.argv[2:]])
