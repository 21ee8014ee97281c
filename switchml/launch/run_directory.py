"""The run directory: everything that an embedded fabric and its jobs keep in the file system."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import RunDirectoryError
from switchml.common.names import parse_job_reference
from switchml.common.run_directory import require_private

__all__ = ["UNIX_PATH_LIMIT", "WITHOUT_STATE", "RunDirectory"]

UNIX_PATH_LIMIT: Final = 107
"""Maximum length of a Unix socket's path in bytes, without its terminating zero (unix(7): sun_path has 108)."""

_LOCK_RETRY_SECONDS: Final = 0.05
WITHOUT_STATE: Final = "remove it, and `switchml-ctl down` ends the processes that it listed"
"""The way out when fabric.json is damaged."""


class RunDirectory:
    """A directory of mode 0700 that belongs to the calling user.

    `fabric.json` is the state of the embedded fabric, `lock` serialises its changes, `users` is locked (shared) by
    every program that needs the fabric to stay, `logs/` has a file per process and `jobs/` a directory per job.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state_file = path / "fabric.json"
        self.logs = path / "logs"
        self.jobs = path / "jobs"

    def create(self) -> None:
        """Create the directory and its contents. Raises RunDirectoryError as `check` does."""
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):  # another process was quicker; `check` inspects the result
                    self.path.mkdir(mode=0o700)
            self.check()
            for directory in (self.logs, self.jobs):
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"run directory {self.path} cannot be created: {error.strerror}; choose another with --run-dir"
            ) from error

    def check(self) -> None:
        """Raise RunDirectoryError unless this is a directory of this user that no other user can enter."""
        require_private(self.path)

    def exists(self) -> bool:
        """Return whether anything exists at the path; `check` tells what it is."""
        return os.path.lexists(self.path)

    @contextlib.contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        """Hold the lock under which the fabric is started and stopped. Raises RunDirectoryError after `timeout` s."""
        descriptor = self._open_lock("lock")
        try:
            deadline = time.monotonic() + timeout
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if time.monotonic() >= deadline:
                    raise RunDirectoryError(
                        f"another switchml-ctl has been starting or stopping the fabric in {self.path} "
                        f"for {timeout:.0f} s; look at its output and try again"
                    )
                time.sleep(_LOCK_RETRY_SECONDS)  # flock(2) has no timeout
            yield
        finally:
            os.close(descriptor)

    def use(self) -> int:
        """Declare that the fabric is needed until the returned descriptor is closed or this process ends."""
        descriptor = self._open_lock("users")
        if not _try_lock(descriptor, fcntl.LOCK_SH):  # only a program that also has `lock` holds it exclusively
            os.close(descriptor)
            raise RunDirectoryError(f"the fabric in {self.path} is being stopped by another program; try again")
        return descriptor

    def used_by_others(self) -> bool:
        """Return whether another live program has declared `use`. Call it under `lock`, after closing your own."""
        descriptor = self._open_lock("users")
        try:
            return not _try_lock(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)

    def _open_lock(self, name: str) -> int:
        try:
            return os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise RunDirectoryError(f"{self.path / name} cannot be opened: {error.strerror}") from error

    def read_state(self) -> dict[str, Any] | None:
        """Return the content of fabric.json, or None if it does not exist. Raises RunDirectoryError on failure."""
        if not self.exists():
            return None
        self.check()
        try:
            content = json.loads(self.state_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{self.state_file} cannot be read: {error}; {WITHOUT_STATE}") from error
        if not isinstance(content, dict):
            raise RunDirectoryError(f"{self.state_file} is not a JSON object; {WITHOUT_STATE}")
        return content

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace fabric.json atomically."""
        draft = self.state_file.with_suffix(".new")
        draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.state_file)

    def clear_state(self) -> None:
        """Remove fabric.json."""
        self.state_file.unlink(missing_ok=True)

    def socket_directory(self, longest_name: str) -> Path:
        """Return the directory for Unix sockets: the run directory, or a short private one if paths were too long."""
        if len(os.fsencode(self.path / longest_name)) <= UNIX_PATH_LIMIT:
            return self.path
        directory = Path(tempfile.mkdtemp(prefix="switchml-"))
        if len(os.fsencode(directory / longest_name)) > UNIX_PATH_LIMIT:
            directory.rmdir()
            raise RunDirectoryError(
                f"a Unix socket's path has at most {UNIX_PATH_LIMIT} bytes, and both {self.path / longest_name} and "
                f"{directory / longest_name} are longer; choose a shorter --run-dir or TMPDIR"
            )
        return directory

    def job_directory(self, key: int, name: str) -> Path:
        """Return the directory of a job, created if missing. `key` is the job's number, which is never reused."""
        directory = self.jobs / f"{key}-{_file_name(name)}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def find_job_directory(self, reference: str) -> Path | None:
        """Return the newest job directory whose key or name is `reference`, or None."""
        if not self.jobs.is_dir():
            return None
        wanted = parse_job_reference(reference)
        found: list[tuple[int, Path]] = []
        for directory in self.jobs.iterdir():
            key, dash, name = directory.name.partition("-")
            if dash and key.isdecimal() and wanted in (int(key), name):
                found.append((int(key), directory))
        return max(found)[1] if found else None


def _file_name(name: str) -> str:
    """Return a job's name as part of a file name: no separators, no hidden files."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100] or "job"


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
