"""Ranks before an epoch change (docs/understand/correctness.md): they stop, and fetch what the furthest of them has."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from switchml.controller.jobs.epochs import target_phases
from switchml.host_agent._engine import Engine
from tests.support.collective_harness import Fabric, running_fabric

RANKS = 3
CALLS = 10
ELEMENTS = 50_000
SLOTS = 512
JOBS = 4
SECONDS = 60.0
SOME_PACKETS = 8  # so many that the faults do not reach all of them


def engine_of(fabric: Fabric, job: int, rank: int) -> tuple[Engine, int]:
    """Return the engine that serves a rank, and its handle there."""
    handle = fabric.call(lambda: fabric.agent_of(rank).agent.jobs[job].ranks[rank].handle)
    assert handle is not None
    return fabric.engines[rank % len(fabric.agents)], handle


def values_of(rank: int, call: int, block: int) -> npt.NDArray[np.int32]:
    """Return the values of a rank; if `block` is not 0, most blocks of this size have none."""
    values = np.full(ELEMENTS, call + rank, np.int32)
    if block:
        values[np.arange(ELEMENTS) // block % 7 != rank] = 0
    return values


def leave_epoch(fabric: Fabric, job: int, after_chunks: int, block: int = 0) -> None:
    """Stop a job in the middle of its calls, which are sparse if `block` is not 0; check that all ranks agree then."""
    comms = [fabric.connect(rank, job) for rank in range(RANKS)]
    arrays = [[values_of(rank, call, block) for call in range(CALLS)] for rank in range(RANKS)]
    sums = np.sum(arrays, axis=0)
    for comm in comms:
        for array in arrays[comm.rank]:
            comm.all_reduce(array, async_op=True, skip_zeros=block > 0)
    end = time.monotonic() + SECONDS
    while comms[0].statistics().position < after_chunks:
        assert time.monotonic() < end

    engines = [engine_of(fabric, job, rank) for rank in range(RANKS)]
    settle(engines, [engine.freeze(handle) for engine, handle in engines])
    [completed] = {comm._membership.native.settle() for comm in comms}
    for call in range(completed):
        assert all((arrays[rank][call] == sums[call]).all() for rank in range(RANKS))
    for comm in comms:
        comm.close()


def settle(engines: list[tuple[Engine, int]], held: list[list[int]]) -> None:
    """Let ranks that are frozen, and hold these phases, fetch the results that the furthest of them has."""
    end = time.monotonic() + SECONDS
    time.sleep(0.02)  # packets in flight may arrive, and nothing is taken from them
    assert [engine.fetch(handle, own) for (engine, handle), own in zip(engines, held, strict=True)] == held
    targets = target_phases(held)
    while [engine.fetch(handle, targets) for engine, handle in engines] != [targets] * RANKS:
        assert time.monotonic() < end
    time.sleep(0.02)
    assert [engine.fetch(handle, targets) for engine, handle in engines] == [targets] * RANKS


@pytest.mark.parametrize("block", [0, 64])
@pytest.mark.parametrize(("transport", "threads"), [("udp", 1), ("udp", 2), ("shm", 1)])
def test_all_hold_the_same_in_the_end(tmp_path: Path, transport: str, threads: int, block: int) -> None:
    chance = random.Random(17)
    with running_fabric(tmp_path, pool=JOBS * SLOTS, transport=transport, threads=threads) as fabric:
        for _ in range(RANKS - 1):
            fabric.add_agent(transport)
        fabric.switch.set_faults(fabric.port, 0.05, 0.02, 0.02, 7)
        for job in range(1, JOBS + 1):
            fabric.add_job(job, RANKS, slots=SLOTS)
            leave_epoch(fabric, job, chance.randrange(1, CALLS * ELEMENTS // 64 // 8), block)


@pytest.mark.parametrize("block", [0, 64])
@pytest.mark.parametrize("transport", ["udp", "shm"])
def test_who_stops_first_fetches_what_the_others_have(tmp_path: Path, transport: str, block: int) -> None:
    """The last rank begins its call after the first one, which has sent its values, is frozen: so these two differ."""
    with running_fabric(tmp_path, pool=SLOTS, transport=transport) as fabric:
        for _ in range(RANKS - 1):
            fabric.add_agent(transport)
        fabric.switch.set_faults(fabric.port, 0.05, 0.02, 0.02, 7)
        fabric.add_job(1, RANKS, slots=SLOTS)
        comms = [fabric.connect(rank) for rank in range(RANKS)]
        engines = [engine_of(fabric, 1, rank) for rank in range(RANKS)]
        end = time.monotonic() + SECONDS

        def begin(rank: int) -> None:
            comms[rank].all_reduce(values_of(rank, 0, block), async_op=True, skip_zeros=block > 0)

        def wait_for(rank: int, counter: Literal["sent", "received"]) -> None:
            engine, handle = engines[rank]
            while engine.status(handle)[counter] < SOME_PACKETS:
                assert time.monotonic() < end

        begin(0)
        begin(1)
        wait_for(0, "sent")
        first = engines[0][0].freeze(engines[0][1])
        begin(2)
        wait_for(2, "received")
        held = [first, *(engine.freeze(handle) for engine, handle in engines[1:])]
        assert held[0] != held[2]
        settle(engines, held)
        for comm in comms:
            comm.close()


@pytest.mark.parametrize("transport", ["udp", "shm"])
def test_calls_in_two_parts_end_alike(tmp_path: Path, transport: str) -> None:
    """Stop sparse calls in large packets, of which the second part has as many chunks as the first one tells."""
    chance = random.Random(18)
    with running_fabric(tmp_path, 512, pool=JOBS * SLOTS, transport=transport) as fabric:
        for _ in range(RANKS - 1):
            fabric.add_agent(transport)
        fabric.switch.set_faults(fabric.port, 0.05, 0.02, 0.02, 7)
        for job in range(1, JOBS + 1):
            fabric.add_job(job, RANKS, slots=SLOTS)
            leave_epoch(fabric, job, chance.randrange(1, 300), 256)


@pytest.mark.parametrize("transport", ["udp", "shm"])
def test_what_is_no_step_of_a_change_is_refused(tmp_path: Path, transport: str) -> None:
    with running_fabric(tmp_path, transport=transport) as fabric:
        fabric.add_job(1, 1, slots=64)
        engine, handle = engine_of(fabric, 1, 0)
        with pytest.raises(ValueError, match="is not frozen"):
            engine.fetch(handle, [0] * 64)
        assert engine.freeze(handle) == [0] * 64
        with pytest.raises(ValueError, match="not one for each of its slots"):
            engine.fetch(handle, [0] * 63)
