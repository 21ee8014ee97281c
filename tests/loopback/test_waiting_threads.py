"""Which thread moves the values of a call: the one that waits for it if it is short, else the progress thread."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import numpy as np
import pytest

import switchml
from tests.support.collective_harness import DEADLINE, Fabric

CALLS = 200
VALUES = 64  # per packet
SHORT = VALUES
LONG = 100_000  # more than the pool holds


def sleeps_of_progress_threads() -> int:
    """Return how often the progress threads of this process have gone to sleep."""
    sleeps = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            if status["Name"].strip() == "switchml":
                sleeps += int(status["voluntary_ctxt_switches"])
    return sleeps


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "awaited"])
def test_short_calls_leave_the_progress_threads_asleep(fabric: Fabric, asynchronous: bool) -> None:
    fabric.add_job(1, 2)
    both = threading.Barrier(2)

    def run(comm: switchml.Communicator) -> int:
        x = np.ones(SHORT, np.float32)
        both.wait(DEADLINE)
        before = sleeps_of_progress_threads()
        for _ in range(CALLS):
            if asynchronous:
                comm.awaited.all_reduce(x, "avg", async_op=True).wait()
            else:
                comm.all_reduce(x, "avg")
        slept = sleeps_of_progress_threads() - before
        both.wait(DEADLINE)  # a thread that ends would count
        return slept

    assert max(fabric.run_ranks(2, run)) < CALLS / 2  # a call that takes long is left to them


def test_threads_that_wait_for_short_and_long_calls_at_once(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    rounds = 30

    def run(comm: switchml.Communicator) -> list[float]:
        sums = []
        for number in range(rounds):
            long, short, last = (np.full(size, number + comm.rank, np.float32) for size in (LONG, SHORT, SHORT))
            first = comm.all_reduce(long, async_op=True)
            comm.all_reduce(short)
            second = comm.all_reduce(last, async_op=True)
            other = threading.Thread(target=second.wait)
            other.start()
            first.wait()
            other.join(DEADLINE)
            assert second.is_completed()
            assert all((array == array[0]).all() for array in (long, short, last))
            sums += [array[0] for array in (long, short, last)]
        return sums

    expected = [2 * number + 1 for number in range(rounds) for _ in range(3)]
    assert fabric.run_ranks(2, run) == [expected, expected]
