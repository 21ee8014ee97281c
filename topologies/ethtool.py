"""Switch an interface's offloads off, as `ethtool -K` does, on machines without ethtool.

ioctl SIOCETHTOOL of <linux/ethtool.h>: ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GFEATURES, ETHTOOL_SFEATURES.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Final

from switchml.common.errors import NamespaceError

__all__ = ["active_features", "switch_offloads_off"]

_SIOCETHTOOL: Final = 0x8946
_GSTRINGS: Final = 0x1B
_GSSET_INFO: Final = 0x37
_GFEATURES: Final = 0x3A
_SFEATURES: Final = 0x3B
_SS_FEATURES: Final = 4  # the string set with the names of features
_STRING_BYTES: Final = 32
_IFREQ: Final = struct.Struct("16sP16x")

_OFFLOADS: Final = ("checksum", "segmentation", "scatter-gather", "gro", "gso", "lro")
"""Features whose names contain one of these allow packets larger than the MTU or without a checksum."""


def switch_offloads_off(control: socket.socket, interface: str) -> None:
    """Make `interface` carry only complete packets with correct checksums.

    `control` is any socket of the interface's network namespace. Raises NamespaceError, OSError.
    """
    names = _feature_names(control, interface)
    wanted = {index for index, name in enumerate(names) if any(offload in name for offload in _OFFLOADS)}
    available, active = _features(control, interface, len(names))
    change = wanted & available & active
    if not change:
        return
    blocks = (len(names) + 31) // 32
    words = [0] * (2 * blocks)  # (valid, requested) for each block of 32 features
    for index in change:
        words[2 * (index // 32)] |= 1 << (index % 32)
    _ioctl(control, interface, array.array("I", [_SFEATURES, blocks, *words]))
    left = active_features(control, interface) & {names[index] for index in change}
    if left:
        raise NamespaceError(f"interface {interface}: offloads {', '.join(sorted(left))} cannot be switched off")


def active_features(control: socket.socket, interface: str) -> set[str]:
    """Return the names, as `ethtool -k` prints them, of the active features of `interface`. Raises OSError."""
    names = _feature_names(control, interface)
    return {names[index] for index in _features(control, interface, len(names))[1]}


def _feature_names(control: socket.socket, interface: str) -> list[str]:
    query = array.array("I", [_GSSET_INFO, 0, 1 << _SS_FEATURES, 0, 0])
    _ioctl(control, interface, query)
    count = query[4]
    strings = array.array("I", [_GSTRINGS, _SS_FEATURES, count] + [0] * (count * _STRING_BYTES // 4))
    _ioctl(control, interface, strings)
    text = strings.tobytes()[12:]
    fields = [text[start : start + _STRING_BYTES] for start in range(0, len(text), _STRING_BYTES)]
    return [field.partition(b"\0")[0].decode("ascii", "replace") for field in fields]


def _features(control: socket.socket, interface: str, count: int) -> tuple[set[int], set[int]]:
    """Return the indexes of the features that can be changed, and of those that are on."""
    blocks = (count + 31) // 32
    query = array.array("I", [_GFEATURES, blocks] + [0] * (4 * blocks))  # available, requested, active, never changed
    _ioctl(control, interface, query)

    def indexes(word: int) -> set[int]:
        return {
            32 * block + bit for block in range(blocks) for bit in range(32) if query[2 + 4 * block + word] >> bit & 1
        }

    return indexes(0), indexes(2)


def _ioctl(control: socket.socket, interface: str, data: array.array[int]) -> None:
    address, _ = data.buffer_info()
    fcntl.ioctl(control, _SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
