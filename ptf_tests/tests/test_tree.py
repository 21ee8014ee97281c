"""A switch below another one: it sends the sum of its ranks to its parent, whose RESULT replaces that sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import Host, contribution_frame, result_frame
from ptf_tests.job import default_host
from ptf_tests.leaf_job import LeafJob
from ptf_tests.wire import Packet
from switchml.dataplane.codes import CODED_FORMATS
from switchml.dataplane.constants import (
    OWNER_EVERYONE,
    OWNER_EXCEPT,
    OWNER_FIRST,
    PROTOCOL_UDP_PORT,
    TREE_PARENT_NUMBER,
    DropReason,
    Flag,
    Format,
    Kind,
    Verdict,
)


class _BelowAParent(SwitchMLTest):
    def leaf_job(self, ranks: int | Sequence[Host]) -> LeafJob:
        """Write a job with a parent into the switch's tables until the end of the test."""
        hosts = tuple(map(default_host, range(ranks))) if isinstance(ranks, int) else tuple(ranks)
        job = LeafJob(1, self.next_epoch(), hosts, self.target.values)
        self.insert(*job.entities())
        return job

    def answer(self, job: LeafJob, result: Packet, verdict: Verdict) -> None:
        """Send a RESULT of the parent that the worker table admits, and state its verdict."""
        frame = contribution_frame(result, job.parent)
        self.send_admitted(job.parent_entry(result.worker), job.parent.port, frame, verdict)

    def expect_at_parent(self, job: LeafJob, contribution: Packet) -> None:
        """Expect that the switch sends this contribution to the parent, and nothing else."""
        self.expect({job.parent.port: [result_frame(contribution, job.parent)]})

    def fill(self, job: LeafJob, contributions: list[Packet]) -> None:
        """Send a contribution of every rank and expect their sum at the parent."""
        for packet in contributions[:-1]:
            self.contribute(job, packet, Verdict.AGGREGATED)
        self.contribute(job, contributions[-1], Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*contributions))


def _resent(result: Packet, asked_by: Packet) -> Packet:
    """Return the RESULT that a rank gets when it asks again: the parent's, with the header of the question."""
    return replace(
        asked_by,
        kind=Kind.RESULT,
        format=Format.INT32,
        exponent=result.exponent,
        check=result.check,
        chunk=result.chunk,
        values=result.values,
        count=len(result.values) if result.values and not asked_by.values else asked_by.count,
        flags=Flag(asked_by.flags & ~Flag.WITHOUT_VALUES) if result.values else asked_by.flags,
    )


@group("values")
class ParentCompletes(_BelowAParent):
    """The parent's RESULT goes to all ranks, and its values are not added to those of the ranks."""

    def runTest(self) -> None:
        job = self.leaf_job(3)
        packets = [job.packet(rank) for rank in range(3)]
        self.fill(job, packets)
        result = job.from_parent(owner=2)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
        for packet in packets:
            self.contribute(job, packet, Verdict.RESENT)
            self.expect_resend(job, _resent(result, packet))


@group("values")
class CodesBelowAParent(_BelowAParent):
    """Codes of ranks reach the parent as words, and its RESULT has words: in a format of codes it is not its."""

    def runTest(self) -> None:
        if not self.target.expands_codes:
            self.skipTest(f"{self.target.name} does not expand codes in packets of {self.target.values} values")
        job = self.leaf_job(2)
        codes = tuple(lane % 256 for lane in range(job.values))
        packets = [job.packet(rank, values=codes, format=Format.NATURAL8 + rank) for rank in range(2)]
        self.fill(job, packets)
        result = job.from_parent(owner=1)
        for number in CODED_FORMATS:
            self.refuse(replace(result, format=number, values=codes), job.parent, DropReason.FORGED_RESULT)
            self.refuse(replace(job.from_parent_without_values(), format=number), job.parent, DropReason.FORGED_RESULT)
        self.expect_nothing()
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, _resent(result, packets[1]))


@group("values")
class ForwardOnce(_BelowAParent):
    """Nothing is sent to the parent before all ranks below have contributed, and then one packet."""

    def runTest(self) -> None:
        job = self.leaf_job(3)
        packets = [job.packet(rank, flags=Flag(2 * rank)) for rank in (2, 0, 1)]
        for packet in packets[:-1]:
            self.contribute(job, packet, Verdict.AGGREGATED)
            self.contribute(job, packet, Verdict.DUPLICATE)
            self.expect_nothing()
        self.contribute(job, packets[-1], Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*packets))


