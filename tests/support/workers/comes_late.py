"""Ranks that attach to a job after it has lost one: the worker VICTIM is killed before or after it attached."""

import argparse
import json
import os
import signal

import numpy as np

import switchml
from switchml.controller.client import ControllerClient


def wait_for_loss() -> None:
    with ControllerClient(os.environ["SWITCHML_CONTROLLER"]) as client:
        for job in client.watch_job(os.environ["SWITCHML_JOB"], timeout=30):
            if job.generation > 0:
                return
    raise SystemExit("the job ended without a change of epoch")


def sum_of_ranks(comm: switchml.Communicator) -> int:
    x = np.full(1000, comm.rank + 1, np.int32)
    comm.all_reduce(x)
    return int(x[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--victim", type=int, required=True)
    parser.add_argument("--attaches", action="store_true", help="the victim attaches before it is killed")
    options = parser.parse_args()
    if int(os.environ["RANK"]) == options.victim:
        if options.attaches:
            comm = switchml.connect()
            assert comm.generation == 0
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_loss()
    with switchml.connect() as comm:
        try:
            total = sum_of_ranks(comm)
        except switchml.WorldChanged:  # the agent did not know the new epoch when this rank attached
            total = sum_of_ranks(comm)
        ranks = {"rank": comm.rank, "world_size": comm.world_size, "generation": comm.generation, "sum": total}
        os.write(1, (json.dumps(ranks) + "\n").encode())


main()
