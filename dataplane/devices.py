"""Network devices whose frames a process moves itself: DPDK ports and AF_XDP sockets, where this build has them."""

from __future__ import annotations

import atexit
import importlib
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, TypeAlias

__all__ = ["DEVICE_TRANSPORTS", "Device", "Poll", "built", "check_devargs", "open_dpdk", "open_xdp"]
__all__ += ["require_built", "with_queues"]

DEVICE_TRANSPORTS: Final = ("dpdk", "xdp")

Poll: TypeAlias = Literal["adaptive", "busy"]
"""Whether the data thread sleeps when no frames come, or keeps a processor to itself."""

_PACKAGES: Final = {"dpdk": "libdpdk-dev", "xdp": "libxdp-dev libbpf-dev"}
_PCI_ADDRESS: Final = re.compile(r"([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_NAMES: Final = {"dpdk": "DPDK", "xdp": "AF_XDP"}
_MEMIF_SOCKET: Final = "/run/memif.sock"  # net_memif's own default
# Of the virtual devices that docs/transports.md names. Their drivers pass over an option that they do not know.
_OPTIONS: Final = {
    "net_af_packet": ("iface", "qpairs", "blocksz", "framesz", "framecnt", "qdisc_bypass"),
    "net_memif": ("id", "role", "bsize", "rsize", "socket", "socket-abstract", "mac", "zero-copy", "secret"),
}


@dataclass(frozen=True)
class Device:
    """An open device. ``queues`` are for one Engine or Switch, which closes the device when it ends.

    ``largest_frame`` is in bytes, from the Ethernet header on and without the frame check sequence.
    """

    queues: Sequence[object]
    mac: int
    largest_frame: int
    description: str

    @property
    def mac_text(self) -> str:
        """The MAC address as people write it."""
        return self.mac.to_bytes(6, "big").hex(":")


def built(kind: Literal["dpdk", "xdp"]) -> bool:
    """Return whether this build has the transport and its libraries are there."""
    try:
        require_built(kind)
    except OSError:
        return False
    return True


def require_built(kind: Literal["dpdk", "xdp"]) -> None:
    """Do nothing if this build has the transport and its libraries are there.

    Raises:
        OSError: it has not; the message says what to install.

    """
    _module(kind)


def open_dpdk(devargs: str, eal: str = "", mtu: int = 0, promiscuous: bool = False, queues: int = 1) -> Device:
    """Open a DPDK port.

    Args:
        devargs: A PCI address, or the name of a virtual device such as ``net_memif0``, and its options after commas.
        eal: Arguments of DPDK's environment, as in a shell; the first device of a process decides about them.
        mtu: Bytes of IPv4 that a frame may carry; 0 leaves that to the device.
        promiscuous: Also take frames that are addressed to others.
        queues: How many it is to have in each direction, 1 to 64: one for each thread that will use it.

    Raises:
        OSError: This build has no DPDK, or DPDK refuses.
        ValueError: There is no such device, it is open already or has fewer queues, or the arguments cannot be.

    """
    module = _module("dpdk")
    check_devargs(devargs)
    devargs = with_queues(devargs, queues)
    try:
        arguments = shlex.split(eal)
    except ValueError as error:
        raise ValueError(f"arguments of DPDK's environment {eal!r}: {error}") from None
    _remove_left_socket(devargs)
    module.start_eal(arguments, _probe_nothing_else(devargs, arguments))
    atexit.register(module.stop_eal)
    return Device(*module.open_device(devargs, mtu, promiscuous, queues))


def with_queues(devargs: str, queues: int) -> str:
    """Tell virtual devices how many queues they are to have; network cards learn it when they are configured.

    Between two ends of net_memif with different numbers, DPDK 22.11 takes one ring for another. They differ in their
    secret as well, then, and do not connect.

    Raises:
        ValueError: The device's own options say another number.

    """
    name, *parts = devargs.split(",")
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    if name.startswith("net_af_packet") and options.get("qpairs", "1") != str(queues):
        if "qpairs" in options:
            raise ValueError(
                f"{devargs} has {options['qpairs']} queues (qpairs=), and {queues} threads take one each: leave qpairs"
                " out"
            )
        return f"{devargs},qpairs={queues}"
    if name.startswith("net_memif") and queues > 1:
        options["secret"] = f"{queues}q{options.get('secret', '')}"
        return ",".join([name, *(f"{key}={value}" for key, value in options.items())])
    return devargs


def check_devargs(devargs: str) -> None:
    """Check the options of net_af_packet and net_memif, of which DPDK says too little or nothing when they are wrong.

    Raises:
        ValueError: An option is not one of the driver's, or what it names is not there.

    """
    name, *parts = devargs.split(",")
    driver = next((driver for driver in _OPTIONS if name.startswith(driver)), None)
    if driver is None:
        return
    options = {key: value for key, _, value in (part.partition("=") for part in parts)}
    for key, value in options.items():
        if key not in _OPTIONS[driver] or not value:
            known = ", ".join(f"{option}=" for option in _OPTIONS[driver])
            raise ValueError(f"{devargs}: {key!r} is no option of {driver} with a value; it has {known}")
    if driver == "net_af_packet":
        interface = options.get("iface", "")
        if interface not in (name for _, name in socket.if_nameindex()):
            raise ValueError(f"{devargs}: there is no network interface {interface!r} (iface=); `ip link` lists them")
    elif options.get("socket-abstract") == "no":
        path = Path(options.get("socket", _MEMIF_SOCKET))
        if options.get("role") == "server" and not path.parent.is_dir():
            raise ValueError(f"{devargs}: there is no directory {path.parent} to make the socket in")
        if options.get("role") != "server" and not path.is_socket():
            raise ValueError(f"{devargs}: nobody has made the socket {path}; start the switch, its server, first")


def open_xdp(interface: str) -> Device:
    """Open an AF_XDP socket on a network interface; it gets our UDP packets, and the kernel everything else.

    Raises:
        OSError: This build has no AF_XDP, or the kernel refuses.
        ValueError: There is no such interface, or it has several receive queues.

    """
    return Device(*_module("xdp").open_device(interface))


def _remove_left_socket(devargs: str) -> None:
    """Remove the socket of a net_memif server that was killed, which would keep the next one from making it."""
    name, *parts = devargs.split(",")
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    if not name.startswith("net_memif") or options.get("role") != "server" or options.get("socket-abstract") != "no":
        return
    path = Path(options.get("socket", _MEMIF_SOCKET))
    # Not by a connection: one that ends at once ends a process that listens there (DPDK 22.11 panics).
    listened_at = {Path(word) for word in Path("/proc/net/unix").read_text(errors="replace").split()}
    if path.is_socket() and path not in listened_at:
        path.unlink(missing_ok=True)


def _probe_nothing_else(devargs: str, arguments: list[str]) -> list[str]:
    """Arguments that keep DPDK from taking network cards that nobody named, unless the user's own are about that."""
    if any(argument in ("-a", "-b", "--allow", "--block", "--no-pci") for argument in arguments):
        return []
    if _PCI_ADDRESS.match(devargs):
        return ["-a", devargs]
    return ["--no-pci"]


def _module(kind: Literal["dpdk", "xdp"]) -> ModuleType:
    try:
        return importlib.import_module(f"switchml.dataplane._{kind}")
    except ModuleNotFoundError:
        raise OSError(
            f"this build of SwitchML has no {_NAMES[kind]}: install its library (Debian: apt-get install "
            f"{_PACKAGES[kind]} pkg-config) and build SwitchML again"
        ) from None
    except ImportError as error:
        raise OSError(
            f"the library of {_NAMES[kind]} is not there any more (Debian: apt-get install {_PACKAGES[kind]}): {error}"
        ) from None
