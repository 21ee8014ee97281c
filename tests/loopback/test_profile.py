"""A rank's profile: the counters and the latest calls in its memory, as read by the agent."""

from __future__ import annotations

import mmap
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import switchml
from switchml.host_agent._engine import Engine
from tests.loopback.rank_assignments import rank_assignment
from tests.support.collective_harness import Fabric, running_fabric
from tests.support.controller_harness import wait_until

if TYPE_CHECKING:
    from switchml.host_agent._engine import RankProfile

BUCKETS = 26


@pytest.fixture(params=["udp", "shm"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fabric(transport: str, tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path, transport=transport) as running:
        yield running


def engine_profile(fabric: Fabric, rank: int, calls: int = 63) -> RankProfile:
    handle = fabric.call(lambda: fabric.agent.jobs[1].ranks[rank].handle)
    assert handle is not None
    return fabric.engines[0].profile(handle, calls)


def test_every_call_is_accounted_for(fabric: Fabric, transport: str) -> None:
    fabric.add_job(1, 2)
    sizes = [1000, 0, 100_000]
    both_done = threading.Barrier(2)

    def work(comm: switchml.Communicator) -> tuple[float, RankProfile, switchml.Statistics]:
        began = time.monotonic()
        for size in sizes:
            comm.all_reduce(np.ones(size, np.float32))
        comm.all_reduce(np.ones(50, np.int32))
        comm.all_reduce(np.ones(30, np.float16))
        comm.broadcast(np.zeros(7, np.uint8), 0)
        comm.barrier()
        comm.reduce_scatter(np.ones(60, np.float32), np.ones(30, np.float32))
        comm.all_gather(np.ones(5, np.uint8), np.ones(10, np.uint8))
        both_done.wait(30)
        found = engine_profile(fabric, comm.rank)
        lasted = time.monotonic() - began  # the thread still counts a little after the end of the last call
        both_done.wait(30)
        return lasted, found, comm.statistics()

    ranks = fabric.run_ranks(2, work)
    # A rank measures a round trip if its packet was the last one that the result waited for.
    assert (sum(sum(found["round_trips_by_duration"]) for _, found, _ in ranks) > 0) == (transport == "udp")
    for lasted, found, statistics in ranks:
        assert statistics.round_trip_seconds == pytest.approx(1e-9 * found["round_trip_time_ns"])
        assert (statistics.round_trip_bytes > 0) == (statistics.round_trip_seconds > 0)
        assert found["calls"] == 9
        assert found["bytes"] == 4 * (sum(sizes) + 50) + 2 * 30 + 7 + 4 * 60 + 10
        busy = found["quantize_ns"] + found["wait_ns"] + found["dequantize_ns"]
        assert 0 < busy <= lasted * 1e9
        assert found["quantize_ns"] > 0
        assert found["dequantize_ns"] > 0
        assert 0 < found["call_time_ns"] <= lasted * 1e9
        assert len(found["calls_by_duration"]) == BUCKETS
        assert sum(found["calls_by_duration"]) == 9
        latest = found["latest"]
        assert [call["sequence"] for call in latest] == list(range(9))
        assert [call["kind"] for call in latest] == [1, 1, 1, 7, 3, 8, 9, 256 + 1, 512 + 8]
        assert [call["bytes"] for call in latest] == [4000, 0, 400_000, 200, 60, 7, 0, 240, 10]
        for call, following in zip(latest, [*latest[1:], None], strict=True):
            assert call["submitted"] <= call["begun"] <= call["answered"] <= call["ended"] <= found["taken_at"]
            parts = call["quantize_ns"] + call["wait_ns"] + call["dequantize_ns"]
            assert parts <= call["ended"] - call["begun"]
            # The thread is always in one of these states.
            assert parts >= 0.99 * (call["ended"] - call["begun"])
            assert following is None or following["submitted"] >= call["ended"]
        if transport == "udp":
            assert found["send_ns"] > 0
            assert found["receive_ns"] > 0
            assert found["sent_bytes"] > 400_000
            assert found["received_bytes"] > 400_000
            assert len(found["round_trips_by_duration"]) == BUCKETS
            assert found["sum_ns"] == 0
        else:
            assert found["sum_ns"] > 0
            assert found["send_ns"] == found["receive_ns"] == sum(found["round_trips_by_duration"]) == 0


def test_only_the_latest_calls_are_kept(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    with fabric.connect(0) as comm:
        pending = [comm.all_reduce(np.ones(100, np.float32), async_op=True) for _ in range(200)]
        for work in pending:
            work.wait()
        found = engine_profile(fabric, 0)
        assert found["calls"] == sum(found["calls_by_duration"]) == 200
        kept = [call["sequence"] for call in found["latest"]]
        assert len(kept) == len(set(kept)) == 63
        assert all(100 < sequence < 200 for sequence in kept)
        assert [call["sequence"] for call in engine_profile(fabric, 0, 2)["latest"]] == kept[-2:]
        assert engine_profile(fabric, 0, 0)["latest"] == []


def test_a_rank_that_waits_now_is_seen_to_wait(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    with fabric.connect(0) as early, fabric.connect(1) as late:
        waiting = early.all_reduce(np.ones(10, np.float32), async_op=True)
        wait_until(lambda: engine_profile(fabric, 0)["wait_ns"] > 200e6, "the time of its wait grows")
        before, busy = engine_profile(fabric, 0), early._membership.native.spent()
        assert before["calls"] == 0
        assert 200e6 < before["wait_ns"] <= busy["wait_ns"]
        assert engine_profile(fabric, 1)["wait_ns"] == 0
        late.all_reduce(np.ones(10, np.float32))
        waiting.wait()
        after = engine_profile(fabric, 0)["wait_ns"]
        assert before["wait_ns"] <= after
        time.sleep(0.1)
        assert engine_profile(fabric, 0)["wait_ns"] == after  # there is nothing to wait for


def test_a_rank_before_its_process_comes(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    found = engine_profile(fabric, 1)
    assert found["calls"] == 0
    assert found["latest"] == []


def test_memory_that_holds_anything_harms_nobody() -> None:
    """Test arbitrary writes of the process, also while the agent reads."""
    engine = Engine()
    handle = engine.open_rank(rank_assignment(1, 0, 2, slots=64, values=64))
    descriptors = engine.open_channel(handle)
    memory = descriptors[0]
    generator = random.Random(5)
    with mmap.mmap(memory, 0) as block:
        end = 16384
        for _ in range(300):
            block[64:end] = generator.randbytes(end - 64)
            found = engine.profile(handle, 2**40)
            assert found["latest"] == []
            assert all(0 <= value < 2**64 for value in (found["calls"], found["bytes"], found["quantize_ns"]))
        for pattern in (b"\0", b"\xff"):
            block[64:end] = pattern * (end - 64)
            for call in engine.profile(handle, 63)["latest"]:
                assert call["submitted"] == call["ended"] == 0  # all zeros, which is possible
        stop = threading.Event()

        def scribble() -> None:
            while not stop.is_set():
                block[64:end] = os.urandom(end - 64)

        scribbler = threading.Thread(target=scribble)
        scribbler.start()
        try:
            for _ in range(2000):
                assert len(engine.profile(handle, 63)["latest"]) <= 63
        finally:
            stop.set()
            scribbler.join()
    engine.close_rank(handle)
    with pytest.raises(KeyError):
        engine.profile(handle, 1)
    for descriptor in descriptors:
        os.close(descriptor)
