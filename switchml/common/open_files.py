"""The limit on open files of a process."""

from __future__ import annotations

import contextlib
import resource

from switchml.common.errors import StartError

__all__ = ["allow_open_files", "require_open_files"]


def allow_open_files() -> int:
    """Raise this process's limit as far as the system allows, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the systemd units forbid it, and set a sufficient limit themselves
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def require_open_files(count: int, purpose: str) -> None:
    """Raise this process's limit to `count` if it is lower. Raises StartError if the system does not allow that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except (OSError, ValueError):
        raise StartError(
            f"{purpose} needs {count} open files in this process, which may have {hard}; raise the limit, with "
            f"`ulimit -n {count}` or LimitNOFILE of its unit"
        ) from None
