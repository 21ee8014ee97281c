"""DPDK with several data threads and shards: each has its own queue of the device, and one job uses all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from switchml.dataplane.devices import built, with_queues
from tests.loopback.device_harness import (
    AgentPlace,
    DeviceFabric,
    check_restart,
    daemon,
    link_counters,
    port_counters,
    running_fabric,
)
from tests.loopback.memif_links import agent, switch_options
from tests.loopback.test_devices import python
from tests.loopback.veth_wires import HOSTS, Wires, fabric_options, veth_wires, why_not
from tests.support.soft_switch import command, wait_until

needs_dpdk = pytest.mark.skipif(
    not built("dpdk"), reason="skipped: built without DPDK; on Debian: apt-get install libdpdk-dev pkg-config"
)
needs_veth = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")

ELEMENTS = 1 << 20  # in packets of 256 values: eight times the pool of 512 slots, which are four blocks
FAULTS = ("--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "3")


EAL = "--no-huge -m 256"  # for three queues of two ports


def with_threads(places: Sequence[AgentPlace], threads: int) -> list[AgentPlace]:
    return [
        replace(place, options=(*place.options, f"--dpdk-eal={EAL}", "--threads", str(threads))) for place in places
    ]


def memif_agents(directory: Path, threads: int) -> list[AgentPlace]:
    return with_threads([agent(directory, port) for port in (1, 2)], threads)


def memif_switch(directory: Path, shards: int) -> list[str]:
    return [*switch_options(directory, 2), f"--dpdk-eal={EAL}", "--shards", str(shards)]


@needs_dpdk
@pytest.mark.parametrize(
    ("threads", "faults"),
    [
        pytest.param(1, FAULTS, marks=pytest.mark.long),
        pytest.param(2, (), marks=pytest.mark.long),
        pytest.param(2, FAULTS, marks=pytest.mark.long),
        pytest.param(3, (), marks=pytest.mark.long),
        (3, FAULTS),
    ],
)
def test_a_queue_pair_for_each_thread_and_shard(tmp_path: Path, threads: int, faults: Sequence[str]) -> None:
    """Check that each thread sends only to the shard at the other end of its queue, so that nothing is handed over."""
    options = [*memif_switch(tmp_path, threads), *faults]
    with running_fabric(tmp_path, options, memif_agents(tmp_path, threads)) as fabric:
        fabric.check_all_reduce(4, ELEMENTS)
    switch, *agents = fabric.logs
    for port, log in enumerate(agents, 1):
        counters, there = link_counters(log), port_counters(switch, port)
        assert counters["handed_over"] == there["handed_over"] == 0
        assert counters["uncopied"] > 0.8 * counters["sent"]
        # Packets in flight when the agent ends do not arrive.
        assert counters["sent"] - 64 <= there["received"] <= counters["sent"]
        assert there["sent"] - 64 <= counters["received"] <= there["sent"]
        assert not any(counters[name] for name in ("malformed", "bad_checksum", "not_for_us")), counters
        assert bool(there["injected_drop"]) == bool(faults)


@pytest.fixture
def wires() -> Iterator[Wires]:
    with veth_wires() as made:
        yield made


@needs_dpdk
@needs_veth
@pytest.mark.parametrize(
    ("threads", "shards", "faults"),
    [
        pytest.param(1, 2, (), marks=pytest.mark.long),
        pytest.param(2, 1, (), marks=pytest.mark.long),
        pytest.param(2, 2, (), marks=pytest.mark.long),
        pytest.param(3, 1, FAULTS, marks=pytest.mark.long),
        (3, 2, FAULTS),
        pytest.param(2, 3, FAULTS, marks=pytest.mark.long),
    ],
)
def test_what_comes_to_another_thread(
    tmp_path: Path, wires: Wires, threads: int, shards: int, faults: Sequence[str]
) -> None:
    """Test a kernel that distributes by addresses and ports: all packets of a host's job arrive in one queue."""
    options, agents = fabric_options(["dpdk"] * HOSTS, wires)
    options += [f"--dpdk-eal={EAL}", "--shards", str(shards), *faults]
    with running_fabric(tmp_path, options, with_threads(agents, threads), wires.prefix(wires.switch)) as fabric:
        fabric.check_all_reduce(4, ELEMENTS)
        fabric.check_all_reduce(2, 1000)  # another job, with another UDP port
    switch, *logs = fabric.logs
    for port, log in enumerate(logs, 1):
        counters, there = link_counters(log), port_counters(switch, port)
        for parts, mine in ((threads, counters), (shards, there)):
            # Some of the slots belong to the thread with the queue; the blocks are not divided quite evenly.
            assert (mine["handed_over"] > 0.4 * mine["received"]) == (parts > 1)
            assert mine["handed_over"] < 0.9 * mine["received"]
        assert not any(counters[name] for name in ("malformed", "bad_checksum"))
        assert bool(there["injected_drop"]) == bool(faults)


@needs_dpdk
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_switch_that_was_started_again(tmp_path: Path, how: signal.Signals) -> None:
    check_restart(tmp_path, memif_switch(tmp_path, 2), memif_agents(tmp_path, 2), how, ELEMENTS)


def live_agents(fabric: DeviceFabric) -> int:
    return sum(agent.live for agent in fabric.client.list_agents())


