"""A native soft switch and worker sockets around it, all in this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Verdict
from switchml.dataplane.softswitch._native import Switch, UdpPortSpec, WorkerMatch
from tests.support.worker_entries import slots_of, worker_match

LOCALHOST = 0x7F000001
TIMEOUT = 30.0  # seconds; every wait ends
UDP_SEGMENT = 103  # linux/udp.h
PROBE_JOB = 1023
HEADERS = 14 + 20 + 8  # headers of Ethernet, IPv4 and UDP, which count as part of a datagram


class Worker:
    """One rank's socket."""

    def __init__(self, switch_udp_port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.connect(("127.0.0.1", switch_udp_port))  # receives nothing from other senders
        self.socket.settimeout(TIMEOUT)
        self.udp_port: int = self.socket.getsockname()[1]

    def send(self, packet: Packet | bytes) -> None:
        self.socket.send(packet if isinstance(packet, bytes) else packet.pack())

    def send_run(self, packets: list[Packet]) -> None:
        """Send packets of equal size as one buffer, which the switch receives as one."""
        data = [packet.pack() for packet in packets]
        self.socket.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(data[0]))
        self.socket.send(b"".join(data))
        self.socket.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)

    def receive(self) -> Packet:
        return Packet.unpack(self.socket.recv(65536))

    def waiting(self) -> list[Packet]:
        """Return what has already arrived."""
        packets = []
        self.socket.setblocking(False)
        try:
            while True:
                packets.append(self.receive())
        except BlockingIOError:
            return packets
        finally:
            self.socket.settimeout(TIMEOUT)


class Harness:
    """A switch with UDP ports 1..ports and jobs on them."""

    def __init__(self, slots: int = 8, values: int = 4, ports: int = 1) -> None:
        self.values = values
        self.switch = Switch(slots, values)
        self.udp_ports = {
            port: self.switch.add_port(port, UdpPortSpec(address="127.0.0.1")) for port in range(1, ports + 1)
        }
        self.switch.set_switch_address(0x020000000001, LOCALHOST)
        self._workers: list[Worker] = []
        self._probe = self.add_job(PROBE_JOB, 1, base=slots - 1, slots=1)[0]
        self._probe_slot = (slots - 1) << 1
        self._probe_phase = 0

    def add_job(
        self, job: int, size: int, base: int = 0, slots: int = 4, epoch: int = 1, ports: tuple[int, ...] = (1,)
    ) -> list[Worker]:
        """Write the controller's entries for a job; rank r is attached to ports[r % len(ports)]."""
        placed = [ports[rank % len(ports)] for rank in range(size)]
        workers = [Worker(self.udp_ports[port]) for port in placed]
        self._workers += workers
        self.switch.set_job(job, base << 1, ~(2 * slots - 1) & 0xFFFF)
        self.switch.set_group(job, [(port, rank) for rank, port in enumerate(placed)])
        for rank, worker in enumerate(workers):
            self.switch.set_rank(job, rank, 0, LOCALHOST, worker.udp_port)
            match = self.worker_match(job, rank, worker, base, slots, placed[rank])
            self.switch.set_worker(match, bit=1 << rank, mask=(1 << size) - 1, epoch=epoch, group=job)
        return workers

    @staticmethod
    def worker_match(job: int, rank: int, worker: Worker, base: int = 0, slots: int = 4, port: int = 1) -> WorkerMatch:
        return worker_match(port, (LOCALHOST, worker.udp_port), job, rank, slots_of(base, slots))

    def settle(self) -> None:
        """Wait until every packet sent so far to port 1 was processed and its results were sent.

        The switch answers a job of one worker at once, and packets keep their order into a port.
        """
        phase = self._probe_phase
        self._probe_phase += 2
        self._probe.send(Packet(PROBE_JOB, 0, self._probe_slot, phase, 1, (0,) * self.values, 1))
        while self._probe.receive().phase != phase:
            pass

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; fail after TIMEOUT."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f"{condition} did not hold within {TIMEOUT} s"
            time.sleep(0.001)

    def drops(self) -> dict[DropReason, int]:
        """Return the number of dropped packets by reason."""
        counted = {reason: self.switch.read_drop_counter(reason)[0] for reason in DropReason}
        return {reason: packets for reason, packets in counted.items() if packets}

    def verdicts(self, job: int) -> dict[Verdict, int]:
        counted = {verdict: self.switch.read_job_counter(job << 4 | verdict)[0] for verdict in Verdict}
        return {verdict: packets for verdict, packets in counted.items() if packets}

    def close(self) -> None:
        self.switch.stop()
        for worker in self._workers:
            worker.socket.close()


@contextmanager
def running(slots: int = 8, values: int = 4, ports: int = 1) -> Iterator[Harness]:
    """Run a switch, with this thread pinned to one core.

    Loopback keeps the order of packets from different sockets only when they are sent from one core.
    """
    cores = os.sched_getaffinity(0)
    harness = Harness(slots, values, ports)
    harness.switch.start()  # before pinning: the data thread may use any core
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield harness
    finally:
        os.sched_setaffinity(0, cores)
        harness.close()
