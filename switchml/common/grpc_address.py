"""Addresses of gRPC servers: HOST:PORT, or unix:/PATH, which only the server's own user can reach."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import socket
from pathlib import Path
from typing import Final

import grpc

from switchml.common.deadline import within
from switchml.common.tls import Security, is_local

__all__ = ["UNIX", "listen", "nothing_listens", "parse_grpc_address", "parse_host_port"]

_LOG = logging.getLogger(__name__)

_REFUSAL_SECONDS: Final = 0.5

UNIX: Final = "unix:"
"""The prefix of a Unix socket's address."""


def parse_host_port(text: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[IPv6]:port``. Raises ValueError if the text is neither."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address must be in brackets, as in [::1]:9559")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535, as in 127.0.0.1:9559")
    return host, int(port)


def parse_grpc_address(text: str) -> Path | tuple[str, int]:
    """Return the path of ``unix:/PATH``, or host and port. Raises ValueError if the text is neither."""
    if not text.startswith(UNIX):
        try:
            return parse_host_port(text)
        except ValueError as error:
            raise ValueError(f"{error}, nor unix:/PATH") from None
    path = Path(text.removeprefix(UNIX))
    if not path.is_absolute():
        raise ValueError(f"{text!r} has no absolute path after {UNIX}")
    return path


async def nothing_listens(address: str) -> bool:
    """Return whether the address refuses connections: its host runs, but no process listens there.

    A host that does not answer within a short time may still run, so this is not a refusal.
    """
    place = parse_grpc_address(address)
    opening = asyncio.open_unix_connection(place) if isinstance(place, Path) else asyncio.open_connection(*place)
    try:
        _, writer = await within(_REFUSAL_SECONDS, opening)
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return False


def listen(server: grpc.aio.Server, address: str, security: Security) -> str:
    """Let a server listen at an address, and return it with the port that the kernel chose for port 0.

    A Unix socket gets mode 0600, and replaces one whose process has ended. Without TLS a warning says who can command
    the process.

    Raises:
        TlsError: certificates are missing or not usable.
        OSError: it cannot listen there; the message says where and why.

    """
    place = parse_grpc_address(address)
    certificates = security.certificates_for(address)
    try:
        if isinstance(place, Path):
            _listen_at(server, place)
            return address
        _require_free(*place)
        port = security.listen(server, address)
    except (OSError, RuntimeError) as error:
        number, why = (error.errno, error.strerror) if isinstance(error, OSError) else (errno.EADDRNOTAVAIL, str(error))
        raise OSError(number, f"cannot listen on {address} for gRPC: {why or error}") from None
    bound = f"{address.rpartition(':')[0]}:{port}"
    if certificates is None:
        who = "every user of this machine" if is_local(address) else "everyone who can reach it"
        _LOG.warning(
            "listening on %s without TLS: %s can command this process; a Unix socket (unix:/PATH) is accessible to "
            "its own user only, and --tls requires certificates",
            *(bound, who),
        )
    return bound


def _listen_at(server: grpc.aio.Server, path: Path) -> None:
    _require_unused(path)
    umask = os.umask(0o177)  # so that the file never has a wider mode
    try:
        server.add_insecure_port(f"{UNIX}{path}")
    finally:
        os.umask(umask)


def _require_unused(path: Path) -> None:
    """Raise OSError unless a Unix socket can be created at `path`: gRPC does not say why, and replaces any file."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(FileNotFoundError):
        try:
            probe.connect(str(path))
            raise OSError(errno.EADDRINUSE, "another process does")
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))
    path.unlink()


def _require_free(host: str, port: int) -> None:
    """Bind once as gRPC will, because gRPC does not say why it cannot."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
