"""Launchers in the background: start one, read what it has started, and let it continue alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchml.common.processes import find_program

__all__ = ["LOG_NAME", "leave_terminal", "start"]

LOG_NAME: Final = "launcher.log"
"""The file in a job's directory that receives the terminal output of a launcher in the background."""

_LEFT: Final = "\0"  # ends the launcher's output before it detaches


def start(arguments: Sequence[str]) -> tuple[int | None, str]:
    """Run `switchml-ctl` with arguments in a new session until it has called `leave_terminal` or ended.

    Returns its exit status, or None if it continues detached, and its standard output so far. Its standard error is
    this process's. An interrupt ends it.
    """
    command = [find_program("switchml-ctl"), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        with process.stdout as output:
            # Until the end of the pipe: it has detached from its standard output, or ended.
            said, left, _ = output.read().decode("utf-8", "replace").partition(_LEFT)
        return (None if left else process.wait()), said
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise


def leave_terminal(said: str, directory: Path) -> None:
    """Write `said` to the caller of `start`; from now on standard output and error go to a file in `directory`."""
    sys.stdout.write(said + _LEFT)
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(directory / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.close(log)
