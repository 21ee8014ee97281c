"""One StreamChannel: receives a client's arbitration messages and sends notifications.

P4Runtime specification, "P4Runtime Stream Messages".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from finsy.proto import p4r

from switchml.dataplane.softswitch.arbitration import Arbitration, Client
from switchml.dataplane.softswitch.errors import ERROR_SPACE, P4RuntimeError, canonical_code

__all__ = ["Stream"]

_MAX_WAITING = 256  # messages that wait for a slow client before its stream is closed


class Stream:
    """The server's side of one StreamChannel RPC."""

    def __init__(self, arbitration: Arbitration, context: grpc.aio.ServicerContext) -> None:
        self._arbitration = arbitration
        self._context = context
        self._client = Client(context.peer(), self._notify)
        self._waiting: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        """Serve until the client ends the stream; a primary then is no longer primary.

        Raises P4RuntimeError if the stream must end with an error.
        """
        # Sent now rather than with the first message: an error that ends the stream during that message would send the
        # metadata twice, which gRPC refuses.
        await self._context.send_initial_metadata(())
        reader = asyncio.ensure_future(self._read(requests))
        writer = asyncio.ensure_future(self._write())
        try:
            await asyncio.wait((self._failed, reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in (self._failed, reader, writer):
                if task.done():
                    task.result()
        finally:
            self._arbitration.close(self._client)
            for task in (self._failed, reader, writer):
                task.cancel()
            await asyncio.gather(self._failed, reader, writer, return_exceptions=True)

    def fail(self, error: P4RuntimeError) -> None:
        """End the stream with an error."""
        if not self._failed.done():
            self._failed.set_exception(error)

    def _notify(self, message: p4r.StreamMessageResponse) -> None:
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put_nowait(message)
            return
        text = f"{_MAX_WAITING} notifications wait: this client does not read its stream"
        self.fail(P4RuntimeError(grpc.StatusCode.RESOURCE_EXHAUSTED, text))

    async def _read(self, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        async for request in requests:
            if request.WhichOneof("update") == "arbitration":
                self._arbitration.update(self._client, request.arbitration)
            else:
                self._notify(p4r.StreamMessageResponse(error=_refusal(request)))

    async def _write(self) -> None:
        while True:
            await self._context.write(await self._waiting.get())


def _refusal(request: p4r.StreamMessageRequest) -> p4r.StreamError:
    """Return the answer to a message other than arbitration: this pipeline has neither packet I/O nor digests."""
    error = p4r.StreamError(space=ERROR_SPACE)
    kind = request.WhichOneof("update")
    if kind == "packet":
        error.canonical_code = canonical_code(grpc.StatusCode.UNIMPLEMENTED)
        error.message = "this pipeline has no packet-out: packets enter the switch through its ports only"
        error.packet_out.SetInParent()
    elif kind == "digest_ack":
        error.canonical_code = canonical_code(grpc.StatusCode.INVALID_ARGUMENT)
        error.message = f"this pipeline has no digest with id {request.digest_ack.digest_id}"
        error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        error.canonical_code = canonical_code(
            grpc.StatusCode.INVALID_ARGUMENT if kind is None else grpc.StatusCode.UNIMPLEMENTED
        )
        error.message = "the message is not set" if kind is None else "this pipeline has no such stream message"
        error.other.SetInParent()
    return error
