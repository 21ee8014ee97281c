"""Processes of a fabric that its fabric.json no longer lists, found by a variable in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from switchml.common.processes import ProcessRecord

__all__ = ["mark", "orphans"]

_VARIABLE: Final = "SWITCHML_FABRIC_PROCESS"


def mark(name: str, run_directory: Path) -> dict[str, str]:
    """Return the environment variable that marks a new process of the fabric in a run directory."""
    return {**os.environ, _VARIABLE: f"{name}@{run_directory.resolve()}"}


def orphans(run_directory: Path, known: Iterable[ProcessRecord] = ()) -> list[ProcessRecord]:
    """Return this user's processes that were started for the run directory and are not in `known`, newest first."""
    accounted = {process.pid for process in known}
    found = [process for process in _marked(run_directory.resolve()) if process.pid not in accounted]
    return sorted(found, key=lambda process: process.start_time, reverse=True)


def _marked(run_directory: Path) -> Iterator[ProcessRecord]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's process, or it has just ended
            continue
        for variable in variables:
            name, _, value = os.fsdecode(variable).partition("=")
            process, _, directory = value.partition("@")
            if name == _VARIABLE and directory == str(run_directory):
                record = ProcessRecord.of(process, int(entry.name))
                if record is not None:
                    yield record
