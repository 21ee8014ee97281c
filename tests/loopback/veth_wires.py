"""Namespaces and veth pairs: one namespace for the switch, one for each host."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.loopback.device_harness import EAL, SWITCH_IP, SWITCH_MAC, AgentPlace

HOSTS = 2
NUMBERS = itertools.count()
CLONE_NEWNET = 0x40000000
T = TypeVar("T")


def why_not() -> str:
    if os.geteuid() != 0:
        return "skipped: network namespaces and their devices take root"
    if shutil.which("ip") is None:
        return "skipped: there is no `ip` (iproute2) to make veth pairs with"
    return ""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


def mac_of(host: int) -> str:
    return f"02:00:00:00:0a:{host:02x}"


@dataclass
class Wires:
    """The namespace of the switch, with interfaces eth1, eth2, ..., and those of the hosts, each with an eth0."""

    switch: str
    hosts: list[str]

    def prefix(self, namespace: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", namespace)

    def send(self, frame: bytes, port: int = 1) -> None:
        """Send a frame on the wire at the switch's end, without the switch."""

        def transmit() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
                wire.bind((f"eth{port}", 0))
                wire.send(frame)

        in_namespace(self.switch, transmit)


def in_namespace(name: str, function: Callable[[], T]) -> T:
    """Return the result of `function` in a thread that is in another network namespace."""
    result: list[T] = []

    def run() -> None:
        with Path("/var/run/netns", name).open() as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) == 0
        result.append(function())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result[0]


@contextlib.contextmanager
def veth_wires() -> Iterator[Wires]:
    """Create namespaces and interfaces, and remove them at the end of the block."""
    made = f"switchml-dev-{os.getpid()}-{next(NUMBERS)}"
    names = [f"{made}-{node}" for node in ("s", *(f"h{host}" for host in range(1, HOSTS + 1)))]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        switch, *hosts = names
        for host, name in enumerate(hosts, 1):
            far = ("peer", "name", "eth0", "netns", name, "address", mac_of(host))
            near = ("netns", switch, "address", SWITCH_MAC)
            ip("link", "add", f"eth{host}", *near, "type", "veth", *far)
            ip("-n", name, "addr", "add", f"10.9.0.{host}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", switch, "link", "set", f"eth{host}", "up")
        yield Wires(switch, hosts)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


def fabric_options(kinds: Sequence[str], wires: Wires) -> tuple[list[str], list[AgentPlace]]:
    """Return the options of the switch, and the agents; `kinds` are those of the switch's ports and their agents."""

    def device(kind: str, interface: str) -> str:
        if kind == "xdp":
            return interface
        return f"net_af_packet_{interface},iface={interface},blocksz=65536,framesz=2048,framecnt=4096"

    switch, agents = [f"--dpdk-eal={EAL}"], []
    for port, (kind, host) in enumerate(zip(kinds, wires.hosts, strict=True), 1):
        switch += [f"--{kind}-port", f"{port}={device(kind, f'eth{port}')}"]
        options = ("--transport", kind, "--device", device(kind, "eth0"), f"--dpdk-eal={EAL}")
        agents.append(AgentPlace(f"10.9.0.{port}", port, options, wires.prefix(host)))
        if kind != "xdp":
            continue  # DPDK's agents and switch ports answer ARP themselves
        if port == 1:  # here the kernel answers ARP for the switch's address, so it must have this address
            ip("-n", wires.switch, "addr", "add", f"{SWITCH_IP}/24", "dev", "eth1")
        else:
            permanent = ("lladdr", SWITCH_MAC, "dev", "eth0", "nud", "permanent")
            ip("-n", host, "neigh", "replace", SWITCH_IP, *permanent)
    return switch, agents
