"""Resources of a process: memory, file descriptors, threads (proc(5))."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path

from switchml.common.processes import ProcessRecord

__all__ = ["Footprint", "footprints"]


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Current and peak resident memory in bytes, including shared memory; open files; threads."""

    process: str
    resident: int
    peak: int
    descriptors: int
    threads: int


def footprints(processes: Iterable[ProcessRecord]) -> list[Footprint]:
    """Return the footprint of each process. Raises OSError for one that has ended."""
    return [_footprint(process) for process in processes]


def _footprint(process: ProcessRecord) -> Footprint:
    place = Path(f"/proc/{process.pid}")
    lines = (place / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return Footprint(
        process.name,
        1024 * int(fields["VmRSS"].split()[0]),
        1024 * int(fields["VmHWM"].split()[0]),
        len(os.listdir(place / "fd")),  # noqa: PTH208  (names are enough)
        int(fields["Threads"]),
    )
