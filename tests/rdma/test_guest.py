"""All-reduces of queue pairs of a guest's RDMA card through the soft switch, which is the other end of its cable."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import finsy as fy
import pytest
from scapy.utils import RawPcapReader

from ptf_tests.control import Control
from ptf_tests.control_p4runtime import P4RuntimeControl
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, contribution_frame, icrc
from ptf_tests.job import Job
from ptf_tests.targets import Description
from ptf_tests.wire import Packet
from switchml.dataplane.constants import ROCEV2_OPCODE, ROCEV2_UDP_PORT, DropReason, Flag, Kind
from tests.rdma.guest import SECONDS, Guest, Image, running_guest
from tests.support.soft_switch import running_switch

CARD = Host(port=1, mac=0x020000000001, ip=0x0A000001, udp_port=0)
OTHER = Host(port=2, mac=0x020000000002, ip=0x0A000002, udp_port=40000)
SLOTS = 16
RDMA_MTUS = {1500: 1024, 4200: 4096, 9000: 4096}  # by Ethernet's
CONTRIBUTOR = ("contributor",)
PYVERBS = Path(__file__).with_name("pyverbs_contributor.py")
LONG = pytest.mark.long
Figure = Callable[[str], None]


@dataclass(frozen=True)
class Fabric:
    """The soft switch, with a frame port for each host."""

    control: Control
    directory: Path
    values: int

    def cable(self, host: Host) -> tuple[Path, Path]:
        """Return the socket of a host's port, and the path to which the port sends."""
        return cables(self.directory, host)


def cables(directory: Path, host: Host) -> tuple[Path, Path]:
    """Return the socket of a host's port in this folder, and the path to which the port sends."""
    return directory / f"switch{host.port}.sock", directory / f"host{host.port}.sock"


@contextmanager
def running_fabric(directory: Path, values: int, *faults: str) -> Iterator[Fabric]:
    ports = [f"--frame-port={host.port}={','.join(map(str, cables(directory, host)))}" for host in (CARD, OTHER)]
    with running_switch(directory, *ports, *faults) as switch:
        description = Description("soft", switch.address, values, {}, unix=True, shortest_frame=0)
        with P4RuntimeControl(description) as control:
            control.load()
            address = fy.Action("set_switch_address", mac=SWITCH_MAC, ip=SWITCH_IP)
            control.modify(fy.P4TableEntry("switch_address_table", action=address, is_default_action=True))
            yield Fabric(control, directory, values)


@dataclass(frozen=True)
class Task:
    """A job: the queue pairs of one guest or two, and ranks that have none."""

    phases: int
    queue_pairs: int = 2  # of each guest
    guests: tuple[Host, ...] = (CARD,)
    others: tuple[Host, ...] = ()
    mtu: int = 1500
    program: Sequence[str] = CONTRIBUTOR

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.queue_pairs * len(self.guests) + len(self.others)


def reduce(fabric: Fabric, image: Image, task: Task, capture: Path | None = None) -> dict[str, int]:
    """Run the guests until all ranks have all results, check those, and return what the guests have counted."""
    job = Job(1, 7, (), fabric.values, slots=SLOTS, secret=0xDEADBEEF)
    counted: Counter[str] = Counter()
    with ExitStack() as stack:
        guests: list[Guest] = []
        hosts: list[Host] = []
        for host in task.guests:
            ranks = len(hosts), task.queue_pairs, task.world
            numbers = *ranks, job.values, job.slots, task.phases, job.id, job.epoch, job.secret
            command = [*task.program, *map(str, (IPv4Address(host.ip), IPv4Address(SWITCH_IP), *numbers))]
            guest = stack.enter_context(running_guest(image, command, host, fabric.cable(host), task.mtu, capture))
            ready = said(guest)
            assert ready["mtu"] == RDMA_MTUS[task.mtu]
            hosts += [replace(host, queue_pair=number) for number in ready["queue_pairs"]]
            guests.append(guest)
        job = replace(job, hosts=(*hosts, *task.others))
        fabric.control.insert(*job.entities())
        for guest in guests:
            guest.say("go")
        for rank in range(len(hosts), task.world):
            contribute(fabric, job, rank, task.phases)
        for guest in guests:
            counted.update(said(guest))
            guest.wait()
    assert counted["results"] == len(hosts) * SLOTS * task.phases
    assert counted["wrong"] == counted["foreign"] == 0
    return dict(counted)


def said(guest: Guest) -> dict[str, Any]:
    """Return what the guest's program says next, which must not be an error."""
    report = guest.report()
    assert "error" not in report, report["error"]
    return report


