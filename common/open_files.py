"""The limit on the files that a process may have open."""

from __future__ import annotations

import contextlib
import resource

__all__ = ["allow_open_files"]


def allow_open_files() -> int:
    """Raise this process's limit as far as the system lets it, and return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the systemd units forbid it, and give enough themselves
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
