"""Contributions whose values are codes of one byte, which the switch expands to words before it adds them up."""

from __future__ import annotations

from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.job import Job
from ptf_tests.wire import Packet
from switchml.dataplane.codes import CODED_FORMATS, integers_of_codes
from switchml.dataplane.constants import OWNER_FIRST, DropReason, Flag, Format, Verdict


def _coded(
    job: Job, rank: int, slot: int = 0, phase: int = 0, first: int = 0, number: int = Format.NATURAL8, owner: int = 0
) -> Packet:
    """Return a contribution with consecutive codes from ``first`` on, which begin elsewhere at each rank."""
    codes = tuple((first + 77 * rank + lane) % 256 for lane in range(job.values))
    return job.packet(rank, slot, phase, values=codes, format=number, owner=owner)


class _Codes(SwitchMLTest):
    def setUp(self) -> None:
        super().setUp()
        if not self.target.expands_codes:
            self.skipTest(f"{self.target.name} does not expand codes in packets of {self.target.values} values")


@group("values")
class EveryCode(_Codes):
    """Each of the 256 codes of a format stands for the same integer on all targets."""

    def runTest(self) -> None:
        job = self.job(2)
        for number in CODED_FORMATS:
            first_slot = 8 * CODED_FORMATS.index(number)
            for phase, first in enumerate(range(0, 256, job.values)):
                one, two = (_coded(job, rank, first_slot, phase, first, number) for rank in range(2))
                result = self.reduce(job, [one, two])
                table = integers_of_codes(number)
                self.assertEqual(
                    list(result.values),
                    [(table[a] + table[b]) % 2**32 for a, b in zip(one.values, two.values, strict=True)],
                )


@group("values")
class ManyRanksOfCodes(_Codes):
    """The sums of the largest codes that many ranks may send do not overflow."""

    def runTest(self) -> None:
        ranks = self.target.max_workers
        job = self.job(ranks)
        for slot, (number, code) in enumerate(((Format.NATURAL8, 25), (Format.NATURAL8, 153), (Format.DYNAMIC8, 127))):
            packets = [
                job.packet(rank, slot, values=(code,) * job.values, format=number, exponent=0) for rank in range(ranks)
            ]
            result = self.reduce(job, packets)
            self.assertEqual(set(result.values), {ranks * integers_of_codes(number)[code] % 2**32})


@group("values")
class WordsAndCodes(_Codes):
    """Codes, words and packets without values share a phase; whichever completes it, its RESULT has words."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, order in enumerate(((0, 1, 2), (1, 2, 0), (2, 0, 1))):
            packets = [
                _coded(job, 0, phase=phase, number=Format.DYNAMIC8),
                job.packet(1, phase=phase),
                job.without_values(2, phase=phase, format=Format.NATURAL8),
            ]
            self.reduce(job, [packets[rank] for rank in order])


@group("values")
class ResendOfCodes(_Codes):
    """A retransmitted contribution with codes is a duplicate first, then answered by the words of the sum."""

    def runTest(self) -> None:
        job = self.job(2)
        one, two = _coded(job, 0), _coded(job, 1)
        self.contribute(job, one, Verdict.AGGREGATED)
        self.contribute(job, one, Verdict.DUPLICATE)
        self.expect_nothing()
        self.contribute(job, two, Verdict.COMPLETED)
        self.expect_result(job, job.result(one, two))
        for packet in (one, two):
            again = replace(packet, flags=Flag.RETRANSMISSION)
            self.contribute(job, again, Verdict.RESENT)
            self.expect_resend(job, job.result(one, two, asked_by=again))


@group("values")
class CodesForTheOwner(_Codes):
    """The sum of codes goes to its owner alone where the pipeline can do that."""

    def runTest(self) -> None:
        job = self.job(3)
        self.reduce(job, [_coded(job, rank, owner=OWNER_FIRST + 1) for rank in range(3)])


@group("values")
class MalformedCodes(_Codes):
    """The rules for packets with words hold for those with codes."""

    def runTest(self) -> None:
        job = self.job(2)
        good = _coded(job, 0)
        words = job.packet(0)
        refused = {
            DropReason.BAD_FORMAT: [replace(good, format=3, values=words.values), replace(good, format=6, values=())],
            DropReason.BAD_EXPONENT: [replace(good, exponent=257)],
            DropReason.BAD_COUNT: [replace(good, count=0), replace(good, count=job.values + 1)],
            DropReason.BAD_LENGTH: [
                replace(good, values=good.values * 4),
                replace(good, values=good.values[:-1]),
                replace(words, values=words.values[: job.values // 4]),
            ],
            DropReason.BAD_HALF: [replace(good, slot=good.slot ^ 1)],
        }
        for reason, packets in refused.items():
            for packet in packets:
                self.refuse(packet, job.hosts[0], reason)


@group("values")
class CodesRefused(SwitchMLTest):
    """A pipeline that cannot expand codes drops them as a format that it does not know."""

    def runTest(self) -> None:
        if self.target.expands_codes:
            self.skipTest(f"{self.target.name} expands codes")
        job = self.job(2)
        for number in CODED_FORMATS:
            for packet in (_coded(job, 0, number=number), job.without_values(0, format=number)):
                self.refuse(packet, job.hosts[0], DropReason.BAD_FORMAT)
