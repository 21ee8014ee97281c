"""Ranks that share memory with the switch: together with other ranks, malicious ones, and ranks that disconnect."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from ptf_tests.wire import Packet
from switchml.dataplane.constants import DropReason, Verdict
from tests.loopback.shm_process import ShmProcess
from tests.loopback.softswitch_harness import Worker
from tests.support.collective_harness import ADDRESS_NUMBER, PORT, SHM_PORT, Fabric, running_fabric
from tests.support.soft_switch import wait_until
from tests.support.worker_entries import worker_match

VALUES = 64
SLOTS = 8
JOB = 9  # the job of hand-made ranks
BASE = 256  # their first slot
SLOT_MASK = ~(2 * SLOTS - 1) & 0xFFFF

Ints = npt.NDArray[np.int32]


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path, VALUES, transport="shm") as running:
        yield running


def int32s(rank: int, size: int) -> Ints:
    return np.random.default_rng((rank, size)).integers(-(2**31), 2**31, size, np.int32)


def total(world_size: int, size: int) -> Ints:
    return np.asarray(np.sum([int32s(rank, size) for rank in range(world_size)], axis=0, dtype=np.int32))


def bound(fabric: Fabric, rank: int, world_size: int) -> ShmProcess:
    """Create a hand-made rank, with its entries in the tables."""
    process = ShmProcess(fabric.engines[0], str(fabric.switch_socket), JOB, rank, world_size, BASE, SLOTS, VALUES)
    admit(fabric, SHM_PORT, rank, world_size, process.connection)
    return process


def admit(fabric: Fabric, port: int, rank: int, world_size: int, udp_port: int) -> None:
    fabric.switch.set_job(JOB, BASE << 1, SLOT_MASK)
    fabric.switch.set_rank(JOB, rank, 0, ADDRESS_NUMBER, udp_port)
    match = worker_match(port, (ADDRESS_NUMBER, udp_port), JOB, rank, (BASE << 1, SLOT_MASK))
    fabric.switch.set_worker(match, bit=1 << rank, mask=(1 << world_size) - 1, epoch=1, group=JOB)


def contributions(fabric: Fabric) -> int:
    """Return the number of counted contributions of the job of hand-made ranks."""
    return sum(fabric.switch.read_job_counter(JOB << 4 | verdict)[0] for verdict in Verdict)


def drops(fabric: Fabric, reason: DropReason) -> int:
    return fabric.switch.read_drop_counter(reason)[0]


# ---- together with other ranks ----


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("world_size", [2, 5])
def test_ranks_over_both_transports(tmp_path: Path, world_size: int, faulty: bool) -> None:
    sizes = (1, 64, 1000, 100_000, 3)
    with running_fabric(tmp_path, VALUES, transport="shm") as fabric:
        fabric.add_agent("udp")
        if faulty:
            for port in (PORT, SHM_PORT):
                fabric.switch.set_faults(port, 0.01, 0.01, 0.01, 5)
        fabric.add_job(1, world_size)

        def run(comm: switchml.Communicator) -> list[Ints]:
            arrays = [int32s(comm.rank, size) for size in sizes]
            for array in arrays:
                comm.all_reduce(array)
            return arrays

        results = fabric.run_ranks(world_size, run)
        verdicts = fabric.verdicts()
    for result in results:
        for array, size in zip(result, sizes, strict=True):
            np.testing.assert_array_equal(array, total(world_size, size))
    assert verdicts[Verdict.COMPLETED] > 0
    assert not faulty or verdicts[Verdict.RESENT] > 0


@pytest.mark.parametrize("world_size", [2, 5])
def test_several_shards(tmp_path: Path, world_size: int) -> None:
    sizes = (1, 64, 1000, 300_000, 3)
    with running_fabric(tmp_path, VALUES, transport="shm", shm_shards=3) as fabric:
        fabric.add_job(1, world_size)

        def run(comm: switchml.Communicator) -> list[Ints]:
            arrays = [int32s(comm.rank, size) for size in sizes]
            for work in [comm.all_reduce(array, async_op=True) for array in arrays]:
                assert work is not None
                work.wait()
            return arrays

        results = fabric.run_ranks(world_size, run)
        assert fabric.verdicts()[Verdict.RESENT] == 0
    for result in results:
        for array, size in zip(result, sizes, strict=True):
            np.testing.assert_array_equal(array, total(world_size, size))


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_loss_tables(fabric: Fabric, direction: Literal["ingress", "egress"]) -> None:
    fabric.switch.set_loss(SHM_PORT, direction, int(0.01 * 2**32))
    fabric.add_job(1, 3)

    def run(comm: switchml.Communicator) -> Ints:
        array = int32s(comm.rank, 100_000)
        comm.all_reduce(array)
        return array

    for result in fabric.run_ranks(3, run):
        np.testing.assert_array_equal(result, total(3, 100_000))
    assert drops(fabric, DropReason.INJECTED_LOSS) > 0


def test_contributions_before_the_tables_are_there_are_repeated(fabric: Fabric) -> None:
    process = ShmProcess(fabric.engines[0], str(fabric.switch_socket), JOB, 0, 1, BASE, SLOTS, VALUES)
    with process:
        process.contribute(0, 0, int32s(0, VALUES))
        wait_until(lambda: drops(fabric, DropReason.UNKNOWN_JOB) > 1, "it was tried again")
        fabric.switch.set_group(JOB, [(SHM_PORT, 0)])
        admit(fabric, SHM_PORT, 0, 1, process.connection)
        process.wait_completed(1)
        np.testing.assert_array_equal(process.result(0), int32s(0, VALUES))


def test_what_a_rank_contributed_outlives_its_memory(fabric: Fabric) -> None:
    """Check the sum if rank 0 disconnects after its contribution; ranks 0 and 1 share memory, rank 2 uses UDP."""
    fabric.switch.set_group(JOB, [(SHM_PORT, 1), (PORT, 2)])
    udp = Worker(fabric.switch_udp_port)
    admit(fabric, PORT, 2, 3, udp.udp_port)
    packet = Packet(JOB, 2, (BASE + 3) << 1, 0, 1, tuple(int32s(2, VALUES).tolist()), VALUES, chunk=3)
    with udp.socket, bound(fabric, 1, 3) as stays:
        leaves = bound(fabric, 0, 3)
        with leaves:
            leaves.contribute(3, 3, int32s(0, VALUES))
            wait_until(lambda: fabric.switch.read_job_counter(JOB << 4 | Verdict.AGGREGATED)[0] == 1, "it is taken")
        stays.contribute(3, 3, int32s(1, VALUES))
        udp.send(packet)
        stays.wait_completed(1)
        np.testing.assert_array_equal(stays.result(3), total(3, VALUES))
        assert udp.receive().values == tuple(total(3, VALUES).tolist())
        stays.unbind()
        # The result remains without the ranks' memory, for ranks that must request it again.
        udp.send(packet)
        assert udp.receive().values == tuple(total(3, VALUES).tolist())


def test_a_sum_can_be_read_when_a_rank_that_had_it_has_gone(fabric: Fabric) -> None:
    """Read a sum that is only in the ranks' memory: that of rank 0 until it disconnects, then that of rank 1."""
    fabric.switch.set_group(JOB, [(SHM_PORT, 0), (SHM_PORT, 1)])
    with bound(fabric, 0, 2) as leaves, bound(fabric, 1, 2) as stays:
        for rank, process in enumerate((leaves, stays)):
            process.contribute(3, 3, int32s(rank, VALUES))
        for process in (leaves, stays):
            process.wait_completed(1)
        for unbound in (None, leaves):
            if unbound is not None:
                unbound.unbind()
            lanes = [fabric.switch.read_register(f"lane_{lane}", (BASE + 3) << 1) for lane in range(VALUES)]
            np.testing.assert_array_equal(np.array(lanes, np.uint32).view(np.int32), total(2, VALUES))
        fabric.switch.write_register("lane_1", (BASE + 3) << 1, 7)
        assert fabric.switch.read_register("lane_1", (BASE + 3) << 1) == 7
        assert fabric.switch.read_register("lane_2", (BASE + 3) << 1) == lanes[2]


