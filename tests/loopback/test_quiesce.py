"""Ranks before an epoch change (docs/protocol.md): they stop, and fetch the results that the furthest of them has."""

from __future__ import annotations

import random
import time
from pathlib import Path

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


def leave_epoch(fabric: Fabric, job: int, after_chunks: int, block: int = 0) -> bool:
    """Stop a job in the middle of its calls; return whether ranks held different phases when they stopped.

    The calls are sparse if `block` is not 0.
    """
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
    held = [engine.freeze(handle) for engine, handle in engines]
    time.sleep(0.02)  # let all packets in flight arrive
    assert [engine.fetch(handle, own) for (engine, handle), own in zip(engines, held, strict=True)] == held
    targets = target_phases(held)
    while [engine.fetch(handle, targets) for engine, handle in engines] != [targets] * RANKS:
        assert time.monotonic() < end
    time.sleep(0.02)
    assert [engine.fetch(handle, targets) for engine, handle in engines] == [targets] * RANKS

    [completed] = {comm._membership.calls.settle() for comm in comms}
    for call in range(completed):
        assert all((arrays[rank][call] == sums[call]).all() for rank in range(RANKS))
    for comm in comms:
        comm.close()
    return any(phases != held[0] for phases in held)


@pytest.mark.parametrize("block", [0, 64])
@pytest.mark.parametrize(("transport", "threads"), [("udp", 1), ("udp", 2), ("shm", 1)])
def test_all_hold_the_same_in_the_end(tmp_path: Path, transport: str, threads: int, block: int) -> None:
    chance = random.Random(17)
    with running_fabric(tmp_path, pool=JOBS * SLOTS, transport=transport, threads=threads) as fabric:
        for _ in range(RANKS - 1):
            fabric.add_agent(transport)
        fabric.switch.set_faults(fabric.port, 0.05, 0.02, 0.02, 7)
        differed = []
        for job in range(1, JOBS + 1):
            fabric.add_job(job, RANKS, slots=SLOTS)
            differed.append(leave_epoch(fabric, job, chance.randrange(1, CALLS * ELEMENTS // 64 // 8), block))
    assert any(differed)


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
