"""Exit statuses of switchml-ctl."""

from enum import IntEnum

__all__ = ["ExitCode"]


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