@pytest.mark.parametrize("slowest", [0, 1, 2])
def test_a_sleeping_switch_asks_the_slowest_rank_to_ring(fabric: Fabric, slowest: int) -> None:
    """Check which rank is asked: when the slowest one rings, all contributions are there."""
    fabric.switch.set_group(JOB, [(SHM_PORT, rank) for rank in range(3)])
    order = [rank for rank in range(3) if rank != slowest] + [slowest]
    with bound(fabric, 0, 3) as first, bound(fabric, 1, 3) as second, bound(fabric, 2, 3) as third:
        ranks = (first, second, third)
        for taken, rank in enumerate(order):
            ranks[rank].contribute(0, 0, int32s(rank, VALUES))
            wait_until(lambda so_far=taken + 1: contributions(fabric) == so_far, "it is taken")
            # It finds out which rank is behind when it goes to sleep.
            wait_until(lambda: any(each.asked_to_ring for each in ranks), "the switch sleeps")
        for process in ranks:
            process.wait_completed(1)
            np.testing.assert_array_equal(process.result(0), total(3, VALUES))
        wait_until(
            lambda: [rank.asked_to_ring for rank in ranks] == [rank == slowest for rank in range(3)],
            "only the slowest is asked",
        )


# ---- malicious ranks ----


def nonsense_index(process: ShmProcess) -> None:
    process.submit_index(SLOTS)


