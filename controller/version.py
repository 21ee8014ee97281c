"""The version of this software, as pyproject.toml has it (a test compares them), and who may work with it."""

from __future__ import annotations

import re
from typing import Final

from switchml.controller.errors import InvalidRequest, VersionMismatch

__all__ = ["VERSION", "require_same_release"]

VERSION: Final = "0.1.0"

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(?:[.+-]?\w+)*")


def require_same_release(what: str, version: str) -> None:
    """Refuse to work with another MAJOR.MINOR than ours.

    Raises:
        InvalidRequest: `version` is not a version.
        VersionMismatch: it is another one; the message says both.

    """
    theirs, ours = _VERSION.fullmatch(version), _VERSION.fullmatch(VERSION)
    assert ours is not None
    if theirs is None:
        raise InvalidRequest(f"{what} gives {version!r} as its version; it must be MAJOR.MINOR.PATCH")
    if theirs.groups() != ours.groups():
        raise VersionMismatch(
            f"{what} is version {version} and this controller {VERSION}; install the same MAJOR.MINOR on both",
            theirs=version,
            ours=VERSION,
        )
