"""A port of ptf's data plane that is a Unix datagram socket: one Ethernet frame for each datagram."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

from ptf.dataplane import DataPlanePacketSourceIface, DataPlanePortIface

__all__ = ["UnixPort"]

_MAX_FRAME = 65535


class UnixPort(DataPlanePortIface, DataPlanePacketSourceIface):  # type: ignore[misc]
    """A port; ``interface_name`` is the switch's path and the tests', separated by a comma."""

    def __init__(
        self, interface_name: str, device_number: int, port_number: int, config: dict[str, Any] | None = None
    ) -> None:
        del config
        self._device_number, self._port_number = device_number, port_number
        self._switch, _, own = interface_name.partition(",")
        Path(own).unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(own)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # of a port whose construction failed
            self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor for select(2)."""
        return self._socket.fileno()

    def get_packet_source(self) -> UnixPort:
        """Return the object to receive from."""
        return self

    def recv(self) -> tuple[int, int, bytes, float]:
        """Return device, port, frame and time of arrival."""
        return self._device_number, self._port_number, self._socket.recv(_MAX_FRAME), time.time()

    def send(self, packet: bytes) -> int:
        """Send a frame and return its length. Waits while the switch's receive queue is full."""
        return self._socket.sendto(packet, self._switch)
