"""Marker frames: how a test knows that the switch has done all that it will do.

A switch keeps the order of the frames of one ingress port, and of one egress port, but not of frames that came in
through different ports. So there are two kinds of marker:

- ``processed``: sent behind the frames of one port, to the monitor port. When it is there, ingress has processed all
  that went before it through that port.
- ``emitted``: then sent from the monitor port to every other one. When it has come out of a port, so has everything
  that ingress had sent there before.

A frame that has not come by then will never come: no test waits for silence.
"""

from __future__ import annotations

import struct

import finsy as fy
from ptf.dataplane import DataPlane

from ptf_tests.control import Entity
from ptf_tests.targets import HOST_PORTS, MONITOR_PORT

__all__ = ["Barrier", "marker_entities"]

_GROUP = 4000  # above every job id, and below the number of groups that BMv2 has
_TO_MONITOR = 0x02FFFF000001
_TO_HOSTS = 0x02FFFF000002
_SOURCE = 0x02FFFF000003
_ETHERTYPE = 0x88B5  # IEEE 802, local experimental
_FRAME = struct.Struct("!6s6sHQ38x")  # 60 bytes, the least that Ethernet carries without padding
_SECONDS = 10.0
# Frames that may be on their way at once. BMv2 silently loses what its input queue does not hold, and a Unix datagram
# socket holds net.unix.max_dgram_qlen frames: 10 on many machines.
_MAX_BURST = 8


def marker_entities() -> list[Entity]:
    """Return what must stand in the switch's tables for markers to pass."""
    replicas = tuple((port, 0) for port in (*HOST_PORTS, MONITOR_PORT))
    return [
        fy.P4MulticastGroupEntry(_GROUP, replicas=replicas),
        fy.P4TableEntry(
            "l2_table", match=fy.Match(eth_dst=_TO_MONITOR), action=fy.Action("forward", port=MONITOR_PORT)
        ),
        fy.P4TableEntry("l2_table", match=fy.Match(eth_dst=_TO_HOSTS), action=fy.Action("flood", group=_GROUP)),
    ]


class Barrier:
    """Sends frames in a certain order and collects what comes out, port by port."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._received: dict[int, list[bytes]] = {}
        self._serial = 0
        self._last_port: int | None = None  # where frames were sent that may not have been processed yet
        self._burst = 0  # how many frames were sent since everything that had come out was taken

    def send(self, port: int, frame: bytes) -> None:
        """Send a frame; ingress processes it after all those that were sent before."""
        if self._burst == _MAX_BURST:
            self._settle(HOST_PORTS)
        elif self._last_port not in (None, port):
            self.processed()
        self._last_port = port
        self._burst += 1
        self._send(port, frame)

    def processed(self) -> None:
        """Return when ingress has processed every frame that was sent. Raises TimeoutError."""
        if self._last_port is not None:
            marker = self._marker(_TO_MONITOR)
            self._send(self._last_port, marker)
            self._wait_for(MONITOR_PORT, marker)
            self._last_port = None

    def forget(self) -> None:
        """Say that nobody waits for what was sent: its port loses frames, markers too."""
        self._last_port = None

    def emitted(self, ports: tuple[int, ...] = HOST_PORTS) -> dict[int, list[bytes]]:
        """Return what has come out of each port since the last time, in order; ports without a frame are left out.

        ``ports`` are those to wait for: all but the ones that lose frames. Raises TimeoutError.
        """
        self._settle(ports)
        received, self._received = self._received, {}
        return received

    def arrived(self, ports: tuple[int, ...]) -> dict[int, list[bytes]]:
        """Return what has come out of some ports by now, for ports that may lose markers."""
        self._burst = 0
        for port in ports:
            while (result := self._dataplane.poll(port_number=port, timeout=0)).packet is not None:
                self._received.setdefault(port, []).append(result.packet)
        return {port: self._received.pop(port) for port in ports if port in self._received}

    def _settle(self, ports: tuple[int, ...]) -> None:
        self.processed()
        marker = self._marker(_TO_HOSTS)
        self._send(MONITOR_PORT, marker)
        for port in ports:
            self._wait_for(port, marker)
        self._burst = 0

    def _marker(self, destination: int) -> bytes:
        self._serial += 1
        addresses = destination.to_bytes(6, "big"), _SOURCE.to_bytes(6, "big")
        return _FRAME.pack(*addresses, _ETHERTYPE, self._serial)

    def _send(self, port: int, frame: bytes) -> None:
        sent = self._dataplane.send(0, port, frame)
        assert sent == len(frame), f"port {port} took {sent} of {len(frame)} bytes"

    def _wait_for(self, port: int, marker: bytes) -> None:
        while True:
            result = self._dataplane.poll(port_number=port, timeout=_SECONDS)
            if result.packet is None:
                raise TimeoutError(f"no marker frame came out of port {port} within {_SECONDS:g} s")
            if result.packet == marker:
                return
            self._received.setdefault(port, []).append(result.packet)
