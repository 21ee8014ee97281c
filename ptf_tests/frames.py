"""Ethernet frames: contributions as hosts send them, results as the switch must emit them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet as Layer
from scapy.packet import Raw

from ptf_tests.wire import Packet, WireError
from switchml.dataplane.constants import (
    PROTOCOL_IPV4_TTL,
    PROTOCOL_UDP_PORT,
    ROCEV2_OPCODE,
    ROCEV2_QUEUE_PAIR,
    ROCEV2_UDP_PORT,
)

__all__ = [
    "Host",
    "SWITCH_IP",
    "SWITCH_MAC",
    "contribution_frame",
    "describe",
    "icrc",
    "layers_of",
    "mac_text",
    "result_frame",
]

SWITCH_MAC = 0x0200000000FE
SWITCH_IP = 0x0A0000FE


def mac_text(mac: int) -> str:
    """Return a MAC address as scapy and people write it."""
    return mac.to_bytes(6, "big").hex(":")


@dataclass(frozen=True)
class Host:
    """The location of a rank: its switch port, addresses and UDP port.

    If it has a ``queue_pair``, it is that of an RDMA card, and the UDP port is only the source port of its packets.
    """

    port: int
    mac: int
    ip: int
    udp_port: int
    queue_pair: int | None = None

    @property
    def sender(self) -> int:
        """The number that tells the senders of a host apart in the worker table."""
        return self.udp_port if self.queue_pair is None else 1 << 24 | self.queue_pair

    def moved(self, **changes: int) -> Host:
        """Return a copy with other addresses."""
        return replace(self, **changes)


def layers_of(packet: Packet | bytes, host: Host, **fields: Any) -> Layer:
    """Return a contribution in the layers that ``host`` puts around it.

    ``fields`` change the IPv4 header (tos, ttl, id, flags, frag, len, chksum), the UDP header (udp_len, udp_chksum,
    dport), the addresses (eth_dst, ipv4_dst) and, of an RDMA card, the BTH (``bth``: fields of scapy's, such as icrc)
    and the Q_Key (queue_key).
    """
    payload = packet if isinstance(packet, bytes) else packet.pack()
    ethernet = Ether(dst=mac_text(fields.pop("eth_dst", SWITCH_MAC)), src=mac_text(host.mac))
    udp = UDP(sport=host.udp_port, dport=fields.pop("dport", PROTOCOL_UDP_PORT))
    content: Layer = Raw(payload)
    if host.queue_pair is not None:
        udp.dport = ROCEV2_UDP_PORT
        deth = _deth(fields.pop("queue_key", 0), host.queue_pair)
        content = BTH(**{"opcode": ROCEV2_OPCODE, "dqpn": ROCEV2_QUEUE_PAIR, **fields.pop("bth", {})}) / Raw(
            deth + payload
        )
    if "udp_len" in fields:
        udp.len = fields.pop("udp_len")
    if "udp_chksum" in fields:
        udp.chksum = fields.pop("udp_chksum")
    destination = str(IPv4Address(fields.pop("ipv4_dst", SWITCH_IP)))
    return ethernet / IP(src=str(IPv4Address(host.ip)), dst=destination, **fields) / udp / content


def contribution_frame(packet: Packet | bytes, host: Host, **fields: Any) -> bytes:
    """Return the bytes of ``layers_of``."""
    return bytes(layers_of(packet, host, **fields))


def result_frame(packet: Packet, host: Host, tos: int = 0) -> bytes:
    """Return the frame in which the switch sends a RESULT to a rank (docs/understand/protocol.md)."""
    addresses: dict[str, Any] = {"src": str(IPv4Address(SWITCH_IP)), "dst": str(IPv4Address(host.ip))}
    headers = Ether(dst=mac_text(host.mac), src=mac_text(SWITCH_MAC)) / IP(
        tos=tos, id=0, flags="DF", ttl=PROTOCOL_IPV4_TTL, **addresses
    )
    if host.queue_pair is None:
        return bytes(headers / UDP(sport=PROTOCOL_UDP_PORT, dport=host.udp_port, chksum=0) / Raw(packet.pack()))
    return bytes(
        headers
        / UDP(sport=PROTOCOL_UDP_PORT, dport=ROCEV2_UDP_PORT, chksum=0)
        / BTH(opcode=ROCEV2_OPCODE, migreq=1, pkey=0xFFFF, dqpn=host.queue_pair)
        / Raw(_deth(packet.secret & 0x7FFFFFFF, ROCEV2_QUEUE_PAIR) + packet.pack())
    )


def _deth(queue_key: int, source_queue_pair: int) -> bytes:
    return struct.pack("!II", queue_key, source_queue_pair)


# In a frame without options of IPv4: traffic class, time to live and checksum; UDP's checksum; the BTH's marks of
# congestion.
_CHANGED_ON_THE_WAY = (15, 22, 24, 25, 40, 41, 46)


def icrc(frame: bytes) -> bytes:
    """Return the last four bytes that a RoCEv2 frame must have (InfiniBand specification, annex A17)."""
    covered = bytearray(frame[:-4])
    for place in _CHANGED_ON_THE_WAY:
        covered[place] = 0xFF
    return zlib.crc32(b"\xff" * 8 + covered[14:]).to_bytes(4, "little")


def describe(frame: bytes) -> str:
    """Return a description of a frame in a few lines, for the message of a failure."""
    layers = Ether(frame)
    text = f"{len(frame)} bytes: {layers.summary()}"
    if UDP in layers and (BTH in layers or PROTOCOL_UDP_PORT in (layers[UDP].sport, layers[UDP].dport)):
        datagram = bytes(layers[UDP].payload)[: layers[UDP].len - 8]
        try:
            packet = Packet.unpack(datagram[20:-4] if BTH in layers else datagram)
        except WireError as error:
            text += f"\n    {error}"
        else:
            text += f"\n    {packet} values {list(packet.values[:4])}..."
    return f"{text}\n    {frame[:96].hex()}"
