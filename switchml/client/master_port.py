"""Rank 0 of a job of `switchml-ctl job start` listens at MASTER_PORT with the socket that the launcher holds there."""

from __future__ import annotations

import functools
import os
import socket
from typing import Any, Final

from switchml.client.errors import ConnectError

__all__ = ["adopt_master_port"]

_SECONDS: Final = 30.0


def adopt_master_port(store: type) -> None:
    """Let a server of torch.distributed's class TCPStore listen with the launcher's socket, if that has its port."""
    make = store.__init__  # type: ignore[misc]

    @functools.wraps(make)
    def make_at_port(
        self: Any,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        *arguments: Any,
        **options: Any,
    ) -> None:
        if is_master:
            listener = _listener_at(port)
            if listener is not None:
                options["master_listen_fd"] = listener
        make(self, host_name, port, world_size, is_master, *arguments, **options)

    store.__init__ = make_at_port  # type: ignore[misc]


def _listener_at(port: int) -> int | None:
    """Return a descriptor of the launcher's listening socket, or None if no launcher holds this port any more.

    Raises ConnectError if the launcher runs as another user, or does not answer.
    """
    name = os.environ["SWITCHML_MASTER_SOCKET"]
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(_SECONDS)
        try:
            door.connect(f"\0{name}")
        except ConnectionRefusedError:
            return None
        try:
            _, descriptors, _, _ = socket.recv_fds(door, 1, 1)
        except OSError as error:
            raise ConnectError(f"`switchml-ctl job start` does not hand over MASTER_PORT: {error}") from error
    if not descriptors:
        raise ConnectError(
            "`switchml-ctl job start` does not hand over MASTER_PORT to another user than its own; start the job as "
            f"user {os.geteuid()}"
        )
    with socket.socket(fileno=descriptors[0]) as listener:
        return listener.detach() if listener.getsockname()[1] == port else None
