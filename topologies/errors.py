"""What can go wrong while a fabric is laid out or a job's workers are run."""

__all__ = [
    "CertificateError",
    "CommandNotExecutableError",
    "CommandNotFoundError",
    "ConfigurationError",
    "DrawingError",
    "FabricBusyError",
    "FabricStartError",
    "LogNotFoundError",
    "NamespaceError",
    "NoFabricError",
    "NotEndedError",
    "ProgramNotFoundError",
    "RemoteRanksError",
    "RunDirectoryError",
    "TopologyError",
    "TopologyFileError",
]


class TopologyError(Exception):
    """Base of this package's errors. The text says what happened, to what, and what to do."""


class ConfigurationError(TopologyError):
    """A configuration file, environment variable or option holds something that is not allowed there."""


class RunDirectoryError(TopologyError):
    """The run directory cannot be used: not ours, open to others, not writable, or its lock is held for too long."""


class ProgramNotFoundError(TopologyError):
    """One of SwitchML's own programs is not installed beside the running interpreter nor on PATH."""


class FabricStartError(TopologyError):
    """A process of the embedded fabric ended, or was not ready in time."""


class FabricBusyError(TopologyError):
    """A broken fabric cannot be replaced while others still use it."""


class NoFabricError(TopologyError):
    """No controller is configured and the run directory holds no live fabric."""


class CommandNotFoundError(TopologyError):
    """The command that the workers should run does not exist."""


class CommandNotExecutableError(TopologyError):
    """The command that the workers should run is not an executable program."""


class NotEndedError(TopologyError):
    """A job that was waited for has not ended in time."""


class LogNotFoundError(TopologyError):
    """No log of this rank of this job is in the run directory."""


class RemoteRanksError(TopologyError):
    """Some ranks of the job were assigned to agents on other hosts, where this launcher cannot start a process."""


class TopologyFileError(TopologyError):
    """A topology file, or a topology, is not one that can be laid out."""


class NamespaceError(TopologyError):
    """Network namespaces cannot be made or removed: privileges or a program are missing, or the kernel refused."""


class DrawingError(TopologyError):
    """A topology cannot be drawn as a picture: matplotlib is missing, or the file cannot be written."""


class CertificateError(TopologyError):
    """A certificate cannot be made."""
