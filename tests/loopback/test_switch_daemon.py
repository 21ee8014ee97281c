"""The switchml-switch process: options, ready file, exit, and a job whose tables are written over P4Runtime."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, DropReason, Kind, Verdict
from tests.support.p4_messages import (
    DELETE,
    INSERT,
    MODIFY,
    SECRET,
    counter_entry,
    entity,
    group_entry,
    register_entry,
    table_entry,
    update,
    worker_entry,
)
from tests.support.soft_switch import DEADLINE, Client, SwitchProcess, command, rpc_error, running_switch, wait_until

SWITCH_ADDRESS = ("set_switch_address", 2, 0x7F000001)
DESCRIPTORS = 1024
EPHEMERAL = ("--grpc", "127.0.0.1:0", "--udp-port", "1=127.0.0.1:0")


def run_to_end(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*prefix, *command(*arguments)], capture_output=True, text=True, timeout=DEADLINE)


def assert_refused(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    for text in texts:
        assert text in line


def test_a_controller_gets_through_a_crowd_of_idle_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        running_switch(tmp_path, *EPHEMERAL) as switch,
        contextlib.ExitStack() as crowd,
        Client(switch.address) as before,
    ):
        resource.prlimit(switch.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        host, _, port = switch.address.rpartition(":")
        for number in range(DESCRIPTORS + 500):
            source = (f"127.0.0.{2 + number % 6}", 0)
            crowd.enter_context(socket.create_connection((host, int(port)), DEADLINE, source))
        with Client(switch.address, election_id=2) as after:
            after.set_config()
        assert before.stream.next().arbitration.status.code  # its connection was kept: it hears of the new primary
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ready_file(tmp_path: Path) -> None:
    with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0", "--udp-port", "7=127.0.0.1:0") as switch:
        assert set(switch.ready) == {"grpc", "ports", "pid", "version"}
        assert switch.ready["pid"] == switch.process.pid
        assert set(switch.ready["ports"]) == {"1", "7"}
        addresses = {switch.udp_address(port) for port in (1, 7)}
        assert len(addresses) == 2
        for address in addresses:  # these ports are in use
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, pytest.raises(OSError, match="in use"):
                probe.bind(address)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ready")] == ["ready.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_cleanly_with_a_client_connected(tmp_path: Path, number: signal.Signals) -> None:
    with running_switch(tmp_path, *EPHEMERAL[2:]) as switch, Client(switch.address) as client:
        switch.process.send_signal(number)
        assert rpc_error(client.stream.next)[0] == grpc.StatusCode.UNAVAILABLE
        assert switch.process.wait(DEADLINE) == 0


def test_options_from_the_environment(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    variables = {
        "SWITCHML_SWITCH_GRPC": "127.0.0.1:0",
        "SWITCHML_SWITCH_UDP_PORT": "3=127.0.0.1:0 4=127.0.0.1:0",
        "SWITCHML_SWITCH_DEVICE_ID": "42",
        "SWITCHML_SWITCH_READY_FILE": str(ready_file),
    }
    process = subprocess.Popen(command(), env=os.environ | variables, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, "the switch is ready")
        ready = json.loads(ready_file.read_text())
        assert set(ready["ports"]) == {"3", "4"}
        with Client(ready["grpc"], None) as client:
            assert client.open_stream().arbitrate(None, device_id=42).device_id == 42
    finally:
        process.terminate()
        _, log = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, log


def test_busy_grpc_port(tmp_path: Path) -> None:
    stale = tmp_path / "ready.json"
    stale.write_text("{}")  # from another process: it must not be mistaken for this one's
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        done = run_to_end(*EPHEMERAL[2:], "--grpc", address, "--ready-file", str(stale))
    assert_refused(done, address, "gRPC", "Address already in use")
    assert not stale.exists()


def test_a_unix_socket_instead_of_a_grpc_port(tmp_path: Path) -> None:
    path = tmp_path / "p4runtime.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))  # the file remains, as after a crash
    address = f"unix:{path}"
    with running_switch(tmp_path, *EPHEMERAL[2:], "--grpc", address) as switch:
        assert switch.address == address
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Client(address) as client:
            client.set_config()
        assert_refused(run_to_end(*EPHEMERAL[2:], "--grpc", address), address, "another process does")
        assert "without TLS" not in switch.log.read_text()
    (tmp_path / "second").mkdir()
    with running_switch(tmp_path / "second", *EPHEMERAL[2:]) as switch:
        said = f"listening on {switch.address} without TLS: every user of this machine can command this process"
        assert said in switch.log.read_text()


def test_two_switches_do_not_share_a_grpc_port(tmp_path: Path) -> None:
    with running_switch(tmp_path, *EPHEMERAL[2:]) as switch:
        assert_refused(run_to_end(*EPHEMERAL[2:], "--grpc", switch.address), "Address already in use")


def test_busy_udp_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as busy:
        busy.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        done = run_to_end("--grpc", "127.0.0.1:0", "--udp-port", f"1={address}")
    assert_refused(done, address, "Address already in use")


def test_frame_ports(tmp_path: Path) -> None:
    """Exchange a frame between two Unix sockets through the switch; the ready file has the addresses of its ports."""
    paths = [(tmp_path / f"switch{port}", tmp_path / f"host{port}") for port in (1, 2)]
    options = [f"--frame-port={port}={switch},{host}" for port, (switch, host) in enumerate(paths, 1)]
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) for _ in paths]
        for host, (_, path) in zip(hosts, paths, strict=True):
            host.bind(str(path))
            host.settimeout(DEADLINE)
        switch = stack.enter_context(running_switch(tmp_path, *options))
        first, second = ({"path": str(switch), "peer": str(host)} for switch, host in paths)
        assert switch.ready["ports"] == {"1": first, "2": second}
        client = stack.enter_context(Client(switch.address))
        client.set_config()
        client.write(update(INSERT, table_entry("l2_table", {"eth_dst": 0x020000000001}, ("forward", 2))))
        frame = bytes.fromhex("0200000000010200000000021234") + bytes(50)
        hosts[0].sendto(frame, first["path"])
        assert hosts[1].recv(2048) == frame
    assert not any(switch_path.exists() for switch_path, _ in paths)


def test_ports_that_cannot_be_had(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "socket"
    done = run_to_end("--grpc", "127.0.0.1:0", "--frame-port", f"1={missing},{tmp_path / 'peer'}")
    assert_refused(done, str(missing), "No such file")
    done = run_to_end("--grpc", "127.0.0.1:0", "--packet-port", "1=no-such-if")
    assert_refused(done, "no-such-if", "No such device")


def test_address_of_another_machine() -> None:
    assert_refused(
        run_to_end(*EPHEMERAL[2:], "--insecure", "--grpc", "192.0.2.1:9559"), "192.0.2.1:9559", "Cannot assign"
    )
    done = run_to_end("--grpc", "127.0.0.1:0", "--udp-port", "1=192.0.2.1:5000")
    assert_refused(done, "192.0.2.1:5000", "Cannot assign")


def _without_privileges() -> tuple[str, ...]:
    """Return a command prefix without the capability to bind to low ports."""
    if os.geteuid() == 0:
        return ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
    return ()


def _low_port_is_free_for_all() -> bool:
    return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1


@pytest.mark.skipif(_low_port_is_free_for_all(), reason="this kernel gives low ports to everyone")
def test_no_permission() -> None:
    prefix = _without_privileges()
    done = run_to_end(*EPHEMERAL[2:], "--grpc", "127.0.0.1:1", prefix=prefix)
    assert_refused(done, "127.0.0.1:1", "Permission denied")
    done = run_to_end("--grpc", "127.0.0.1:0", "--udp-port", "1=127.0.0.1:1", prefix=prefix)
    assert_refused(done, "127.0.0.1:1", "Permission denied")


def test_ready_file_that_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "ready.json"
    done = run_to_end(*EPHEMERAL, "--ready-file", str(missing))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(missing.parent) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--grpc", "127.0.0.1"), "is not HOST:PORT"),
        (("--grpc", "::1:9559"), "brackets"),
        (("--grpc", "unix:p4.sock"), "no absolute path after unix:"),
        (("--grpc", "127.0.0.1:70000"), "is not HOST:PORT"),
        (("--udp-port", "127.0.0.1:5000"), "PORT=ADDRESS:UDPPORT"),
        (("--udp-port", "0=127.0.0.1:5000"), "1 to 511"),
        (("--udp-port", "512=127.0.0.1:5000"), "1 to 511"),
        (("--udp-port", "1=127.0.0.1:0", "--udp-port", "1=127.0.0.1:0"), "twice"),
        (("--udp-port", "1=127.0.0.1:0", "--packet-port", "1=lo"), "twice"),
        (("--frame-port", "1=/tmp/one"), "PORT=PATH,PEER"),
        (("--frame-port", "1=/tmp/one,/tmp/one"), "two different paths"),
        (("--frame-port", "512=/tmp/one,/tmp/other"), "1 to 511"),
        (("--packet-port", "eth0"), "PORT=INTERFACE"),
        (("--packet-port", "1="), "names no interface"),
        (("--values", "2049"), "2049"),
        (("--slots", "0"), "0"),
        (("--drop", "1.5"), "1.5"),
        (("--device-id", "0"), "0"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], text: str) -> None:
    done = run_to_end(*arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_version() -> None:
    done = run_to_end("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("switchml-switch, version ")


@pytest.fixture
def workers() -> Iterator[list[socket.socket]]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for worker in sockets:
        worker.bind(("127.0.0.1", 0))
        worker.settimeout(DEADLINE)
    yield sockets
    for worker in sockets:
        worker.close()


def install_job(client: Client, workers: list[socket.socket]) -> None:
    """Return the updates for job 5 with two ranks, epoch 7 and pool indexes 32 to 63, like the controller's."""
    updates = [
        update(INSERT, group_entry(5, (1, 0), (1, 1))),
        update(INSERT, table_entry("job_table", {"job": 5}, ("describe_job", 0x40, 0xFFC0))),
        update(MODIFY, table_entry("switch_address_table", None, SWITCH_ADDRESS, is_default_action=True)),
    ]
    for rank, worker in enumerate(workers):
        udp_port = worker.getsockname()[1]
        address = ("address_rank", 0, 0x7F000001, udp_port, 1 << rank)
        updates.append(update(INSERT, table_entry("rank_table", {"job": 5, "rank": rank}, address)))
        updates.append(worker_update(INSERT, workers, rank, epoch=7))
    client.write(*updates)


