"""The check that a program has a version that the controller works with."""

from __future__ import annotations

from switchml.common.version import VERSION, release_of
from switchml.controller.errors import InvalidRequest, VersionMismatch

__all__ = ["require_same_release"]


def require_same_release(what: str, version: str) -> None:
    """Check that `version` has the same MAJOR.MINOR as this controller.

    Raises:
        InvalidRequest: `version` is not a version.
        VersionMismatch: it differs; the message names both.

    """
    try:
        theirs = release_of(version)
    except ValueError:
        raise InvalidRequest(f"{what} gives {version!r} as its version; it must be MAJOR.MINOR.PATCH") from None
    if theirs != release_of(VERSION):
        raise VersionMismatch(
            f"{what} is version {version} and this controller {VERSION}; install the same MAJOR.MINOR on both",
            theirs=version,
            ours=VERSION,
        )
