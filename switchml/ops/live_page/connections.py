"""The connections of the live page: how many there may be, and how long one may take to ask for something.

uvicorn limits neither: it closes an idle connection only after an answer, and asyncio gives each TLS handshake a
minute. Anyone who can connect, without a token, could so take all descriptors of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Connections"]

_RETRY_SECONDS: Final = 1.0


class Connections:
    """Accepts connections for a server whose answers close them: each is for one request.

    One without a complete request after `seconds` is closed. Beyond `most`, the oldest that is not being answered makes
    room, so that silent ones do not keep viewers out.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._open: dict[socket.socket, _Protocol] = {}  # oldest first
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop itself keeps no reference to them

    async def accept(self, listening: socket.socket, server: uvicorn.Server) -> None:
        """Accept connections until cancelled."""
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # it has ended already, or this process has no descriptor left
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            task = loop.create_task(self._serve(connection, _Protocol(server)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # sock_accept lets nothing else run while connections wait

    async def _serve(self, connection: socket.socket, protocol: _Protocol) -> None:
        """Let uvicorn serve a connection, and close it if no request comes in time."""
        self._open[connection] = protocol
        self._make_room()
        loop, tls = asyncio.get_running_loop(), protocol.config.ssl
        with anyio.move_on_after(self._seconds), contextlib.suppress(OSError):  # also errors of TLS
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
            await protocol.settled.wait()
        if not protocol.asked:
            _end(connection)

    def _make_room(self) -> None:
        self._open = {each: protocol for each, protocol in self._open.items() if each.fileno() >= 0}  # not closed
        if len(self._open) > self._most:
            oldest = next(each for each, protocol in self._open.items() if not protocol.answers)  # perhaps the newest
            del self._open[oldest]
            _end(oldest)


class _Protocol(H11Protocol):
    """Knows when the request has come, or will not come any more."""

    def __init__(self, server: uvicorn.Server) -> None:
        super().__init__(server.config, server.server_state, {})
        self.settled = asyncio.Event()

    @property
    def asked(self) -> bool:
        """True once the request has come."""
        return self.cycle is not None

    @property
    def answers(self) -> bool:
        """True while an answer is under way."""
        return self.asked and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.asked:
            self.settled.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.settled.set()


def _end(connection: socket.socket) -> None:
    # The event loop, whose transport has the socket, sees the end and closes it, in a TLS handshake as well.
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
