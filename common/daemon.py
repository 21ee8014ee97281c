"""The frame of every daemon: what its command line, its ready file, its signals and its errors have in common."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from switchml.common.metrics_address import MetricsPlace, metrics_options
from switchml.common.open_files import allow_open_files
from switchml.common.process_logs import configure, log_options
from switchml.common.tls import Security, tls_options
from switchml.common.version import VERSION

__all__ = ["DaemonOptions", "ReadyFile", "daemon_options", "run", "stop_on_signals"]

R = TypeVar("R")


class ReadyFile:
    """A JSON file that tells whoever starts a daemon that it is ready, and where to find it.

    Without a path nothing is written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def clear(self) -> None:
        """Remove the file, which an earlier process may have left: it would be taken for this one's.

        Raises:
            OSError: it cannot be removed.

        """
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def write(self, **content: object) -> None:
        """Write `content`, the process id and the version; whoever finds the file finds all of it.

        Raises:
            OSError: it cannot be written; the text says so.

        """
        if self._path is None:
            return
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps({**content, "pid": os.getpid(), "version": VERSION}) + "\n", encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            why = f"ready file {self._path} cannot be written: {error.strerror}"
            raise OSError(error.errno, why) from error


@dataclass(frozen=True)
class DaemonOptions:
    """What every daemon is started with; `metrics` is where to serve them, if anywhere."""

    ready_file: ReadyFile = field(default_factory=ReadyFile)
    metrics: MetricsPlace | None = None
    tls: Path | None = None
    insecure: bool = False

    @property
    def security(self) -> Security:
        """What protects the daemon's gRPC connections."""
        return Security.of(self.tls, self.insecure)


def daemon_options(program: str, prefix: str, ready: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a click command --version, --ready-file and the options of metrics, TLS and logs.

    The command gets them as `daemon`, a DaemonOptions, once logs are set up and an earlier ready file is removed.

    Args:
        program: Its name, for --version.
        prefix: Of the environment variables that stand for the options.
        ready: When the ready file is written, for --help.

    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def framed(
            *arguments: object,
            ready_file: Path | None,
            metrics: MetricsPlace | None,
            tls: Path | None,
            insecure: bool,
            log_format: str,
            log_level: str,
            **options: object,
        ) -> R:
            configure(log_format, log_level)
            allow_open_files()
            file = ReadyFile(ready_file)
            try:
                file.clear()
            except OSError as error:
                raise click.ClickException(_text(error)) from error
            return command(*arguments, daemon=DaemonOptions(file, metrics, tls, insecure), **options)

        path = click.Path(path_type=Path, dir_okay=False)
        with_file = click.option("--ready-file", type=path, help=f"JSON file that is written {ready}.")
        version = click.version_option(VERSION, prog_name=program)
        return with_file(metrics_options(prefix)(tls_options(prefix)(log_options(version(framed)))))

    return decorate


def run(program: Coroutine[Any, Any, None], *errors: type[Exception]) -> None:
    """Run a daemon until it ends; an OSError or one of `errors` ends it with exit status 1 and its text.

    Raises:
        click.ClickException: one of these was raised.

    """
    try:
        asyncio.run(program)
    except OSError as error:
        raise click.ClickException(_text(error)) from error
    except errors as error:
        raise click.ClickException(str(error)) from error


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set from now on, on the loop that is running."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _text(error: OSError) -> str:
    # With a file name, only str() tells the whole; without one it would begin with a bare error number.
    return str(error) if error.filename else error.strerror or str(error)
