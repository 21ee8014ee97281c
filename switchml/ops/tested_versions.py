"""The versions of other programs with which SwitchML is tested, and those on this machine."""

from __future__ import annotations

import contextlib
import functools
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["FILE", "compared", "found_versions", "numbers", "tested_versions"]

FILE: Final = Path(__file__).with_suffix(".toml")

_PROGRAMS: Final = {
    "Open MPI": "mpirun",
    "BMv2": "simple_switch_grpc",
    "p4c": "p4c-bm2-ss",
}
_SECONDS: Final = 30.0  # for a program to print its version


@functools.cache
def tested_versions() -> Mapping[str, tuple[str, ...]]:
    """Return the versions that all tests passed with, the oldest first, by the name of the program."""
    return {name: tuple(versions) for name, versions in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}


def found_versions() -> dict[str, str]:
    """Return the versions on this machine, without those that are not installed or do not print one."""
    found = {"Python": platform.python_version(), "kernel": platform.release().partition("-")[0]}
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["torch"] = metadata.version("torch").partition("+")[0]
    return found | {name: version for name, program in _PROGRAMS.items() if (version := _printed(program))}


def compared(name: str, version: str) -> str:
    """Return a version, with what is tested if that is another one."""
    tested = tested_versions().get(name, ())
    if not tested or version in tested:
        return version
    return f"{version}; tested: {', '.join(tested)}"


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in a version, by which versions are ordered."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0]))


def _printed(program: str) -> str:
    """Return the first version in what a program prints about itself; empty if it prints no version."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, "--version"], check=False, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r"[0-9]+(\.[0-9]+)+", done.stdout + done.stderr)
    return version[0] if version else ""
