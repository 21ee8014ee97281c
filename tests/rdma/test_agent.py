"""The agent with --transport rdma in the guest; its controller and the soft switch are on this machine."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, mac_text
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.devices import built
from tests.loopback.device_harness import daemon
from tests.rdma import training
from tests.rdma.calls import ELEMENTS, digests_of_ranks
from tests.rdma.guest import HOST_SEEN_BY_GUEST, ROOT, Guest, Image, running_guest
from tests.rdma.test_guest import CARD, cables
from tests.support.controller_harness import configuration, running_controller
from tests.support.soft_switch import running_switch

LONG = pytest.mark.long
pytestmark = pytest.mark.skipif(not built("rdma"), reason="skipped: built without libibverbs-dev")


@dataclass(frozen=True)
class Fabric:
    client: ControllerClient
    guest: Guest
    directory: Path

    def start(self, world: int, event: str = "none") -> int:
        """Start a job whose ranks are all in the guest, and return its id; the program there knows the events."""
        # A process group of PyTorch cannot shrink.
        on_failure = pb.ON_FAILURE_ABORT if event == "train" else pb.ON_FAILURE_SHRINK
        job = self.client.start_job(pb.StartJobRequest(workers=world, on_failure=on_failure))
        self.guest.say(f"{job.id} {world} {','.join(map(str, range(world)))} {event}")
        return job.id

    def run(self, world: int, event: str = "none") -> list[list[str]]:
        """Run a job whose ranks are all in the guest, and return their digests."""
        self.start(world, event)
        found: list[list[str]] = self.guest.report()["digests"]
        return found


def table(p4runtime: str, values: int, **more: object) -> str:
    """Return the controller's configuration for one switch that carries frames."""
    keys = {
        "name": "s1",
        "target": "soft",
        "p4runtime": p4runtime,
        "address": str(IPv4Address(SWITCH_IP)),
        "mac": mac_text(SWITCH_MAC),
        "values_per_packet": values,
        "slots": 1024,
        "default_pool": 128,
        **more,
    }
    return "[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def agent_command(controller: str, elements: int = ELEMENTS) -> list[str]:
    """Return the command that runs an agent of a controller on this machine, and its ranks, in the guest."""
    seen = f"{HOST_SEEN_BY_GUEST}:{controller.rpartition(':')[2]}"
    return module_in_guest("tests.rdma.agent_in_guest", str(IPv4Address(CARD.ip)), seen, str(elements))


