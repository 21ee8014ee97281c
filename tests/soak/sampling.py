"""Samples of the resources of processes and a run directory (proc(5))."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ALLOWANCES", "Holding", "Sample", "files_bytes", "holding_of", "mean"]

from tests.soak.flatness import Allowance

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Holding:
    """The resources of one process: resident private and shared memory in bytes, descriptors, threads."""

    private: float
    shared: float
    descriptors: float
    threads: float


ALLOWANCES = {
    # An allocator does not return all memory that it can reuse, and fragments a little over the hours.
    "private": Allowance(1 * MIB, 0.02),
    # Pages of slots become resident when a job uses them for the first time.
    "shared": Allowance(1 * MIB, 0.02),
    # A job that is just being replaced may hold some, but no additional one may remain.
    "descriptors": Allowance(0.5),
    "threads": Allowance(0.5),
}
"""The allowed growth of each quantity of a Holding in the judged part of a run."""


@dataclass(frozen=True)
class Sample:
    """The resources `time` seconds after the start of the run; `jobs` have ended by then."""

    time: float
    jobs: int
    holdings: dict[str, Holding]  # by the process's name
    store: int  # bytes
    logs: int


def holding_of(pid: int) -> Holding | None:
    """Return the resources of a process; None if it has ended."""
    place = Path(f"/proc/{pid}")
    try:
        lines = (place / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        descriptors = len(os.listdir(place / "fd"))  # noqa: PTH208 - names are enough
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "RssAnon" not in fields:
        return None  # a zombie has none of this
    kib = {name: KIB * int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")}
    return Holding(kib["RssAnon"], kib["RssShmem"], descriptors, int(fields["Threads"]))


def mean(holdings: list[Holding]) -> Holding:
    """Return the mean of some processes of a kind."""
    count = len(holdings)
    return Holding(
        sum(h.private for h in holdings) / count,
        sum(h.shared for h in holdings) / count,
        sum(h.descriptors for h in holdings) / count,
        sum(h.threads for h in holdings) / count,
    )


def files_bytes(directory: Path, pattern: str) -> int:
    """Return the total size of the files that match a pattern; files may appear and disappear during the call."""
    total = 0
    for path in directory.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
