"""The limit on open files of a process."""

from __future__ import annotations

import contextlib
import resource

__all__ = ["allow_open_files"]


def allow_open_files() -> int:
    """Raise this process's limit as far as the system allows, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the systemd units forbid it, and set a sufficient limit themselves
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
