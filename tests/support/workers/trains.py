"""Training with DistributedDataParallel over SwitchML until a file exists; every gradient and parameter is checked.

Each rank prints one JSON object per step, and one at its end. Gradients are integers, whose sums are exact.
"""

import argparse
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import switchml.torch

LAYERS = 3
BUCKET_MEBIBYTES = 0.2


def say(words: dict[str, object]) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())


class Layers(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size // LAYERS, 1, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer(x) for layer in self.layers]).sum()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="ignored, like --say-steps: these are options of survives.py")
    parser.add_argument("--say-steps", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("switchml", timeout=timedelta(seconds=options.timeout))
    rank, size = dist.get_rank(), dist.get_world_size()
    model = Layers(options.size)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    parallel = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MEBIBYTES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ending, step, moved = torch.zeros(1, dtype=torch.int32), 0, 0
    while not ending:
        try:
            optimizer.zero_grad()
            # DistributedDataParallel averages: with this factor every gradient is an integer before and after that.
            parallel(torch.full((1, options.size // LAYERS), float(size * (rank + step % 100)))).backward()
            expected = size * (size - 1) // 2 + size * (step % 100)
            for parameter in model.parameters():
                assert (parameter.grad == expected).all(), "a wrong sum"
            optimizer.step()
            moved += expected
            ending[0] = options.until.exists()
            dist.all_reduce(ending)
        except RuntimeError:  # a backward pass does not preserve the type
            error = switchml.torch.last_error()
            assert error is not None
            say({"error_at": time.monotonic(), "error": f"{error.reason}: {error}", "ranks": error.ranks})
            raise SystemExit(3) from None
        say({"step": step, "at": time.monotonic()})
        step += 1
        time.sleep(options.pause)
    assert all((parameter == -moved).all() for parameter in model.parameters()), "a wrong sum of all steps"
    assert switchml.torch.statistics()["network_calls"] > step, "not over SwitchML"
    dist.destroy_process_group()
    say({"rank": rank, "world_size": size, "steps": step})


main()
