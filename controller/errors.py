"""The exceptions of the controller; clients raise the same ones."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ControllerError",
    "InvalidRequest",
    "JobExists",
    "JobNotFound",
    "JobEnded",
    "NoRoom",
    "NoFloats",
    "NoAgent",
    "AgentExists",
    "AgentNotFound",
    "AgentFailed",
    "AgentTimeout",
    "FabricInUse",
    "SwitchNotFound",
    "SwitchUnavailable",
    "SwitchRefused",
    "PermissionDenied",
    "QuotaExceeded",
    "TooManyCalls",
    "VersionMismatch",
    "ConfigError",
    "StoreError",
    "StoreInUse",
    "ControllerUnavailable",
    "DeadlineExceeded",
    "InternalError",
]

"""Metadata of a call: the name that the caller gives itself, in UTF-8."""


class ControllerError(Exception):
    """Base class. The message says what the controller could not do, to what, and what to do about it.

    ``figures`` are the numbers behind the message, by name, as text.
    """

    status: ClassVar[str] = "UNKNOWN"
    """The name of its gRPC status."""

    def __init__(self, message: str, **figures: object) -> None:
        super().__init__(message)
        self.message = message
        self.figures = {name: str(value) for name, value in figures.items()}


class InvalidRequest(ControllerError):
    """A request holds a value that is not allowed."""

    status = "INVALID_ARGUMENT"


class JobExists(ControllerError):
    """The name is in use by a live job."""

    status = "ALREADY_EXISTS"


class JobNotFound(ControllerError):
    """No job has this id or name."""

    status = "NOT_FOUND"


class JobEnded(ControllerError):
    """The job is over, and the call needs a live one."""

    status = "ABORTED"


class NoRoom(ControllerError):
    """Slots, job ids or epochs are used up; the figures hold their numbers."""

    status = "RESOURCE_EXHAUSTED"


class NoFloats(ControllerError):
    """The job asks for sums of floats, and the pipeline of its switch cannot add them."""

    status = "FAILED_PRECONDITION"


class TooManyCalls(ControllerError):
    """The caller has as many calls in progress as it may; the figures hold the limit."""

    status = "RESOURCE_EXHAUSTED"


class QuotaExceeded(ControllerError):
    """The tenant would exceed its quota with this request; the figures hold the numbers."""

    status = "RESOURCE_EXHAUSTED"


class PermissionDenied(ControllerError):
    """The caller's certificate does not allow it."""

    status = "PERMISSION_DENIED"


class NoAgent(ControllerError):
    """The live agents of the switch have no room for the job's ranks; the figures hold their room."""

    status = "FAILED_PRECONDITION"


class AgentExists(ControllerError):
    """An agent of this name is live in another process."""

    status = "ALREADY_EXISTS"


class AgentNotFound(ControllerError):
    """No agent of this name has registered."""

    status = "NOT_FOUND"


class AgentFailed(ControllerError):
    """An agent was lost or refused its ranks."""

    status = "ABORTED"


class AgentTimeout(ControllerError):
    """An agent did not answer in time."""

    status = "DEADLINE_EXCEEDED"


class FabricInUse(ControllerError):
    """Jobs live, or a probe runs, and a probe would measure their packets."""

    status = "FAILED_PRECONDITION"


class SwitchNotFound(ControllerError):
    """No switch of this name is configured."""

    status = "NOT_FOUND"


class SwitchUnavailable(ControllerError):
    """The switch is not connected, or another controller is its primary."""

    status = "FAILED_PRECONDITION"


class SwitchRefused(ControllerError):
    """The switch refused a request; its own message is included."""

    status = "INTERNAL"


class VersionMismatch(ControllerError):
    """Two processes have different versions."""

    status = "FAILED_PRECONDITION"


class ConfigError(ControllerError):
    """The configuration cannot be used."""

    status = "FAILED_PRECONDITION"


class StoreError(ControllerError):
    """The store cannot be read or written."""

    status = "INTERNAL"


class StoreInUse(StoreError):
    """Another controller leads with this store."""


class ControllerUnavailable(ControllerError):
    """The controller cannot be reached."""

    status = "UNAVAILABLE"


class DeadlineExceeded(ControllerError):
    """The controller did not answer in time."""

    status = "DEADLINE_EXCEEDED"


class InternalError(ControllerError):
    """The controller has a defect; its log has the traceback."""

    status = "INTERNAL"
