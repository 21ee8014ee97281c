"""The native switch behind real UDP sockets."""

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, DropReason, Flag, Kind, Verdict
from switchml.dataplane.softswitch._native import Switch, UdpPortSpec
from tests.loopback.softswitch_harness import HEADERS, LOCALHOST, Harness, Worker, running
from tests.support.worker_entries import worker_match

JOB = 5


@pytest.fixture
def fabric() -> Iterator[Harness]:
    with running() as harness:
        yield harness


def contribution(worker: int, slot: int = 0, phase: int = 0, values: tuple[int, ...] = (1, 2, 3, 4)) -> Packet:
    return Packet(JOB, worker, slot, phase, 1, values, len(values), exponent=100 + worker, chunk=9, check=worker + 1)


def without_values(worker: int, exponent: int) -> Packet:
    return Packet(JOB, worker, 0, 0, 1, exponent=exponent, flags=Flag.WITHOUT_VALUES)


def test_the_sum_goes_to_every_rank(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 3)
    workers[0].send(contribution(0, values=(1, -1, 2**31 - 1, -(2**31))))
    workers[2].send(contribution(2, values=(10, -10, 1, -1)))
    fabric.settle()
    assert [worker.waiting() for worker in workers] == [[], [], []]
    last = replace(contribution(1, values=(100, -100, 0, 0)), flags=Flag.LAST_CHUNK, count=2)
    workers[1].send(last)
    result = replace(last, kind=Kind.RESULT, exponent=102, check=6, values=(111, -111, -(2**31), 2**31 - 1))
    assert [worker.receive() for worker in workers] == [result] * 3
    fabric.settle()
    assert fabric.verdicts(JOB) == {Verdict.AGGREGATED: 2, Verdict.COMPLETED: 1}
    assert fabric.drops() == {}
    frame = PROTOCOL_HEADER_BYTES + 16 + HEADERS
    assert fabric.switch.read_job_counter(JOB << 4 | Verdict.AGGREGATED) == (2, 2 * frame)
    assert fabric.switch.worker_counter(fabric.worker_match(JOB, 2, workers[2])) == (1, frame)


def test_a_resend_goes_to_who_asked(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 2)
    for rank in (0, 1):
        workers[rank].send(contribution(rank))
    fabric.settle()
    for worker in workers:
        worker.waiting()
    again = replace(contribution(0, values=(7, 7, 7, 7)), flags=Flag.RETRANSMISSION, chunk=77, check=1000)
    workers[0].send(again)
    fabric.settle()
    result = replace(again, kind=Kind.RESULT, exponent=101, check=3, chunk=9, values=(2, 4, 6, 8))
    assert workers[0].waiting() == [result]
    assert workers[1].waiting() == []
    assert fabric.verdicts(JOB)[Verdict.RESENT] == 1


def test_resends_of_one_burst_go_to_their_own_askers(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 2)
    for rank, worker in enumerate(workers):
        worker.send(contribution(rank))
    fabric.settle()
    for worker in workers:
        worker.waiting()
    fabric.switch.stop()  # so that both are in one burst
    for rank, worker in enumerate(workers):
        worker.send(contribution(rank))
    fabric.switch.start()
    fabric.settle()
    assert [[packet.worker for packet in worker.waiting()] for worker in workers] == [[0], [1]]


def test_exponents_alone(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 2)
    workers[0].send(without_values(0, 130))
    workers[1].send(without_values(1, 90))
    for worker in workers:
        assert worker.receive() == replace(without_values(1, 130), kind=Kind.RESULT)


def test_late_packets_are_told_apart(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 2)
    workers[0].send(contribution(0, phase=2))
    workers[0].send(contribution(0, phase=2))  # duplicate
    workers[1].send(contribution(1, phase=0))  # stale
    workers[1].send(replace(contribution(1, phase=2), epoch=2))
    fabric.settle()
    assert fabric.verdicts(JOB) == {
        Verdict.AGGREGATED: 1,
        Verdict.DUPLICATE: 1,
        Verdict.STALE: 1,
        Verdict.WRONG_EPOCH: 1,
    }
    assert fabric.drops() == {DropReason.DUPLICATE: 1, DropReason.STALE: 1, DropReason.WRONG_EPOCH: 1}


