"""One rank of an all-reduce benchmark: times the same call through SwitchML or through Gloo.

Rank 0 writes {"seconds": [...]} to the file that --output names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def switchml_all_reduce() -> tuple[Callable[[np.ndarray], None], Callable[[], None]]:
    """Return all_reduce and barrier of a SwitchML job."""
    import switchml

    comm = switchml.connect()
    return comm.all_reduce, comm.barrier


def gloo_all_reduce() -> tuple[Callable[[np.ndarray], None], Callable[[], None]]:
    """Return all_reduce and barrier of PyTorch's Gloo process group."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return lambda array: dist.all_reduce(torch.from_numpy(array)), dist.barrier


BACKENDS = {"switchml": switchml_all_reduce, "gloo": gloo_all_reduce}


def take_share() -> None:
    """Let other sessions of this machine not take half of each core, whatever their nice values say (autogroup)."""
    with contextlib.suppress(OSError):  # not there, or not ours to set
        Path("/proc/self/autogroup").write_text("-20", encoding="ascii")


def main() -> None:
    """Time the calls and check every result."""
    take_share()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=BACKENDS)
    parser.add_argument("--elements", type=int, required=True, help="float32 elements of the tensor")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    all_reduce, barrier = BACKENDS[options.backend]()

    base = np.random.default_rng(0).standard_normal(options.elements, dtype=np.float32)
    contribution = base * np.float32(rank + 1)
    expected = base * np.float32(world_size * (world_size + 1) / 2)
    array = np.empty_like(contribution)
    seconds = []
    for iteration in range(options.iterations + 1):  # the first touches memory for the first time
        array[:] = contribution
        barrier()
        begin = time.perf_counter()
        all_reduce(array)
        elapsed = time.perf_counter() - begin
        np.testing.assert_allclose(array, expected, rtol=0, atol=1e-4)
        if iteration > 0:
            seconds.append(elapsed)
    barrier()
    if rank == 0:
        options.output.write_text(json.dumps({"seconds": seconds}), encoding="utf-8")


if __name__ == "__main__":
    main()
