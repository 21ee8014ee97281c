"""UDP with several data threads, shards and agents: the same sums, one copy of each result for each agent."""

import socket
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from ptf_tests.wire import Packet
from switchml.dataplane.constants import Verdict
from switchml.dataplane.softswitch._native import FramePortSpec, ShmPortSpec, Switch, UdpPortSpec
from switchml.host_agent._engine import Engine
from tests.loopback.rank_assignments import rank_assignment
from tests.support.collective_harness import PORT, Fabric, running_fabric
from tests.support.worker_entries import worker_match

VALUES = 64
WORLD_SIZE = 4
SLOTS = 512  # four of the blocks that are divided among threads
SIZES = (1, 100_000, 65, 200_000)
UDP_SEGMENT = 103


def contribution(rank: int, size: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng((rank, size)).integers(-(2**31), 2**31, size, np.int32)


def assert_sums(fabric: Fabric, deadline: float = 60.0) -> None:
    """Reduce arrays of SIZES at every rank and compare the results with numpy's sums."""

    def run(comm: switchml.Communicator) -> list[npt.NDArray[np.int32]]:
        arrays = [contribution(comm.rank, size) for size in SIZES]
        for work in [comm.all_reduce(array, async_op=True) for array in arrays]:
            work.wait()
        return arrays

    results = fabric.run_ranks(WORLD_SIZE, run, deadline=deadline)
    for index, size in enumerate(SIZES):
        expected = np.sum([contribution(rank, size) for rank in range(WORLD_SIZE)], axis=0, dtype=np.int32)
        for result in results:
            np.testing.assert_array_equal(result[index], expected)


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize(("threads", "shards"), [(2, 1), (1, 2), (3, 2), (2, 4)])
def test_sums_with_threads_and_shards(tmp_path: Path, threads: int, shards: int, faulty: bool) -> None:
    with running_fabric(tmp_path, VALUES, SLOTS, threads=threads, shards=shards) as fabric:
        if faulty:
            fabric.switch.set_faults(PORT, 0.01, 0.01, 0.01, 11)
        fabric.add_job(1, WORLD_SIZE, slots=SLOTS)
        assert_sums(fabric)
        verdicts = fabric.verdicts()
        counters = fabric.switch.port_counters(PORT)
    chunks = sum(-(-size // VALUES) for size in SIZES)
    assert verdicts[Verdict.COMPLETED] == chunks
    assert (counters["injected_drop"] > 0) == faulty


@pytest.mark.parametrize("agents", [1, 2])
def test_one_copy_of_a_result_for_each_agent(tmp_path: Path, agents: int) -> None:
    with running_fabric(tmp_path, VALUES, SLOTS) as fabric:
        for _ in range(agents - 1):
            fabric.add_agent("udp")
        fabric.add_job(1, WORLD_SIZE, slots=SLOTS)
        assert_sums(fabric)
        verdicts = fabric.verdicts()
        counters = fabric.switch.port_counters(PORT)
    assert counters["sent"] == agents * verdicts[Verdict.COMPLETED] + verdicts[Verdict.RESENT]


def test_two_agents_under_loss(tmp_path: Path) -> None:
    """Check that a result that only one agent lost is sent again only to that agent."""
    with running_fabric(tmp_path, VALUES, SLOTS, threads=2) as fabric:
        fabric.add_agent("udp")
        fabric.switch.set_faults(PORT, 0.02, 0, 0, 5)
        fabric.add_job(1, WORLD_SIZE, slots=SLOTS)
        assert_sums(fabric)
        assert fabric.verdicts()[Verdict.RESENT] > 0


@pytest.mark.parametrize(("threads", "faulty"), [(1, False), (1, True), (2, False), (3, True)])
def test_one_copy_for_agents_of_a_multicast_group(tmp_path: Path, threads: int, faulty: bool) -> None:
    with running_fabric(tmp_path, VALUES, SLOTS, threads=threads) as fabric:
        fabric.add_agent("udp")
        fabric.add_agent("udp")
        if faulty:
            fabric.switch.set_faults(PORT, 0.02, 0, 0, 5)
        fabric.add_job(1, WORLD_SIZE, slots=SLOTS, multicast="239.192.7.9")
        assert_sums(fabric)
        verdicts = fabric.verdicts()
        counters = fabric.switch.port_counters(PORT)
    if not faulty:
        assert counters["sent"] == verdicts[Verdict.COMPLETED] + verdicts[Verdict.RESENT]
        assert verdicts[Verdict.RESENT] < verdicts[Verdict.COMPLETED] / 10


def test_a_group_that_cannot_be_joined_is_refused() -> None:
    engine = Engine()
    with pytest.raises(OSError, match="cannot join the multicast group"):
        engine.open_rank(rank_assignment(1, 0, 1, slots=64, values=64, multicast_address="10.0.0.1"))


def raw_fabric(shards: int) -> tuple[Switch, socket.socket, tuple[str, int]]:
    """Return a switch with one job of one rank, the rank's socket, and the address of the switch."""
    switch = Switch(SLOTS, 1, shards)
    port = switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    peer.settimeout(30)
    address = int.from_bytes(socket.inet_aton("127.0.0.1"), "big")
    switch.set_group(1, [(1, 0)])
    switch.set_job(1, 0, 0)
    switch.set_rank(1, 0, 0, address, peer.getsockname()[1])
    match = worker_match(1, (address, peer.getsockname()[1]), 1, 0, (0, 0))
    switch.set_worker(match, bit=1, mask=1, epoch=1, group=1)
    switch.start()
    return switch, peer, ("127.0.0.1", port)


def test_a_run_that_spans_shards() -> None:
    """Send packets for several shards in one run: all arrive at the first shard's socket, as after GRO on the path."""
    switch, peer, address = raw_fabric(shards=4)
    try:
        slots = [0, 128, 256, 384, 1, 129]
        packets = [Packet(1, 0, slot << 1, 0, 1, (slot + 7,), count=1).pack() for slot in slots]
        size = struct.pack("H", len(packets[0]))
        peer.sendmsg([b"".join(packets)], [(socket.SOL_UDP, UDP_SEGMENT, size)], 0, address)
        answers = [Packet.unpack(peer.recv(100)) for _ in slots]
        assert sorted((answer.slot >> 1, answer.values[0]) for answer in answers) == [(s, s + 7) for s in sorted(slots)]
        assert switch.read_job_counter(1 << 4 | Verdict.COMPLETED)[0] == len(slots)
        assert [switch.read_register("lane_0", slot << 1) for slot in slots] == [slot + 7 for slot in slots]
        switch.write_job_counter(1 << 4 | Verdict.COMPLETED, 3, 4)
        assert switch.read_job_counter(1 << 4 | Verdict.COMPLETED) == (3, 4)
        switch.write_register("slot_phase", 128 << 1, 9)
        assert switch.read_register("slot_phase", 128 << 1) == 9
    finally:
        switch.stop()
        peer.close()


def test_what_cannot_be_divided(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 to 64 shards, not 0"):
        Switch(1, 1, 0)
    with pytest.raises(ValueError, match="1 to 64 data threads, not 65"):
        Engine(65)
    switch = Switch(SLOTS, 1, 2)
    with pytest.raises(ValueError, match="only UDP and DPDK ports"):
        switch.add_port(1, ShmPortSpec(path=str(tmp_path / "shm")))
    with pytest.raises(ValueError, match="only UDP and DPDK ports"):
        switch.add_port(1, FramePortSpec(path=str(tmp_path / "a"), peer=str(tmp_path / "b")))
