"""The messages and exit statuses of failed commands."""

import dataclasses
import errno
from tempfile import gettempdir
from typing import Final

from switchml.benchmarks.errors import BenchmarkError
from switchml.commands.exit_status import ExitCode
from switchml.common.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    ConfigurationError,
    NoFabricError,
    NotEndedError,
    OperationError,
    SketchError,
    TopologyFileError,
)
from switchml.controller.errors import (
    ConfigError,
    ControllerError,
    ControllerUnavailable,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    StoreError,
)

__all__ = ["Failure", "exit_code", "explain"]

_BAD_VALUES: Final = (ConfigurationError, SketchError, TopologyFileError, ConfigError, InvalidRequest)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LIMITS: Final = {
    errno.EFBIG: "a file cannot be written: {}; raise the limit on the size of files (`ulimit -f`)",
    errno.EMFILE: "a file cannot be opened: {}; raise the limit on open files (`ulimit -n`)",
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure: the name of the error, its message, the exit status, and figures that the message contains."""

    error: str
    message: str
    exit_status: int
    figures: dict[str, str] = dataclasses.field(default_factory=dict)


def explain(error: Exception) -> Failure | None:
    """Return how a command has failed; None for an unexpected error."""
    if isinstance(error, (BenchmarkError, ControllerError, OperationError)):
        figures = error.figures if isinstance(error, ControllerError) else {}
        return Failure(type(error).__name__, str(error), exit_code(error), figures)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        text = (
            f"a file cannot be written: {error}; free some space on the disks of the run directory and of "
            f"{gettempdir()}"
        )
        return Failure("NoSpace", text, ExitCode.ERROR)
    if isinstance(error, OSError):
        return Failure("OSError", _LIMITS.get(error.errno or 0, "{}").format(error), ExitCode.ERROR)
    return None


def exit_code(error: Exception) -> ExitCode:
    """Return the exit status of a command that has failed with this error."""
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
