"""A limit to the file that a process's standard error goes to."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import TextIO

__all__ = ["begin_anew_if_long"]


def begin_anew_if_long(stream: TextIO, most: int) -> None:
    """Empty the file that a stream writes to once it has `most` bytes, after a copy of it as FILE.1.

    What is no file is left alone. Where there is no room for the copy, there is none: the limit matters more.
    """
    descriptor = stream.fileno()
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size < most:
        return
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    with contextlib.suppress(OSError):
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    # Children and native code that write there share the offset.
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
