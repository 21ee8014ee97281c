"""The loss simulator: packets dropped on purpose, by port, in each direction, each copy independently."""

from __future__ import annotations

import time

import finsy as fy
from scapy.layers.l2 import Ether

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import contribution_frame, mac_text, result_frame
from ptf_tests.job import default_host
from ptf_tests.targets import HOST_PORTS
from switchml.dataplane.constants import DropReason, Verdict

_ALL = 0xFFFFFFFF
_GROUP = 900
_BROADCAST = 0xFFFFFFFFFFFF
_SECONDS = 30.0
_BURST = 6
_HALF = 0x80000000


class _Loss(SwitchMLTest):
    def setUp(self) -> None:
        super().setUp()
        if not self.target.loses_on_purpose:
            self.skipTest(f"{self.target.name} cannot lose packets on purpose: its pipeline has no loss tables")

    def lose(self, direction: str, threshold: int, *ports: int) -> None:
        """Lose packets of some ports until the end of the test, or of ``undone``."""
        self.expect_nothing()  # earlier frames must have left before the loss begins
        action = fy.Action("lose", threshold=threshold)
        for port in ports:
            self.insert(fy.P4TableEntry(f"loss_{direction}_table", match=fy.Match(port=port), action=action))

    def wait_for_drops(self, reason: DropReason, count: int) -> None:
        """Wait until the counter reaches a value: markers cannot tell, because they are lost as well."""
        end = time.monotonic() + _SECONDS
        while (counted := self.control.drops(reason)) != count:
            self.assertLess(time.monotonic(), end, f"{counted} packets are counted as {reason.name}, not {count}")

    def others(self, port: int) -> tuple[int, ...]:
        """Return the ports through which markers still pass."""
        return tuple(other for other in HOST_PORTS if other != port)


class IngressLosesAll(_Loss):
    """Every packet that arrives through the port is lost before any other table; other ports are not affected."""

    def runTest(self) -> None:
        job = self.job(2)
        packets = [job.packet(rank) for rank in range(2)]
        with self.undone():
            self.lose("ingress", _ALL, 1)
            self.contribute(job, packets[1], Verdict.AGGREGATED)
            self.barrier.processed()
            lost = [contribution_frame(packets[0], job.hosts[0]), bytes(60), bytes(14)]
            self.send_and_lose(1, lost)
        self.contribute(job, packets[0], Verdict.COMPLETED)
        self.expect_result(job, job.result(packets[1], packets[0]))

    def send_and_lose(self, port: int, frames: list[bytes]) -> None:
        """Send frames that are all lost, including markers, and wait until the last one is counted."""
        before = self.control.drops(DropReason.INJECTED_LOSS)
        for frame in frames:
            self.send(port, frame, DropReason.INJECTED_LOSS)
        self.barrier.forget()
        self.wait_for_drops(DropReason.INJECTED_LOSS, before + len(frames))