class ForwardAgainOnDuplicate(_BelowAParent):
    """Each retransmission from below sends the switch's contribution again, unchanged by what it brings."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.fill(job, packets)
        for rank in (0, 1, 1):
            again = replace(packets[rank], flags=Flag.RETRANSMISSION, exponent=256, check=1, chunk=0)
            self.contribute(job, again, Verdict.FORWARDED)
            self.expect_at_parent(job, job.sent_on(*packets, asked_by=again))
        result = job.from_parent(owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))


class ForwardAgainForAnEmptyAsker(_BelowAParent):
    """A rank without values that asks again makes the switch send the values of the others again."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        packets = [job.without_values(0), job.packet(1)]
        self.fill(job, packets)
        self.contribute(job, packets[0], Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*packets, asked_by=packets[0]))
        result = job.from_parent(owner=0)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))


class ParentDuplicate(_BelowAParent):
    """A second RESULT of the parent is dropped, whatever it brings."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.fill(job, packets)
        result = job.from_parent(owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
        self.answer(job, result, Verdict.DUPLICATE)
        self.answer(job, replace(result, values=(1,) * job.values, exponent=3, check=0, worker=0), Verdict.DUPLICATE)
        self.expect_nothing()
        self.contribute(job, packets[0], Verdict.RESENT)
        self.expect_resend(job, _resent(result, packets[0]))


class ParentStale(_BelowAParent):
    """A RESULT of the parent for another phase than the slot's, or of another epoch, changes nothing."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        self.answer(job, job.from_parent(owner=1), Verdict.STALE)  # the slot holds another epoch
        packets = [job.packet(rank, phase=2) for rank in range(2)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.answer(job, job.from_parent(phase=0, owner=1), Verdict.STALE)
        self.answer(job, job.from_parent(phase=4, owner=1), Verdict.STALE)
        self.answer(job, replace(job.from_parent(phase=2, owner=1), epoch=job.epoch - 1), Verdict.WRONG_EPOCH)
        self.expect_nothing()
        self.contribute(job, packets[1], Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*packets))
        result = job.from_parent(phase=2, owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))


class RealForgedResult(_BelowAParent):
    """A RESULT is the parent's only from its port and addresses with the secret; the parent sends nothing else."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        packets = [job.packet(rank) for rank in range(2)]
        self.fill(job, packets)
        result = job.from_parent(owner=1)
        for rank, host in enumerate(job.hosts):
            self.refuse(replace(result, worker=rank), host, DropReason.FORGED_RESULT)
        forgers = (
            job.parent.moved(port=1),
            job.parent.moved(mac=job.parent.mac + 1),
            job.parent.moved(ip=job.parent.ip + 1),
            job.parent.moved(udp_port=job.parent.udp_port + 1),
        )
        for forger in forgers:
            self.refuse(result, forger, DropReason.FORGED_RESULT)
        for forged in (
            replace(result, secret=job.secret + 1),
            replace(result, worker=job.switches),
            replace(result, slot=result.slot + 2 * job.slots),
            replace(result, exponent=257),
            replace(result, slot=result.slot ^ 1),
        ):
            self.refuse(forged, job.parent, DropReason.FORGED_RESULT)
        self.refuse(replace(packets[0], worker=job.number), job.parent, DropReason.UNKNOWN_WORKER)
        self.expect_nothing()
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))


@group("values")
class ParentWithoutValues(_BelowAParent):
    """The parent's RESULT decides if that of the ranks has values, not what they have sent."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        # Ranks elsewhere have values, those here have none.
        packets = [job.without_values(rank) for rank in range(2)]
        self.fill(job, packets)
        result = job.from_parent(owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
        if self.target.results_grow:
            self.contribute(job, packets[0], Verdict.RESENT)
            self.expect_resend(job, _resent(result, packets[0]))
        # No rank has values; the slot's half is that of phase 0.
        packets = [job.without_values(rank, phase=2) for rank in range(2)]
        self.fill(job, packets)
        empty = job.from_parent_without_values(phase=2, owner=1)
        self.answer(job, empty, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(empty))
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, _resent(empty, packets[1]))


