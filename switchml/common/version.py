"""The version of this software, equal to that in pyproject.toml (a test compares them), and compatible versions."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["VERSION", "release_of", "same_release"]

VERSION: Final = "0.1.0"

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(?:[.+-]?\w+)*")


def release_of(version: str) -> tuple[int, int]:
    """Return MAJOR and MINOR of a version: programs work together when these are the same.

    Raises:
        ValueError: `version` is not MAJOR.MINOR.PATCH, which a suffix may follow.

    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is not a version; it must be MAJOR.MINOR.PATCH")
    return int(found[1]), int(found[2])


def same_release(version: str) -> bool:
    """Return whether a program of `version` works with this one; False also if `version` is not a valid version."""
    try:
        return release_of(version) == release_of(VERSION)
    except ValueError:
        return False
