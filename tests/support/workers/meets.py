"""A rank of a job by rendezvous: it finds all settings in the variables of a launcher of torch programs.

It prints one JSON object: the job, its epoch and the sum, or the error and its delay after the crash.
"""

import argparse
import json
import os
import signal
import time

import numpy as np

import switchml


def say(words: dict[str, object]) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())  # at once: several ranks may write to one pipe


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--crash", type=int, default=-1, help="rank that is killed while the others wait for it")
    parser.add_argument("--wait", action="store_true", help="stay attached until standard input ends")
    options = parser.parse_args()
    try:
        comm = switchml.connect(timeout=options.timeout)
    except switchml.ConnectError as error:
        say({"reason": error.reason, "message": str(error)})
        raise SystemExit(4) from None
    said = {"job": comm.name, "epoch": comm.epoch, "rank": comm.rank, "world_size": comm.world_size}
    x = np.full(100_000, comm.rank + 1, np.int32)
    comm.all_reduce(x)
    comm.barrier()
    assert (x == x[0]).all()
    said["sum"] = int(x[0])
    if comm.rank == options.crash:
        os.kill(os.getpid(), signal.SIGKILL)
    if options.crash >= 0:
        began = time.monotonic()
        try:
            comm.all_reduce(np.ones(100_000, np.float32))
        except switchml.WorkerLost as error:
            said |= {"lost": list(error.ranks), "seconds": time.monotonic() - began, "message": str(error)}
        say(said)
        raise SystemExit(3)
    say(said)
    if options.wait:
        input()
    comm.close()


main()
