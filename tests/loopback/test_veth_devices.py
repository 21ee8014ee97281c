"""DPDK's net_af_packet and AF_XDP in copy mode over veth pairs: a namespace for the switch, one for each host."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, PROTOCOL_UDP_PORT
from switchml.dataplane.devices import built
from tests.loopback.device_harness import (
    SWITCH_IP,
    SWITCH_MAC,
    DeviceFabric,
    link_counters,
    port_counters,
    running_fabric,
)
from tests.loopback.softswitch_frames import checksum, ethernet
from tests.loopback.veth_wires import HOSTS, Wires, fabric_options, mac_of, veth_wires, why_not

MEGABYTE = 1 << 20
FAULTS = ("--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "3")


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")
KINDS = [
    pytest.param("dpdk", marks=pytest.mark.skipif(not built("dpdk"), reason="skipped: built without libdpdk-dev")),
    pytest.param("xdp", marks=pytest.mark.skipif(not built("xdp"), reason="skipped: built without libxdp-dev")),
]


@pytest.fixture
def wires() -> Iterator[Wires]:
    with veth_wires() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("faults", [pytest.param((), marks=pytest.mark.long), FAULTS])
def test_all_reduce_over_veth(tmp_path: Path, wires: Wires, kind: str, faults: tuple[str, ...]) -> None:
    options, agents = fabric_options([kind] * HOSTS, wires)
    with running_fabric(tmp_path, [*options, *faults], agents, wires.prefix(wires.switch)) as fabric:
        fabric.check_all_reduce(4, 4 * MEGABYTE // 4)
    switch, *logs = fabric.logs
    for port, log in enumerate(logs, 1):
        counters = link_counters(log)
        assert counters["received"] > 0
        assert not any(counters[name] for name in ("malformed", "bad_checksum"))
        assert bool(port_counters(switch, port)["injected_drop"]) == bool(faults)


@pytest.mark.long
@pytest.mark.skipif(not (built("dpdk") and built("xdp")), reason="skipped: built without libdpdk-dev or libxdp-dev")
def test_ranks_of_a_job_over_both(tmp_path: Path, wires: Wires) -> None:
    options, agents = fabric_options(["xdp", "dpdk"], wires)
    with running_fabric(tmp_path, options, agents, wires.prefix(wires.switch)) as fabric:
        fabric.check_all_reduce(2, MEGABYTE // 4)
    for log in fabric.logs[1:]:
        assert link_counters(log)["received"] > 2 * MEGABYTE // 4 // 256


def ipv4(total_length: int, udp_length: int, destination_port: int, **fields: int) -> bytes:
    """Return a frame to host 1 with an empty SwitchML header as UDP payload, and with these length fields."""
    header = bytearray(20)
    struct.pack_into(">BBHHHBB", header, 0, 0x45, 0, total_length, 0, fields.get("fragment", 0), 64, 17)
    header[12:16], header[16:20] = socket.inet_aton(SWITCH_IP), socket.inet_aton("10.9.0.1")
    header[10:12] = (checksum(bytes(header)) ^ fields.get("flip", 0)).to_bytes(2, "big")
    udp = struct.pack(">HHHH", PROTOCOL_UDP_PORT, destination_port, udp_length, 0)
    to, by = (int(mac.replace(":", ""), 16) for mac in (mac_of(1), SWITCH_MAC))
    return ethernet(to, by, 0x0800, bytes(header) + udp + bytes(PROTOCOL_HEADER_BYTES))


def rank_port(fabric: DeviceFabric) -> int:
    """Return the UDP port of the job on host 1."""
    entries = [entry for entry in fabric.client.show_switch().entries if entry.table == "worker_table"]
    (port,) = {int(entry.match["udp_src"]) for entry in entries if entry.match["ingress_port"] == "1"}
    return port


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_frames_are_dropped_and_counted(tmp_path: Path, wires: Wires, kind: str) -> None:
    options, agents = fabric_options([kind] * HOSTS, wires)
    with running_fabric(tmp_path, options, agents, wires.prefix(wires.switch)) as fabric:
        job = fabric.client.start_job(pb.StartJobRequest(workers=2))
        port = rank_port(fabric)
        datagram = 8 + PROTOCOL_HEADER_BYTES
        whole = 20 + datagram
        for frame in (
            ipv4(whole, datagram - 1, port),  # UDP's length is smaller than IPv4's
            ipv4(whole + 1, datagram + 1, port),  # longer than the frame
            ipv4(27, 7, port),  # shorter than the headers
            ipv4(whole, datagram, port, flip=0x0100),
            ipv4(whole, datagram, port, fragment=0x2000),
            ipv4(whole, datagram, port ^ 1),
            ipv4(whole, datagram, port)[:41],
            ipv4(whole, datagram, port),  # valid, but not a RESULT
        ):
            wires.send(frame)
        fabric.client.stop_job(job.id)
        fabric.check_all_reduce(2, 1000)
    counters = link_counters(fabric.logs[1])
    if kind == "dpdk":
        assert (counters["malformed"], counters["bad_checksum"], counters["unknown_port"]) == (4, 1, 1)
    else:  # the kernel handles frames that are incomplete or for other ports
        assert (counters["malformed"], counters["bad_checksum"], counters["unknown_port"]) == (3, 1, 0)
