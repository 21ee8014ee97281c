"""Lay a topology out in network namespaces: one for switches and controller, one per host, connected by veth pairs.

Namespaces are called switchml-IDENTITY-NODE, where the identity is derived from the run directory's path: the next
start or end of a fabric in the same run directory finds those of a crashed fabric, and touches no others.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from switchml.common.errors import NamespaceError
from switchml.common.processes import ProcessRecord
from switchml.topologies.ethtool import switch_offloads_off
from switchml.topologies.topology import Topology

__all__ = [
    "HOST_INTERFACE",
    "SWITCHES",
    "Namespaces",
    "require_privileges",
    "run_ip",
    "run_program",
    "switch_interface",
]

SWITCHES: Final = "all-switches"
"""The node whose namespace holds all switches and the controller.

It is longer than any host's name.
"""

HOST_INTERFACE: Final = "eth0"

_DIRECTORY: Final = Path("/var/run/netns")  # directory in which ip-netns(8) keeps named namespaces
_CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}  # <linux/capability.h>
_CLONE_NEWNET: Final = 0x40000000
_COMMAND_SECONDS: Final = 60.0
_END_GRACE_SECONDS: Final = 2.0

_T = TypeVar("_T")


def switch_interface(switch: str, port: int) -> str:
    """Return the name of a switch's end of the link at `port`."""
    return f"{switch}-eth{port}"


def require_privileges() -> None:
    """Raise NamespaceError, which names what is missing, unless this process may create network namespaces."""
    if shutil.which("ip") is None:
        raise NamespaceError("the program ip is not on PATH; on Debian or Ubuntu: sudo apt-get install iproute2")
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise NamespaceError(f"{error.filename} cannot be read: {error.strerror}; mount /proc") from None
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    missing = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise NamespaceError(
            f"network namespaces need {', '.join(missing)}, which this process does not have; run it as root "
            "(sudo -E), or use the embedded fabric, which needs no privileges: `switchml-ctl up` without --switch"
        )


class Namespaces:
    """The network namespaces of one run directory."""

    def __init__(self, run_directory: Path) -> None:
        identity = hashlib.sha256(os.fsencode(run_directory.resolve())).hexdigest()[:8]
        self._prefix = f"switchml-{identity}-"

    def name(self, node: str) -> str:
        """Return the name of a node's namespace in `ip netns`."""
        return self._prefix + node

    def existing(self) -> list[str]:
        """Return the names of those that exist."""
        if not _DIRECTORY.is_dir():
            return []
        return sorted(path.name for path in _DIRECTORY.iterdir() if path.name.startswith(self._prefix))

    def command(self, node: str, command: Sequence[str]) -> list[str]:
        """Return `command` as it runs in a node's namespace. It keeps its process id, and /sys shows the namespace."""
        return ["ip", "netns", "exec", self.name(node), *command]

    def create(self, topology: Topology) -> None:
        """Create namespaces and links. Raises NamespaceError; `remove` then removes those created so far."""
        nodes = [SWITCHES, *(host.name for host in topology.hosts)]
        links = []
        for host in topology.hosts:
            near = f"{switch_interface(host.switch, host.port)} netns {self.name(SWITCHES)} mtu {topology.mtu}"
            far = f"{HOST_INTERFACE} netns {self.name(host.name)} mtu {topology.mtu} address {host.mac}"
            links.append(f"link add {near} type veth peer name {far}")
        for child, link in topology.links.items():
            inside = f"netns {self.name(SWITCHES)} mtu {topology.mtu}"
            above, below = switch_interface(link.switch, link.port), switch_interface(child, link.uplink)
            links.append(f"link add {above} {inside} type veth peer name {below} {inside}")
        run_ip([f"netns add {self.name(node)}" for node in nodes] + links)
        for node in nodes:
            self._inside(node, _quiet)  # before the interfaces are up, so that the kernel sends no packets by itself
        interfaces = [
            switch_interface(one.name, port) for one in topology.switches for port in topology.ports(one.name)
        ]
        run_ip([f"link set {name} up" for name in ("lo", *interfaces)], self.name(SWITCHES))
        addresses = {switch.name: switch for switch in topology.switches}
        for host in topology.hosts:
            switch = addresses[host.switch]
            lines = [
                "link set lo up",
                f"link set {HOST_INTERFACE} up",
                f"addr add {host.ipv4.with_prefixlen} dev {HOST_INTERFACE}",
                f"route replace {switch.ipv4}/32 dev {HOST_INTERFACE}",
                f"neigh replace {switch.ipv4} lladdr {switch.mac} dev {HOST_INTERFACE} nud permanent",
            ]
            run_ip(lines, self.name(host.name))

    def silence(self, node: str) -> None:
        """Switch off IPv6 in a node's namespace, so that the kernel announces nothing there."""
        self._inside(node, _switch_ipv6_off)

    def remove(self) -> list[str]:
        """End the processes in these namespaces, remove the namespaces and their links, and return their names.

        Raises NamespaceError, also if this process itself is in one of them.
        """
        names = self.existing()
        if not names:
            return []
        require_privileges()
        for name in names:
            processes = _processes(name)
            if os.getpid() in processes:
                raise NamespaceError(f"this program runs in network namespace {name}; run it outside to remove that")
            for pid in processes:
                record = ProcessRecord.of(f"a process in {name}", pid)
                if record is not None:
                    record.end(_END_GRACE_SECONDS)
        run_ip([f"netns del {name}" for name in names])
        return names

    def _inside(self, node: str, action: Callable[[], None]) -> None:
        """Run `action` in a node's namespace, on a new thread because network namespaces belong to threads."""
        failures: list[BaseException] = []

        def run() -> None:
            try:
                _enter(_DIRECTORY / self.name(node))
                action()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name=f"in {self.name(node)}")
        thread.start()
        thread.join()
        if failures:
            error = failures[0]
            if isinstance(error, OSError):
                raise NamespaceError(f"network namespace {self.name(node)} cannot be set up: {error}") from error
            raise error


def _enter(namespace: Path) -> None:
    """Put the calling thread into a network namespace (setns(2); os.setns needs a newer Python than we require)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}", str(namespace))


def _switch_ipv6_off() -> None:
    for which in ("all", "default"):
        setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
        if setting.exists():  # absent on kernels without IPv6
            setting.write_text("1")


def _quiet() -> None:
    """Switch off IPv6 with its announcements, and offloads, which a veth pair would pass through."""
    _switch_ipv6_off()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, interface in socket.if_nameindex():
            if _is_link(interface):
                switch_offloads_off(control, interface)


def _is_link(interface: str) -> bool:
    """Return whether an interface is a topology's link; a new namespace also has a loopback and perhaps tunnels."""
    return interface == HOST_INTERFACE or "-eth" in interface


def _processes(namespace: str) -> list[int]:
    found = run_program(["ip", "netns", "pids", namespace])
    return [int(line) for line in found.split()]


def run_ip(lines: Iterable[str], namespace: str | None = None) -> None:
    """Have `ip` carry out commands, in a namespace or in the current one. Raises NamespaceError."""
    where = [] if namespace is None else ["-n", namespace]
    run_program(["ip", *where, "-batch", "-"], "".join(f"{line}\n" for line in lines))


def run_program(command: Sequence[str], text: str = "") -> str:
    """Run a program that sets the network up, with `text` as its input; return its output. Raises NamespaceError."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        raise NamespaceError(f"`{' '.join(command)}` failed: {error.stderr.strip() or error.stdout.strip()}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NamespaceError(f"`{' '.join(command)}` failed: {error}") from error
    return done.stdout
