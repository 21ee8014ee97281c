"""Limits of the connections to a gRPC server: those without a call are closed if they are too many or too old.

gRPC accepts every connection, and has no limit for each peer. This module finds gRPC's sockets among the descriptors of
this process and shuts them down, which to gRPC looks like a connection closed by the peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import resource
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Final, TypeAlias, TypeVar
from urllib.parse import unquote

from switchml.common.grpc_address import parse_grpc_address

__all__ = [
    "CONNECTIONS_OF_A_PEER",
    "CONNECTION_OPTIONS",
    "KEEPALIVE_OPTIONS",
    "BusyPeers",
    "limit_connections",
    "peer_of",
]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

CONNECTIONS_OF_A_PEER: Final = 256
"""The limit for one address; above it, connections without a call are closed."""
_SHARE_OF_DESCRIPTORS: Final = 0.75
"""The share of the descriptors that connections may use; above it, those without a call from any address are closed."""
_LOOK_SECONDS: Final = 0.2

CONNECTION_OPTIONS: Final = (
    # Without this option a second server could listen on the same port, and calls would go to either.
    ("grpc.so_reuseport", 0),
    # A connection without a handshake, or without calls, is closed; clients connect again by themselves.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
    # Clients with the options below are not taken for ones that ping too much.
    ("grpc.http2.min_ping_interval_without_data_ms", 2_500),
)
"""Options of a gRPC server that others can connect to."""

KEEPALIVE_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # gRPC 1.85 waits for this time, by default a minute, instead of the one above.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Options by which either end notices in 10 s that the other one has stopped, or that its host has vanished."""

Peer: TypeAlias = "tuple[str, int]"
"""Address and port of the other end of a connection."""


def peer_of(grpc_peer: str) -> Peer | None:
    """Return the peer from gRPC's text, such as ipv4:10.0.0.1:4000 or ipv6:%5B::1%5D:4000; None for a Unix socket."""
    kind, _, rest = unquote(grpc_peer).partition(":")
    host, _, port = rest.rpartition(":")
    return (_normal(host.strip("[]")), int(port)) if kind in ("ipv4", "ipv6") else None


def _normal(address: str) -> str:
    parsed = ip_address(address.partition("%")[0])
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


class BusyPeers:
    """The peers that have calls in progress."""

    def __init__(self) -> None:
        self._calls: Counter[Peer] = Counter()

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._calls)

    @contextlib.contextmanager
    def call(self, grpc_peer: str) -> Iterator[None]:
        """Count a call of a peer, in gRPC's text, until the context ends."""
        peer = peer_of(grpc_peer)
        if peer is None:
            yield
            return
        self._calls[peer] += 1
        try:
            yield
        finally:
            self._calls[peer] -= 1
            if not self._calls[peer]:
                del self._calls[peer]


async def limit_connections(address: str, busy: Iterable[Peer]) -> None:
    """Close connections to a gRPC server without a call whenever there are too many, until cancelled.

    `address` is that of the server in this process, and `busy` holds the peers that have calls in progress. Only the
    server's own user can connect to a Unix socket, so that has no limit.
    """
    place = parse_grpc_address(address)
    if isinstance(place, tuple):
        await _Connections(place[1], busy).run()
    await asyncio.Event().wait()


class _Connections:
    """The connections at this process's TCP port. `busy` holds the peers that have a call in progress."""

    def __init__(self, port: int, busy: Iterable[Peer]) -> None:
        self._port = port
        self._busy = busy
        self._seen: dict[Peer, float] = {}  # when each was first seen
        self._told = False

    async def run(self) -> None:
        """Check the connections periodically, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.limit()

    def limit(self) -> None:
        """Close connections without a call, oldest first, of peers with too many, or of all if there are too many."""
        descriptors = _descriptors()
        if len(descriptors) <= CONNECTIONS_OF_A_PEER:
            self._seen.clear()
            self._told = False
            return
        found = ((_with_socket(descriptor, self._peer), descriptor) for descriptor in descriptors)
        open_now = {peer: descriptor for peer, descriptor in found if peer is not None}
        now = time.monotonic()
        self._seen = {peer: self._seen.get(peer, now) for peer in open_now}
        closed = self._surplus()
        for peer in closed:
            _with_socket(open_now[peer], functools.partial(self._shut_down, peer))
        if closed and not self._told:
            self._told = True
            _LOG.warning(
                "%d connections without a call were closed, the first from %s: there are too many from one address, or"
                " in all",
                *(len(closed), closed[0][0]),
            )

    def _shut_down(self, peer: Peer, connection: socket.socket) -> None:
        """Shut a connection down, unless the descriptor has been given to another one."""
        if self._peer(connection) == peer:
            connection.shutdown(socket.SHUT_RDWR)

    def _peer(self, connection: socket.socket) -> Peer | None:
        """Return the peer of a connection at the port, or None for any other socket."""
        is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
        if not is_tcp or connection.getsockname()[1] != self._port:
            return None
        host, port = connection.getpeername()[:2]
        return _normal(host), port

    def _surplus(self) -> list[Peer]:
        """Return the connections that must be closed."""
        by_address: dict[str, list[Peer]] = defaultdict(list)
        for peer in self._seen:
            by_address[peer[0]].append(peer)
        busy = set(self._busy)
        surplus = []
        for peers in by_address.values():
            idle = sorted((peer for peer in peers if peer not in busy), key=self._seen.__getitem__)
            surplus += idle[: max(0, len(peers) - CONNECTIONS_OF_A_PEER)]
        most = int(_SHARE_OF_DESCRIPTORS * resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        left = sorted(self._seen.keys() - busy - set(surplus), key=self._seen.__getitem__)
        return surplus + left[: max(0, len(self._seen) - len(surplus) - most)]


def _descriptors() -> Sequence[int]:
    """Return the numbers of this process's descriptors."""
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names alone
    except OSError:  # no descriptor is left, so all numbers are in use
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _with_socket(descriptor: int, act: Callable[[socket.socket], _T]) -> _T | None:
    """Return the result of `act` on gRPC's socket; None if the descriptor is not an open socket."""
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return act(borrowed)
    except OSError:
        return None
    finally:
        borrowed.detach()
