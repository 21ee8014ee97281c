"""Ports of the emulated switch that are Unix datagram sockets, one Ethernet frame for each datagram."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from pathlib import Path

from ptf_tests.tofino_emulator.pipeline import Pipeline
from ptf_tests.tofino_emulator.program import load_program
from ptf_tests.tofino_emulator.state import State
from ptf_tests.tofino_emulator.undefined import ModelError
from switchml.dataplane.softswitch.ports import FramePort

__all__ = ["FramePorts"]

_LOG = logging.getLogger(__name__)
_MAX_FRAME = 65535
_MAX_BURST = 16  # frames from one port before the others and the control plane have their turn


class FramePorts:
    """Move frames between sockets and the pipeline, in the thread of the event loop.

    A frame passes only through a port that the control plane has added and enabled. A frame without a receiver is lost.
    ``program`` is a file that ``import_ir`` wrote. Raises FileNotFoundError if it does not exist.
    """

    def __init__(self, ports: Sequence[FramePort], program: Path, state: State) -> None:
        self._ports = {port.number: port for port in ports}
        self._sockets: dict[int, socket.socket] = {}
        self._state = state
        self._pipeline = Pipeline(load_program(program), state, self._transmit) if ports else None
        self._error: ModelError | None = None
        self._stop: asyncio.Event

    def open(self, stop: asyncio.Event) -> None:
        """Bind the sockets and begin to receive frames; ``stop`` is set if the program fails. Raises OSError."""
        self._stop = stop
        loop = asyncio.get_running_loop()
        for number, port in self._ports.items():
            Path(port.path).unlink(missing_ok=True)
            own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._sockets[number] = own
            own.bind(port.path)
            loop.add_reader(own, self._receive, number, own)

    def check(self) -> None:
        """Raise the ModelError that the program has caused, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the sockets and remove their files."""
        loop = asyncio.get_running_loop()
        for number, own in self._sockets.items():
            loop.remove_reader(own)
            own.close()
            Path(self._ports[number].path).unlink(missing_ok=True)
        self._sockets.clear()

    def _receive(self, number: int, own: socket.socket) -> None:
        for _ in range(_MAX_BURST):
            try:
                frame = own.recv(_MAX_FRAME)
            except BlockingIOError:
                return
            port = self._state.ports.get(number)
            if port is None or not port.up or self._error is not None:
                continue
            port.received += 1
            assert self._pipeline is not None
            try:
                self._pipeline.receive(number, frame)
            except ModelError as error:
                self._error = ModelError(f"frame of {len(frame)} bytes from port {number}: {error}")
                self._stop.set()

    def _transmit(self, number: int, frame: bytes) -> None:
        port = self._state.ports.get(number)
        own = self._sockets.get(number)
        if port is None or not port.up or own is None:
            _LOG.debug("a frame for port %d is lost: the port is not there or not up", number)
            return
        port.transmitted += 1
        with contextlib.suppress(BlockingIOError, FileNotFoundError, ConnectionRefusedError):
            own.sendto(frame, self._ports[number].peer)
