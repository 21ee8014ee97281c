"""`bench kernels`: the arithmetic between a tensor and packets on one core, with each set of instructions."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.results import Result
from switchml.benchmarks.turns import Reporter
from switchml.common.progress import Progress
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES

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


def run(options: Options, report: Reporter, progress: Progress) -> Result:
    """Measure, in a process with a session of its own."""
    state = machine_state.now()
    report("timing the kernels on one core")
    command = [sys.executable, "-m", "switchml.benchmarks.kernel_loop", str(options.seconds), *map(str, options.sizes)]
    found: dict[tuple[str, str], dict[str, float]] = {}
    for line in _lines(command, progress):
        kernel, instructions, size, seconds = line.split("\t")
        found.setdefault((kernel, instructions), {})[size] = int(size) / 1e9 / float(seconds)
    rows = [Row(kernel, instructions, figures) for (kernel, instructions), figures in found.items()]
    return Result.of("kernels", options, rows, (), [state])


def _lines(command: list[str], progress: Progress) -> Iterator[str]:
    """Yield the lines of a process that says first how many will come, and end it after a while."""
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