def worker_update(kind: p4r.Update.Type.ValueType, workers: list[socket.socket], rank: int, epoch: int) -> p4r.Update:
    match = {"udp_src": workers[rank].getsockname()[1], "worker": rank}
    return update(kind, worker_entry(("admit", 1 << rank, 0b11, epoch, 5), match=match))


def contribution(rank: int, job: int = 5, slot: int = 0x40) -> Packet:
    values = tuple(rank * 1000 + lane for lane in range(64))
    return Packet(job=job, worker=rank, slot=slot, phase=0, epoch=7, values=values, count=64, secret=SECRET)


def packets_of(client: Client, name: str, index: int) -> int:
    (cell,) = client.read(entity(counter_entry(name, index)))
    return cell.counter_entry.data.packet_count


def test_a_job_installed_over_p4runtime(tmp_path: Path, workers: list[socket.socket]) -> None:
    with running_switch(tmp_path, *EPHEMERAL[2:], "--slots", "64") as switch, Client(switch.address) as client:
        client.set_config(device_config=b'{"values_per_packet": 64, "slots": 64}')
        install_job(client, workers)
        exchange(client, switch, workers)


def exchange(client: Client, switch: SwitchProcess, workers: list[socket.socket]) -> None:
    for rank, worker in enumerate(workers):
        worker.sendto(contribution(rank).pack(), switch.udp_address())
    for worker in workers:
        result = Packet.unpack(worker.recv(65536))
        assert result.kind == Kind.RESULT
        assert result.values == tuple(1000 + 2 * lane for lane in range(64))
    assert packets_of(client, "job_counter", 5 << 4 | Verdict.AGGREGATED) == 1
    assert packets_of(client, "job_counter", 5 << 4 | Verdict.COMPLETED) == 1

    workers[0].sendto(contribution(0, job=6).pack(), switch.udp_address())
    wait_until(lambda: packets_of(client, "drop_counter", DropReason.UNKNOWN_JOB) == 1, "the packet is counted")

    direct = [
        e.direct_counter_entry
        for e in client.read(entity(p4r.DirectCounterEntry(table_entry=table_entry("worker_table"))))
    ]
    frame = 14 + 20 + 8 + PROTOCOL_HEADER_BYTES + 4 * 64
    assert [(d.data.packet_count, d.data.byte_count) for d in direct] == [(1, frame), (1, frame)]
    (lane,) = client.read(entity(register_entry("lane_3", 0x40)))
    assert int.from_bytes(lane.register_entry.data.bitstring, "big") == 1006
    (bitmap,) = client.read(entity(register_entry("slot_bitmap", 0x40)))
    assert bitmap.register_entry.data.bitstring == b"\x03"


