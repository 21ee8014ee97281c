"""The chunk of a RESULT is the smallest that the ranks of its phase have named, as an unsigned number."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import NEXT_EXPONENT_BITS, NEXT_NONE, Flag, Verdict


@group("values")
class MinimumOfChunk(SwitchMLTest):
    """Every rank gets the smallest chunk, whichever rank names it and however many do."""

    def runTest(self) -> None:
        job = self.job(3)
        edges = (0, 0x7FFFFFFF, 0x80000000, NEXT_NONE)
        for phase, chunks in enumerate(itertools.combinations_with_replacement(edges, 3)):
            for slot, order in enumerate(sorted(set(itertools.permutations(chunks)))):
                packets = [job.packet(rank, slot, phase, chunk=order[rank]) for rank in range(3)]
                result = self.reduce(job, packets)
                assert result.chunk == min(chunks)


@group("values")
class MinimumOfChunkWithoutValues(SwitchMLTest):
    """Packets without values name chunks too; the RESULT says `none` only if no rank has a further block."""

    def runTest(self) -> None:
        job = self.job(3)
        blocks = [4 << NEXT_EXPONENT_BITS | 511 - exponent for exponent in (127, 130, 3)]
        for phase, chunks in enumerate([(*blocks,), (NEXT_NONE, blocks[0], NEXT_NONE), (NEXT_NONE,) * 3]):
            packets = [job.without_values(rank, phase=phase, chunk=chunks[rank]) for rank in range(3)]
            result = self.reduce(job, packets)
            assert result.chunk == min(chunks)


class MinimumOfAllRanks(SwitchMLTest):
    """A job with as many ranks as the target's bitmap has bits: any of them may name the smallest chunk."""

    def runTest(self) -> None:
        ranks = self.target.max_workers
        job = self.job(ranks)
        for phase, owner in enumerate((0, 1, ranks - 1)):
            packets = [
                job.packet(rank, phase=phase, chunk=700 if rank == owner else 700 + rank + 1) for rank in range(ranks)
            ]
            assert self.reduce(job, packets).chunk == 700


class ChunkMinimumOverwrittenByNewPhase(SwitchMLTest):
    """The first contribution of a phase, or of an epoch, overwrites the smallest chunk of the half's phase before."""

    def runTest(self) -> None:
        job = self.job(2)
        for phase in (0, 1):
            self.reduce(job, [job.packet(rank, phase=phase, chunk=0) for rank in range(2)])
        self.reduce(job, [job.packet(rank, phase=2, chunk=NEXT_NONE) for rank in range(2)])
        self.reduce(job, [job.without_values(rank, phase=3, chunk=5 + rank) for rank in range(2)])
        # A phase that never became complete leaves nothing either.
        self.contribute(job, job.packet(0, phase=4, chunk=1), Verdict.AGGREGATED)
        self.reduce(job, [job.packet(rank, phase=6, chunk=9 - rank) for rank in range(2)])
        job = self.renew_epoch(job)
        self.reduce(job, [job.packet(rank, phase=0, chunk=0x80000000 + rank) for rank in range(2)])


class DuplicateDoesNotNameAChunk(SwitchMLTest):
    """A packet that is not a new contribution changes nothing, however small a chunk it names."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = [job.packet(rank, phase=2, chunk=40 + rank) for rank in range(3)]
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, replace(packets[0], chunk=1), Verdict.DUPLICATE)
        self.contribute(job, job.packet(1, phase=0, chunk=1), Verdict.STALE)
        self.contribute(job, replace(packets[1], chunk=1, epoch=job.epoch + 1), Verdict.WRONG_EPOCH)
        self.contribute(job, packets[1], Verdict.AGGREGATED)
        self.contribute(job, job.without_values(1, phase=2, chunk=1), Verdict.DUPLICATE)
        self.contribute(job, packets[2], Verdict.COMPLETED)
        result = job.result(*packets)
        assert result.chunk == 40
        self.expect_result(job, result)


@group("values")
class ResendNamesTheSmallestChunk(SwitchMLTest):
    """A resent RESULT has the phase's smallest chunk, whatever the asking packet names, with or without values."""

    def runTest(self) -> None:
        job = self.job(3)
        for phase, make in enumerate((job.packet, job.without_values)):
            packets = [make(rank, phase=phase, chunk=(60, 50, 70)[rank]) for rank in range(3)]
            self.reduce(job, packets)
            for rank, chunk in ((0, 60), (2, NEXT_NONE), (1, 0), (0, 55)):
                asking = replace(packets[rank], chunk=chunk, flags=packets[rank].flags | Flag.RETRANSMISSION)
                self.contribute(job, asking, Verdict.RESENT)
                result = job.result(*packets, asked_by=asking)
                assert result.chunk == 50
                self.expect_resend(job, result)
