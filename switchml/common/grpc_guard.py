"""The way of each call to a gRPC server: permission, the caller's turn, the bounds of the request, then its handler."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from switchml.common.message_bounds import BoundExceeded, Bounds
from switchml.common.turns import measured, turn

__all__ = ["Guard", "Requests"]

Check: TypeAlias = "Callable[[str, grpc.aio.ServicerContext], Awaitable[AbstractContextManager[object]]]"

_REQUEST_BYTES: Final = 64 * 1024


class Refuse(Protocol):
    """Ends a call whose request exceeds a bound."""

    async def __call__(self, context: grpc.aio.ServicerContext, why: str) -> NoReturn: ...


class Requests:
    """The messages of a stream, each taken in the turn of its caller and checked before it is returned.

    `most_bytes` returns the most bytes of the next message; a handler that expects large ones replaces it.
    """

    def __init__(self, received: AsyncIterator[bytes], parse: Callable[[bytes, int], Any], most_bytes: int) -> None:
        self._received = received
        self._parse = parse
        self.most_bytes: Callable[[], int] = lambda: most_bytes

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> Any:
        """Return the next message.

        Raises:
            BoundExceeded: it is too large, or a field of it is.

        """
        data = await anext(self._received)
        await turn()
        return self._parse(data, self.most_bytes())


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Await `check` with a call's method (/PACKAGE.SERVICE/METHOD) and context; it aborts calls that are not allowed.

    The call is served within the context manager that the check returns. The check runs in the task of the call, so its
    context variables hold for the call. Requests of more than `most_bytes`, or beyond `bounds`, are refused with
    `refuse`; they are not parsed before the check.
    """

    def __init__(self, check: Check, bounds: Bounds, refuse: Refuse, most_bytes: int = _REQUEST_BYTES) -> None:
        self._check = check
        self._bounds = bounds
        self._refuse = refuse
        self._most_bytes = most_bytes

    async def intercept_service(self, continuation: Callable[..., Awaitable[Any]], details: Any) -> Any:
        """Return the handler of a call, which takes the call all the way."""
        handler = await continuation(details)
        if handler is None:  # UNIMPLEMENTED
            return None
        method = str(details.method)
        requests, responses = ("stream" if one else "unary" for one in _streams(handler))
        kind = f"{requests}_{responses}"
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(self._guarded(method, handler, getattr(handler, kind)), None, handler.response_serializer)

    def _guarded(self, method: str, handler: Any, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def begin(data: Any) -> Any:
            if handler.request_streaming:
                return Requests(data, parse, self._most_bytes)
            await turn()
            return parse(data, self._most_bytes)

        def parse(data: bytes, most: int) -> Any:
            if len(data) > most:
                raise BoundExceeded(f"the message has {len(data):,} bytes, and may have {most:,}")
            try:
                message = handler.request_deserializer(data)
            except DecodeError as error:
                raise BoundExceeded(f"the message is damaged: {error}") from None
            self._bounds.check(message)
            return message

        async def generate(data: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            with await self._check(method, context):
                try:
                    responses = behaviour(await begin(data), context)
                    while True:
                        await turn()
                        yield await measured(anext(responses))
                except StopAsyncIteration:
                    return
                except BoundExceeded as error:
                    await self._refuse(context, str(error))

        async def call(data: Any, context: grpc.aio.ServicerContext) -> Any:
            with await self._check(method, context):
                try:
                    return await measured(behaviour(await begin(data), context))
                except BoundExceeded as error:
                    await self._refuse(context, str(error))

        return generate if inspect.isasyncgenfunction(behaviour) else call


def _streams(handler: Any) -> tuple[bool, bool]:
    return handler.request_streaming, handler.response_streaming
