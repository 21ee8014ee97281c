"""`bench kernels`: the arithmetic between a tensor and packets on one core, with each instruction set."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES

__all__ = ["SMALLEST", "KernelsOptions", "KernelRow", "run"]

SMALLEST: Final = 4 * PROTOCOL_MAX_VALUES
"""Size of a block in bytes, the least that is timed."""

_PROCESS_SECONDS: Final = 1800


@dataclasses.dataclass(frozen=True)
class KernelsOptions:
    """Options: the sizes of the tensors, and the `seconds` for each kernel."""

    sizes: list[int]
    seconds: float


@dataclasses.dataclass(frozen=True)
class KernelRow:
    """GB/s of CPU time of a kernel (median of the passes) by size.

    An element counts as 4 bytes, once, even if its type or its lane has more or less. The copy counts float32 elements
    alike.
    """

    kernel: str
    instructions: str
    gigabytes_per_second: dict[str, float]


def run(options: KernelsOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a process in a new session."""
    record = Record(report, states=[machine_state.now()])
    report("timing the kernels on one core")
    command = [sys.executable, "-m", "switchml.benchmarks.kernel_loop", str(options.seconds), *map(str, options.sizes)]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in _lines(command, progress):
        kernel, instructions, size, seconds = line.split("\t")
        found.setdefault((kernel, instructions), {})[size] = int(size) / 1e9 / float(seconds)
    rows = [KernelRow(kernel, instructions, figures) for (kernel, instructions), figures in found.items()]
    return BenchmarkResult.of("kernels", options, rows, record)


def _lines(command: list[str], progress: Progress) -> Iterator[str]:
    """Yield the lines of a process, after a first line that says how many follow, and then end it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = threading.Timer(_PROCESS_SECONDS, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            progress.expect(int(process.stdout.readline() or 0))
            for line in process.stdout:
                yield line
                progress.did()
        finally:
            deadline.cancel()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
