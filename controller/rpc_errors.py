"""Transmission of the exceptions of controller.errors over gRPC."""

from __future__ import annotations

from typing import NoReturn

import grpc

from switchml.common.printable import shortened
from switchml.controller.errors import (
    ControllerError,
    ControllerUnavailable,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    StoreInUse,
)
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["ACTOR_KEY", "DETAIL_KEY", "abort", "from_rpc_error", "refuse"]

DETAIL_KEY = "switchml-error-bin"
ACTOR_KEY = "switchml-actor-bin"

_MESSAGE_LENGTH = 1500  # the message is sent twice, and clients take 8 KiB of metadata

_BY_NAME: dict[str, type[ControllerError]] = {
    error.__name__: error for error in [*ControllerError.__subclasses__(), StoreInUse]
}


async def abort(context: grpc.aio.ServicerContext, error: ControllerError) -> NoReturn:
    """End an RPC with the status of `error` and its detail in the trailing metadata."""
    message = shortened(error.message, _MESSAGE_LENGTH)
    detail = pb.ErrorDetail(error=type(error).__name__, message=message, figures=error.figures)
    await context.abort(grpc.StatusCode[error.status], message, ((DETAIL_KEY, detail.SerializeToString()),))
    raise AssertionError("abort raises")


async def refuse(context: grpc.aio.ServicerContext, why: str) -> NoReturn:
    """End an RPC whose request exceeds a bound."""
    await abort(context, InvalidRequest(why))


def from_rpc_error(error: grpc.RpcError, address: str) -> ControllerError:
    """Return the exception that the controller at `address` raised, or the one for a call without an answer."""
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
            f"the program at {address} is not a controller of SwitchML, or one of another version: {text}"
        )
    return InternalError(f"the controller at {address} answered {code.name}: {text}")
