"""The agent with --transport rdma in the guest; its controller and the soft switch are on this machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread

import pytest

import switchml
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, mac_text
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.devices import built
from tests.loopback.device_harness import daemon
from tests.rdma.calls import digests
from tests.rdma.guest import HOST_SEEN_BY_GUEST, Guest, Image, running_guest
from tests.support.controller_harness import configuration, running_controller
from tests.support.soft_switch import running_switch

CARD = Host(port=1, mac=0x020000000001, ip=0x0A000001, udp_port=0)
LONG = pytest.mark.long
pytestmark = pytest.mark.skipif(not built("rdma"), reason="skipped: built without libibverbs-dev")


@dataclass(frozen=True)
class Fabric:
    client: ControllerClient
    guest: Guest
    directory: Path

    def run(self, world: int, event: str = "") -> list[list[str]]:
        """Run a job whose ranks are all in the guest, and return their digests; the program there knows the events."""
        job = self.client.start_job(pb.StartJobRequest(workers=world, on_failure=pb.ON_FAILURE_SHRINK))
        self.guest.say(f"{job.id} {world} {event}")
        found: list[list[str]] = self.guest.report()["digests"]
        return found


@contextmanager
def running_fabric(directory: Path, image: Image, values: int, mtu: int, *faults: str) -> Iterator[Fabric]:
    cable = directory / "switch1.sock", directory / "host1.sock"
    with ExitStack() as stack:
        port = f"--frame-port={CARD.port}={','.join(map(str, cable))}"
        switch = stack.enter_context(running_switch(directory, port, *faults))
        table = {
            "name": "s1",
            "target": "soft",
            "p4runtime": switch.address,
            "address": str(IPv4Address(SWITCH_IP)),
            "mac": mac_text(SWITCH_MAC),
            "values_per_packet": values,
            "slots": 1024,
            "default_pool": 128,
        }
        config = "[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        _, client = stack.enter_context(running_controller(directory, config))
        controller = f"{HOST_SEEN_BY_GUEST}:{client.address.rpartition(':')[2]}"
        # The tests' own folder comes first: the guest may see another checkout that is installed.
        environment = ["/usr/bin/env", f"PYTHONPATH={Path(__file__).parents[2]}", "SWITCHML_DIRECT=0"]
        command = ["chroot", "/host", *environment, sys.executable, "-m", "tests.rdma.agent_in_guest"]
        command += [str(IPv4Address(CARD.ip)), controller]
        guest = stack.enter_context(running_guest(image, command, CARD, cable, mtu, sees_host=True))
        assert guest.report() == {"ready": True}
        yield Fabric(client, guest, directory)


def over_udp(directory: Path, values: int, worlds: Sequence[int]) -> list[list[list[str]]]:
    """Return the digests of the same calls over the kernel's UDP on this machine."""
    with ExitStack() as stack:
        switch = stack.enter_context(running_switch(directory, "--udp-port", "1=127.0.0.1:0"))
        config = configuration(switch, values_per_packet=values)
        _, client = stack.enter_context(running_controller(directory, config))
        socket = directory / "agent.sock"
        command = [sys.executable, "-m", "switchml.host_agent.daemon", "--transport", "udp", "--controller"]
        command += [client.address, "--socket", str(socket)]
        stack.enter_context(daemon(command, directory / "agent.ready", directory / "agent.log"))
        return [_run(client, socket, world) for world in worlds]


def _run(client: ControllerClient, socket: Path, world: int) -> list[list[str]]:
    job = client.start_job(pb.StartJobRequest(workers=world))
    found: dict[int, list[str]] = {}

    def run(rank: int) -> None:
        with switchml.connect(job=job.id, rank=rank, world_size=world, agent=socket) as comm:
            found[rank] = digests(comm)

    threads = [Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(world)]


@pytest.mark.parametrize(
    ("values", "mtu"), [(248, 1500), pytest.param(64, 1500, marks=LONG), pytest.param(1016, 4200, marks=LONG)]
)
def test_results_have_the_bits_of_udp(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch, values: int, mtu: int
) -> None:
    monkeypatch.setitem(os.environ, "SWITCHML_DIRECT", "0")
    worlds = (2, 4)
    (tmp_path / "udp").mkdir()
    expected = over_udp(tmp_path / "udp", values, worlds)
    with running_fabric(tmp_path, image, values, mtu) as fabric:
        assert [fabric.run(world) for world in worlds] == expected


@pytest.mark.parametrize("faults", [0.01, pytest.param(0.05, marks=LONG)])
def test_results_are_right_under_faults(tmp_path: Path, image: Image, faults: float) -> None:
    """Lose, duplicate, delay and change frames in each direction: the ranks have the same results as without."""
    (tmp_path / "udp").mkdir()
    options = [f"--{fault}={faults}" for fault in ("drop", "duplicate", "delay", "flip")]
    expected = over_udp(tmp_path / "udp", 248, [2])
    with running_fabric(tmp_path, image, 248, 1500, *options) as fabric:
        assert [fabric.run(2)] == expected
        assert fabric.client.show_switch().drop_reasons["bad_icrc"] > 0


@LONG
def test_a_link_that_is_down_for_a_time(tmp_path: Path, image: Image) -> None:
    (tmp_path / "udp").mkdir()
    expected = over_udp(tmp_path / "udp", 248, [2])
    with running_fabric(tmp_path, image, 248, 1500) as fabric:
        assert [fabric.run(2, "3")] == expected


@LONG
def test_the_others_continue_without_a_killed_rank(tmp_path: Path, image: Image) -> None:
    """Check the new epoch, which has another queue pair and another key."""
    (tmp_path / "udp").mkdir()
    expected = over_udp(tmp_path / "udp", 248, [2])
    with running_fabric(tmp_path, image, 248, 1500) as fabric:
        assert [fabric.run(3, "kill")] == expected
