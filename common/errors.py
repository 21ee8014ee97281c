"""Errors that people are shown by launch, ops and topologies."""

__all__ = [
    "CertificateError",
    "CommandNotExecutableError",
    "CommandNotFoundError",
    "ConfigurationError",
    "DrawingError",
    "FabricBusyError",
    "LogNotFoundError",
    "NamespaceError",
    "NoFabricError",
    "NotEndedError",
    "OperationError",
    "ProgramNotFoundError",
    "RemoteRanksError",
    "RunDirectoryError",
    "StartError",
    "TopologyFileError",
]


class OperationError(Exception):
    """Base of the errors here. The text says what happened, to what, and what to do."""


class ConfigurationError(OperationError):
    """A configuration file, environment variable or option holds something that is not allowed there."""


class RunDirectoryError(OperationError):
    """The run directory cannot be used: not ours, open to others, not writable, or its lock is held for too long."""


class ProgramNotFoundError(OperationError):
    """One of SwitchML's own programs is not installed beside the running interpreter nor on PATH."""


class StartError(OperationError):
    """A process of the embedded fabric ended, or was not ready in time."""


class FabricBusyError(OperationError):
    """A broken fabric cannot be replaced while others still use it."""


class NoFabricError(OperationError):
    """No controller is configured and the run directory holds no live fabric."""


class CommandNotFoundError(OperationError):
    """The command that the workers should run does not exist."""


class CommandNotExecutableError(OperationError):
    """The command that the workers should run is not an executable program."""


class NotEndedError(OperationError):
    """A job that was waited for has not ended in time."""


class LogNotFoundError(OperationError):
    """No log of this rank of this job is in the run directory."""


class RemoteRanksError(OperationError):
    """Some ranks of the job were assigned to agents on other hosts, where this launcher cannot start a process."""


class TopologyFileError(OperationError):
    """A topology file, or a topology, is not one that can be laid out."""


class NamespaceError(OperationError):
    """Network namespaces cannot be made or removed: privileges or a program are missing, or the kernel refused."""


class DrawingError(OperationError):
    """A topology cannot be drawn as a picture: matplotlib is missing, or the file cannot be written."""


class CertificateError(OperationError):
    """A certificate cannot be made."""
