"""One rank of the step-time benchmark: DDP of a 25-million-parameter model over Gloo and over switchml in turn.

Every round makes one step over each, so that other load on the machine affects all alike. Rank 0 writes to the
file that --output names: for each a list over the rounds of {"step": seconds of the slowest rank, "backward":
seconds until the rank's own last gradient was ready, "overlap": fraction of the time with gradients in flight during
which its backward pass was still computing, "urgent": seconds after that until the bucket that the next forward pass
needs first was averaged}.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchml.torch.hooks import all_reduce_hook

LAYERS = 6
WIDTH = 2048  # six layers of 2048 x 2048 and their biases: 25.2 million parameters
BATCH = 16
BUCKET_MEGABYTES = 16  # one layer each
WARM_UP = 2  # rounds: after the first, DDP lays out its buckets again


@dataclass
class Times:
    """The times at which each bucket of a step was handed to the hook, and at which its average was ready."""

    handed: dict[int, float] = field(default_factory=dict)
    averaged: dict[int, float] = field(default_factory=dict)


@dataclass
class DdpTraining:
    """A separate model, whose gradients go one way."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    times: Times
    measured: list[dict[str, float]] = field(default_factory=list)


def timed(hook: Callable[..., Any], times: Times) -> Callable[..., Any]:
    """Return `hook` with its times recorded."""

    def noting(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with types
        index = bucket.index()
        times.handed[index] = time.perf_counter()

        def note(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            times.averaged[index] = time.perf_counter()
            return future.value()

        return hook(state, bucket).then(note)

    return noting


def way(hook: Callable[..., Any], state: Any, group: dist.ProcessGroup) -> DdpTraining:
    """Create a model whose gradients are averaged by `hook`."""
    torch.manual_seed(1)
    network = nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    model = DistributedDataParallel(
        network, process_group=group, bucket_cap_mb=BUCKET_MEGABYTES, gradient_as_bucket_view=True
    )
    times = Times()
    model.register_comm_hook(state, timed(hook, times))
    return DdpTraining(model, torch.optim.SGD(model.parameters(), lr=1e-3), times)


def step(way: DdpTraining, pixels: torch.Tensor) -> dict[str, float]:
    """Make one step and measure it."""
    way.times.handed.clear()
    way.times.averaged.clear()
    begin = time.perf_counter()
    way.model(pixels).square().mean().backward()
    way.optimizer.step()
    end = time.perf_counter()
    way.optimizer.zero_grad(set_to_none=False)
    computed = max(way.times.handed.values())  # DDP hands over a bucket when its last gradient is ready
    under_way = max(way.times.averaged.values()) - min(way.times.handed.values())
    return {
        "step": end - begin,
        "backward": computed - begin,
        "overlap": (computed - min(way.times.handed.values())) / under_way,
        "urgent": way.times.averaged[max(way.times.averaged)] - computed,
    }


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("switchml")
    gloo = dist.new_group(backend="gloo")
    ways = {
        "gloo": way(all_reduce_hook, gloo, gloo),
        "switchml": way(all_reduce_hook, None, dist.group.WORLD),
    }
    pixels = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    for number in range(WARM_UP + options.rounds):
        for one in ways.values():
            dist.barrier()
            figures = step(one, pixels)
            slowest = torch.tensor(figures["step"], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if number >= WARM_UP:
                one.measured.append(figures | {"step": float(slowest)})
    parameters = sum(parameter.numel() for parameter in ways["gloo"].model.parameters())
    if dist.get_rank() == 0:
        result = {"parameters": parameters, "ways": {name: one.measured for name, one in ways.items()}}
        options.output.write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
