"""The output of a job's workers, while it runs and afterwards."""

import codecs
import contextlib
import fcntl
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from switchml.common.errors import LogNotFoundError, NoFabricError
from switchml.controller.errors import ControllerError
from switchml.launch.fabric import Reporter, connect, controller_address
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import Settings

__all__ = ["find", "read"]

_READ_BYTES: Final = 1 << 16
_POLL_SECONDS: Final = 0.1
_NAME: Final = re.compile(r"rank-(\d+)\.log")


def find(settings: Settings, job: int | str, rank: int | None = None) -> dict[int, Path]:
    """Return the logs of all ranks, or of one, by rank.

    The job is the one that the controller knows by this id or name, else the newest one on disk. Raises
    LogNotFoundError and RunDirectoryError.
    """
    run_directory = RunDirectory(settings.run_dir)
    if run_directory.exists():
        run_directory.check()
    directory = None
    # No controller, or it has forgotten the job: look on disk.
    with contextlib.suppress(ControllerError, NoFabricError):
        with connect(settings, controller_address(settings)) as client:
            known = client.get_job(job)
        directory = run_directory.find_job_directory(str(known.key))
    if directory is None:
        directory = run_directory.find_job_directory(str(job))
    if directory is None:
        raise LogNotFoundError(f"no job {job} has left files in {run_directory.jobs}")
    named = [(match, path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    logs = {int(match[1]): path for match, path in sorted(named, key=lambda each: int(each[0][1]))}
    if rank is not None:
        logs = {number: path for number, path in logs.items() if number == rank}
    if not logs:
        what = "no logs" if rank is None else f"no log of rank {rank}"
        raise LogNotFoundError(f"job {job} has {what} in {directory}: it had no command, or fewer workers")
    return logs


def read(
    settings: Settings,
    job: int | str,
    logs: Mapping[int, Path],
    *,
    follow: bool,
    tail: int | None = None,
    notice: Reporter,
) -> Iterator[tuple[int, str]]:
    """Yield ranks and the text of their logs; with `follow`, also additions until the job and its commands have ended.

    With several logs, only whole lines are yielded. `tail` is the number of existing lines to yield of each. `notice`
    is called while the controller is away. Raises what ControllerClient raises.
    """
    with contextlib.ExitStack() as stack:
        files = [_Log(rank, stack.enter_context(path.open("rb")), len(logs) > 1) for rank, path in logs.items()]
        for log in files:
            yield from log.begin(tail)
        if follow:
            yield from _follow(settings, job, files, notice)
        for log in files:
            yield from log.rest(final=True)


def _follow(settings: Settings, job: int | str, files: list["_Log"], notice: Reporter) -> Iterator[tuple[int, str]]:
    try:
        address = controller_address(settings)
    except NoFabricError:  # the fabric was started for the job and has ended with it
        return
    with connect(settings, address, notice=notice) as client:
        for _ in client.watch_job(job):  # at least one per second, the last one when the job has ended
            for log in files:
                yield from log.rest()
    while any(log.is_written() for log in files):  # a command may run longer than its job
        time.sleep(_POLL_SECONDS)
        for log in files:
            yield from log.rest()


class _Log:
    """The open log of one rank, read in whole lines or in pieces as they arrive."""

    def __init__(self, rank: int, file: BinaryIO, whole_lines: bool) -> None:
        self._rank = rank
        self._file = file
        self._whole_lines = whole_lines
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def begin(self, tail: int | None) -> Iterator[tuple[int, str]]:
        """Yield the existing content, or its last `tail` lines."""
        if tail is not None:
            yield from self._take(b"".join(deque(self._file, maxlen=tail)))
        yield from self.rest()

    def rest(self, final: bool = False) -> Iterator[tuple[int, str]]:
        """Yield what has been added; if `final`, including a last line without an end."""
        while data := self._file.read(_READ_BYTES):
            yield from self._take(data)
        if final and self._line:
            yield self._rank, self._line
            self._line = ""

    def _take(self, data: bytes) -> Iterator[tuple[int, str]]:
        text = self._line + self._decoder.decode(data)
        whole = text.rfind("\n") + 1 if self._whole_lines else len(text)
        self._line = text[whole:]
        if whole:
            yield self._rank, text[:whole]

    def is_written(self) -> bool:
        """Return whether the launcher still writes to the log, which it then holds a lock on."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False