def test_modified_and_deleted_entries_count(tmp_path: Path, workers: list[socket.socket]) -> None:
    """Check that each packet is refused because of the last write."""
    with running_switch(tmp_path, *EPHEMERAL[2:]) as switch, Client(switch.address) as client:
        client.set_config(device_config=b'{"values_per_packet": 64, "slots": 64}')
        install_job(client, workers)
        rank_1 = table_entry("rank_table", {"job": 5, "rank": 1})

        def refused(rank: int, reason: DropReason) -> None:
            workers[rank].sendto(contribution(rank).pack(), switch.udp_address())
            wait_until(lambda: packets_of(client, "drop_counter", reason) == 1, f"{reason.name} is counted")

        client.write(worker_update(MODIFY, workers, 0, epoch=8))
        refused(0, DropReason.WRONG_EPOCH)
        client.write(worker_update(DELETE, workers, 0, epoch=8))
        refused(0, DropReason.UNKNOWN_WORKER)
        client.write(update(MODIFY, table_entry("job_table", {"job": 5}, ("describe_job", 0, 0xFFC0))))
        refused(0, DropReason.SLOT_OUT_OF_RANGE)
        client.write(update(DELETE, table_entry("job_table", {"job": 5})))
        refused(0, DropReason.UNKNOWN_JOB)
        client.write(worker_update(INSERT, workers, 0, epoch=7), update(DELETE, rank_1))
        workers[0].sendto(contribution(0).pack(), switch.udp_address())
        refused(1, DropReason.NO_RANK_ADDRESS)  # rank 1 completes the slot; its own copy has no address
        assert Packet.unpack(workers[0].recv(65536)).kind == Kind.RESULT

        def complete(slot: int, times: int) -> None:
            for rank, worker in enumerate(workers):
                worker.sendto(contribution(rank, slot=slot).pack(), switch.udp_address())
            index = 5 << 4 | Verdict.COMPLETED
            wait_until(lambda: packets_of(client, "job_counter", index) == times, f"slot {slot} is complete")

        client.write(update(MODIFY, group_entry(5, (1, 0))))
        complete(slot=0x42, times=2)
        assert Packet.unpack(workers[0].recv(65536)).slot == 0x42
        client.write(update(DELETE, group_entry(5)))
        complete(slot=0x44, times=3)
        client.write(update(INSERT, group_entry(5, (1, 0))))
        complete(slot=0x46, times=4)
        assert Packet.unpack(workers[0].recv(65536)).slot == 0x46  # and no result of 0x44
        assert packets_of(client, "drop_counter", DropReason.NO_RANK_ADDRESS) == 1


def test_injected_loss_is_counted(tmp_path: Path, workers: list[socket.socket]) -> None:
    with running_switch(tmp_path, *EPHEMERAL[2:], "--drop", "1") as switch, Client(switch.address) as client:
        client.set_config(device_config=b'{"values_per_packet": 64, "slots": 64}')
        install_job(client, workers)
        workers[0].sendto(contribution(0).pack(), switch.udp_address())
        wait_until(lambda: packets_of(client, "drop_counter", DropReason.INJECTED_LOSS) == 1, "the loss is counted")
