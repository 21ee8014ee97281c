"""The gRPC server of the P4Runtime service: its address, limits and access control."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager
from typing import NoReturn

import grpc
from finsy.proto import p4r_grpc

from switchml.common.grpc_address import listen
from switchml.common.grpc_connections import CONNECTION_OPTIONS, KEEPALIVE_OPTIONS, BusyPeers
from switchml.common.grpc_guard import Guard
from switchml.common.role import Role
from switchml.common.tls import Security, identity_of
from switchml.dataplane.softswitch.bounds import BOUNDS, MESSAGE_BYTES
from switchml.dataplane.softswitch.servicer import Servicer

__all__ = ["create_server"]

_LOG = logging.getLogger(__name__)

# Streams and unary calls together; gRPC refuses more with RESOURCE_EXHAUSTED.
_MAX_CONCURRENT_RPCS = 256

_ROLES = (Role.CONTROLLER, Role.ADMIN)  # the roles that may drive the switch

_OPTIONS = (
    *CONNECTION_OPTIONS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # A primary whose host has vanished is detected and loses its stream.
    *KEEPALIVE_OPTIONS,
    ("grpc.keepalive_permit_without_calls", 1),
)


def create_server(servicer: Servicer, address: str, busy: BusyPeers, security: Security) -> tuple[grpc.aio.Server, str]:
    """Return a server, not started yet, and the address that it listens on; port 0 lets the kernel choose.

    `busy` holds the peers whose calls are being served. With TLS it serves controllers and administrators only.
    Must run in the event loop that will serve.

    Raises:
        OSError: it cannot listen there; the message says where and why.
        TlsError: certificates are missing or not usable.

    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(_without_needless_traceback)

    async def check(_method: str, context: grpc.aio.ServicerContext) -> AbstractContextManager[None]:
        await _require_role(context)
        return busy.call(context.peer())

    server = grpc.aio.server(
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MAX_CONCURRENT_RPCS,
        interceptors=[Guard(check, BOUNDS, _refuse, MESSAGE_BYTES)],
    )
    p4r_grpc.add_P4RuntimeServicer_to_server(servicer, server)
    return server, listen(server, address, security)


async def _require_role(context: grpc.aio.ServicerContext) -> None:
    """Abort a call over TLS whose certificate is not for one of _ROLES."""
    identity = identity_of(context)
    if identity is not None and identity.role not in _ROLES:
        _LOG.warning("%s at %s may not drive this switch", identity.subject, context.peer())
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{identity.subject} may not drive this switch: its certificate's role (OU) must be one of"
            f" {', '.join(role.value for role in _ROLES)}",
        )


async def _refuse(context: grpc.aio.ServicerContext, why: str) -> NoReturn:
    _LOG.warning("a request of %s was refused: %s", context.peer(), why)
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
    raise AssertionError("abort does not return")


def _without_needless_traceback(record: logging.LogRecord) -> bool:
    """Drop records that gRPC logs with a traceback for RPCs that the end of the process has cancelled."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
