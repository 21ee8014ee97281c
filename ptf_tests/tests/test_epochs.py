"""Epochs: a packet of another epoch changes nothing, and a job in a new epoch finds every slot free."""

from __future__ import annotations

from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from switchml.dataplane.constants import Verdict


class WrongEpoch(SwitchMLTest):
    """Packets of an older, a newer and no epoch are dropped before any register is accessed."""

    def runTest(self) -> None:
        job = self.job(2, epoch=30_000)
        self.contribute(job, job.packet(0), Verdict.AGGREGATED)
        for epoch in (29_999, 30_001, 0, 0xFFFF):
            self.contribute(job, job.packet(1, epoch=epoch), Verdict.WRONG_EPOCH)
            self.contribute(job, job.packet(0, phase=2, epoch=epoch), Verdict.WRONG_EPOCH)
        self.expect_nothing()
        # The slot is unchanged.
        packets = [job.packet(rank) for rank in range(2)]
        self.contribute(job, packets[1], Verdict.COMPLETED)
        self.expect_result(job, job.result(*packets))


@group("values")
class RestartOverDirtySlots(SwitchMLTest):
    """A job's slots are left in every state; the next epoch begins at phase 0 and contains nothing of the old one."""

    def runTest(self) -> None:
        with self.undone():
            old = self.job(3)
            self.reduce(old, [old.packet(rank, phase=4) for rank in range(3)])  # complete
            self.contribute(old, old.packet(0, slot=1, phase=6), Verdict.AGGREGATED)  # begun
            for rank in (0, 1):
                self.contribute(old, old.packet(rank, slot=2, phase=9, exponent=256), Verdict.AGGREGATED)
            self.reduce(old, [old.without_values(rank, slot=3, phase=2) for rank in range(3)])
        new = self.job(3)
        assert new.epoch != old.epoch
        for slot in range(4):
            for phase in range(3):
                self.reduce(new, [new.packet(rank, slot, phase) for rank in range(3)])
        # Late packets of the old epoch are dropped.
        self.contribute(new, old.packet(1, phase=6), Verdict.WRONG_EPOCH)
        self.expect_nothing()


class LowerEpochIsANewOne(SwitchMLTest):
    """Epochs are compared for equality only: an epoch with a smaller number also finds the slots free."""

    def runTest(self) -> None:
        with self.undone():
            high = self.job(2, epoch=40_000)
            self.reduce(high, [high.packet(rank, phase=5) for rank in range(2)])
        low = self.job(2, epoch=39_999)
        self.reduce(low, [low.packet(rank, phase=1) for rank in range(2)])


class EntryOfNewEpoch(SwitchMLTest):
    """An entry that is changed to the next epoch takes effect at once: a fenced rank cannot change its job's slots."""

    def runTest(self) -> None:
        job = self.job(2)
        self.contribute(job, job.packet(0), Verdict.AGGREGATED)
        self.barrier.processed()
        new = self.renew_epoch(job)
        self.contribute(new, job.packet(1), Verdict.WRONG_EPOCH)
        self.expect_nothing()
        self.reduce(new, [new.packet(rank) for rank in range(2)])


class SmallerJobAfterLoss(SwitchMLTest):
    """A rank is lost and the job continues without it: the mask of the new entries decides, not the old bitmap."""

    def runTest(self) -> None:
        with self.undone():
            old = self.job(3)
            self.contribute(old, old.packet(2), Verdict.AGGREGATED)
        new = self.job(2)
        self.reduce(new, [new.packet(rank) for rank in range(2)])
