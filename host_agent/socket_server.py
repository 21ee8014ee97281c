"""The Unix socket that training processes connect to: SEQPACKET, one connection for each rank."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from pathlib import Path
from typing import Final

from switchml.host_agent.attachments import Attachments
from switchml.host_agent.errors import SocketUnusable
from switchml.host_agent.process_connection import ControllerSession, ProcessConnection

__all__ = ["SocketServer"]

_log = logging.getLogger(__name__)

_BACKLOG: Final = 512
_MOST_CONNECTIONS: Final = 1024
_LONGEST_PATH: Final = 107  # bytes: size of sun_path less the terminating zero


class SocketServer:
    """Listen at `path` for processes of this user (and root), and serve their connections."""

    def __init__(self, path: Path, attachments: Attachments, session: ControllerSession) -> None:
        self._path = path
        self._attachments = attachments
        self._session = session
        self._socket: socket.socket | None = None
        self._inode = 0
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Bind the socket with mode 0600 and serve it on the running event loop.

        A socket that an ended agent left is replaced.

        Raises:
            SocketUnusable: a live process listens there, the path is not a socket, or the socket cannot be created.

        """
        if len(os.fsencode(self._path)) > _LONGEST_PATH:
            raise SocketUnusable(f"the path of a Unix socket may have {_LONGEST_PATH} bytes: {self._path} is longer")
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        # The file must never have a wider mode. Nothing else runs on this thread between the two calls.
        umask = os.umask(0o177)
        try:
            listener.bind(os.fspath(self._path))
            listener.listen(_BACKLOG)
            self._inode = self._path.stat().st_ino
        except OSError as error:
            listener.close()
            raise SocketUnusable(f"cannot listen at {self._path}: {error.strerror}") from error
        finally:
            os.umask(umask)
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener))

    async def close(self) -> None:
        """Stop listening, end all connections and remove the socket."""
        tasks = [*self._connections, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            # Another agent may have taken over the path in the meantime.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def _remove_stale(self) -> None:
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise SocketUnusable(f"cannot listen at {self._path}: {error.strerror}") from error
        if not stat.S_ISSOCK(mode):
            raise SocketUnusable(
                f"{self._path} exists and is not a socket; remove it or choose another path with --socket"
            )
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
            outcome = probe.connect_ex(os.fspath(self._path))
        if outcome not in (errno.ECONNREFUSED, errno.ENOENT):
            reason = "" if outcome in (0, errno.EAGAIN) else f" ({os.strerror(outcome)})"
            raise SocketUnusable(
                f"another process listens at {self._path}{reason}: stop that agent, "
                "or choose another path with --socket"
            )
        _log.info("replacing %s, which an ended agent left", self._path)
        self._path.unlink(missing_ok=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors or memory: waiting connections stay in the backlog until some are free.
                _log.error("cannot accept connections: %s", error)
                await asyncio.sleep(0.1)
                continue
            connection = ProcessConnection(connected, self._attachments, self._session)
            if len(self._connections) >= _MOST_CONNECTIONS:
                connection.refuse("BadRequest", f"the agent serves at most {_MOST_CONNECTIONS} connections")
                continue
            task = asyncio.create_task(connection.serve())
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
