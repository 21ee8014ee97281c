"""A size limit for the log file that standard error is redirected to."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import TextIO

__all__ = ["truncate_if_long"]


def truncate_if_long(stream: TextIO, most: int) -> None:
    """Truncate the file that a stream writes to once it has `most` bytes, after copying it to FILE.1.

    Streams that are not regular files are ignored. If the disk is too full for the copy, the log is truncated without
    one.
    """
    descriptor = stream.fileno()
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size < most:
        return
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    with contextlib.suppress(OSError):
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    # Child processes and native code that write to the file share the offset.
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
