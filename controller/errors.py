"""Everything that can go wrong, as one hierarchy that travels over gRPC and comes out as the same exception."""

from __future__ import annotations

from typing import ClassVar, NoReturn

import grpc

from switchml.controller.proto import switchml_pb2 as pb

__all__ = [
    "ControllerError",
    "InvalidRequest",
    "JobExists",
    "JobNotFound",
    "JobEnded",
    "NoRoom",
    "NoAgent",
    "AgentExists",
    "AgentNotFound",
    "AgentFailed",
    "AgentTimeout",
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
    "ACTOR_KEY",
    "DETAIL_KEY",
    "abort",
    "from_rpc_error",
]

DETAIL_KEY = "switchml-error-bin"
ACTOR_KEY = "switchml-actor-bin"
"""Metadata of a call: who makes it, as the caller says, in UTF-8."""


class ControllerError(Exception):
    """What the controller could not do, to what, and what to do about it.

    ``figures`` are the numbers behind the message, by name, as text.
    """

    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, **figures: object) -> None:
        super().__init__(message)
        self.message = message
        self.figures = {name: str(value) for name, value in figures.items()}


class InvalidRequest(ControllerError):
    """A request holds a value that is not allowed."""

    status = grpc.StatusCode.INVALID_ARGUMENT


class JobExists(ControllerError):
    """The name is in use by a live job."""

    status = grpc.StatusCode.ALREADY_EXISTS


class JobNotFound(ControllerError):
    """No job has this id or name."""

    status = grpc.StatusCode.NOT_FOUND


class JobEnded(ControllerError):
    """The job ended before it was ready."""

    status = grpc.StatusCode.ABORTED


class NoRoom(ControllerError):
    """Slots, job ids or epochs are used up; the figures say how many there are."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class TooManyCalls(ControllerError):
    """The caller has as many calls under way as it may; the figures say how many."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class QuotaExceeded(ControllerError):
    """The tenant has, with what is asked for, more than it may; the figures say how much."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class PermissionDenied(ControllerError):
    """The caller's certificate does not allow it."""

    status = grpc.StatusCode.PERMISSION_DENIED


class NoAgent(ControllerError):
    """The live agents of the switch cannot take the job's ranks; the figures say how many they can."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class AgentExists(ControllerError):
    """An agent of this name is live in another process."""

    status = grpc.StatusCode.ALREADY_EXISTS


class AgentNotFound(ControllerError):
    """No agent of this name has registered."""

    status = grpc.StatusCode.NOT_FOUND


class AgentFailed(ControllerError):
    """An agent was lost or refused its ranks."""

    status = grpc.StatusCode.ABORTED


class AgentTimeout(ControllerError):
    """An agent did not answer in time."""

    status = grpc.StatusCode.DEADLINE_EXCEEDED


class SwitchNotFound(ControllerError):
    """No switch of this name is configured."""

    status = grpc.StatusCode.NOT_FOUND


class SwitchUnavailable(ControllerError):
    """The switch is not connected, or another controller is its primary."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class SwitchRefused(ControllerError):
    """The switch refused a request; the message holds its words."""

    status = grpc.StatusCode.INTERNAL


class VersionMismatch(ControllerError):
    """Two processes of different versions met."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class ConfigError(ControllerError):
    """The configuration cannot be used."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class StoreError(ControllerError):
    """The store cannot be read or written."""

    status = grpc.StatusCode.INTERNAL


class StoreInUse(StoreError):
    """Another controller leads with this store."""


class ControllerUnavailable(ControllerError):
    """The controller cannot be reached."""

    status = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(ControllerError):
    """The controller did not answer in time."""

    status = grpc.StatusCode.DEADLINE_EXCEEDED


class InternalError(ControllerError):
    """The controller has a defect; its log has the traceback."""

    status = grpc.StatusCode.INTERNAL


_BY_NAME: dict[str, type[ControllerError]] = {
    error.__name__: error for error in [*ControllerError.__subclasses__(), StoreInUse]
}


async def abort(context: grpc.aio.ServicerContext, error: ControllerError) -> NoReturn:
    """End an RPC with the status of `error` and its detail in the trailing metadata."""
    detail = pb.ErrorDetail(error=type(error).__name__, message=error.message, figures=error.figures)
    await context.abort(error.status, error.message, ((DETAIL_KEY, detail.SerializeToString()),))
    raise AssertionError("abort raises")


def from_rpc_error(error: grpc.RpcError, address: str) -> ControllerError:
    """Return the exception that the controller at `address` raised, or what kept it from answering."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAIL_KEY:
            detail = pb.ErrorDetail.FromString(value)
            raised = _BY_NAME.get(detail.error, ControllerError)(detail.message)
            raised.figures = dict(detail.figures)
            return raised
    code, text = error.code(), error.details() or "no details"
    if code is grpc.StatusCode.CANCELLED:
        return ControllerUnavailable(f"the controller at {address} ended the call: {text}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return ControllerUnavailable(f"no controller answers at {address}: {text}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(f"the controller at {address} did not answer in time")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ControllerUnavailable(
            f"what answers at {address} is not a controller of SwitchML, or one of another version: {text}"
        )
    return InternalError(f"the controller at {address} answered {code.name}: {text}")
