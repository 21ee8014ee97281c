"""What all commands of switchml-ctl share: exit statuses, how errors are shown, and where the settings come from."""

import contextlib
import dataclasses
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from tempfile import gettempdir
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

import click

from switchml.benchmarks.errors import BenchmarkError
from switchml.commands import output
from switchml.common.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    ConfigurationError,
    NoFabricError,
    NotEndedError,
    OperationError,
    TopologyFileError,
)
from switchml.controller.client import ControllerClient
from switchml.controller.errors import (
    ConfigError,
    ControllerError,
    ControllerUnavailable,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    StoreError,
)
from switchml.launch import fabric
from switchml.launch import settings as config

__all__ = ["ExitCode", "Parsed", "Root", "Session", "exit_code", "json_option", "setting", "terminate"]

F = TypeVar("F", bound=Callable[..., Any])


class ExitCode(IntEnum):
    """Exit statuses, as `switchml-ctl --help` lists them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    NOT_ENDED = 124
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


_BAD_VALUES: Final = (ConfigurationError, TopologyFileError, ConfigError, InvalidRequest)


def exit_code(error: Exception) -> ExitCode:
    """Return the exit status that an error ends the program with."""
    if isinstance(error, _BAD_VALUES):
        return ExitCode.USAGE
    if isinstance(error, NotEndedError):
        return ExitCode.NOT_ENDED
    if isinstance(error, (ControllerUnavailable, DeadlineExceeded, NoFabricError)):
        return ExitCode.UNREACHABLE
    if isinstance(error, CommandNotFoundError):
        return ExitCode.NOT_FOUND
    if isinstance(error, CommandNotExecutableError):
        return ExitCode.NOT_EXECUTABLE
    if isinstance(error, ControllerError) and not isinstance(error, (InternalError, StoreError)):
        return ExitCode.REFUSED
    return ExitCode.ERROR


class Root(click.Group):
    """Turns exceptions into a line on standard error, an exit status and, with --json, an object that says the same."""

    arguments: Sequence[str] = ()  # of the command line that is run

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit with its status."""
        self.arguments = arguments = list(sys.argv[1:] if args is None else args)
        extra |= {"standalone_mode": False, "prog_name": "switchml-ctl"}
        try:
            _require_text(_ours(arguments))
            status = super().main(arguments, **extra)
        except click.ClickException as error:
            error.show()
            status = self._failed(arguments, "UsageError", error.format_message(), error.exit_code)
        except (BenchmarkError, ControllerError, OperationError) as error:
            click.echo(f"Error: {error}", err=True)
            figures = error.figures if isinstance(error, ControllerError) else {}
            status = self._failed(arguments, type(error).__name__, str(error), exit_code(error), figures)
        except (click.Abort, KeyboardInterrupt):
            status = self._failed(arguments, "Interrupted", "interrupted", 128 + signal.SIGINT)
        except _Terminated:
            status = self._failed(arguments, "Interrupted", "terminated", 128 + signal.SIGTERM)
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            status = ExitCode.ERROR
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            text = (
                f"a file cannot be written: {error}; make room on the disks of the run directory and of {gettempdir()}"
            )
            click.echo(f"Error: {text}", err=True)
            status = self._failed(arguments, "NoSpace", text, ExitCode.ERROR)
        sys.exit(int(status or 0))

    @staticmethod
    def _failed(
        arguments: list[str], error: str, message: str, status: int, figures: dict[str, str] | None = None
    ) -> int:
        if "--json" in _ours(arguments):
            output.print_json({"error": error, "message": message, "figures": figures or {}, "exit_code": int(status)})
        return status


def _ours(arguments: list[str]) -> list[str]:
    """Return the arguments that are not those of a command that a job runs."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _require_text(arguments: list[str]) -> None:
    """Refuse arguments that are not text in the encoding of the terminal, which no message could hold."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):  # bytes that Python could not decode
            raise click.UsageError(f"an argument is not text: {argument!a}")


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that what was begun is undone."""


def terminate(_number: int, _frame: FrameType | None) -> None:
    """Signal handler for SIGTERM."""
    raise _Terminated


@dataclasses.dataclass(frozen=True)
class Session:
    """The options before the command."""

    controller: str | None
    run_dir: str | None
    config_file: Path | None
    tls: Path | None = None
    insecure: bool | None = None

    def settings(self, **options: Any) -> config.Settings:
        """Settings with `options`, named table_key, on top."""
        named = {name.replace("_", ".", 1): value for name, value in options.items()}
        before = {"controller": self.controller, "run_dir": self.run_dir, "insecure": self.insecure}
        before["tls"] = None if self.tls is None else str(self.tls)
        return config.load({**before, **named}, config_file=self.config_file)

    @contextlib.contextmanager
    def client(self, timeout: float | None = None) -> Iterator[ControllerClient]:
        """Connect to the controller that is meant; each call takes at most `timeout` seconds."""
        settings = self.settings()
        with fabric.connect(settings, fabric.controller_address(settings), timeout) as client:
            yield client


class Parsed(click.ParamType[Any]):
    """A value that a function reads from text; it raises ValueError for what is not allowed."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return what the text stands for; defaults that are not text are taken as they are."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)


def setting(name: str, option: str) -> Callable[[F], F]:
    """An option for a key of the configuration."""
    key = config.KEYS[name]

    def parse(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return key.parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    default = f"; default {key.default}" if key.default not in (None, "") else ""
    return click.option(
        option,
        name.replace(".", "_", 1),
        callback=parse,
        metavar="VALUE",
        help=f"{key.help}  [{key.variable}; {name} in config.toml{default}]",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
