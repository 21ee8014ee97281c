"""RDMA cards' packets at the ports that carry frames: packet sockets, DPDK and AF_XDP, over veth pairs."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, contribution_frame, mac_text, result_frame
from ptf_tests.job import Job
from ptf_tests.open_control import open_control
from ptf_tests.targets import Description
from switchml.controller.drivers.p4tables import switch_address_entry
from switchml.dataplane.constants import DropReason
from switchml.dataplane.devices import built
from tests.loopback.device_harness import EAL, daemon
from tests.loopback.veth_wires import HOSTS, Wires, in_namespace, ip, veth_wires, why_not

VALUES = 64
SECONDS = 30.0
ALL_FRAMES = 0x0003
OTHER = 0x65  # UD SEND with immediate data, which is not the switch's

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")


def device(kind: str, interface: str) -> str:
    if kind == "dpdk":
        return f"net_af_packet_{interface},iface={interface},blocksz=65536,framesz=2048,framecnt=4096"
    return interface


@pytest.fixture
def wires() -> Iterator[Wires]:
    with veth_wires() as made:
        for host in made.hosts:
            ip("-n", host, "link", "set", "eth0", "promisc", "on")
        yield made


def open_wire() -> socket.socket:
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
    wire.bind(("eth0", 0))
    wire.settimeout(SECONDS)
    return wire


@pytest.mark.parametrize(
    "kind",
    [
        "packet",
        pytest.param("dpdk", marks=pytest.mark.skipif(not built("dpdk"), reason="skipped: built without libdpdk-dev")),
        pytest.param("xdp", marks=pytest.mark.skipif(not built("xdp"), reason="skipped: built without libxdp-dev")),
    ],
)
def test_a_phase_of_two_cards(tmp_path: Path, wires: Wires, kind: str) -> None:
    places = [f"--{kind}-port={port}={device(kind, f'eth{port}')}" for port in range(1, HOSTS + 1)]
    control_path = f"unix:{tmp_path}/switch.sock"
    module = "switchml.dataplane.softswitch.daemon"
    command = [
        *wires.prefix(wires.switch),
        sys.executable,
        "-m",
        module,
        "--grpc",
        control_path,
        "--values",
        str(VALUES),
    ]
    hosts = [Host(n, 0x020000000A00 + n, 0x0A090000 + n, 0xC000, queue_pair=0x10 + n) for n in range(1, HOSTS + 1)]
    job = Job(1, 1, tuple(hosts), VALUES)
    description = Description("soft", control_path, VALUES, {}, unix=True, shortest_frame=0)
    with ExitStack() as stack:
        eal = [f"--dpdk-eal={EAL}"] if kind == "dpdk" else []
        stack.enter_context(daemon([*command, *eal, *places], tmp_path / "ready.json", tmp_path / "switch.log"))
        control = stack.enter_context(open_control(description))
        control.load()
        control.modify(switch_address_entry(mac_text(SWITCH_MAC), str(IPv4Address(SWITCH_IP))))
        control.insert(*job.entities())
        ends = [stack.enter_context(in_namespace(name, open_wire)) for name in wires.hosts]
        for phase in range(4):
            packets = [job.packet(rank, phase=phase) for rank in range(HOSTS)]
            for wire, packet, host in zip(ends, packets, hosts, strict=True):
                wire.send(contribution_frame(packet, host, bth={"opcode": OTHER}))
                wire.send(contribution_frame(packet, host))
            # Which rank's packet completes the phase is not defined.
            either = [job.result(*packets), job.result(*reversed(packets))]
            for wire, host in zip(ends, hosts, strict=True):
                frames = [result_frame(result, host) for result in either]
                while wire.recv(9000) not in frames:
                    pass  # its own packets, and the kernel's
        counts = control.counts([1])
    assert DropReason.BAD_ICRC not in counts.drops
