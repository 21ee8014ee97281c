"""The slot against the switch's packet tests, and as the switch of a job, on a network that loses packets."""

from __future__ import annotations

import contextlib
import io
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness import Fabric, Outcome, Wrong, load, require

from switchml.dataplane.constants import Verdict

with contextlib.redirect_stdout(io.StringIO()):  # ptf prints the name of a module
    from ptf_tests.base import SwitchMLTest
    from ptf_tests.job import Job, default_host
    from ptf_tests.tests import test_epochs, test_late_packets, test_retransmission, test_slots, test_smallest_chunk
    from ptf_tests.wire import Packet

_PAGES = (test_slots, test_retransmission, test_late_packets, test_epochs, test_smallest_chunk)
_RANKS = 2

MISTAKES = [
    (
        "return Verdict.RESENT if self.workers == everyone else Verdict.DUPLICATE",
        "self.add(packet)",
        "a packet of rank 0 that the slot has added already",
    ),
    ("elif packet.phase < self.phase:", "elif packet.phase < self.phase - 2:", "a late packet"),
    ("packet.epoch != self.epoch or ", "", "an earlier epoch"),
    ('op="avg", ', "", "the average"),
    ("        work.wait()", "        pass", "wait for every work"),
]


def check(program: Path) -> None:
    """Check the client with the product's own switch, then the slot alone, then both together."""
    pupil = load(program)
    with Fabric() as fabric:
        _require_averages(fabric.job(_RANKS, program))
    tests = run_packet_tests(pupil.Slot)
    print(f"  the slot passes {tests} packet tests of the switch")
    verdicts = run_through(pupil.Slot, program)
    shown = ", ".join(f"{number} {verdict.name}" for verdict, number in sorted(verdicts.items()))
    print(
        f"  a job of {_RANKS} ranks has summed its gradients through it, with lost, doubled and late packets: {shown}"
    )


def _require_averages(done: Outcome) -> None:
    for rank, text in enumerate(done.outputs):
        require(
            rank in done.ranks,
            f"hole 1: rank {rank} failed: {(text.strip() or 'it printed nothing').splitlines()[-1]}\n  If a rank "
            "closes its communicator while its calls are under way, the job ends on all ranks: wait for every work",
        )
    for rank, said in done.ranks.items():
        require(
            said["wrong"] == 0,
            f"hole 1: {said['wrong']} elements on rank {rank} are not the average over all ranks when average_all "
            "returns: "
            'ask for op="avg", and wait for every work',
        )


# ---- the packet tests -----------------------------------------------------------------------------------------------


