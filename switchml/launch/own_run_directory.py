"""The run directory of a program that starts a fabric for itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from switchml.common.errors import FabricBusyError
from switchml.launch import fabric
from switchml.launch.run_directory import RunDirectory

__all__ = ["own_run_directory"]


@contextlib.contextmanager
def own_run_directory(settings_run_directory: Path, suffix: str, command: str) -> Iterator[RunDirectory]:
    """Yield a run directory next to that of the settings, whose fabric ends and which is removed at the end.

    Its path is always the same, so that processes and network namespaces of a program that was killed are found and
    removed here, as by `switchml-ctl --run-dir PATH down`.

    Args:
        settings_run_directory: that of the settings.
        suffix: the end of the directory's name.
        command: the command of switchml-ctl that uses it, for the error.

    Raises:
        FabricBusyError: another such program runs.
        NamespaceError: a namespace could not be removed.

    """
    directory = RunDirectory(settings_run_directory.with_name(f"{settings_run_directory.name}-{suffix}"))
    directory.create()
    with (directory.path / "owner.lock").open("w") as lock:
        if not _lock(lock.fileno(), Path(lock.name)):
            raise FabricBusyError(
                f"another `switchml-ctl {command}` uses {directory.path}; wait for its end, or use another --run-dir"
            )
        fabric.stop(directory)
        try:
            yield directory
        finally:
            fabric.stop(directory)
            shutil.rmtree(directory.path, ignore_errors=True)


def _lock(descriptor: int, path: Path) -> bool:
    """Return whether the lock was free, and its file was not removed by the program that held it until now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
