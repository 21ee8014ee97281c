"""The kinds of port that the soft switch can have, as given on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from switchml.common.grpc_address import parse_host_port
from switchml.dataplane.devices import Device, Poll, open_dpdk, open_xdp
from switchml.dataplane.softswitch import _native
from switchml.dataplane.targets import SOFT

__all__ = [
    "DpdkPort",
    "FramePort",
    "PacketPort",
    "Port",
    "ShmPort",
    "UdpPort",
    "XdpPort",
    "parse_dpdk_port",
    "parse_frame_port",
    "parse_packet_port",
    "parse_shm_port",
    "parse_udp_port",
    "parse_xdp_port",
]


@dataclass(frozen=True)
class UdpPort:
    """A switch port that is a UDP socket on ``address`` (IPv4); UDP port 0 lets the kernel choose."""

    number: int
    address: str
    udp_port: int

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError."""
        spec = _native.UdpPortSpec(address=self.address, udp_port=self.udp_port)
        return {"address": self.address, "udp_port": switch.add_port(self.number, spec)}


@dataclass(frozen=True)
class FramePort:
    """A switch port that is a Unix datagram socket bound to ``path``; each datagram is an Ethernet frame.

    Frames are sent to the socket bound to ``peer``, and are lost if there is no such socket.
    """

    number: int
    path: str
    peer: str

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError."""
        switch.add_port(self.number, _native.FramePortSpec(path=self.path, peer=self.peer))
        return {"path": self.path, "peer": self.peer}


@dataclass(frozen=True)
class PacketPort:
    """A switch port that is a network interface (AF_PACKET); needs CAP_NET_RAW."""

    number: int
    interface: str

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError."""
        switch.add_port(self.number, _native.PacketPortSpec(interface=self.interface))
        return {"interface": self.interface}


@dataclass(frozen=True)
class ShmPort:
    """A switch port for ranks on this machine: agents register them at the Unix socket ``path``, and they share memory.

    It has this many ``threads``; 0 means one for each CPU.
    """

    number: int
    path: str
    threads: int = 1

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError."""
        switch.add_port(self.number, _native.ShmPortSpec(path=self.path, threads=self.threads))
        return {"path": self.path}


@dataclass(frozen=True)
class DpdkPort:
    """A switch port that is a DPDK port: ``devargs`` are a PCI address or a virtual device, and its options.

    ``eal`` are the arguments of DPDK's environment; ``mtu`` is in bytes, 0 for the device's own. It has this many
    ``queues``, one for each shard of the switch.
    """

    number: int
    devargs: str
    eal: str = ""
    mtu: int = 0
    poll: Poll = "adaptive"
    queues: int = 1

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError and ValueError."""
        device = open_dpdk(self.devargs, self.eal, self.mtu, promiscuous=True, queues=self.queues)
        return _add_device(switch, self.number, self.devargs, device, self.poll)


@dataclass(frozen=True)
class XdpPort:
    """A switch port that is an AF_XDP socket on a network interface; the kernel keeps packets other than SwitchML's."""

    number: int
    interface: str
    poll: Poll = "adaptive"

    def add_to(self, switch: _native.Switch) -> dict[str, str | int]:
        """Open the port and return what a peer needs to reach it. Raises OSError and ValueError."""
        return _add_device(switch, self.number, self.interface, open_xdp(self.interface), self.poll)


def _add_device(switch: _native.Switch, number: int, name: str, device: Device, poll: Poll) -> dict[str, str | int]:
    switch.add_port(number, _native.DevicePortSpec(queues=device.queues, busy=poll == "busy"))
    return {
        "device": name,
        "mac": device.mac_text,
        "largest_frame": device.largest_frame,
        "capabilities": device.description,
    }


Port: TypeAlias = UdpPort | FramePort | PacketPort | ShmPort | DpdkPort | XdpPort


def parse_udp_port(text: str) -> UdpPort:
    """Parse ``PORT=ADDRESS:UDPPORT``. Raises ValueError."""
    number, endpoint = _split(text, "PORT=ADDRESS:UDPPORT")
    return UdpPort(number, *parse_host_port(endpoint))


def parse_frame_port(text: str) -> FramePort:
    """Parse ``PORT=PATH,PEER``. Raises ValueError."""
    number, paths = _split(text, "PORT=PATH,PEER")
    path, comma, peer = paths.partition(",")
    if not (path and comma and peer) or path == peer:
        raise ValueError(f"{text!r} is not PORT=PATH,PEER with two different paths")
    return FramePort(number, path, peer)


def parse_packet_port(text: str) -> PacketPort:
    """Parse ``PORT=INTERFACE``. Raises ValueError."""
    return PacketPort(*_split(text, "PORT=INTERFACE", "interface"))


def parse_dpdk_port(text: str) -> DpdkPort:
    """Parse ``PORT=DEVARGS``. Raises ValueError."""
    return DpdkPort(*_split(text, "PORT=DEVARGS", "device"))


def parse_xdp_port(text: str) -> XdpPort:
    """Parse ``PORT=INTERFACE``. Raises ValueError."""
    return XdpPort(*_split(text, "PORT=INTERFACE", "interface"))


def parse_shm_port(text: str) -> ShmPort:
    """Parse ``PORT=PATH``. Raises ValueError."""
    return ShmPort(*_split(text, "PORT=PATH", "socket"))


def _split(text: str, form: str, named: str = "") -> tuple[int, str]:
    """Return the port number and the rest of ``text``, which must not be empty if it names something."""
    number, equals, rest = text.partition("=")
    if not equals or not re.fullmatch("[0-9]{1,3}", number) or not 1 <= int(number) <= SOFT.highest_port:
        raise ValueError(f"{text!r} is not {form} with a PORT of 1 to {SOFT.highest_port}")
    if named and not rest:
        raise ValueError(f"{text!r} names no {named}")
    return int(number), rest
