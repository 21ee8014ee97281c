"""Network devices whose frames a process itself sends and receives: DPDK ports and AF_XDP sockets, if built."""

from __future__ import annotations

import atexit
import importlib
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, NamedTuple, TypeAlias

from switchml.common.installation import compile_command

__all__ = ["DEVICE_TRANSPORTS", "Device", "Poll", "built", "check_devargs", "open_dpdk", "open_xdp"]
__all__ += ["MessageDevice", "RdmaPort", "list_rdma_ports", "open_rdma", "require_built", "with_queues"]

DEVICE_TRANSPORTS: Final = ("dpdk", "xdp", "rdma")

Poll: TypeAlias = Literal["adaptive", "busy"]
"""Polling of the data thread: adaptive sleeps when no frames arrive, busy occupies a CPU."""

_Kind: TypeAlias = Literal["dpdk", "xdp", "rdma"]
_PACKAGES: Final = {"dpdk": "libdpdk-dev", "xdp": "libxdp-dev libbpf-dev", "rdma": "libibverbs-dev"}
_PCI_ADDRESS: Final = re.compile(r"([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_NAMES: Final = {"dpdk": "DPDK", "xdp": "AF_XDP", "rdma": "RDMA"}
_MEMIF_SOCKET: Final = "/run/memif.sock"  # net_memif's default
# Options of the virtual devices in docs/guides/transports.md. Their drivers silently ignore unknown options.
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
        """The MAC address as text."""
        return self.mac.to_bytes(6, "big").hex(":")


def built(kind: _Kind) -> bool:
    """Return whether this build has the transport and its libraries are installed."""
    try:
        require_built(kind)
    except OSError:
        return False
    return True


def require_built(kind: _Kind) -> None:
    """Do nothing if this build has the transport and its libraries are installed.

    Raises:
        OSError: one of them is missing; the message says what to install.

    """
    _module(kind)


def open_dpdk(devargs: str, eal: str = "", mtu: int = 0, promiscuous: bool = False, queues: int = 1) -> Device:
    """Open a DPDK port.

    Args:
        devargs: A PCI address, or the name of a virtual device such as ``net_memif0``, followed by comma-separated
            options.
        eal: Arguments of DPDK's environment, as in a shell; the first device of a process determines them.
        mtu: Bytes of IPv4 that a frame may carry; 0 keeps the device's MTU.
        promiscuous: Also receive frames that are addressed to others.
        queues: Number of queues in each direction, 1 to 64: one for each thread that will use the port.

    Raises:
        OSError: This build has no DPDK, or DPDK refuses.
        ValueError: There is no such device, it is open already or has fewer queues, or the arguments are invalid.

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
    """Tell virtual devices their number of queues; network cards are configured later.

    If the two ends of a net_memif have different numbers, DPDK 22.11 mixes up their rings. The number is therefore made
    part of the secret, so that such ends do not connect.

    Raises:
        ValueError: The device's options give another number.

    """
    name, *parts = devargs.split(",")
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    if name.startswith("net_af_packet") and options.get("qpairs", "1") != str(queues):
        if "qpairs" in options:
            raise ValueError(
                f"{devargs} has {options['qpairs']} queues (qpairs=), but {queues} threads need one each: omit qpairs"
            )
        return f"{devargs},qpairs={queues}"
    if name.startswith("net_memif") and queues > 1:
        options["secret"] = f"{queues}q{options.get('secret', '')}"
        return ",".join([name, *(f"{key}={value}" for key, value in options.items())])
    return devargs


def check_devargs(devargs: str) -> None:
    """Check the options of net_af_packet and net_memif, whose errors DPDK reports badly or not at all.

    Raises:
        ValueError: The driver has no such option, or a named object does not exist.

    """
    name, *parts = devargs.split(",")
    driver = next((driver for driver in _OPTIONS if name.startswith(driver)), None)
    if driver is None:
        return
    options = {key: value for key, _, value in (part.partition("=") for part in parts)}
    for key, value in options.items():
        if key not in _OPTIONS[driver] or not value:
            known = ", ".join(f"{option}=" for option in _OPTIONS[driver])
            raise ValueError(f"{devargs}: {key!r} is not an option of {driver} with a value; it has {known}")
    if driver == "net_af_packet":
        interface = options.get("iface", "")
        if interface not in (name for _, name in socket.if_nameindex()):
            raise ValueError(f"{devargs}: there is no network interface {interface!r} (iface=); `ip link` lists them")
    elif options.get("socket-abstract") == "no":
        path = Path(options.get("socket", _MEMIF_SOCKET))
        if options.get("role") == "server" and not path.parent.is_dir():
            raise ValueError(f"{devargs}: there is no directory {path.parent} to create the socket in")
        if options.get("role") != "server" and not path.is_socket():
            raise ValueError(f"{devargs}: the socket {path} does not exist; start the switch, its server, first")


def open_xdp(interface: str) -> Device:
    """Open an AF_XDP socket on a network interface; it receives SwitchML's UDP packets, and the kernel everything else.

    Raises:
        OSError: This build has no AF_XDP, or the kernel refuses.
        ValueError: There is no such interface, or it has several receive queues.

    """
    return Device(*_module("xdp").open_device(interface))


@dataclass(frozen=True)
class MessageDevice:
    """An open RDMA device. ``messages`` is for one Engine, which closes it when it ends.

    ``largest_message`` is in bytes. ``driver`` is the kernel's, such as mlx5_core; empty without hardware (rxe).
    """

    messages: object
    largest_message: int
    driver: str
    interface_index: int

    @property
    def mac_text(self) -> str:
        """The MAC address of its network interface as text."""
        interface = socket.if_indextoname(self.interface_index)
        return Path("/sys/class/net", interface, "address").read_text(encoding="ascii").strip()


class RdmaPort(NamedTuple):
    """A port of an RDMA device: its name, driver (empty without hardware), state and largest message in bytes.

    ``addresses`` are those of its RoCEv2 GIDs. The state of a device that cannot be opened says why.
    """

    name: str
    driver: str
    state: str
    largest_message: int
    addresses: list[str]


def list_rdma_ports() -> list[RdmaPort]:
    """Return the ports of this machine's RDMA devices.

    Raises:
        OSError: This build has no RDMA, or the kernel reports an error.

    """
    return [RdmaPort(*port) for port in _module("rdma").list_ports()]


def open_rdma(device: str, address: str) -> MessageDevice:
    """Open a port of an RDMA card, ``NAME`` or ``NAME/PORT``, whose interface has this IPv4 address.

    Raises:
        OSError: This build has no RDMA, or the kernel refuses.
        ValueError: No such device or port exists, the link is down, or no RoCEv2 address of the port is ``address``.

    """
    module = _module("rdma")
    name, _, port = device.partition("/")
    if port and not re.fullmatch("[1-9][0-9]{0,2}", port, re.ASCII):
        raise ValueError(f"{device!r}: {port!r} is not a port of an RDMA device, whose ports are 1, 2, ...")
    return MessageDevice(*module.open_device(name, min(int(port or 1), 255), int(IPv4Address(address))))


def _remove_left_socket(devargs: str) -> None:
    """Remove the socket of a killed net_memif server, which would prevent the next one from creating it."""
    name, *parts = devargs.split(",")
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    if not name.startswith("net_memif") or options.get("role") != "server" or options.get("socket-abstract") != "no":
        return
    path = Path(options.get("socket", _MEMIF_SOCKET))
    # A connection must not be used to test this: one that ends at once makes the listening process panic (DPDK 22.11).
    listened_at = {Path(word) for word in Path("/proc/net/unix").read_text(errors="replace").split()}
    if path.is_socket() and path not in listened_at:
        path.unlink(missing_ok=True)


def _probe_nothing_else(devargs: str, arguments: list[str]) -> list[str]:
    """Return arguments that keep DPDK from probing other network cards, unless the user's own concern that."""
    if any(argument in ("-a", "-b", "--allow", "--block", "--no-pci") for argument in arguments):
        return []
    if _PCI_ADDRESS.match(devargs):
        return ["-a", devargs]
    return ["--no-pci"]


def _module(kind: _Kind) -> ModuleType:
    try:
        return importlib.import_module(f"switchml.dataplane._{kind}")
    except ModuleNotFoundError:
        raise OSError(
            f"this build of SwitchML has no {_NAMES[kind]}: install its library (Debian: apt-get install "
            f"{_PACKAGES[kind]} pkg-config g++) and compile SwitchML: {compile_command()}"
        ) from None
    except ImportError as error:
        raise OSError(
            f"the library of {_NAMES[kind]} is no longer installed (Debian: apt-get install {_PACKAGES[kind]}): {error}"
        ) from None
