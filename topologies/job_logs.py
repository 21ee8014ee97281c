"""What the workers of a job wrote, while it runs and afterwards."""

import codecs
import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from controller.errors import ControllerError
from topologies.config import Settings
from topologies.errors import LogNotFoundError, NoFabricError
from topologies.fabric import connect, controller_address
from topologies.run_directory import RunDirectory

__all__ = ["find", "read"]

_READ_BYTES: Final = 1 << 16
_POLL_SECONDS: Final = 0.1


def find(settings: Settings, job: int | str, rank: int) -> Path:
    """The log of a rank: of the job that the controller knows by this id or name, else of the newest one on disk.

    Raises LogNotFoundError and RunDirectoryError.
    """
    run_directory = RunDirectory(settings.run_dir)
    if run_directory.exists():
        run_directory.check()
    directory = None
    with contextlib.suppress(ControllerError, NoFabricError):  # no controller, or it has forgotten: what is on disk?
        with connect(settings, controller_address(settings)) as client:
            known = client.get_job(job)
        directory = run_directory.find_job_directory(str(known.key))
    if directory is None:
        directory = run_directory.find_job_directory(str(job))
    if directory is None:
        raise LogNotFoundError(f"no job {job} has left anything in {run_directory.jobs}")
    path = directory / f"rank-{rank}.log"
    if not path.is_file():
        raise LogNotFoundError(
            f"job {job} has no log of rank {rank} in {directory}: it had no command, or fewer workers"
        )
    return path


def read(settings: Settings, job: int | str, path: Path, *, follow: bool) -> Iterator[str]:
    """Yield the text of a log; with `follow`, what is added to it until the job and the rank's command have ended.

    Raises what ControllerClient raises.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with path.open("rb") as file:
        yield from _rest(file, decoder)
        if not follow:
            return
        try:
            address = controller_address(settings)
        except NoFabricError:  # it was the job's own and has ended with it
            return
        with connect(settings, address) as client:
            for _ in client.watch_job(job):  # at least one a second, the last one when the job has ended
                yield from _rest(file, decoder)
        while _is_written(file):  # a command can go on for as long as it likes after it has left the job
            time.sleep(_POLL_SECONDS)
            yield from _rest(file, decoder)
        yield from _rest(file, decoder)


def _is_written(file: BinaryIO) -> bool:
    """Whether the launcher still has the log open, which it locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _rest(file: BinaryIO, decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    while data := file.read(_READ_BYTES):
        yield decoder.decode(data)