def test_a_new_epoch_needs_no_cleaning(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 2)
    workers[0].send(contribution(0, phase=8))
    fabric.settle()
    for rank, worker in enumerate(workers):
        fabric.switch.set_worker(fabric.worker_match(JOB, rank, worker), bit=1 << rank, mask=3, epoch=2, group=JOB)
    for rank, worker in enumerate(workers):
        worker.send(replace(contribution(rank), epoch=2))
    assert workers[0].receive().values == (2, 4, 6, 8)


GOOD = contribution(0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", DropReason.RUNT),
        (GOOD.pack()[:27], DropReason.RUNT),
        (replace(GOOD, version=2, kind=9).pack(), DropReason.BAD_VERSION),
        (replace(GOOD, kind=0, format=9).pack(), DropReason.BAD_KIND),
        (replace(GOOD, kind=Kind.RESULT, format=9).pack(), DropReason.FORGED_RESULT),
        (replace(GOOD, format=0, exponent=257).pack(), DropReason.BAD_FORMAT),
        (replace(GOOD, exponent=257, count=5).pack(), DropReason.BAD_EXPONENT),
        (replace(GOOD, count=5).pack()[:-4], DropReason.BAD_COUNT),
        (replace(GOOD, count=0).pack(), DropReason.BAD_COUNT),
        (replace(GOOD, flags=Flag.WITHOUT_VALUES).pack(), DropReason.BAD_COUNT),
        (replace(GOOD, slot=1).pack()[:-4], DropReason.BAD_LENGTH),
        (GOOD.pack() + b"\0", DropReason.BAD_LENGTH),
        (replace(GOOD, flags=Flag.WITHOUT_VALUES, count=0).pack(), DropReason.BAD_LENGTH),
        (replace(GOOD, slot=1, job=6).pack(), DropReason.BAD_HALF),
        (replace(GOOD, job=6, slot=0xFFFE).pack(), DropReason.UNKNOWN_JOB),
        (replace(GOOD, slot=8, worker=1).pack(), DropReason.SLOT_OUT_OF_RANGE),
        (replace(GOOD, slot=0xFFFE).pack(), DropReason.SLOT_OUT_OF_RANGE),
        (replace(GOOD, worker=1, epoch=2).pack(), DropReason.UNKNOWN_WORKER),
        (replace(GOOD, worker=255).pack(), DropReason.UNKNOWN_WORKER),
        (replace(GOOD, epoch=2).pack(), DropReason.WRONG_EPOCH),
    ],
)
def test_every_drop_has_its_reason(fabric: Harness, data: bytes, reason: DropReason) -> None:
    workers = fabric.add_job(JOB, 2)
    workers[0].send(data)
    fabric.settle()
    assert fabric.drops() == {reason: 1}
    assert fabric.switch.read_drop_counter(reason) == (1, len(data) + HEADERS)
    assert fabric.verdicts(JOB) == ({Verdict.WRONG_EPOCH: 1} if reason is DropReason.WRONG_EPOCH else {})
    assert fabric.switch.read_register("slot_bitmap", 0) == 0


def test_a_stranger_on_the_right_host_is_refused(fabric: Harness) -> None:
    fabric.add_job(JOB, 2)
    stranger = Worker(fabric.udp_ports[1])
    stranger.send(contribution(0))
    fabric.settle()
    assert fabric.drops() == {DropReason.UNKNOWN_WORKER: 1}
    stranger.socket.close()