class OnSlots(SwitchMLTest):
    """Runs the steps of a packet test on slots in this process, in place of a switch with ports."""

    slots: dict[int, Any]
    epochs: Iterator[int] = count(1)

    def setUp(self) -> None:
        """Begin with whatever the tests before have left in the slots."""
        self.target: Any = SimpleNamespace(values=8, max_workers=64)
        self.barrier: Any = SimpleNamespace(processed=lambda: None)
        self._epochs = self.epochs
        self.sent: list[tuple[int | None, Packet]] = []  # to whom; None is everyone

    def tearDown(self) -> None:
        """Check that nothing else was sent."""
        self.expect({})

    def job(self, ranks: Any, job_id: int = 1, epoch: int | None = None, slot_base: int = 0, slots: int = 16) -> Job:
        """Return a job of this many ranks."""
        hosts = tuple(map(default_host, range(ranks)))
        return Job(job_id, self.next_epoch() if epoch is None else epoch, hosts, self.target.values, slot_base, slots)

    def renew_epoch(self, job: Job) -> Job:
        """Return the job in a new epoch."""
        return replace(job, epoch=self.next_epoch())

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Leave the slots as they are."""
        yield

    def contribute(self, job: Job, packet: Packet, verdict: Verdict, **_: Any) -> None:
        """Give a packet to its slot, unless it is of another epoch, which a switch drops before."""
        got = Verdict.WRONG_EPOCH
        if packet.epoch == job.epoch:
            slot = self.slots[packet.slot]
            before, sums = (slot.epoch, slot.phase, slot.workers), slot.values
            got = slot.take(packet, job.mask)
            said = _explain(packet, before, job.mask, got, verdict)
            if sums and slot.values and slot.values != sums:
                said += f"; its first sum was {sums[0]} and is now {slot.values[0]}"
            require(got == verdict, said)
            if got in (Verdict.COMPLETED, Verdict.RESENT):
                self.sent.append((None if got is Verdict.COMPLETED else packet.worker, slot.result(packet)))
        require(got == verdict, f"the test is wrong: {packet}")

    def expect(self, _expected: Mapping[int, Sequence[bytes]]) -> None:
        """Check that nothing was sent that no step has expected."""
        require(not self.sent, f"the switch has sent {self.sent}, where it must send nothing")

    def expect_result(self, _job: Job, result: Packet, **_: Any) -> None:
        """Check the result that all ranks got."""
        self._expect(None, result)

    def expect_resend(self, _job: Job, result: Packet) -> None:
        """Check the result that one rank got."""
        self._expect(result.worker, result)

    def _expect(self, to: int | None, right: Packet) -> None:
        require([one for one, _ in self.sent] == [to], f"results went to {self.sent}, and not to {to}")
        [(_, got)] = self.sent
        self.sent.clear()
        words = tuple(value & 0xFFFFFFFF for value in got.values)
        right_words = tuple(value & 0xFFFFFFFF for value in right.values)
        require(
            words == right_words,
            f"hole 2: the sum of phase {got.phase} begins with {list(words[:3])} where {list(right_words[:3])} is "
            "right",
        )
        for name in ("exponent", "check", "chunk", "phase", "epoch"):
            mine, its = getattr(got, name), getattr(right, name)
            require(mine == its, f"hole 2: the result's {name} is {mine} where {its} is right")


def _explain(packet: Packet, before: tuple[int, int, int], everyone: int, got: Any, right: Verdict) -> str:
    epoch, phase, workers = before
    has = [rank for rank in range(everyone.bit_length()) if workers >> rank & 1]
    if packet.epoch != epoch:
        case = f"the first packet that an epoch sends to this slot, whose contents are of an earlier epoch ({epoch})"
    elif packet.phase < phase:
        case = f"a late packet: it is of phase {packet.phase}, and the slot is in phase {phase}"
    elif packet.phase > phase:
        case = f"the first packet of phase {packet.phase}, while the slot still has phase {phase}"
    elif workers >> packet.worker & 1:
        case = f"a packet of rank {packet.worker} that the slot has added already"
    else:
        case = f"the packet of rank {packet.worker}, which the slot does not have"
    name = getattr(got, "name", got)
    return f"hole 2: {case} (it has those of ranks {has} in phase {phase}): take() says {name}, {right.name} is right"


def run_packet_tests(slot: Callable[[], Any]) -> int:
    """Run the switch's packet tests about slots on a class of slots, and return how many there were."""
    OnSlots.slots = defaultdict(slot)
    done = 0
    for page in _PAGES:
        for name, test in vars(page).items():
            if not (isinstance(test, type) and issubclass(test, SwitchMLTest) and test.__module__ == page.__name__):
                continue
            run = type(name, (OnSlots, test), {})(methodName="runTest")
            run.setUp()
            try:
                run.runTest()
                run.tearDown()
            except Wrong as error:
                raise Wrong(
                    f'{error}\n  packet test {name} in {page.__name__}: "{test.__doc__.splitlines()[0]}"'
                ) from None
            done += 1
    return done


# ---- a job whose switch it is ---------------------------------------------------------------------------------------