def contribute(fabric: Fabric, job: Job, rank: int, phases: int) -> None:
    """Play a rank with UDP: check every RESULT of all slots, one phase after another."""
    host, world = job.hosts[rank], range(len(job.hosts))
    port, peer = fabric.cable(host)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as cable:
        cable.bind(str(peer))
        cable.connect(str(port))
        cable.settimeout(SECONDS)
        end = time.monotonic() + SECONDS
        for phase in range(phases):
            missing = set(range(job.slots))
            flags = Flag(0)
            while missing:
                assert time.monotonic() < end, f"slots without a result of phase {phase}: {missing}"
                for slot in missing:
                    packet = job.packet(rank, slot, phase, flags=flags, check=rank + 1)
                    cable.send(contribution_frame(packet, host))
                flags = Flag.RETRANSMISSION
                while missing and select.select([cable], [], [], 0.5)[0]:
                    result = Packet.unpack(cable.recv(65536)[42:])
                    assert result.kind == Kind.RESULT
                    if result.phase == phase:
                        slot = result.slot >> 1
                        expected = job.result(*(job.packet(one, slot, phase) for one in world))
                        assert [value & 0xFFFFFFFF for value in result.values] == list(expected.values)
                        missing.discard(slot)


@pytest.mark.parametrize(
    ("values", "mtu"),
    [(64, 1500), (1016, 4200), pytest.param(248, 1500, marks=LONG), pytest.param(1016, 9000, marks=LONG)],
)
def test_queue_pairs(tmp_path: Path, image: Image, figure: Figure, values: int, mtu: int) -> None:
    with running_fabric(tmp_path, values) as fabric:
        figure(str(reduce(fabric, image, Task(phases=20, mtu=mtu))))
        assert fabric.control.drops(DropReason.BAD_ICRC) == 0


@pytest.mark.parametrize(("queue_pairs", "faults"), [(4, 0.02), pytest.param(8, 0.05, marks=LONG)])
def test_faults(tmp_path: Path, image: Image, figure: Figure, queue_pairs: int, faults: float) -> None:
    """Lose, duplicate, delay and change frames in each direction."""
    options = [f"--{fault}={faults}" for fault in ("drop", "duplicate", "delay", "flip")]
    with running_fabric(tmp_path, 248, *options) as fabric:
        counted = reduce(fabric, image, Task(phases=30, queue_pairs=queue_pairs))
        dropped = fabric.control.drops(DropReason.BAD_ICRC)
        figure(f"{counted}, {dropped} with a wrong ICRC at the switch")
        assert counted["retransmissions"] > 0
        assert dropped > 0


def test_a_rank_elsewhere_uses_udp(tmp_path: Path, image: Image, figure: Figure) -> None:
    with running_fabric(tmp_path, 248) as fabric:
        figure(str(reduce(fabric, image, Task(phases=10, others=(OTHER,)))))


@LONG
def test_two_guests(tmp_path: Path, image: Image, figure: Figure) -> None:
    with running_fabric(tmp_path, 248) as fabric:
        figure(str(reduce(fabric, image, Task(phases=20, queue_pairs=1, guests=(CARD, OTHER)))))


def test_a_capture(tmp_path: Path, image: Image) -> None:
    """Compute the ICRCs of all frames, and let tshark dissect them if it is installed."""
    capture = tmp_path / "frames.pcap"
    with running_fabric(tmp_path, 64) as fabric:
        counted = reduce(fabric, image, Task(phases=10), capture)
    frames = [frame for frame, _ in RawPcapReader(str(capture)) if frame[36:38] == ROCEV2_UDP_PORT.to_bytes(2, "big")]
    assert len(frames) >= 2 * counted["results"]
    assert all(frame[-4:] == icrc(frame) for frame in frames)
    if shutil.which("tshark") is None:
        pytest.skip("skipped: the ICRCs are right; tshark is not installed, which dissects frames")
    assert len(dissected(capture, f"infiniband.bth.opcode == {ROCEV2_OPCODE}")) == len(frames)
    assert dissected(capture, "_ws.malformed or _ws.expert") == []


def dissected(capture: Path, condition: str) -> list[str]:
    """Return a line for each frame that fulfils a condition."""
    command = ["tshark", "-n", "-r", str(capture), "-Y", condition]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.splitlines()


@LONG
def test_pyverbs(tmp_path: Path, image: Image, figure: Figure) -> None:
    """Let rdma-core's binding for Python be the client, in the same guest; it also tries the last epoch's Q_Key."""
    python = "/usr/bin/python3"
    if subprocess.run([python, "-I", "-c", "import pyverbs"], capture_output=True, timeout=SECONDS).returncode:
        pytest.skip("skipped: no pyverbs: apt-get install python3-pyverbs")
    with running_fabric(tmp_path, 64) as fabric:
        figure(str(reduce(fabric, image, Task(phases=10, program=("chroot", "/host", python, "-I", str(PYVERBS))))))