def test_a_deleted_entry_admits_nothing_more(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    worker.send(contribution(0))
    worker.receive()
    fabric.switch.delete_worker(fabric.worker_match(JOB, 0, worker))
    worker.send(contribution(0))
    fabric.settle()
    assert fabric.drops() == {DropReason.UNKNOWN_WORKER: 1}


def test_an_entry_wider_than_the_registers_admits_nothing_beyond_them(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    all_slots = worker_match(1, (LOCALHOST, worker.udp_port), JOB, 0, (0, 0), priority=2)
    fabric.switch.set_worker(all_slots, bit=1, mask=1, epoch=1, group=JOB)
    fabric.switch.set_job(JOB, 0, 0)
    worker.send(contribution(0, slot=16))
    fabric.settle()
    assert fabric.drops() == {DropReason.SLOT_OUT_OF_RANGE: 1}


def test_the_highest_priority_admits(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    narrow = worker_match(1, (LOCALHOST, worker.udp_port), JOB, 0, (2, 0xFFFE), priority=9)
    fabric.switch.set_worker(narrow, bit=1, mask=1, epoch=3, group=JOB)
    worker.send(contribution(0, slot=2))  # the narrow entry, whose epoch is 3
    worker.send(contribution(0, slot=0))
    fabric.settle()
    assert fabric.verdicts(JOB) == {Verdict.WRONG_EPOCH: 1, Verdict.COMPLETED: 1}


def test_a_rank_without_address_is_counted(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 3)
    fabric.switch.delete_rank(JOB, 1)
    for rank, worker in enumerate(workers):
        worker.send(contribution(rank))
    fabric.settle()
    assert [len(worker.waiting()) for worker in workers] == [1, 0, 1]
    assert fabric.drops() == {DropReason.NO_RANK_ADDRESS: 1}


def test_a_result_that_comes_back_is_forged(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    fabric.switch.set_rank(JOB, 0, 0, LOCALHOST, fabric.udp_ports[1])
    worker.send(contribution(0))
    fabric.settle()
    fabric.settle()  # the result left before the answer to the first settle(), so it arrived before the second
    assert fabric.drops() == {DropReason.FORGED_RESULT: 1}


def test_results_leave_through_their_replicas_port() -> None:
    with running(ports=2) as fabric:
        workers = fabric.add_job(JOB, 4, ports=(1, 2))
        for rank, worker in enumerate(workers):
            worker.send(contribution(rank))
        # Each socket is connected to its port and receives only from it.
        assert [worker.receive().values for worker in workers] == [(4, 8, 12, 16)] * 4
        assert fabric.switch.port_counters(1)["sent"] == 2
        assert fabric.switch.port_counters(2)["sent"] == 2


def test_a_replica_on_a_port_that_is_not_there_makes_no_copy(fabric: Harness) -> None:
    """Check that this is not counted as a drop, as on the other targets."""
    worker = fabric.add_job(JOB, 1)[0]
    fabric.switch.set_group(JOB, [(4, 0), (1, 0)])
    worker.send(contribution(0))
    assert worker.receive().kind == Kind.RESULT
    assert fabric.drops() == {}
    assert fabric.verdicts(JOB) == {Verdict.COMPLETED: 1}


def test_a_group_that_is_not_there_makes_no_copies(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    fabric.switch.delete_group(JOB)
    worker.send(contribution(0))
    fabric.settle()
    assert worker.waiting() == []
    assert fabric.drops() == {}
    assert fabric.verdicts(JOB) == {Verdict.COMPLETED: 1}


def test_jobs_are_kept_apart(fabric: Harness) -> None:
    ours = fabric.add_job(JOB, 2)
    theirs = fabric.add_job(6, 2, base=4, slots=2)
    ours[0].send(contribution(0))
    theirs[1].send(replace(contribution(1, values=(5, 5, 5, 5)), job=6, slot=8))
    ours[1].send(contribution(1))
    theirs[0].send(replace(contribution(0, values=(5, 5, 5, 5)), job=6, slot=8))
    assert ours[0].receive().values == (2, 4, 6, 8)
    assert theirs[0].receive().values == (10, 10, 10, 10)
    theirs[0].send(contribution(0))  # socket of job 6, packet of this job
    theirs[0].send(replace(contribution(0), job=6, slot=0))  # packet of job 6, slot of this job
    fabric.settle()
    assert fabric.drops() == {DropReason.UNKNOWN_WORKER: 1, DropReason.SLOT_OUT_OF_RANGE: 1}


@pytest.mark.parametrize("values", [1, 7, 15, 16, 17, 64, 255, 256, 2048])
def test_every_width(values: int) -> None:
    with running(values=values) as fabric:
        workers = fabric.add_job(JOB, 3)
        inputs = [tuple((rank + 1) * (i * 0x01010101 % 2**31 - 2**30) for i in range(values)) for rank in range(3)]
        inputs = [tuple((v + 2**31) % 2**32 - 2**31 for v in row) for row in inputs]
        for rank, worker in enumerate(workers):
            worker.send(contribution(rank, values=inputs[rank]))
        expected = tuple((sum(column) + 2**31) % 2**32 - 2**31 for column in zip(*inputs, strict=True))
        assert [worker.receive().values for worker in workers] == [expected] * 3


def test_a_run_is_answered_as_runs() -> None:
    with running(slots=128, values=256) as fabric:
        workers = fabric.add_job(JOB, 2, slots=64)
        runs = [[contribution(r, 2 * i, values=(i + r,) * 256) for i in range(62)] for r in range(2)]
        for rank, worker in enumerate(workers):
            worker.send_run(runs[rank])
        for worker in workers:
            results = [worker.receive() for _ in range(62)]
            assert [result.slot for result in results] == [2 * i for i in range(62)]
            assert [result.values[255] for result in results] == [2 * i + 1 for i in range(62)]
        counters = fabric.switch.port_counters(1)
        assert counters["received"] == 124
        assert counters["sent"] == 124
        assert counters["send_errors"] == 0
        assert counters["gso"]
        assert counters["gro"]


def test_a_waiting_result_survives_the_next_use_of_its_slot() -> None:
    """Send one run that completes the same half repeatedly; results point into slot memory and must not be mixed up."""
    with running() as fabric:
        worker = fabric.add_job(JOB, 1)[0]
        worker.send_run([contribution(0, phase=2 * i, values=(i,) * 4) for i in range(60)])
        assert [worker.receive().values for _ in range(60)] == [(i,) * 4 for i in range(60)]


def test_a_burst_of_several_kinds_is_sent_in_order(fabric: Harness) -> None:
    one, other = fabric.add_job(JOB, 1)[0], fabric.add_job(6, 1, base=4, slots=2)[0]
    fabric.switch.stop()  # so that all packets are one burst
    one.send(contribution(0, slot=0))
    other.send(replace(contribution(0, slot=8), job=6))
    one.send(contribution(0, slot=2))
    one.send(replace(without_values(0, 50), slot=4))
    one.send(contribution(0, slot=0))  # complete: resent
    one.send(contribution(0, slot=0, phase=2, values=(9, 9, 9, 9)))
    fabric.switch.start()
    fabric.settle()
    assert [(packet.slot, packet.phase, packet.values[:1]) for packet in one.waiting()] == [
        (0, 0, (1,)),
        (2, 0, (1,)),
        (4, 0, ()),
        (0, 0, (1,)),
        (0, 2, (9,)),
    ]
    assert [packet.job for packet in other.waiting()] == [6]


def test_ports_that_cannot_be_had() -> None:
    switch = Switch(1, 1)
    taken = switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
    with pytest.raises(ValueError, match="port 1 is already there"):
        switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
    with pytest.raises(ValueError, match="'localhost' is not an IPv4 address"):
        switch.add_port(2, UdpPortSpec(address="localhost"))
    with pytest.raises(OSError, match=f"cannot bind UDP 127.0.0.1:{taken}") as caught:
        switch.add_port(2, UdpPortSpec(address="127.0.0.1", udp_port=taken))
    assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(OSError, match=r"cannot bind UDP 192.0.2.1:\d+") as caught:
        switch.add_port(2, UdpPortSpec(address="192.0.2.1"))
    assert caught.value.errno == errno.EADDRNOTAVAIL
    assert switch.add_port(2, UdpPortSpec(address="127.0.0.1")) != taken


def test_a_port_added_while_running_works(fabric: Harness) -> None:
    fabric.udp_ports[9] = fabric.switch.add_port(9, UdpPortSpec(address="127.0.0.1"))
    worker = fabric.add_job(JOB, 1, ports=(9,))[0]
    worker.send(contribution(0))
    assert worker.receive().kind == Kind.RESULT


def test_tables_and_registers_can_be_reset_under_live_ports(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1)[0]
    worker.send(contribution(0))
    worker.receive()
    fabric.switch.reset(8, 2)
    worker.send(contribution(0, values=(1, 2)))
    again = fabric.add_job(6, 1)[0]
    again.send(replace(contribution(0, values=(3, 4)), job=6))
    assert again.receive().values == (3, 4)
    assert fabric.drops() == {DropReason.UNKNOWN_JOB: 1}
