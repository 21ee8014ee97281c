"""Check the permission of each call to a gRPC server before it is served."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import grpc

__all__ = ["Guard"]

Check: TypeAlias = "Callable[[str, grpc.aio.ServicerContext], Awaitable[AbstractContextManager[object]]]"


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Await `check` with a call's method (/PACKAGE.SERVICE/METHOD) and context; it aborts calls that are not allowed.

    The call is served within the context manager that the check returns. The check runs in the task of the call, so its
    context variables hold for the call.
    """

    def __init__(self, check: Check) -> None:
        self._check = check

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        """Return the handler of a call, preceded by the check."""
        handler = await continuation(details)
        if handler is None:  # UNIMPLEMENTED
            return None
        method = str(details.method)
        requests, responses = ("stream" if one else "unary" for one in _streams(handler))
        kind = f"{requests}_{responses}"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            self._guarded(method, getattr(handler, kind)), handler.request_deserializer, handler.response_serializer
        )

    def _guarded(self, method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def generate(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            with await self._check(method, context):
                async for response in behaviour(request, context):
                    yield response

        async def call(request: Any, context: grpc.aio.ServicerContext) -> Any:
            with await self._check(method, context):
                return await behaviour(request, context)

        return generate if inspect.isasyncgenfunction(behaviour) else call


def _streams(handler: Any) -> tuple[bool, bool]:
    return handler.request_streaming, handler.response_streaming
