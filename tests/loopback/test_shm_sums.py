"""Sums over ranks' own memory with interruptions: a rank without values, a reset, a rank that disconnects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ptf_tests.wire import NO_FLAGS, Packet
from switchml.dataplane.constants import Flag, Verdict
from switchml.dataplane.softswitch._native import ShmPortSpec, Switch, UdpPortSpec
from switchml.host_agent._engine import Engine
from tests.loopback.shm_process import ShmProcess
from tests.loopback.softswitch_harness import LOCALHOST, Worker
from tests.support.soft_switch import wait_until
from tests.support.worker_entries import worker_match

JOB = 9
VALUES = 64
SLOTS = 512  # enough for a burst of contributions to complete more sums than are made in one turn
SLOT_MASK = ~(2 * SLOTS - 1) & 0xFFFF
UDP, SHM = 1, 2
ROUNDS = 10
PHASES = 12
DEADLINE = 30.0  # seconds

Ints = npt.NDArray[np.int32]


class Bench:
    """A switch with a UDP and a shared-memory port, and the ranks of one job at both."""

    def __init__(self, directory: Path) -> None:
        self.switch = Switch(SLOTS, VALUES)
        self.udp_port = self.switch.add_port(UDP, UdpPortSpec(address="127.0.0.1"))
        self.path = str(directory / "switch.sock")
        self.switch.add_port(SHM, ShmPortSpec(path=self.path, threads=2))
        self.switch.start()
        self.engine = Engine(1)
        self.engine.start()
        self.stack = ExitStack()

    def close(self) -> None:
        self.stack.close()
        self.engine.stop()
        self.switch.stop()

    def ranks(self, shm: int, udp: int) -> tuple[list[ShmProcess], list[Worker]]:
        """Return the ranks of a job, first those that share memory."""
        world_size = shm + udp
        processes = [
            self.stack.enter_context(ShmProcess(self.engine, self.path, JOB, rank, world_size, 0, SLOTS, VALUES))
            for rank in range(shm)
        ]
        workers = [Worker(self.udp_port) for _ in range(udp)]
        for worker in workers:
            self.stack.enter_context(worker.socket)
        self.endpoints = [(SHM, process.connection) for process in processes]
        self.endpoints += [(UDP, worker.udp_port) for worker in workers]
        self.write_tables()
        return processes, workers

    def write_tables(self) -> None:
        self.switch.set_job(JOB, 0, SLOT_MASK)
        everyone = (1 << len(self.endpoints)) - 1
        for rank, (port, udp_port) in enumerate(self.endpoints):
            self.switch.set_rank(JOB, rank, 0, LOCALHOST, udp_port)
            match = worker_match(port, (LOCALHOST, udp_port), JOB, rank, (0, SLOT_MASK))
            self.switch.set_worker(match, bit=1 << rank, mask=everyone, epoch=1, group=JOB)
        self.switch.set_group(JOB, [(port, rank) for rank, (port, _) in enumerate(self.endpoints)])

    def completed(self) -> int:
        return self.switch.read_job_counter(JOB << 4 | Verdict.COMPLETED)[0]


@contextmanager
def running_bench(directory: Path) -> Iterator[Bench]:
    bench = Bench(directory)
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with running_bench(tmp_path) as running:
        yield running


def values_of(rank: int) -> Ints:
    return np.arange(VALUES, dtype=np.int32) * (rank + 1) + 1000 * rank


def test_each_port_has_its_own_number_of_threads(tmp_path: Path) -> None:
    """Test that ranks are divided among their port's workers, independently of another port's."""
    with running_bench(tmp_path) as bench:
        bench.switch.add_port(SHM + 1, ShmPortSpec(path=str(tmp_path / "other.sock"), threads=5))
        shm, _ = bench.ranks(5, 0)
        for rank, process in enumerate(shm):
            process.contribute(3, 3, values_of(rank))
        total = np.sum([values_of(rank) for rank in range(5)], axis=0, dtype=np.int32)
        for process in shm:
            process.wait_completed(1)
            np.testing.assert_array_equal(process.result(3), total)


@pytest.mark.parametrize("last", [0, 1])
def test_ranks_of_a_job_at_two_ports(tmp_path: Path, last: int) -> None:
    """Test that the worker of the last contribution's port makes the sum while the other port's worker sleeps."""
    other_path = str(tmp_path / "other.sock")
    with running_bench(tmp_path) as bench:
        bench.switch.add_port(SHM + 1, ShmPortSpec(path=other_path))
        processes = [
            bench.stack.enter_context(ShmProcess(bench.engine, path, JOB, rank, 2, 0, SLOTS, VALUES))
            for rank, path in enumerate([bench.path, other_path])
        ]
        bench.endpoints = [(SHM + rank, process.connection) for rank, process in enumerate(processes)]
        bench.write_tables()
        first = processes[1 - last]
        for slot in range(3):
            first.contribute(slot, slot, values_of(1 - last))
            wait_until(lambda: first.asked_to_ring, "the first rank's worker sleeps")
            processes[last].contribute(slot, slot, values_of(last))
            for process in processes:
                process.wait_completed(slot + 1)
                np.testing.assert_array_equal(process.result(slot), values_of(0) + values_of(1))


@pytest.mark.parametrize("udp", [0, 1])
@pytest.mark.parametrize("owner", [0, 1, 2])
def test_a_rank_without_values_gets_the_sum_of_the_others(bench: Bench, udp: int, owner: int) -> None:
    """Only `owner` has no values in the first phase; in the next phase of the slot, only `owner` has values."""
    shm, over_udp = bench.ranks(3, udp)
    for phase, empty in enumerate(({owner}, {0, 1, 2} - {owner})):
        for rank, process in enumerate(shm):
            if rank in empty:
                process.contribute_nothing(3, 3)
            else:
                process.contribute(3, 3, values_of(rank))
        if udp:
            over_udp[0].send(Packet(JOB, 3, 6 | phase, phase, 1, tuple(values_of(3).tolist()), VALUES, chunk=3))
        contributors = [rank for rank in range(3 + udp) if rank not in empty]
        total = np.asarray(np.sum([values_of(rank) for rank in contributors], axis=0, dtype=np.int32))
        for process in shm:
            process.wait_completed(phase + 1)
            np.testing.assert_array_equal(process.result(3), total)
        if udp:
            assert over_udp[0].receive().values == tuple(total.tolist())


class Rank:
    """One rank of a job, whose contributions travel over shared memory or UDP; all to slot 3."""

    def __init__(self, bench: Bench, number: int, transport: ShmProcess | Worker) -> None:
        self.bench, self.number, self.transport = bench, number, transport
        self.results = 0

    def contribute(self, phase: int, values: Ints | None) -> None:
        if isinstance(self.transport, Worker):
            flags = Flag.WITHOUT_VALUES if values is None else NO_FLAGS
            words = () if values is None else tuple(values.tolist())
            self.transport.send(Packet(JOB, self.number, 6 | phase & 1, phase, 1, words, len(words), 0, 3, flags=flags))
        elif values is None:
            self.transport.contribute_nothing(3, 3)
        else:
            self.transport.contribute(3, 3, values)

    def result(self) -> tuple[int, int, int, tuple[int, ...]]:
        """Return exponent, count, flags and values of the next result."""
        if isinstance(self.transport, Worker):
            packet = self.transport.receive()
            return packet.exponent, packet.count, packet.flags & ~Flag.RETRANSMISSION, packet.values
        self.results += 1
        self.transport.wait_completed(self.results)
        header = self.transport.result_header(3)
        return *header, tuple(self.transport.result(3).tolist()) if header[1] else ()


def ranks_over(bench: Bench, shm: int, udp: int) -> list[Rank]:
    processes, workers = bench.ranks(shm, udp)
    transports: list[ShmProcess | Worker] = [*processes, *workers]
    return [Rank(bench, number, transport) for number, transport in enumerate(transports)]


def contributed(bench: Bench) -> int:
    """Return how many contributions were the first of their rank to a phase."""
    counts = (
        bench.switch.read_job_counter(JOB << 4 | verdict)[0] for verdict in (Verdict.AGGREGATED, Verdict.COMPLETED)
    )
    return sum(counts)


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize(("shm", "udp"), [(4, 0), (3, 1), (1, 3)])
def test_results_are_those_of_packets(tmp_path: Path, shm: int, udp: int, faulty: bool) -> None:
    """Test random contributions in random order, with and without values, against the same ones in packets.

    If `faulty`, the last contributions over shared memory are lost, repeated and delayed.
    """
    generator = np.random.default_rng((shm, udp))
    (tmp_path / "packets").mkdir()
    with running_bench(tmp_path) as bench, running_bench(tmp_path / "packets") as packets:
        ranks, reference = ranks_over(bench, shm, udp), ranks_over(packets, 0, shm + udp)
        for phase in range(PHASES):
            if faulty and phase == PHASES // 2:
                bench.switch.set_faults(SHM, 0.1, 0.1, 0.1, 5)
            share = generator.random()
            for taken, number in enumerate(generator.permutation(shm + udp)):
                values = generator.integers(-(2**31), 2**31, VALUES, np.int32) if generator.random() < share else None
                for each in (ranks, reference):
                    each[number].contribute(phase, values)
                    so_far = phase * len(ranks) + taken + 1
                    wait_until(lambda rank=each[0], so_far=so_far: contributed(rank.bench) == so_far, "it is taken")
            assert [rank.result() for rank in ranks] == [rank.result() for rank in reference]


def test_no_sum_is_written_to_memory_that_a_process_has_back(bench: Bench) -> None:
    """Test values of a rank after the others have their result, because their entries lack this rank."""
    shm, _ = bench.ranks(3, 0)
    for rank in (0, 1):
        match = worker_match(SHM, (LOCALHOST, shm[rank].connection), JOB, rank, (0, SLOT_MASK))
        bench.switch.set_worker(match, bit=1 << rank, mask=0b011, epoch=1, group=JOB)
        shm[rank].contribute_nothing(3, 3)
    for rank in (0, 1):
        shm[rank].wait_completed(1)
        shm[rank].write(3, values_of(rank))  # of the next contribution
    shm[2].contribute(3, 3, values_of(2))
    shm[2].wait_completed(1)
    for rank in range(3):
        np.testing.assert_array_equal(shm[rank].result(3), values_of(rank))


def make_sums_wait(bench: Bench, shm: list[ShmProcess], udp: list[Worker]) -> None:
    """Return when the first of SLOTS sums over all ranks is possible; most of the others are pending."""
    for worker in udp:
        for slot in range(SLOTS):
            worker.send(Packet(JOB, len(shm), slot << 1, 0, 1, tuple(values_of(len(shm)).tolist()), VALUES, chunk=slot))
        wait_until(
            lambda: bench.switch.read_job_counter(JOB << 4 | Verdict.AGGREGATED)[0] == SLOTS, "the values have come"
        )
    bench.switch.stop()  # so that it finds all contributions at once
    for rank, process in enumerate(shm):
        for slot in range(SLOTS):
            process.contribute(slot, slot, values_of(rank))
    bench.switch.start()
    deadline = time.monotonic() + DEADLINE
    while bench.completed() == 0:  # without a pause, because all sums together take a millisecond
        assert time.monotonic() < deadline, "no sum became possible"


def test_a_reset_forgets_the_sums_that_wait(tmp_path: Path) -> None:
    """Check that pending sums are dropped: they refer to the old pipeline's memory, which has the UDP rank's values."""
    for generation in range(ROUNDS):
        directory = tmp_path / str(generation)
        directory.mkdir()
        with running_bench(directory) as bench:
            make_sums_wait(bench, *bench.ranks(2, 1))
            bench.switch.reset(2, VALUES)  # with fewer slots: no index of the old pipeline is valid
            assert bench.completed() == 0
            assert bench.switch.read_register("lane_0", 3) == 0


def bitmap_and_lane(bench: Bench, slot: int) -> tuple[int, int]:
    """Return the contributors to a slot and lane 5 of their sum; remaining ranks may contribute in between."""
    while True:
        before = bench.switch.read_register("slot_bitmap", slot << 1)
        lane = bench.switch.read_register("lane_5", slot << 1)
        if bench.switch.read_register("slot_bitmap", slot << 1) == before:
            return before, lane


def test_a_lane_can_be_read_after_a_rank_has_left_while_its_sum_waits(tmp_path: Path) -> None:
    """Check that the rank's contributions count, although its memory is no longer read."""
    for generation in range(ROUNDS):
        directory = tmp_path / str(generation)
        directory.mkdir()
        with running_bench(directory) as bench:
            shm, _ = bench.ranks(2, 0)
            make_sums_wait(bench, shm, [])
            shm[generation % 2].unbind()
            # Some of its submissions may not have been taken when it disconnected.
            sums = {0: 0, 1: values_of(0)[5], 2: values_of(1)[5], 3: values_of(0)[5] + values_of(1)[5]}
            for slot in range(SLOTS):
                contributed, lane = bitmap_and_lane(bench, slot)
                assert lane == sums[contributed]
