"""Steps of a training that continues after losses: every sum is checked, and all ranks agree on the step.

A step has three dense sums of integers and a sparse one of floats.

The worker VICTIM (by its first number) kills itself in step AT, when it has half of the results or has waited for them
for DELAY seconds, unless it was restarted.
Each rank prints one JSON object per change, one at its end and, with --say-steps, one per step.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

import switchml


def say(words: dict[str, object]) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())


def kill_in_the_middle(comm: switchml.Communicator, size: int, delay: float) -> None:
    end, middle = time.monotonic() + delay, comm.statistics().position + size / comm.values_per_packet / 2
    while comm.statistics().position < middle and time.monotonic() < end:
        time.sleep(0.0002)
    in_the_middle = comm.statistics().position >= middle
    say({"killed": time.monotonic(), "in_the_middle": in_the_middle})  # on a clock that all processes share
    os.kill(os.getpid(), signal.SIGKILL)


def sparse_values(rank: int, size: int, step: int) -> npt.NDArray[np.float32]:
    """Return an array with values in a twentieth of its length; two ranks each have them in the same places."""
    rows = np.zeros((40, size // 40 + 1), np.float32)
    rows[(step + 3 * (rank // 2)) % 20 :: 20] = rank + step + 1  # sums of such floats are exact
    return rows.reshape(-1)[:size]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--victim", type=int, action="append", default=[])
    parser.add_argument("--at", type=int, default=5)
    parser.add_argument("--delay", type=float, default=0.5)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--say-steps", action="store_true")
    parser.add_argument("--until", type=Path, help="end once this file exists, although steps are left")
    options = parser.parse_args()
    comm = switchml.connect()
    victim = int(os.environ["RANK"]) in options.victim and comm.generation == 0
    step, last, agreed = 0, options.steps, comm.generation == 0
    while True:
        if victim and step == options.at:
            threading.Thread(target=kill_in_the_middle, args=(comm, options.size, options.delay)).start()
        try:
            if not agreed:
                root = min(set(range(comm.world_size)) - set(comm.joined))
                word = np.array([step], np.int64)
                comm.broadcast(word, root, timeout=options.timeout)
                step, agreed = int(word[0]), True
            if step == last:
                comm.barrier(timeout=options.timeout)
                break
            ending = np.array([options.until is not None and options.until.exists()], np.int32)
            x = np.full(options.size, 7 * step + 1, np.int32)
            dense = np.array_split(x, 3)
            if options.until is not None:
                dense.insert(0, ending)  # greater than 0 at all ranks once one of them has seen the file
            works = [comm.all_reduce(part, async_op=True, timeout=options.timeout) for part in dense]
            y = sparse_values(comm.rank, options.size // 3, step)
            works.append(comm.all_reduce(y, skip_zeros=True, async_op=True, timeout=options.timeout))
            for work in works:
                work.wait()
            assert works[-1].is_sparse, "a wrong sum: it is not a sparse one"
            assert (x == comm.world_size * (7 * step + 1)).all(), "a wrong sum"
            contributions = [sparse_values(rank, y.size, step) for rank in range(comm.world_size)]
            assert (y == np.sum(contributions, axis=0)).all(), "a wrong sum of a sparse call"
            if options.say_steps:
                say({"step": step, "at": time.monotonic()})
            step += 1
            last = step if ending[0] else last
            time.sleep(options.pause)
        except switchml.WorldChanged as change:
            agreed, last = False, options.steps  # a rank that joins now does not know the last step
            say({"changed": time.monotonic(), "lost": change.ranks, "epoch": change.epoch, "rank": change.rank})
            say({"message": str(change), "completed": change.completed, "world_size": change.world_size})
        except switchml.SwitchMLError as error:
            say({"error_at": time.monotonic(), "error": f"{type(error).__name__}: {error}"})
            raise SystemExit(3) from None
    say({"rank": comm.rank, "world_size": comm.world_size, "epoch": comm.epoch, "steps": step})
    comm.close()


main()
