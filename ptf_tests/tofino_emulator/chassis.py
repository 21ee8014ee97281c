"""The ports of the emulated switch: their names on the front panel and their device ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ALL_PIPES", "PORTS_OF_A_PIPE", "Chassis", "FrontPort", "pipe_of"]

ALL_PIPES = 0xFFFF
PORTS_OF_A_PIPE = 72
"""Ports 0 to 71 of each pipe: 64 on the front panel, four for the CPU or recirculation, four only for recirculation."""

_CHANNELS = 4
_CONNECTORS_OF_A_PIPE = 16


@dataclass(frozen=True)
class FrontPort:
    """Channel `channel` of connector `connector`; its name is CONNECTOR/CHANNEL."""

    connector: int
    channel: int
    device_port: int

    @property
    def name(self) -> str:
        """The name on the front panel."""
        return f"{self.connector}/{self.channel}"


def pipe_of(device_port: int) -> int:
    """Return the pipe of a device port: a port id has two bits of pipe and seven bits of port (tofino1_base.p4)."""
    return device_port >> 7


def _plan(pipes: int) -> dict[str, FrontPort]:
    """Return the ports of a board that is wired in reverse, as some are: connector 1 is the last of its pipe."""
    ports = []
    for connector in range(1, pipes * _CONNECTORS_OF_A_PIPE + 1):
        pipe, place = divmod(connector - 1, _CONNECTORS_OF_A_PIPE)
        first = (pipe << 7) + _CHANNELS * (_CONNECTORS_OF_A_PIPE - 1 - place)
        ports += [FrontPort(connector, channel, first + channel) for channel in range(_CHANNELS)]
    return {port.name: port for port in ports}


@dataclass(frozen=True)
class Chassis:
    """A board with `pipes` pipes."""

    pipes: int = 2
    front_ports: Mapping[str, FrontPort] = field(default_factory=dict)

    @classmethod
    def standard(cls, pipes: int = 2) -> Chassis:
        """Return a board of 16 connectors for each pipe, each with four channels."""
        return cls(pipes, _plan(pipes))

    def named(self, device_port: int) -> FrontPort | None:
        """Return the front port of a device port, or None."""
        return next((port for port in self.front_ports.values() if port.device_port == device_port), None)

    def has(self, device_port: int) -> bool:
        """Return whether the chip has such a port, on the front panel or internal."""
        return pipe_of(device_port) < self.pipes and device_port & 0x7F < PORTS_OF_A_PIPE
