"""Options of a switch and of agents that net_memif connects."""

from __future__ import annotations

from pathlib import Path

from tests.loopback.device_harness import EAL, AgentPlace


def socket_in(directory: Path) -> str:
    return f"socket={directory}/memif.sock,socket-abstract=no"


def switch_options(directory: Path, ports: int) -> list[str]:
    options = [f"--dpdk-eal={EAL}"]
    for port in range(1, ports + 1):
        device = f"net_memif{port},role=server,id={port},{socket_in(directory)},rsize=11"
        options += ["--dpdk-port", f"{port}={device}"]
    return options


def agent(directory: Path, port: int) -> AgentPlace:
    device = f"net_memif0,role=client,id={port},{socket_in(directory)},rsize=11,mac=02:00:00:00:09:{port:02x}"
    return AgentPlace(f"10.9.0.{port}", port, ("--transport", "dpdk", "--device", device, f"--dpdk-eal={EAL}"))
