"""DPDK over net_memif: agents and the switch are processes of their own, without huge pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_harness import EAL, AgentPlace, link_counters, port_counters, running_fabric

from dataplane.devices import built

pytestmark = pytest.mark.skipif(
    not built("dpdk"), reason="skipped: built without DPDK; on Debian: apt-get install libdpdk-dev pkg-config"
)

MEGABYTE = 1 << 20


def switch_options(directory: Path, ports: int) -> list[str]:
    options = [f"--dpdk-eal={EAL}"]
    for port in range(1, ports + 1):
        device = f"net_memif{port},role=server,id={port},socket={directory}/memif.sock,rsize=11"
        options += ["--dpdk-port", f"{port}={device}"]
    return options


def agent(directory: Path, port: int) -> AgentPlace:
    device = f"net_memif0,role=client,id={port},socket={directory}/memif.sock,rsize=11,mac=02:00:00:00:09:{port:02x}"
    return AgentPlace(f"10.9.0.{port}", port, ("--transport", "dpdk", "--device", device, f"--dpdk-eal={EAL}"))


@pytest.mark.parametrize("faults", [(), ("--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "3")])
def test_all_reduce_between_processes(tmp_path: Path, faults: tuple[str, ...]) -> None:
    options = [*switch_options(tmp_path, 2), *faults]
    with running_fabric(tmp_path, options, [agent(tmp_path, 1), agent(tmp_path, 2)]) as fabric:
        fabric.check_all_reduce(4, 4 * MEGABYTE // 4)
    switch, *agents = fabric.logs
    for port, log in enumerate(agents, 1):
        counters = link_counters(log)
        # Values were read from the memory that the agent shares with its processes.
        assert counters["uncopied"] > 0.8 * counters["sent"]
        assert counters["received"] > 0
        assert not any(counters[name] for name in ("malformed", "bad_checksum", "not_for_us", "unknown_port"))
        injected = port_counters(switch, port)
        assert bool(injected["injected_drop"]) == bool(faults)
