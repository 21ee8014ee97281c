"""The base class of all packet tests: a session with the switch, jobs in its tables, exact counters at the end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import finsy as fy
import ptf
from ptf.base_tests import BaseTest

from ptf_tests.barrier import Barrier, marker_entities
from ptf_tests.control import Count, Counts, Entity, worker_key
from ptf_tests.frames import SWITCH_IP, SWITCH_MAC, Host, contribution_frame, describe, result_frame
from ptf_tests.job import Job, default_host
from ptf_tests.open_control import open_control
from ptf_tests.targets import HOST_PORTS, Description
from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Verdict

__all__ = ["SwitchMLTest"]

# The job ids that tests use, whose verdict counters are compared.
_JOB_IDS = (*range(8), 1023)

# Verdicts that are also counted as drops.
_DROPPED = {
    Verdict.DUPLICATE: DropReason.DUPLICATE,
    Verdict.STALE: DropReason.STALE,
    Verdict.WRONG_EPOCH: DropReason.WRONG_EPOCH,
}


class _Session:
    """One session for each run of ptf: the pipeline is loaded once, so slots are dirty for all tests but the first."""

    def __init__(self) -> None:
        self.target: Description = ptf.config["switchml"]
        self.control = open_control(self.target)
        self.barrier = Barrier(ptf.dataplane_instance)
        self.epochs: Iterator[int] = itertools.count(1)
        stack = ExitStack()
        stack.enter_context(self.control)
        self.control.load()
        self.control.insert(*marker_entities())

    _current: _Session | None = None

    @classmethod
    def get(cls) -> _Session:
        if cls._current is None:
            cls._current = cls()
        return cls._current


class SwitchMLTest(BaseTest):  # type: ignore[misc]
    """Send frames in order, state how each is counted, and compare all frames that leave.

    Everything that a test writes into the switch is undone in reverse order, however the test ends. At the end no frame
    may be unread, and the counters must have increased by exactly the stated numbers.
    """

    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        session = _Session.get()
        self.target, self.control, self.barrier = session.target, session.control, session.barrier
        self._epochs = session.epochs
        self._undo = ExitStack()
        self.addCleanup(self._undo.close)
        self.barrier.emitted()  # frames that a failed test has left
        self.set_switch_address(SWITCH_MAC, SWITCH_IP)
        self._before = self.control.counts(_JOB_IDS)
        self._drops: Counter[int] = Counter()
        self._drop_bytes: Counter[int] = Counter()
        self._verdicts: Counter[int] = Counter()
        self._verdict_bytes: Counter[int] = Counter()
        self._workers: dict[str, Count] = {}

    def tearDown(self) -> None:
        self.expect({})
        self.check_counts()
        super().tearDown()

    # ---- tables ------------------------------------------------------------------------------------------------------

    def insert(self, *entities: Entity) -> None:
        """Insert entries and groups until the end of the test, or of ``undone``."""
        for entity in entities:
            self.control.insert(entity)
            if isinstance(entity, fy.P4TableEntry) and entity.table_id == "worker_table":
                self._undo.callback(self._workers.pop, worker_key(entity), None)  # its counter is deleted with it
            self._undo.callback(self.control.delete, entity)

    @staticmethod
    def l2_forward(mac: int, port: int) -> Entity:
        """Return the entry that forwards ordinary frames for ``mac`` to a port."""
        return fy.P4TableEntry("l2_table", match=fy.Match(eth_dst=mac), action=fy.Action("forward", port=port))

    @staticmethod
    def l2_flood(mac: int, group: int) -> Entity:
        """Return the entry that floods ordinary frames for ``mac`` to a multicast group."""
        return fy.P4TableEntry("l2_table", match=fy.Match(eth_dst=mac), action=fy.Action("flood", group=group))

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo at the end of the ``with`` block what is written in it, after comparing the counters."""
        outer, self._undo = self._undo, ExitStack()
        try:
            with self._undo:
                yield
                self.barrier.processed()
                self.check_counts()
        finally:
            self._undo = outer

    def renew_epoch(self, job: Job) -> Job:
        """Change the entries of a job's ranks to a new epoch; return the job in that epoch."""
        new = replace(job, epoch=self.next_epoch())
        self.control.modify(*map(new.worker_entry, range(len(job.hosts))))
        return new

    def set_switch_address(self, mac: int, ip: int) -> None:
        """Set the switch's own addresses until the end of the test."""
        self._set_default("switch_address_table", fy.Action("set_switch_address", mac=mac, ip=ip))
        self._undo.callback(self._set_default, "switch_address_table", fy.Action("set_switch_address", mac=0, ip=0))

    def set_l2_default(self, action: fy.P4TableAction) -> None:
        """Set the default action for ordinary frames until the end of the test."""
        self._set_default("l2_table", action)
        self._undo.callback(self._set_default, "l2_table", fy.Action("drop_no_route"))

    def _set_default(self, table: str, action: fy.P4TableAction) -> None:
        self.control.modify(fy.P4TableEntry(table, action=action, is_default_action=True))

    def job(
        self,
        ranks: int | Sequence[Host],
        job_id: int = 1,
        epoch: int | None = None,
        slot_base: int = 0,
        slots: int = 16,
    ) -> Job:
        """Write a job into the switch's tables until the end of the test, in a new epoch unless one is given."""
        hosts = tuple(map(default_host, range(ranks))) if isinstance(ranks, int) else tuple(ranks)
        epoch = self.next_epoch() if epoch is None else epoch
        job = Job(job_id, epoch, hosts, self.target.values, slot_base, slots)
        self.insert(*job.entities())
        return job

    def next_epoch(self) -> int:
        """Return an epoch that no job has had."""
        return next(self._epochs)

    # ---- frames in ---------------------------------------------------------------------------------------------------

    def contribute(self, job: Job, packet: Packet, verdict: Verdict, *, trailer: int = 0, **fields: Any) -> None:
        """Send a contribution that the worker table admits, and state its verdict.

        ``trailer`` zero bytes follow the IPv4 packet; ``fields`` are those of ``frames.layers_of``.
        """
        sender = job.hosts[packet.worker]
        frame = contribution_frame(packet, sender, **fields) + bytes(trailer)
        self.send_admitted(job.worker_entry(packet.worker), sender.port, frame, verdict)

    def send_admitted(self, entry: fy.P4TableEntry, port: int, frame: bytes, verdict: Verdict) -> None:
        """Send a frame that an entry of the worker table admits, and state its verdict."""
        assert entry.match is not None
        key, job_id = worker_key(entry), entry.match["job"]
        packets, byte_count = self._workers.get(key, (0, 0))
        self._workers[key] = (packets + 1, byte_count + len(frame))
        self._verdicts[job_id << 4 | verdict] += 1
        self._verdict_bytes[job_id << 4 | verdict] += len(frame)
        self.send(port, frame, _DROPPED.get(verdict))

    def refuse(self, packet: Packet | bytes, host: Host, reason: DropReason, **fields: Any) -> None:
        """Send a packet to SwitchML's UDP port that is dropped before its slot is accessed, and state the reason."""
        self.send(host.port, contribution_frame(packet, host, **fields), reason)

    def send(self, port: int, frame: bytes, drop: DropReason | None = None) -> None:
        """Send any frame, and state the reason if it is dropped. The switch processes frames in order."""
        if drop is not None:
            self.count_drop(drop, len(frame))
        self.barrier.send(port, frame)

    def count_drop(self, reason: DropReason, *lengths: int) -> None:
        """State that frames, or copies of one, of these lengths are dropped."""
        self._drops[reason] += len(lengths)
        self._drop_bytes[reason] += sum(lengths)

    # ---- frames out --------------------------------------------------------------------------------------------------

    def expect(self, expected: Mapping[int, Sequence[bytes]]) -> None:
        """Wait until the switch has finished its work; then exactly these frames must have left.

        The keys are ports. The order of frames through one port is not defined: ranks may share a port.
        """
        received = self.receive()
        for port in HOST_PORTS:
            wanted, got = Counter(expected.get(port, ())), Counter(received.get(port, ()))
            if wanted != got:
                lines = [f"port {port}:"]
                lines += [f"  missing: {describe(frame)}" for frame in (wanted - got).elements()]
                lines += [f"  not expected: {describe(frame)}" for frame in (got - wanted).elements()]
                self.fail("\n".join(lines))

    def receive(self) -> dict[int, list[bytes]]:
        """Return all frames that have left since the last call by port, once the switch has finished its work."""
        return self.barrier.emitted()

    def expect_result(self, job: Job, result: Packet, *, tos: int = 0, trailer: int = 0) -> None:
        """Expect a RESULT at every rank of the job, once each, and nothing else."""
        frames: dict[int, list[bytes]] = {}
        for rank, host in enumerate(job.hosts):
            copy = result.copy_for([rank])
            frames.setdefault(host.port, []).append(result_frame(copy, host, tos) + bytes(trailer))
        self.expect(frames)

    def expect_resend(self, job: Job, result: Packet) -> None:
        """Expect a RESULT only at the rank that asked for it, and nothing else."""
        host = job.hosts[result.worker]
        self.expect({host.port: [result_frame(result.copy_for([result.worker]), host)]})

    def expect_nothing(self) -> None:
        """Expect that no frame leaves."""
        self.expect({})

    def reduce(self, job: Job, contributions: Sequence[Packet]) -> Packet:
        """Send one contribution of every rank to a phase of a slot and expect the result, which is returned."""
        for packet in contributions[:-1]:
            self.contribute(job, packet, Verdict.AGGREGATED)
        self.contribute(job, contributions[-1], Verdict.COMPLETED)
        result = job.result(*contributions)
        self.expect_result(job, result)
        return result

    # ---- counters ----------------------------------------------------------------------------------------------------

    def check_counts(self) -> None:
        """Compare all counters with the stated numbers; frames that have left have been counted."""
        after = self.control.counts(_JOB_IDS)
        drops = _difference(self._before.drops, after.drops)
        verdicts = _difference(self._before.verdicts, after.verdicts)
        expected = Counts(
            {reason: (count, self._drop_bytes[reason]) for reason, count in self._drops.items()},
            {index: (count, self._verdict_bytes[index]) for index, count in self._verdicts.items()},
            self._workers,
        )
        self.assertEqual(_named_drops(drops), _named_drops(expected.drops), "drop_counter (packets, bytes)")
        self.assertEqual(_named_verdicts(verdicts), _named_verdicts(expected.verdicts), "job_counter (packets, bytes)")
        self.assertEqual(after.workers, expected.workers, "worker_counter (packets, bytes)")


def _difference(before: Mapping[int, Count], after: Mapping[int, Count]) -> dict[int, Count]:
    moved = {}
    for index, (packets, byte_count) in after.items():
        old_packets, old_bytes = before.get(index, (0, 0))
        if (packets, byte_count) != (old_packets, old_bytes):
            moved[index] = (packets - old_packets, byte_count - old_bytes)
    return moved


def _named_drops(counts: Mapping[int, Count]) -> dict[str, Count]:
    return {DropReason(reason).name: count for reason, count in sorted(counts.items())}


def _named_verdicts(counts: Mapping[int, Count]) -> dict[str, Count]:
    return {f"job {index >> 4} {Verdict(index & 0xF).name}": count for index, count in sorted(counts.items())}