def nonsense_twice(process: ShmProcess) -> None:
    process.contribute(1, 1, int32s(0, VALUES))
    process.contribute(1, 1, int32s(0, VALUES))


def nonsense_count(process: ShmProcess) -> None:
    process.publish(1_000_000)


def nonsense_backwards(process: ShmProcess) -> None:
    process.publish(-1)


def nonsense_chunk(process: ShmProcess) -> None:
    process.write_ticket(2, chunk=3)
    process.submit_index(2)


@pytest.mark.parametrize(
    "nonsense", [nonsense_index, nonsense_twice, nonsense_count, nonsense_backwards, nonsense_chunk]
)
def test_a_process_that_writes_nonsense_harms_only_itself(fabric: Fabric, nonsense: object) -> None:
    assert callable(nonsense)
    fabric.add_job(1, 2)
    fabric.switch.set_group(JOB, [(SHM_PORT, 0), (SHM_PORT, 1)])
    with bound(fabric, 0, 2) as hostile, bound(fabric, 1, 2) as other:
        nonsense(hostile)
        hostile.memory[1024:4096] = os.urandom(3072)

        def run(comm: switchml.Communicator) -> Ints:
            array = int32s(comm.rank, 10_000)
            comm.all_reduce(array)
            return array

        for result in fabric.run_ranks(2, run):
            np.testing.assert_array_equal(result, total(2, 10_000))
        other.contribute(5, 5, int32s(1, VALUES))  # in the same job: waits forever, because of the hostile rank
        wait_until(lambda: fabric.switch.read_job_counter(JOB << 4 | Verdict.AGGREGATED)[0] >= 1, "it is taken")
        assert other.completed == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format_": 3}, DropReason.BAD_FORMAT),
        ({"format_": 0x0101}, DropReason.BAD_FORMAT),  # the header has only eight bits for it
        ({"format_": 0xFFFF}, DropReason.BAD_FORMAT),
        ({"exponent": 0xFFFF}, DropReason.BAD_EXPONENT),
        ({"count": VALUES + 1}, DropReason.BAD_COUNT),
        ({"count": 0}, DropReason.BAD_COUNT),
    ],
)
def test_tickets_are_checked_as_headers_are(fabric: Fabric, changes: dict[str, int], reason: DropReason) -> None:
    fabric.switch.set_group(JOB, [(SHM_PORT, 0)])
    with bound(fabric, 0, 1) as process:
        process.write_ticket(0, 0, **changes)
        process.submit_index(0)
        wait_until(lambda: drops(fabric, reason) > 0, "it was dropped")
        assert process.completed == 0


