"""Marker frames, by which a test knows that the switch has finished its work.

A switch keeps the order of the frames of one ingress port, and of one egress port, but not of frames that arrived
through different ports. So there are two kinds of marker:

- ``processed``: sent after the frames of one port, to the monitor port. When it arrives there, ingress has processed
all
  earlier frames of that port.
- ``emitted``: then sent from the monitor port to every other port. When it has left a port, so have all frames that
  ingress had sent there before.

A frame that has not arrived by then will never arrive: no test waits for silence.
"""

from __future__ import annotations

import struct

import finsy as fy
from ptf.dataplane import DataPlane

from ptf_tests.control import Entity
from ptf_tests.targets import HOST_PORTS, MONITOR_PORT

__all__ = ["Barrier", "marker_entities"]

_GROUP = 4000  # above every job id, and below BMv2's maximum number of groups
_TO_MONITOR = 0x02FFFF000001
_TO_HOSTS = 0x02FFFF000002
_SOURCE = 0x02FFFF000003
_ETHERTYPE = 0x88B5  # IEEE 802, local experimental
_FRAME = struct.Struct("!6s6sHQ38x")  # 60 bytes, the least that Ethernet carries without padding
_SECONDS = 30.0
# Maximum number of frames in flight. BMv2 silently drops frames when its input queue is full, and a Unix datagram
# socket holds net.unix.max_dgram_qlen frames: 10 on many machines.
_MAX_BURST = 8


def marker_entities() -> list[Entity]:
    """Return the table entries and groups that markers need."""
    replicas = tuple((port, 0) for port in (*HOST_PORTS, MONITOR_PORT))
    return [
        fy.P4MulticastGroupEntry(_GROUP, replicas=replicas),
        fy.P4TableEntry(
            "l2_table", match=fy.Match(eth_dst=_TO_MONITOR), action=fy.Action("forward", port=MONITOR_PORT)
        ),
        fy.P4TableEntry("l2_table", match=fy.Match(eth_dst=_TO_HOSTS), action=fy.Action("flood", group=_GROUP)),
    ]


class Barrier:
    """Send frames in a certain order, and collect the frames that leave, port by port."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane
        self._received: dict[int, list[bytes]] = {}
        self._serial = 0
        self._last_port: int | None = None  # where frames were sent that may not have been processed yet
        self._burst = 0  # frames sent since the last time that all received frames were taken

    def send(self, port: int, frame: bytes) -> None:
        """Send a frame; ingress processes it after all frames that were sent before."""
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
        """Do not wait for the frames that were sent: their port loses frames, including markers."""
        self._last_port = None

    def emitted(self, ports: tuple[int, ...] = HOST_PORTS) -> dict[int, list[bytes]]:
        """Return the frames that have left each port since the last call, in order; ports without frames are left out.

        ``ports`` are those to wait for: all except those that lose frames. Raises TimeoutError.
        """
        self._settle(ports)
        received, self._received = self._received, {}
        return received

    def arrived(self, ports: tuple[int, ...]) -> dict[int, list[bytes]]:
        """Return the frames that have left some ports so far, for ports that may lose markers."""
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
