"""Jobs of different priorities with the same ranks: urgent ones go first, and no rank waits forever."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import switchml
from tests.support.collective_harness import DEADLINE, Fabric, running_fabric

VALUES = 64
ELEMENTS = 200_003  # many pools of 64 slots
RANKS = 2
ORDINARY, URGENT = 1, 2

Floats = npt.NDArray[np.float32]


@pytest.fixture(params=["udp", "udp-2-threads", "shm"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    transport, *threads = request.param.split("-", 1)
    with running_fabric(tmp_path, VALUES, transport=transport, threads=2 if threads else 1) as running:
        running.add_job(ORDINARY, RANKS)
        running.add_job(URGENT, RANKS, priority=7)
        yield running


def contribution(rank: int, job: int) -> Floats:
    return np.random.default_rng((rank, job)).standard_normal(ELEMENTS).astype(np.float32)


def both_orders(fabric: Fabric, ordinary: switchml.Communicator) -> tuple[list[Floats], list[Floats]]:
    """Return a rank's sums of each job: first of calls that follow each other, then of calls in flight together.

    In the second part rank 0 begins with the urgent call, which rank 1 makes only after the ordinary one has ended.
    """
    rank = ordinary.rank
    with fabric.connect(rank, URGENT, RANKS) as urgent:
        assert (ordinary.priority, urgent.priority) == (0, 7)
        alone = [contribution(rank, ORDINARY), contribution(rank, URGENT)]
        ordinary.all_reduce(alone[0])
        urgent.all_reduce(alone[1])
        together = [contribution(rank, ORDINARY), contribution(rank, URGENT)]
        work = urgent.all_reduce(together[1], async_op=True) if rank == 0 else None
        ordinary.all_reduce(together[0], timeout=DEADLINE / 2)
        if work is None:
            urgent.all_reduce(together[1])
        else:
            work.wait()
        urgent.barrier()
    return alone, together


def test_a_job_ends_while_an_urgent_one_waits_for_a_late_rank(fabric: Fabric) -> None:
    results = fabric.run_ranks(RANKS, lambda comm: both_orders(fabric, comm), ORDINARY)
    for alone, together in results:
        for first, second, of_rank_0 in zip(alone, together, results[0][0], strict=True):
            assert first.tobytes() == second.tobytes() == of_rank_0.tobytes()


def urgent_among_many(fabric: Fabric, ordinary: switchml.Communicator) -> list[bytes]:
    """Return the sums of urgent calls, each while an ordinary one is in flight."""
    rank, sums = ordinary.rank, []
    with fabric.connect(rank, URGENT, RANKS) as urgent:
        for _ in range(5):
            behind, x = np.full(4 * ELEMENTS, rank + 1, np.int32), contribution(rank, URGENT)
            work = ordinary.all_reduce(behind, async_op=True)
            urgent.all_reduce(x)
            work.wait()
            assert (behind == RANKS * (RANKS + 1) // 2).all()
            sums.append(x.tobytes())
    return sums


def test_urgent_calls_among_others_give_the_same_bits(fabric: Fabric) -> None:
    results = fabric.run_ranks(RANKS, lambda comm: urgent_among_many(fabric, comm), ORDINARY)
    assert len({sums for of_rank in results for sums in of_rank}) == 1