def module_in_guest(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this checkout in the guest."""
    # The tests' own folder comes first: the guest may see another checkout that is installed.
    environment = ["/usr/bin/env", f"PYTHONPATH={ROOT}", "SWITCHML_DIRECT=0"]
    return ["chroot", "/host", *environment, sys.executable, "-m", module, *arguments]


@contextmanager
def running_fabric(
    directory: Path, image: Image, values: int, mtu: int, *faults: str, megabytes: int = 512
) -> Iterator[Fabric]:
    cable = cables(directory, CARD)
    with ExitStack() as stack:
        port = f"--frame-port={CARD.port}={','.join(map(str, cable))}"
        switch = stack.enter_context(running_switch(directory, port, *faults))
        config = table(switch.address, values)
        _, client = stack.enter_context(running_controller(directory, config))
        command = agent_command(client.address)
        place = running_guest(image, command, CARD, cable, mtu, sees_host=True, megabytes=megabytes)
        guest = stack.enter_context(place)
        assert guest.report() == {"ready": True}
        yield Fabric(client, guest, directory)


@contextmanager
def running_udp(directory: Path, values: int) -> Iterator[tuple[ControllerClient, Path]]:
    """Run a soft switch and an agent that uses the kernel's UDP on this machine; yield also the agent's socket."""
    with ExitStack() as stack:
        switch = stack.enter_context(running_switch(directory, "--udp-port", "1=127.0.0.1:0"))
        config = configuration(switch, values_per_packet=values)
        _, client = stack.enter_context(running_controller(directory, config))
        agent = directory / "agent.sock"
        command = [sys.executable, "-m", "switchml.host_agent.daemon", "--transport", "udp", "--controller"]
        command += [client.address, "--socket", str(agent)]
        stack.enter_context(daemon(command, directory / "agent.ready", directory / "agent.log"))
        yield client, agent


def over_udp(directory: Path, values: int, worlds: Sequence[int], elements: int = ELEMENTS) -> list[list[list[str]]]:
    """Return the digests of the same calls over the kernel's UDP on this machine."""
    found = []
    with running_udp(directory, values) as (client, agent):
        for world in worlds:
            job = client.start_job(pb.StartJobRequest(workers=world))
            found.append(digests_of_ranks(job.id, range(world), world, agent, elements))
    return found


@pytest.mark.parametrize(
    ("values", "mtu", "worlds"),
    [
        (248, 1500, (2, 4)),
        pytest.param(64, 1500, (2, 4), marks=LONG),
        pytest.param(1016, 4200, (2, 4, 8), marks=LONG),
    ],
)
def test_results_have_the_bits_of_udp(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch, values: int, mtu: int, worlds: Sequence[int]
) -> None:
    monkeypatch.setitem(os.environ, "SWITCHML_DIRECT", "0")
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
        assert [fabric.run(2, "down")] == expected


@LONG
def test_the_others_continue_without_a_killed_rank(tmp_path: Path, image: Image) -> None:
    """Check the new epoch, which has another queue pair and another key."""
    (tmp_path / "udp").mkdir()
    expected = over_udp(tmp_path / "udp", 248, [2])
    with running_fabric(tmp_path, image, 248, 1500) as fabric:
        assert [fabric.run(3, "kill")] == expected


REFUSALS = {
    "device": "there is no RDMA device rxe1; this machine has rxe0",
    "port": "RDMA device rxe0 has the ports 1 to 1, not 2",
    "address": "port rxe0/1 has no RoCEv2 address (GID) for 10.0.0.9, the agent's --address; it has ",
    # libibverbs then looks for the file elsewhere, and says that it does not exist.
    "access": "RDMA device rxe0 cannot be opened; it takes access to /dev/infiniband/uverbs*",
    "memory": "bytes cannot be registered with rxe0/1; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)",
    "switch": "there is no way from rxe0/1 to the switch at 10.0.0.254; it, or the router to it, must answer ARP",
    "link": "port rxe0/1 is down; set its network interface up, and check the cable",
}


@LONG
def test_an_agent_that_cannot_use_its_card_is_told_why(tmp_path: Path, image: Image) -> None:
    """Check what the kernel itself makes of each reason, with a cable at which nothing answers."""
    cable = cables(tmp_path, CARD)
    command = module_in_guest("tests.rdma.refusals_in_guest", str(IPv4Address(CARD.ip)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nothing:
        nothing.bind(str(cable[0]))
        with running_guest(image, command, CARD, cable, 1500, sees_host=True, megabytes=512) as guest:
            report = guest.report()
    assert report["doctor"].startswith("RDMA rxe0/1: software, active, messages of 1024 bytes, ")
    assert "10.0.0.1" in report["doctor"]
    found = report["refusals"]
    assert found.keys() == REFUSALS.keys()
    assert {name: found[name] for name, reason in REFUSALS.items() if reason not in found[name]} == {}


@LONG
@pytest.mark.parametrize("loss", ["unbind", "flush"])
def test_a_card_that_is_lost(tmp_path: Path, image: Image, loss: str) -> None:
    """Check what the ranks and the controller are told, and that the agent ends."""
    reason = "RDMA port rxe0/1 has lost its RoCEv2 address (GID) for 10.0.0.1"
    with running_fabric(tmp_path, image, 248, 1500) as fabric:
        job = fabric.start(2, loss)
        report = fabric.guest.report()
        assert [error for error, _ in report["errors"].values()] == ["WorkerLost", "WorkerLost"]
        assert all(reason in text for _, text in report["errors"].values())
        assert report["agent"] == 1
        assert reason in fabric.client.get_job(job).failure


@LONG
@pytest.mark.timeout(2 * training.SECONDS)
@pytest.mark.skipif(not training.PYTHON.exists(), reason="skipped: no .venv-torch; `make venv-torch` makes it")
def test_a_training_with_pytorch_has_the_bits_of_udp(
    tmp_path: Path, image: Image, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    monkeypatch.setitem(os.environ, "SWITCHML_DIRECT", "0")
    (tmp_path / "udp").mkdir()
    with running_udp(tmp_path / "udp", 248) as (client, agent):
        expected = training.run_ranks(client.start_job(pb.StartJobRequest(workers=2)).id, 2, agent)
    assert expected[0] == expected[1]
    begun = time.monotonic()
    with running_fabric(tmp_path, image, 248, 1500, megabytes=2048) as fabric:
        fabric.start(2, "train")
        assert fabric.guest.report(training.SECONDS)["digests"] == expected
    figure(f"{time.monotonic() - begun:.0f} s in the guest")
