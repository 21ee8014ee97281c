"""The process at the other end of a Unix socket, as the kernel reports it."""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

__all__ = ["PeerCredentials", "peer_credentials"]

_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred


class PeerCredentials(NamedTuple):
    """The numbers of a process, its user and its group."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> PeerCredentials:
    """Return the process that has connected, or that listens at the other end (SO_PEERCRED, unix(7))."""
    reported = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return PeerCredentials(*_CREDENTIALS.unpack(reported))
