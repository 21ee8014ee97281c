"""Two tensors in flight at once; the second is late on one rank."""

import time

import numpy as np

import switchml

with switchml.connect() as comm:
    first, second = np.ones(40_000, np.float32), np.ones(80_000, np.float32)
    comm.barrier()
    works = [comm.all_reduce(first, async_op=True)]
    if comm.rank == 1:
        time.sleep(0.3)
    works.append(comm.all_reduce(second, async_op=True))
    for work in works:
        work.wait()
    assert (first == comm.world_size).all()
    assert (second == comm.world_size).all()