class SwitchOfSlots:
    """A UDP socket whose packets go to slots; it loses, doubles and delays some on purpose, always the same ones."""

    def __init__(self, slot: Callable[[], Any], ranks: int) -> None:
        self.slots: dict[int, Any] = defaultdict(slot)
        self.everyone = (1 << ranks) - 1
        self.verdicts: Counter[Verdict] = Counter()
        self.error: BaseException | None = None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self._senders: dict[int, tuple[str, int]] = {}
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        old: list[tuple[Packet, tuple[str, int]]] = []
        try:
            for number in count():
                data, sender = self.socket.recvfrom(65536)
                if not data:
                    return
                packet = Packet.unpack(data)
                if number % 11 == 5:
                    continue  # lost
                self._senders[packet.worker] = sender
                old.append((packet, sender))
                for _ in range(2 if number % 7 == 3 else 1):
                    self._take(packet, sender)
                if len(old) > 300:
                    self._take(*old.pop(0))  # a copy that comes late
        except BaseException as error:
            self.error = error

    def _take(self, packet: Packet, sender: tuple[str, int]) -> None:
        slot = self.slots[packet.slot]
        verdict = slot.take(packet, self.everyone)
        self.verdicts[verdict] += 1
        if verdict is Verdict.COMPLETED and self.verdicts[verdict] % 13 == 4:
            return  # the result is lost on its way to all
        if verdict in (Verdict.COMPLETED, Verdict.RESENT):
            data = slot.result(packet).pack()
            for place in {*self._senders.values()} if verdict is Verdict.COMPLETED else {sender}:
                self.socket.sendto(data, place)

    def close(self) -> None:
        """End the thread."""
        self.socket.sendto(b"", ("127.0.0.1", self.port))


def run_through(slot: Callable[[], Any], program: Path) -> Counter[Verdict]:
    """Run the client of a program as a job whose packets go to slots of this process."""
    switch = SwitchOfSlots(slot, _RANKS)
    with (
        tempfile.TemporaryDirectory(prefix="switchml-lesson-") as name,
        _daemons(Path(name), switch.port) as controller,
        Fabric(controller=controller) as fabric,
    ):
        done = fabric.job(_RANKS, program, options=("--slots", "16"))  # few, so that they are used often
    switch.close()
    if switch.error is not None:
        raise Wrong(f"hole 2: take() has raised {switch.error!r} for a packet of a real rank")
    _require_averages(done)
    return switch.verdicts


@contextmanager
def _daemons(directory: Path, udp_port: int) -> Iterator[str]:
    """Run a controller and an agent; yield the controller's address.

    The controller needs a switch whose tables it can write: that is a soft switch, which gets no packet, because the
    controller is told to send them to `udp_port`.
    """
    (directory / "controller.toml").write_text(
        f'[controller]\nlisten = "unix:{directory}/controller.sock"\nstore = "{directory}/store.sqlite"\n'
        f'[[switches]]\nname = "s1"\ntarget = "soft"\np4runtime = "unix:{directory}/switch.sock"\n'
        f'address = "127.0.0.1"\nudp_port = {udp_port}\n'
    )
    controller = f"unix:{directory}/controller.sock"
    socket_path = str(directory / "agent.sock")
    commands = [
        ["switchml-switch", "--grpc", f"unix:{directory}/switch.sock", "--udp-port", "1=127.0.0.1:0"],
        ["switchml-controller", "--config", str(directory / "controller.toml")],
        [
            "switchml-agent",
            "--controller",
            controller,
            "--name",
            "host-1",
            "--transport",
            "udp",
            "--socket",
            socket_path,
        ],
    ]
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (directory / "log").open("wb") as log:
            for command in commands:
                ready = directory / f"{command[0]}.ready"
                path = str(Path(sys.executable).parent / command[0])
                started.append(
                    subprocess.Popen([path, *command[1:], "--ready-file", str(ready)], stderr=log, stdout=log)
                )
                deadline = time.monotonic() + 60
                while not ready.exists():
                    if started[-1].poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"{command[0]} did not start:\n{(directory / 'log').read_text()}")
                    time.sleep(0.05)
        yield controller
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)
