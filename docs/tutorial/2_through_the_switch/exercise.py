"""Lesson 2: a training through the switch, on a network that loses packets, and with a worker that dies.

switchml-ctl job start --workers 3 -- python docs/tutorial/2_through_the_switch/exercise.py
switchml-ctl job start --workers 3 -- python docs/tutorial/2_through_the_switch/exercise.py --dies-at 20
"""

import argparse
import hashlib
import json
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import switchml.torch

BATCH = 60  # pictures of all ranks in a step
EPOCHS = 4


def joined(backend: str, network: nn.Module) -> nn.Module:
    """Join the group of all ranks, and return a model whose backward pass averages the gradients over them."""
    # ---- hole 1: dist.init_process_group, and DistributedDataParallel
    raise NotImplementedError("hole 1: join the group, and return a model that averages its gradients")
    # ---- end of hole 1


def lost_ranks(error: RuntimeError) -> dict[str, Any]:
    """Return why a backward pass has failed: {"reason": the name of the library's error, "ranks": the lost ranks}.

    DistributedDataParallel waits in C++, and passes on only the message of an error; switchml.torch.last_error() is the
    error itself. If that is None, raise the one that was given.
    """
    # ---- hole 2: the error has the attributes `reason` and `ranks`
    raise NotImplementedError("hole 2: return the reason and the lost ranks of the last error")
    # ---- end of hole 2


def main() -> None:
    """Train one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("switchml", "gloo"), default="switchml")
    parser.add_argument("--dies-at", type=int, metavar="STEP", help="rank 1 kills itself before this step")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)  # because the ranks share the machine's cores
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = joined(options.backend, network)
    rank, size = dist.get_rank(), dist.get_world_size()

    pixels, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    pixels = pixels.float() / 16
    test = torch.arange(len(labels)) % 3 == 0
    training = (~test).nonzero().flatten()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    shuffles = torch.Generator().manual_seed(1)
    step = 0
    for _ in range(EPOCHS):
        for batch in training[torch.randperm(len(training), generator=shuffles)].split(BATCH):
            if step == options.dies_at and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            own = batch[rank::size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels[own]), labels[own])
            try:
                loss.backward()
            except RuntimeError as error:
                print(json.dumps({"rank": rank, "step": step, **lost_ranks(error)}), flush=True)
                sys.exit(3)
            optimizer.step()
            step += 1
    with torch.no_grad():
        accuracy = float((model(pixels[test]).argmax(1) == labels[test]).float().mean())
    bits = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    result = {"backend": options.backend, "steps": step, "accuracy": round(accuracy, 4)}
    print(json.dumps({"rank": rank, **result, "sha256": hashlib.sha256(bits).hexdigest()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