class MixedOrder(_BelowAParent):
    """Both halves of two slots are in use, and the parent's RESULTs come in another order."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        places = [(0, 0), (1, 0), (0, 1), (1, 1)]  # slot, phase
        for slot, phase in places:
            self.fill(job, [job.packet(rank, slot, phase) for rank in range(2)])
        for slot, phase in reversed(places):
            result = job.from_parent(phase, slot=slot, owner=1)
            self.answer(job, result, Verdict.COMPLETED)
            self.expect_result(job, job.to_ranks(result))
        for slot, phase in places:
            packet = job.packet(0, slot, phase)
            self.contribute(job, packet, Verdict.RESENT)
            self.expect_resend(job, _resent(job.from_parent(phase, slot=slot, owner=1), packet))


class NextLevel(_BelowAParent):
    """The senders below may be switches: they send contributions, and get the RESULT, at SwitchML's UDP port."""

    def runTest(self) -> None:
        switches = [default_host(number).moved(udp_port=PROTOCOL_UDP_PORT) for number in range(2)]
        job = self.leaf_job(switches)
        packets = [job.packet(0), job.without_values(1)]
        self.fill(job, packets)
        result = job.from_parent(owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
        self.contribute(job, packets[1], Verdict.RESENT)
        self.expect_resend(job, _resent(result, packets[1]))


class ResultNamesARankBelowOrNone(_BelowAParent):
    """A RESULT names the rank whose packet the parent answered, or none if the packet came from another switch."""

    def runTest(self) -> None:
        job = self.leaf_job(2)
        self.fill(job, [job.packet(rank) for rank in (1, 0)])
        elsewhere = job.from_parent(completed_by=job.number + 1, owner=1)
        self.answer(job, elsewhere, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(elsewhere))
        packets = [job.packet(rank, phase=2) for rank in (1, 0)]
        self.fill(job, packets)
        self.contribute(job, packets[0], Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*packets, asked_by=packets[0]))
        result = job.from_parent(phase=2, owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))


@group("values")
class ReadersBelowAParent(_BelowAParent):
    """The copies of the parent's RESULT have the values where ranks read them, as far as the switch can remove values.

    Between switches `owner` names a sender, and all values are sent.
    """

    def runTest(self) -> None:
        job = self.leaf_job(3)
        numbers = (0, 1, 2, TREE_PARENT_NUMBER)
        owners = [form + number for form in (OWNER_FIRST, OWNER_EXCEPT + OWNER_FIRST) for number in numbers]
        for phase, owner in enumerate(owners):
            packets = [job.packet(rank, phase=phase, owner=owner) for rank in (1, 2, 0)]
            self.fill(job, packets)
            result = job.from_parent(phase, owner=phase % 3)
            self.answer(job, result, Verdict.COMPLETED)
            self.expect_result(job, job.to_ranks(result, owner if self.target.owned_results else OWNER_EVERYONE))
            for packet in packets:
                self.contribute(job, packet, Verdict.RESENT)
                resent = _resent(result, packet)
                copy = resent.copy_for([packet.worker]) if self.target.owned_results else resent
                host = job.hosts[packet.worker]
                self.expect({host.port: [result_frame(copy, host)]})


@group("values")
class OwnerOfTheLastContributionBelow(_BelowAParent):
    """The last contribution that counts names the owner for the parent's RESULT, and no packet after it."""

    def runTest(self) -> None:
        if not self.target.owned_results:
            self.skipTest(f"{self.target.name} sends the values in every copy of a RESULT")
        job = self.leaf_job(3)
        owners = (OWNER_FIRST, OWNER_EVERYONE, OWNER_EXCEPT + OWNER_FIRST + 1)
        packets = [job.packet(rank, owner=owner) for rank, owner in enumerate(owners)]
        self.fill(job, packets)
        again = replace(packets[0], flags=Flag.RETRANSMISSION, owner=OWNER_FIRST + 2)
        self.contribute(job, again, Verdict.FORWARDED)
        self.expect_at_parent(job, job.sent_on(*packets, asked_by=again))
        result = job.from_parent(owner=1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result, owners[-1]))


class NextJob(_BelowAParent):
    """The slots of a job with a parent serve one without a parent, and the reverse."""

    def runTest(self) -> None:
        with self.undone():
            job = self.leaf_job(2)
            self.fill(job, [job.packet(rank) for rank in range(2)])
            result = job.from_parent(owner=1)
            self.answer(job, result, Verdict.COMPLETED)
            self.expect_result(job, job.to_ranks(result))
        with self.undone():
            flat = self.job(self.target.max_workers)
            self.reduce(flat, [flat.packet(rank) for rank in range(self.target.max_workers)])
        again = self.leaf_job(2)
        self.fill(again, [again.packet(rank) for rank in range(2)])


class MostRanksBelow(_BelowAParent):
    """A switch with a parent has one rank less below it than the bitmap has bits."""

    def runTest(self) -> None:
        ranks = self.target.max_workers - 1
        job = self.leaf_job(ranks)
        packets = [job.packet(rank) for rank in range(ranks)]
        self.fill(job, packets)
        result = job.from_parent(owner=ranks - 1)
        self.answer(job, result, Verdict.COMPLETED)
        self.expect_result(job, job.to_ranks(result))
