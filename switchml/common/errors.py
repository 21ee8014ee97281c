"""Errors of launch, ops and topologies, whose texts are shown to users."""

__all__ = [
    "CertificateError",
    "CommandNotExecutableError",
    "CommandNotFoundError",
    "ConfigurationError",
    "DrawingError",
    "FabricBusyError",
    "FabricDiffersError",
    "LogNotFoundError",
    "NamespaceError",
    "NoFabricError",
    "NoProbeError",
    "NoRouteError",
    "NotEndedError",
    "NoStepsError",
    "OperationError",
    "ProbeMatrixError",
    "ProgramNotFoundError",
    "RemoteRanksError",
    "RunDirectoryError",
    "ScheduleError",
    "SketchError",
    "SolverError",
    "StartError",
    "TopologyFileError",
]


class OperationError(Exception):
    """Base class of these errors. The text says what happened, to what, and what to do."""


class ConfigurationError(OperationError):
    """A configuration file, environment variable or option has a value that is not allowed."""


class RunDirectoryError(OperationError):
    """The run directory cannot be used: wrong owner, open to others, not writable, or its lock is held for too long."""


class ProgramNotFoundError(OperationError):
    """One of SwitchML's own programs is neither next to the running interpreter nor on PATH."""


class StartError(OperationError):
    """A process of the embedded fabric ended, or was not ready in time."""


class FabricBusyError(OperationError):
    """A broken fabric cannot be replaced while others still use it."""


class FabricDiffersError(OperationError):
    """A live fabric has other options than those that were given."""


class NoFabricError(OperationError):
    """No controller is configured and the run directory holds no live fabric."""


class CommandNotFoundError(OperationError):
    """The command that the workers should run does not exist."""


class CommandNotExecutableError(OperationError):
    """The command that the workers should run is not an executable program."""


class NotEndedError(OperationError):
    """A job has not ended in the time that the caller was willing to wait."""


class NoStepsError(OperationError):
    """A program made no steps that could be recorded."""


class NoProbeError(OperationError):
    """No probe has measured the paths between the hosts yet."""


class ProbeMatrixError(OperationError):
    """A file does not have the matrix of a probe."""


class LogNotFoundError(OperationError):
    """No log of this rank of this job is in the run directory."""


class RemoteRanksError(OperationError):
    """Some ranks of the job were assigned to agents on other hosts, where this launcher cannot start processes."""


class TopologyFileError(OperationError):
    """A topology, or a topology file, is not valid."""


class NamespaceError(OperationError):
    """Network namespaces cannot be created or removed: privileges or a program are missing, or the kernel refused."""


class DrawingError(OperationError):
    """A picture cannot be drawn: matplotlib is missing, there is nothing to draw, or the file cannot be written."""


class CertificateError(OperationError):
    """A certificate cannot be created."""


class SketchError(OperationError):
    """A topology or a sketch for synthesis is not valid."""


class NoRouteError(OperationError):
    """Ranks that must exchange data are not connected by the links that a topology and a sketch allow."""


class SolverError(OperationError):
    """The solver is not installed, or has found nothing in the time given."""


class ScheduleError(OperationError):
    """A schedule of a collective is not valid."""
