"""Contributions whose values are floats, which the switch adds up as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from ptf.testutils import group

from ptf_tests.base import SwitchMLTest
from ptf_tests.frames import contribution_frame, result_frame
from ptf_tests.job import Job, default_host
from ptf_tests.leaf_job import LeafJob
from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Format, Verdict
from switchml.dataplane.floats import sum_digits, sum_fpisa, sum_fpisa_a

_Floats = npt.NDArray[np.float32]

_LARGEST = np.finfo(np.float32).max
_NORMAL = np.finfo(np.float32).smallest_normal
_SUBNORMAL = np.finfo(np.float32).smallest_subnormal
_SPECIAL = np.array(
    [
        *(0.0, np.inf, np.nan, 1.0, 1 + 2.0**-23, 2.0**-24, 3 * 2.0**-25, 2.0**30, 2.0**-60),
        *(_LARGEST, _LARGEST / 2, 2.0**103, 2.0**102, _NORMAL, _NORMAL - _SUBNORMAL, _SUBNORMAL, 3 * _SUBNORMAL),
    ],
    np.float32,
)


def _words(values: _Floats) -> tuple[int, ...]:
    """Return the bits of floats as the words of a packet that was received."""
    return tuple(values.view(np.int32).tolist())


def _wide(generator: np.random.Generator, shape: tuple[int, int], spread: int) -> _Floats:
    """Return numbers of both signs whose exponents are up to ``spread`` apart."""
    numbers: _Floats = np.ldexp(
        generator.standard_normal(shape), generator.integers(-spread // 2, spread // 2 + 1, shape)
    ).astype(np.float32)
    return numbers


class _Floating(SwitchMLTest):
    def setUp(self) -> None:
        super().setUp()
        if not self.target.floats:
            self.skipTest(f"{self.target.name} does not add floats")

    def sums(self, values: _Floats) -> _Floats:
        """Return the sums of values of shape (ranks, lanes) that arrive in the order of the ranks."""
        if self.target.floats == "digits":
            return sum_digits(values)
        return sum_fpisa(values) if self.target.floats == "full" else sum_fpisa_a(values).sums

    def packets(self, job: Job, values: _Floats, slot: int = 0, phase: int = 0) -> list[Packet]:
        """Return the contributions of all ranks; values have shape (ranks, lanes)."""
        return [
            job.packet(rank, slot, phase, values=_words(row), format=Format.FLOAT32, exponent=0)
            for rank, row in enumerate(values)
        ]

    def result(self, job: Job, contributions: Sequence[Packet], asked_by: Packet | None = None) -> Packet:
        """Return the RESULT of contributions that arrive in this order."""
        result = replace(job.result(*contributions, asked_by=asked_by), format=Format.FLOAT32)
        rows = [packet.values for packet in contributions if packet.values]
        return replace(result, values=_words(self.sums(np.array(rows, np.int32).view(np.float32))) if rows else ())

    def reduce_floats(self, job: Job, contributions: Sequence[Packet]) -> Packet:
        """Send the contributions of all ranks in this order and expect the result, which is returned."""
        for packet in contributions[:-1]:
            self.contribute(job, packet, Verdict.AGGREGATED)
        self.contribute(job, contributions[-1], Verdict.COMPLETED)
        result = self.result(job, contributions)
        self.expect_result(job, result)
        return result


@group("values")
@group("floats")
class EveryPairOfSpecialFloats(_Floating):
    """Zeros, subnormals, halves of the last place, the largest numbers, infinities and NaN, of both signs."""

    def runTest(self) -> None:
        job = self.job(2)
        special = np.concatenate([_SPECIAL, -_SPECIAL, np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)])
        one, two = (side.ravel() for side in np.meshgrid(special, special))
        lanes = np.zeros((2, -(-len(one) // job.values) * job.values), np.float32)
        lanes[:, : len(one)] = one, two
        for number, first in enumerate(range(0, lanes.shape[1], job.values)):
            phase, slot = divmod(number, job.slots)
            self.reduce_floats(job, self.packets(job, lanes[:, first : first + job.values], slot, phase))


@group("values")
@group("floats")
class FloatsInAnyOrder(_Floating):
    """Eight ranks in four orders, with magnitudes that are close to each other or far apart.

    The sums of digits are the same in all orders.
    """

    def runTest(self) -> None:
        job = self.job(8)
        generator = np.random.default_rng(1)
        for slot, spread in enumerate((0, 10, 30, 60, 90, 240)):
            packets = self.packets(job, _wide(generator, (8, job.values), spread), slot)
            results = []
            for phase in range(0, 8, 2):
                order = generator.permutation(8)
                in_phase = [replace(packets[rank], phase=phase) for rank in order]
                results.append(self.reduce_floats(job, in_phase).values)
            if self.target.floats == "digits":
                self.assertEqual(len(set(results)), 1)


@group("values")
@group("floats")
class ManyRanksOfFloats(_Floating):
    """All ranks that a switch can have, and sums of which the largest numbers cancel, or that need three digits.

    In single lanes, the mantissas of FPISA overflow, or the values are as far apart as it may shift one to the left.
    """

    def runTest(self) -> None:
        ranks = self.target.max_workers
        job = self.job(ranks)
        generator = np.random.default_rng(2)
        values = _wide(generator, (ranks, job.values), 70)
        values[1::2, ::2] = -values[0::2, ::2]
        values[-1, ::4] = 2.0**-20
        values[:, 1] = _LARGEST * np.where(np.arange(ranks) % 2, -1, 1)
        values[:, 3] = 2 - 2.0**-23
        values[:, 5] = 2.0 ** np.where(np.arange(ranks) % 2, 8, 1) - 2.0**-16
        values[:, 7] = 2.0 ** (np.arange(ranks) % 8 * 7)
        values[:, 9] = 2.0 ** (np.arange(ranks) % 8 * 8)
        for phase in range(2):
            self.reduce_floats(job, self.packets(job, values[generator.permutation(ranks)], 0, phase))


@group("values")
@group("floats")
class RepeatedFloats(_Floating):
    """A duplicate is not added, and each resend of a result has the same bits."""

    def runTest(self) -> None:
        job = self.job(3)
        packets = self.packets(job, _wide(np.random.default_rng(3), (3, job.values), 40))
        self.contribute(job, packets[1], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.DUPLICATE)
        self.contribute(job, packets[0], Verdict.AGGREGATED)
        self.contribute(job, packets[1], Verdict.DUPLICATE)
        self.contribute(job, packets[0], Verdict.DUPLICATE)
        self.expect_nothing()
        order = [packets[1], packets[0], packets[2]]
        self.contribute(job, packets[2], Verdict.COMPLETED)
        self.expect_result(job, self.result(job, order))
        for packet in (*packets, *packets):
            self.contribute(job, packet, Verdict.RESENT)
            self.expect_resend(job, self.result(job, order, asked_by=packet))


@group("values")
@group("floats")
class FloatsOverDirtySlots(_Floating):
    """The first values of a phase replace what the slot held: larger floats, infinities, or sums of integers."""

    def runTest(self) -> None:
        job = self.job(2)
        generator = np.random.default_rng(4)
        large = _wide(generator, (2, job.values), 20) * np.float32(2.0**100)
        large[0, ::3] = np.inf
        small = _wide(generator, (2, job.values), 20)
        self.reduce_floats(job, self.packets(job, large, phase=0))
        self.reduce_floats(job, self.packets(job, small, phase=2))
        self.reduce(job, [job.packet(rank, phase=4) for rank in range(2)])
        self.reduce_floats(job, self.packets(job, small, phase=6))
        self.reduce(job, [job.packet(rank, phase=8) for rank in range(2)])


@group("values")
@group("floats")
class FloatsAndEmptyPackets(_Floating):
    """Contributions without values add nothing: the first values overwrite, wherever they come in the phase."""

    def runTest(self) -> None:
        job = self.job(3)
        generator = np.random.default_rng(5)
        self.reduce_floats(job, self.packets(job, np.full((3, job.values), np.nan, np.float32)))
        orders = ((0, 1, 2), (1, 0, 2), (1, 2, 0)) if self.target.results_grow else ((0, 1, 2), (0, 2, 1))
        for number, order in enumerate(orders, 1):
            packets = self.packets(job, _wide(generator, (3, job.values), 40), phase=2 * number)
            packets[0] = job.without_values(0, phase=2 * number, format=Format.FLOAT32, exponent=0)
            self.reduce_floats(job, [packets[rank] for rank in order])
        empty = [job.without_values(rank, phase=20, format=Format.FLOAT32, exponent=0) for rank in range(3)]
        self.reduce_floats(job, empty)


@group("values")
@group("floats")
class ResendOfFloatsToEmptyAsker(_Floating):
    """A rank that has sent no values gets those of the phase, with the same bits as the others."""

    def runTest(self) -> None:
        if not self.target.results_grow:
            self.skipTest(f"{self.target.name} answers a contribution without values by a RESULT without values")
        job = self.job(2)
        values = self.packets(job, _wide(np.random.default_rng(6), (2, job.values), 40))[0]
        empty = job.without_values(1, format=Format.FLOAT32, exponent=0)
        self.reduce_floats(job, [values, empty])
        for asker in (empty, values):
            self.contribute(job, asker, Verdict.RESENT)
            self.expect_resend(job, self.result(job, [values, empty], asked_by=asker))


@group("values")
@group("floats")
class OtherFormatsInAPhase(_Floating):
    """A phase has the format of its first contribution, and no number of an earlier phase becomes part of its sum."""

    def runTest(self) -> None:
        job = self.job(2)
        generator = np.random.default_rng(8)
        floats, others = self.packets(job, _wide(generator, (2, job.values), 40))
        self.reduce_floats(job, [floats, others])
        self.reduce(job, [job.packet(rank, phase=2) for rank in range(2)])
        # An integer is the bits of a float, and the reverse.
        mixed = [replace(floats, phase=4), replace(others, phase=4, format=Format.INT32)]
        self.reduce_floats(job, mixed)
        mixed = [replace(floats, phase=6, format=Format.INT32), replace(others, phase=6)]
        self.contribute(job, mixed[0], Verdict.AGGREGATED)
        self.contribute(job, mixed[1], Verdict.COMPLETED)
        self.expect_result(job, replace(job.result(*mixed), format=Format.INT32))
        # A contribution without values counts as well.
        empty = job.without_values(0, phase=8, exponent=0)
        self.contribute(job, empty, Verdict.AGGREGATED)
        self.contribute(job, replace(others, phase=8), Verdict.COMPLETED)
        self.expect_result(job, replace(job.result(empty, replace(others, phase=8)), format=Format.INT32))


@group("values")
@group("floats")
class FloatsBelowAParent(_Floating):
    """The parent gets the rounded sum of the ranks below, and its RESULT goes to them unchanged."""

    def runTest(self) -> None:
        job = LeafJob(1, self.next_epoch(), tuple(map(default_host, range(3))), self.target.values)
        self.insert(*job.entities())
        generator = np.random.default_rng(7)
        packets = self.packets(job, _wide(generator, (3, job.values), 40))
        for packet in packets[:-1]:
            self.contribute(job, packet, Verdict.AGGREGATED)
        forwarded = replace(job.sent_on(*packets), format=Format.FLOAT32, values=self.result(job, packets).values)
        for _ in range(2):  # the second is sent again
            self.contribute(job, packets[-1], Verdict.FORWARDED)
            self.expect({job.parent.port: [result_frame(forwarded, job.parent)]})
        special = np.resize(
            np.array([np.inf, -np.inf, np.nan, 0.0, _SUBNORMAL, -_LARGEST, 1.5], np.float32), job.values
        )
        result = replace(job.from_parent(owner=2, format=Format.FLOAT32), values=_words(special))
        self.send_admitted(
            job.parent_entry(result.worker), job.parent.port, contribution_frame(result, job.parent), Verdict.COMPLETED
        )
        self.expect_result(job, job.to_ranks(result))


class FloatsAreRefused(SwitchMLTest):
    """A switch that does not add floats drops them."""

    def runTest(self) -> None:
        if self.target.floats:
            self.skipTest(f"{self.target.name} adds floats")
        job = self.job(2)
        self.refuse(job.packet(0, format=Format.FLOAT32), job.hosts[0], DropReason.BAD_FORMAT)
        self.refuse(job.without_values(0, format=Format.FLOAT32), job.hosts[0], DropReason.BAD_FORMAT)
