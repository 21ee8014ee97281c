"""Loss, duplication and delay injected by the native switch: exactly counted, and repeatable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, DropReason, Kind, Verdict
from tests.loopback.softswitch_harness import HEADERS, Harness, Worker, running

if TYPE_CHECKING:
    from switchml.dataplane.softswitch._native import PortCounters

JOB = 5
SLOTS = 1024
PART = 32  # packets sent at once, so few that no socket buffer overflows
FRAME = PROTOCOL_HEADER_BYTES + 16 + HEADERS


@pytest.fixture
def fabric() -> Iterator[Harness]:
    with running(slots=2 * SLOTS) as harness:
        yield harness


def results_of_all_slots(fabric: Harness, worker: Worker) -> list[int]:
    """Contribute once to every slot of a job with one worker; return the slots of the results, in order of arrival."""
    arrived: list[Packet] = []

    def counters() -> PortCounters:
        arrived.extend(worker.waiting())
        return fabric.switch.port_counters(1)

    def nothing_held() -> bool:
        # In a job with one worker, every packet that is not dropped becomes a result.
        port = counters()
        return port["sent"] == SLOTS + port["injected_duplicate"] - port["injected_drop"]

    def part_received() -> bool:
        return counters()["received"] == sent

    for sent in range(PART, SLOTS + 1, PART):
        for slot in range(sent - PART, sent):
            worker.send(Packet(JOB, 0, 2 * slot, 0, 1, (slot, 0, 0, 0), 4))
        fabric.wait_for(part_received)
    fabric.wait_for(nothing_held)
    fabric.wait_for(lambda: len(arrived) == counters()["sent"])
    assert all(packet.values == (packet.slot // 2, 0, 0, 0) for packet in arrived)
    return [packet.slot // 2 for packet in arrived]


def lossy_run(seed: int) -> list[int]:
    with running(slots=2 * SLOTS) as fabric:
        worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
        fabric.switch.set_faults(1, drop=0.25, duplicate=0, delay=0, seed=seed)
        arrived = results_of_all_slots(fabric, worker)
        admitted = fabric.verdicts(JOB)[Verdict.COMPLETED]
        assert 190 < SLOTS - admitted < 322  # 256 expected, standard deviation 14
        assert 130 < admitted - len(arrived) < 254  # 192 expected, standard deviation 13
        lost = SLOTS - len(arrived)
        assert fabric.switch.port_counters(1)["injected_drop"] == lost
        assert fabric.switch.read_drop_counter(DropReason.INJECTED_LOSS) == (lost, lost * FRAME)
        return arrived


def test_loss_is_counted_and_repeats_with_its_seed() -> None:
    first = lossy_run(1)
    assert lossy_run(1) == first
    assert lossy_run(2) != first


def test_everything_can_be_lost(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
    fabric.switch.set_faults(1, drop=1, duplicate=1, delay=1, seed=3)
    assert results_of_all_slots(fabric, worker) == []
    assert fabric.verdicts(JOB) == {}
    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=0, seed=3)
    fabric.settle()


def test_duplicates_are_made_in_both_directions(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
    fabric.switch.set_faults(1, drop=0, duplicate=1, delay=0, seed=3)
    arrived = results_of_all_slots(fabric, worker)
    assert Counter(arrived) == dict.fromkeys(range(SLOTS), 4)
    assert fabric.verdicts(JOB) == {Verdict.COMPLETED: SLOTS, Verdict.RESENT: SLOTS}
    assert fabric.switch.port_counters(1)["injected_duplicate"] == 3 * SLOTS
    assert fabric.drops() == {}


def test_delayed_packets_change_places_and_all_arrive(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=0.1, seed=3)
    arrived = results_of_all_slots(fabric, worker)
    assert arrived != sorted(arrived)
    assert sorted(arrived) == list(range(SLOTS))
    assert 130 < fabric.switch.port_counters(1)["injected_delay"] < 280  # 205 expected, standard deviation 14


def test_a_held_packet_goes_when_nothing_follows(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=1, seed=3)
    worker.send(Packet(JOB, 0, 0, 0, 1, (1, 2, 3, 4), 4))
    assert worker.receive().values == (1, 2, 3, 4)
    assert fabric.switch.port_counters(1)["injected_delay"] == 2


def test_each_copy_of_a_multicast_has_its_own_fate(fabric: Harness) -> None:
    workers = fabric.add_job(JOB, 4, slots=SLOTS)
    fabric.switch.set_faults(1, drop=0.5, duplicate=0, delay=0, seed=11)

    def part_received() -> bool:
        return fabric.switch.port_counters(1)["received"] == 4 * sent

    for sent in range(PART, SLOTS + 1, PART):
        for slot in range(sent - PART, sent):
            for rank, worker in enumerate(workers):
                worker.send(Packet(JOB, rank, 2 * slot, 0, 1, (1, 1, 1, 1), 4))
        fabric.wait_for(part_received)
    complete = fabric.verdicts(JOB)[Verdict.COMPLETED]  # about SLOTS / 16
    sent = fabric.switch.port_counters(1)["sent"]
    assert 30 < complete < 100
    received = [{packet.slot for packet in worker.waiting()} for worker in workers]
    assert sum(map(len, received)) == sent
    assert len(set(map(frozenset, received))) == 4  # copies are dropped independently
    assert all(0 < len(slots) < complete for slots in received)


def test_faults_of_one_port_leave_the_others_alone() -> None:
    with running(ports=2) as fabric:
        worker = fabric.add_job(JOB, 1, ports=(2,))[0]
        fabric.switch.set_faults(1, drop=1, duplicate=0, delay=0, seed=0)
        worker.send(Packet(JOB, 0, 0, 0, 1, (1, 2, 3, 4), 4))
        assert worker.receive().values == (1, 2, 3, 4)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_rates_are_checked(fabric: Harness, rate: float) -> None:
    for name in ("drop", "duplicate", "delay"):
        rates = {"drop": 0.0, "duplicate": 0.0, "delay": 0.0, name: rate}
        with pytest.raises(ValueError, match=name):
            fabric.switch.set_faults(1, **rates, seed=1)


def test_one_bit_of_a_packet_is_flipped(fabric: Harness) -> None:
    worker = fabric.add_job(JOB, 1, slots=SLOTS)[0]
    fabric.switch.set_faults(1, drop=0, duplicate=0, delay=0, seed=5, flip=0.25)
    sent = 8 * PART
    results = [Packet(JOB, 0, 2 * slot, 0, 1, (slot, 0, 0, 0), 4, kind=Kind.RESULT).pack() for slot in range(sent)]
    for slot in range(sent):
        worker.send(Packet(JOB, 0, 2 * slot, 0, 1, (slot, 0, 0, 0), 4))
    fabric.wait_for(lambda: fabric.switch.port_counters(1)["received"] == sent)
    answers = (Verdict.COMPLETED, Verdict.RESENT)  # a flip in the slot number makes two packets for one slot
    fabric.wait_for(
        lambda: fabric.switch.port_counters(1)["sent"] == sum(fabric.verdicts(JOB).get(v, 0) for v in answers)
    )
    assert 70 < fabric.switch.port_counters(1)["injected_flip"] < 150  # 112 expected, with both ways
    arrived = [packet.pack() for packet in worker.waiting()]
    changed = [min(bits_between(packet, result) for result in results) for packet in arrived if packet not in results]
    assert 30 < len(changed) < 110
    assert set(changed) <= {1, 2}  # at most one in each direction


def bits_between(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()
