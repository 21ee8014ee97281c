"""One rank ends in the middle of the training; the others must learn of it from their next call."""

import os
import signal
import sys
import time

import numpy as np

import switchml

how = sys.argv[1]
comm = switchml.connect()
array = np.ones(100_000, np.float32)
began = time.monotonic()
try:
    comm.all_reduce(array)  # rank 1 may have its result, and end, before another rank has read its own
    if comm.rank == 1:
        if how == "exit":
            print("rank 1 gives up", flush=True)
            os._exit(5)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("rank 1 has an accident")
    began = time.monotonic()
    while True:
        comm.all_reduce(array, op="avg")
except (switchml.WorkerLost, switchml.JobEnded) as error:
    print(f"{type(error).__name__} after {time.monotonic() - began:.2f} s: {error}", flush=True)
    sys.exit(3)
