"""Long-lived local processes: started in new sessions, awaited by ready file, ended by pid and start time."""

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import ProgramNotFoundError, StartError
from switchml.common.installation import reinstall_command

__all__ = ["ProcessRecord", "StartingProcess", "boot_id", "find_program", "last_lines"]

_READY_STEP_SECONDS: Final = 0.02


def find_program(name: str) -> str:
    """Return the path of a SwitchML console script: next to the running interpreter, in the user's scripts, or on PATH.

    Raises ProgramNotFoundError.
    """
    places = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    for place in places:
        found = shutil.which(name, path=place)
        if found:
            return found
    found = shutil.which(name)
    if found:
        return found
    raise ProgramNotFoundError(
        f"{name} is neither in {' nor in '.join(places)} nor on PATH; install SwitchML with `{reinstall_command()}`"
    )


def boot_id() -> str:
    """Return an identifier of this boot of the machine, which tells process ids from those before a reboot.

    Raises StartError if /proc is not mounted.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError as error:
        raise StartError(
            f"{error.filename} cannot be read ({error.strerror}); mount /proc, by which processes are known"
        ) from None


def last_lines(path: Path, count: int = 8) -> list[str]:
    """Return the last `count` lines of a log, or an empty list if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []


def _start_time(pid: int) -> int:
    """Return the clock ticks from boot to the start of `pid` (proc(5), stat, field 22). Raises OSError if it ended."""
    line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(line.rpartition(")")[2].split()[19])


def _ended(pidfd: int, timeout: float) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0, round(timeout * 1000))))


@dataclasses.dataclass(frozen=True)
class ProcessRecord:
    """A process as a file records it: its start time tells it from a later process with the same id."""

    name: str
    pid: int
    start_time: int
    log: str

    @classmethod
    def of(cls, name: str, pid: int, log: str = "") -> "ProcessRecord | None":
        """Return the process that has this id now, or None."""
        try:
            return cls(name, pid, _start_time(pid), log)
        except OSError:
            return None

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        pidfd = self._open()
        if pidfd is None:
            return False
        try:
            return not _ended(pidfd, 0)
        finally:
            os.close(pidfd)

    def end(self, grace: float) -> bool:
        """Send SIGTERM, after `grace` seconds SIGKILL, and wait for the end; return whether the process was running."""
        pidfd = self._open()
        if pidfd is None:
            return False
        try:
            if _ended(pidfd, 0):
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not _ended(pidfd, grace):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                if not _ended(pidfd, 5):
                    raise StartError(f"{self.name} (process {self.pid}) does not end, not even after SIGKILL")
            return True
        finally:
            os.close(pidfd)
            with contextlib.suppress(ChildProcessError):  # it is a child only of the process that started it
                os.waitpid(self.pid, os.WNOHANG)

    def _open(self) -> int | None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        try:
            same = _start_time(self.pid) == self.start_time
        except OSError:
            same = False
        if not same:
            os.close(pidfd)
            return None
        return pidfd


class StartingProcess:
    """A process that has been started. If it has a ready file (a JSON object), the file shows that it serves."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start `command` in a new session, with its output in `log`. Raises StartError."""
        self.name = name
        self._log = log
        self._ready_file = ready_file
        options = []
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
            options = ["--ready-file", str(ready_file)]
        if log.exists():
            log.replace(log.with_suffix(".previous.log"))
        try:
            with log.open("wb") as output:
                self._child = subprocess.Popen(
                    [*command, *options],
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment,
                )
        except OSError as error:
            raise StartError(f"{name}: {command[0]} cannot be started: {error.strerror}") from error
        self.record = ProcessRecord(name, self._child.pid, _start_time(self._child.pid), str(log))

    def wait_ready(self, deadline: float) -> dict[str, Any]:
        """Return the content of the ready file. Raises StartError at `deadline` (monotonic) or if the process ends."""
        while True:
            self.require_alive(_READY_STEP_SECONDS)
            ready = self._read_ready()
            if ready is not None:
                return ready
            if time.monotonic() >= deadline:
                raise StartError(f"{self.name} was not ready in time{self._log_excerpt()}")

    def require_alive(self, seconds: float = 0) -> None:
        """Raise StartError, with the end of its log, if the process ends within `seconds`."""
        try:
            status = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        how = f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"
        raise StartError(f"{self.name} {how} while it was starting{self._log_excerpt()}")

    def _read_ready(self) -> dict[str, Any] | None:
        assert self._ready_file is not None, "who waits for readiness has given a ready file"
        try:
            content = json.loads(self._ready_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:  # still being written
            return None
        return content if isinstance(content, dict) else None

    def _log_excerpt(self) -> str:
        lines = last_lines(self._log)
        if not lines:
            full = shutil.disk_usage(self._log.parent).free == 0
            return f"; its log {self._log} is empty{', and the disk is full' * full}"
        return f"; the end of its log {self._log}:\n  " + "\n  ".join(lines)