@pytest.mark.parametrize(
    ("job", "rank", "world_size", "slot_base", "slots", "values", "why"),
    [
        (JOB, 0, 1, BASE, SLOTS, VALUES * 2, "64 values, not 128"),
        (JOB, 0, 1, 512, SLOTS, VALUES, "512 slots"),
        (0, 0, 1, BASE, SLOTS, VALUES, "id"),
        (JOB, 1, 2, BASE, SLOTS, VALUES, "has a connection already"),
    ],
)
def test_bindings_that_are_refused(
    fabric: Fabric, job: int, rank: int, world_size: int, slot_base: int, slots: int, values: int, why: str
) -> None:
    with bound(fabric, 1, 2), pytest.raises(ValueError, match=why):
        ShmProcess(fabric.engines[0], str(fabric.switch_socket), job, rank, world_size, slot_base, slots, values)


@pytest.mark.parametrize("kind", [0, 3, 4, 5, 2**32 - 1])  # freeze and fetch are for ranks that are bound
def test_a_request_of_another_kind_binds_nothing(fabric: Fabric, kind: int) -> None:
    """Send a ShmRequest of an unknown kind (native/channel/shm_messages.h)."""
    request = struct.pack("=QIIIIHHHBB", 0x53574D4C53523031, kind, 0x7F000001, SLOTS, VALUES, BASE, JOB, 1, 0, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.settimeout(30)
        agent.connect(os.fspath(fabric.switch_socket))
        agent.send(request)
        answer, descriptors, _, _ = socket.recv_fds(agent, 4096, 2)
        assert (answer[8:12], descriptors) == (bytes(4), [])
        assert b"the request is not from an agent" in answer
        assert agent.recv(1) == b""  # and it has disconnected


_ASKS = """
import socket, sys
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect(sys.argv[1])
print("connected", flush=True)
agent.recv(4096)
"""


def test_a_switch_without_descriptors_waits_for_some(fabric: Fabric) -> None:
    """Check that a client that tries to connect remains in the backlog and costs no CPU time."""
    command = [sys.executable, "-c", _ASKS, str(fabric.switch_socket)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            assert agent.stdout.readline() == "connected\n"
            before = time.process_time()
            time.sleep(0.5)
            used = time.process_time() - before
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        agent.kill()
    assert used < 0.25, f"{used:.2f} s of CPU time in half a second"
    with bound(fabric, 0, 1):  # it accepts connections again
        pass


def test_many_ranks_come_and_go(fabric: Fabric) -> None:
    """Check that no memory and no descriptors remain."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(100):
        with bound(fabric, 0, 1):
            pass
    wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, "every descriptor is closed")


# ---- when a process dies ----

_VICTIM = """
import os, signal, sys, numpy as np, switchml
comm = switchml.connect(agent=sys.argv[1], job=1, rank=1)
comm.all_reduce(np.ones(100_000, np.float32))
comm.all_reduce(np.ones(50_000_000, np.float32), async_op=True)
comm.all_reduce(np.ones(1, np.float32), async_op=True)
print("in the middle", flush=True)
signal.pause()
"""


def test_a_process_that_is_killed_in_the_middle(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    command = [sys.executable, "-c", _VICTIM, str(fabric.socket)]
    here = fabric.directory  # not the folder of the sources, which would be imported
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=here) as victim,
        fabric.connect(0) as comm,
    ):
        try:
            comm.all_reduce(np.ones(100_000, np.float32), timeout=30)
            assert victim.stdout is not None
            assert victim.stdout.readline() == "in the middle\n"
            work = comm.all_reduce(np.ones(50_000_000, np.float32), async_op=True)
            assert work is not None
            wait_until(lambda: fabric.agent.reports.statuses()[0].position > 1000, "the call is under way")
            victim.send_signal(signal.SIGKILL)
            with pytest.raises(switchml.WorkerLost) as raised:
                work.wait()
            assert raised.value.ranks == (1,)
        finally:
            victim.kill()
    # The switch continues with other jobs, in the same slots.
    fabric.add_job(2, 2)

    def run(again: switchml.Communicator) -> Ints:
        array = int32s(again.rank, 1000)
        again.all_reduce(array)
        return array

    for result in fabric.run_ranks(2, run, job=2):
        np.testing.assert_array_equal(result, total(2, 1000))