class EgressLosesAll(_Loss):
    """Every copy that would leave through the port is lost, and so are resends; the other ranks get theirs."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank) for rank in range(3)]
        length = len(contribution_frame(packets[2], job.hosts[2]))
        with self.undone():
            self.lose("egress", _ALL, 2)
            for packet in packets[:2]:
                self.contribute(job, packet, Verdict.AGGREGATED)
            before = self.control.drops(DropReason.INJECTED_LOSS)
            self.contribute(job, packets[2], Verdict.COMPLETED)
            self.contribute(job, packets[1], Verdict.RESENT)
            self.count_drop(DropReason.INJECTED_LOSS, length, length)
            self.wait_for_drops(DropReason.INJECTED_LOSS, before + 2)
            received = self.barrier.emitted(self.others(2))
            result = job.result(*packets)
            self.assertEqual(received, {port: [result_frame(result, job.hosts[port - 1])] for port in (1, 3)})
            # The marker of that round was lost at port 2 as well.
            self.count_drop(DropReason.INJECTED_LOSS, 60)
            self.wait_for_drops(DropReason.INJECTED_LOSS, before + 3)
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, job.result(*packets, asked_by=packets[1]))


class OrdinaryTrafficIsLostToo(_Loss):
    """Forwarded frames are lost at egress as well."""

    def runTest(self) -> None:
        host = default_host(3)
        self.insert(self.l2_forward(host.mac, host.port))
        frame = bytes(Ether(src=mac_text(1), dst=mac_text(host.mac), type=0x1234) / bytes(80))
        with self.undone():
            self.lose("egress", _ALL, host.port)
            before = self.control.drops(DropReason.INJECTED_LOSS)
            self.send(1, frame, DropReason.INJECTED_LOSS)
            self.barrier.processed()
            self.wait_for_drops(DropReason.INJECTED_LOSS, before + 1)
        self.send(1, frame)
        self.expect({host.port: [frame]})


class NoLossAtZero(_Loss):
    """A threshold of 0 loses nothing."""

    def runTest(self) -> None:
        self.lose("ingress", 0, 1)
        self.lose("egress", 0, 1)
        job = self.job(2)
        for phase in range(20):
            self.reduce(job, [job.packet(rank, phase=phase) for rank in range(2)])


class _HalfIsLost(_Loss):
    """The bounds below are six standard deviations wide: by chance alone, one run in 10^8 exceeds one of them."""

    frames = 300

    def numbered(self, destination: int) -> list[bytes]:
        ethernet = Ether(src=mac_text(1), dst=mac_text(destination), type=0x1234)
        return [bytes(ethernet / number.to_bytes(2, "big") / bytes(80)) for number in range(self.frames)]

    def assert_about(self, count: int, share: float) -> None:
        deviation = (self.frames * share * (1 - share)) ** 0.5
        self.assertLess(abs(count - self.frames * share), 6 * deviation, f"{count} of {self.frames}")


class IngressLosesHalf(_HalfIsLost):
    """Half of the largest threshold loses about half of the received packets; the rest passes, in order."""

    def runTest(self) -> None:
        host = default_host(7)
        self.insert(self.l2_forward(host.mac, host.port))
        frames = self.numbered(host.mac)
        self.lose("ingress", _HALF, 1)
        before = self.control.drops(DropReason.INJECTED_LOSS)
        came: list[bytes] = []
        for start in range(0, self.frames, _BURST):
            burst = frames[start : start + _BURST]
            for frame in burst:
                self.send(1, frame)
            self.barrier.forget()  # a marker might be lost
            end = time.monotonic() + _SECONDS
            lost = 0
            while lost + len(came) < start + len(burst):
                self.assertLess(time.monotonic(), end, "frames were neither counted as lost nor have they left")
                lost = self.control.drops(DropReason.INJECTED_LOSS) - before
                came += self.receive().get(host.port, [])
        self.assertEqual(came, [frame for frame in frames if frame in set(came)])
        self.count_drop(DropReason.INJECTED_LOSS, *[len(frames[0])] * (self.frames - len(came)))
        self.assert_about(len(came), 0.5)


class EgressLosesHalf(_HalfIsLost):
    """At egress each copy of a flooded frame is lost independently."""

    def runTest(self) -> None:
        self.insert(fy.P4MulticastGroupEntry(_GROUP, replicas=((1, 0), (2, 0), (3, 0))))
        self.insert(self.l2_flood(_BROADCAST, _GROUP))
        frames = self.numbered(_BROADCAST)
        with self.undone():
            self.lose("egress", _HALF, 2, 3)
            before = self.control.drops(DropReason.INJECTED_LOSS)
            came: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
            lost = 0
            for start in range(0, self.frames, _BURST):
                burst = frames[start : start + _BURST]
                for frame in burst:
                    self.send(4, frame)
                self.barrier.processed()
                end = time.monotonic() + _SECONDS
                while lost + sum(map(len, came.values())) < 3 * (start + len(burst)):
                    self.assertLess(time.monotonic(), end, "copies were neither counted as lost nor have they left")
                    lost = self.control.drops(DropReason.INJECTED_LOSS) - before
                    for port, copies in self.barrier.arrived((1, 2, 3)).items():
                        came[port] += copies
            self.count_drop(DropReason.INJECTED_LOSS, *[len(frames[0])] * lost)
        self.assertEqual(came[1], frames)
        both = set(came[2]) & set(came[3])
        for port in (2, 3):
            self.assertEqual(came[port], [frame for frame in frames if frame in set(came[port])])
            self.assert_about(len(came[port]), 0.5)
        self.assert_about(len(both), 0.25)
