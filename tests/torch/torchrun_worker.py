"""A rank that torchrun or `switchml-ctl job start` starts; it writes its observations to `OUT/ATTEMPT-RANK.json`.

`--crash RANK`: that rank is killed in the middle of an all-reduce, in the first attempt. With `--backend none` the
others then wait until they are stopped, like ranks that hang.
"""

import argparse
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import switchml
import switchml.torch


def total(rank: int, size: int) -> float:
    x = torch.full((50_000,), float(rank + 1))
    dist.all_reduce(x)
    assert torch.equal(x, torch.full_like(x, size * (size + 1) / 2))
    return float(x[0])


def lose(crash: int) -> dict[str, object]:
    """Make all-reduces until the death of a rank interrupts one."""
    # If torchrun notices the death first, it sends SIGTERM, and waits 30 s for this process to end by itself.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    x = torch.ones(2_000_000)
    if dist.get_rank() == crash:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        x.fill_(1.0)
        began = time.monotonic()
        try:
            dist.all_reduce(x)
        except dist.DistBackendError as error:
            ranks = list(getattr(error, "ranks", ()))
            return {"error": str(error), "ranks": ranks, "seconds": time.monotonic() - began}


def alone(out: Path, crash: int) -> dict[str, object]:
    """Use the library without torch.distributed."""
    with switchml.connect() as comm:
        if crash >= 0 and not (out / "crashed").exists():
            comm.barrier()  # no other rank checks the file after this
            if comm.rank == crash:
                (out / "crashed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                comm.barrier()
            except switchml.WorkerLost:
                signal.pause()
        x = torch.full((1000,), float(comm.rank + 1))
        comm.all_reduce(x)
        return {"total": float(x[0]), "job": comm.name, "epoch": comm.epoch, "world_size": comm.world_size}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="switchml")
    parser.add_argument("--crash", type=int, default=-1)
    options = parser.parse_args()
    attempt, rank = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), int(os.environ["RANK"])
    said: dict[str, object] = {"environment": sorted(name for name in os.environ if name.startswith("SWITCHML_"))}
    status = 0
    if options.backend == "none":
        said |= alone(options.out, options.crash)
    else:
        dist.init_process_group(options.backend, timeout=timedelta(seconds=60))
        said |= {"total": total(rank, dist.get_world_size()), "backend": dist.get_backend()}
        if options.backend == "gloo":  # torch finds its ranks, and the job exists in addition
            with switchml.connect() as comm:
                said["job"] = comm.name
        if options.crash >= 0 and attempt == "0":
            said |= lose(options.crash)
            status = 3
        else:
            dist.destroy_process_group()
    (options.out / f"{attempt}-{rank}.json").write_text(json.dumps(said))
    raise SystemExit(status)


main()
