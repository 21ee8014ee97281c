"""One rank of a soak job: it makes all-reduces and checks their sums, until rank 0 gets SIGTERM and tells the others.

It prints one JSON object, with the number of right sums or the error that ended the job. The exit status is 0, or 3
after an error that names a fault, or 1 for a wrong sum and any other error.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

import numpy as np

import switchml


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("key")
    parser.add_argument("rank", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two steps")
    options = parser.parse_args()
    said: dict[str, object] = {"rank": options.rank, "sums": 0}
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: enough.set())
    try:
        run(options, said, enough)
    except switchml.SwitchMLError as error:
        said["error"] = f"{type(error).__name__}: {error}"
    os.write(1, (json.dumps(said) + "\n").encode())
    sys.exit(3 if "error" in said else 0)


def run(options: argparse.Namespace, said: dict[str, object], enough: threading.Event) -> None:
    random = np.random.default_rng(sum(options.key.encode()))
    of_each = random.integers(-1000, 1000, (options.size, options.elements), dtype=np.int32)
    total = of_each.sum(axis=0, dtype=np.int32)
    step = 0
    with switchml.connect(
        job=options.key, rank=options.rank, world_size=options.size, create=True, timeout=120
    ) as comm:
        go_on = np.ones(1, np.int32)
        while go_on[0]:
            # Whole numbers of this size are exact in float32, and so is their sum in the switch.
            array = of_each[comm.rank] + np.int32(step % 1000)
            expected = total + np.int32(comm.world_size * (step % 1000))
            if step % 2:
                array, expected = array.astype(np.float32), expected.astype(np.float32)
            comm.all_reduce(array)
            if not np.array_equal(array, expected):
                raise SystemExit(f"rank {comm.rank} of {options.key}: the sum of step {step} is wrong")
            said["sums"] = step = step + 1
            go_on = np.array([comm.rank == 0 and not enough.is_set()], np.int32)
            comm.all_reduce(go_on)
            time.sleep(options.pause)


main()