@needs_dpdk
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_was_started_again(tmp_path: Path, how: signal.Signals) -> None:
    places = memif_agents(tmp_path, 2)
    with running_fabric(tmp_path, memif_switch(tmp_path, 2), places[:1]) as fabric, contextlib.ExitStack() as stack:
        for life, ended_by in enumerate((how, signal.SIGTERM)):
            place, socket = places[1], tmp_path / "agent-1.sock"
            started = [sys.executable, "-m", "switchml.host_agent.daemon", "--name", "a1", "--address", place.address]
            started += ["--controller", f"unix:{tmp_path}/controller.sock", "--socket", str(socket)]
            started += ["--switch-port", str(place.switch_port), *place.options]
            files = tmp_path / f"a1-{life}.ready", tmp_path / f"a1-{life}.log"
            ready = stack.enter_context(daemon(started, *files, ended_by))
            if life == 0:
                fabric.sockets.append(socket)
            wait_until(lambda: live_agents(fabric) == 2, "both agents are there")
            fabric.check_all_reduce(2, ELEMENTS)
            if life == 0:
                os.kill(ready["pid"], how)
                wait_until(lambda: live_agents(fabric) == 1, "the agent is gone")


@needs_dpdk
@pytest.mark.parametrize(("threads", "shards"), [(2, 1), (1, 2)])
def test_ends_of_net_memif_with_different_numbers_of_queues(tmp_path: Path, threads: int, shards: int) -> None:
    """Check that the agent reports it and ends, and that the switch continues to serve others."""
    with running_fabric(tmp_path, memif_switch(tmp_path, shards), memif_agents(tmp_path, shards)[:1]) as fabric:
        place = memif_agents(tmp_path, threads)[1]
        other = [sys.executable, "-m", "switchml.host_agent.daemon", "--name", "other", "--address", place.address]
        other += ["--controller", f"unix:{tmp_path}/controller.sock", "--socket", str(tmp_path / "other.sock")]
        ended = subprocess.run(
            [*other, "--switch-port", str(place.switch_port), *place.options],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 1, ended.stderr
        assert f"as there are threads here (--threads), which is {threads}" in ended.stderr
        fabric.check_all_reduce(2, 1000)


@needs_dpdk
def test_a_device_with_fewer_queues_is_refused() -> None:
    program = f"""
attempt(open_dpdk, "net_ring0", "{EAL}", 0, False, 17)
attempt(open_dpdk, "net_null0", "{EAL}", 0, False, 3)
from switchml.dataplane.softswitch._native import DevicePortSpec, Switch
from switchml.host_agent._engine import Engine
switch = Switch(64, 64, 3)
for make in (
    lambda queues: Engine(3, queues, "10.9.0.1"),
    lambda queues: switch.add_port(1, DevicePortSpec(queues=queues, busy=False)),
):
    try:
        make(open_dpdk("net_null1", "{EAL}", 0, False, 2).queues)
    except ValueError as error:
        print("->", error)
"""
    told = [line[3:] for line in python(program).splitlines() if line.startswith("-> ")]
    assert told[0] == (
        "ValueError net_ring0 has 16 receive and 16 send queues, and 17 threads need one of each: use fewer threads"
        " (--threads, --shards)"
    )
    assert told[1].endswith(", 3 queues with RSS")
    assert told[2:] == [
        "a device with 2 queues needs the same number of data threads, not 3",
        "a device with 2 queues needs the same number of shards, not 3",
    ]


@pytest.mark.parametrize(
    ("devargs", "queues", "told"),
    [
        ("0000:3b:00.0", 4, "0000:3b:00.0"),
        ("net_af_packet0,iface=lo", 1, "net_af_packet0,iface=lo"),
        ("net_af_packet0,iface=lo", 3, "net_af_packet0,iface=lo,qpairs=3"),
        ("net_af_packet0,iface=lo,qpairs=3", 3, "net_af_packet0,iface=lo,qpairs=3"),
        ("net_memif0,id=1", 1, "net_memif0,id=1"),
        ("net_memif0,id=1", 2, "net_memif0,id=1,secret=2q"),
        ("net_memif0,secret=abc,id=1", 2, "net_memif0,secret=2qabc,id=1"),
    ],
)
def test_virtual_devices_are_told_how_many_queues_they_have(devargs: str, queues: int, told: str) -> None:
    assert with_queues(devargs, queues) == told


def test_queues_that_nobody_would_look_at_are_refused() -> None:
    with pytest.raises(ValueError, match="has 4 queues \\(qpairs=\\), but 1 threads need one each"):
        with_queues("net_af_packet0,iface=lo,qpairs=4", 1)


def test_several_shards_are_for_udp_and_dpdk() -> None:
    options = command("--grpc", "127.0.0.1:0", "--shards", "2", "--xdp-port", "1=lo")
    ended = subprocess.run(options, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "all ports must be UDP or DPDK ports" in ended.stderr


def test_several_data_threads_are_not_for_af_xdp(tmp_path: Path) -> None:
    options = [
        sys.executable,
        "-m",
        "switchml.host_agent.daemon",
        "--name",
        "a",
        "--controller",
        f"unix:{tmp_path}/none",
    ]
    options += ["--socket", str(tmp_path / "a.sock"), "--transport", "xdp", "--device", "lo", "--threads", "2"]
    ended = subprocess.run(options, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "AF_XDP has one queue, which one data thread moves, not 2" in ended.stderr
