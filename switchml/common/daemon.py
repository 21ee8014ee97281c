"""The frame that all daemons share: command line, ready file, signals and errors."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
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
from switchml.common.variables import unknown_variables
from switchml.common.version import VERSION

__all__ = ["DaemonOptions", "ReadyFile", "daemon_options", "run", "stop_on_signals"]

_log = logging.getLogger(__name__)
R = TypeVar("R")


class ReadyFile:
    """A JSON file that tells the process that starts a daemon that it is ready, and where it listens.

    Without a path nothing is written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def clear(self) -> None:
        """Remove the file that an earlier process may have left, which would be mistaken for this one's.

        Raises:
            OSError: it cannot be removed.

        """
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def write(self, **content: object) -> None:
        """Write `content`, the process id and the version; the file appears with its complete content.

        Raises:
            OSError: it cannot be written; the text names the file.

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
    """Options that every daemon has; `metrics` is the address of the metrics server, or None."""

    ready_file: ReadyFile = field(default_factory=ReadyFile)
    metrics: MetricsPlace | None = None
    tls: Path | None = None
    insecure: bool = False

    @property
    def security(self) -> Security:
        """The security of the daemon's gRPC connections."""
        return Security.of(self.tls, self.insecure)


def daemon_options(program: str, prefix: str, ready: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a click command --version, --ready-file and the options for metrics, TLS and logs.

    The command gets them as `daemon`, a DaemonOptions, once logging is set up and an earlier ready file is removed.

    Args:
        program: The program's name, for --version.
        prefix: The prefix of the environment variables that replace the options.
        ready: The moment at which the ready file is written, for --help.

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
            unknown = unknown_variables(os.environ)
            if unknown:
                _log.warning("%s", unknown)
            file = ReadyFile(ready_file)
            try:
                file.clear()
            except OSError as error:
                raise click.ClickException(_text(error)) from error
            return command(*arguments, daemon=DaemonOptions(file, metrics, tls, insecure), **options)

        path = click.Path(path_type=Path, dir_okay=False)
        with_file = click.option("--ready-file", type=path, help=f"JSON file to write {ready}.")
        version = click.version_option(VERSION, prog_name=program)
        return with_file(metrics_options(prefix)(tls_options(prefix)(log_options(version(framed)))))

    return decorate


def run(program: Coroutine[Any, Any, None], *errors: type[Exception]) -> None:
    """Run a daemon until it ends; an OSError or one of `errors` ends it with exit status 1 and the error's text.

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
    """Return an event that SIGTERM and SIGINT set from now on, on the running event loop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _text(error: OSError) -> str:
    # With a file name, str() gives the whole message; without one it would begin with the error number.
    return str(error) if error.filename else error.strerror or str(error)
