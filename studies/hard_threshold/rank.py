"""One rank of this study: a training of digits with error feedback, by one method.

Rank 0 writes the accuracy, and for each step, summed over the ranks, the elements sent and the squared norm of what was
not sent.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from studies.grace.arguments import method_arguments
from studies.grace.tasks import Digits
from switchml.torch.compression import CompressionState, ErrorFeedback, by_name, compression_hook


class CountingFeedback(ErrorFeedback):
    """Error feedback that counts the elements sent in a step, and sums up the squares of those that were not."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = torch.zeros(2, dtype=torch.float64)

    def end(self, name: str, own: Tensor | None) -> None:
        """Keep the residual, and count."""
        super().end(name, own)
        assert own is not None
        residual = self.tensors[name]["residual"].double()
        self.counts += torch.stack([own.count_nonzero().double(), residual.square().sum()])


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("switchml")
    rank, size = dist.get_rank(), dist.get_world_size()
    task = Digits(options.seed)
    model = DistributedDataParallel(task.model)
    name, arguments = method_arguments(options.method)
    memory = CountingFeedback()
    state = CompressionState(model, by_name(name, **arguments), memory, warm_up_steps=0, seed=options.seed)
    model.register_comm_hook(state, compression_hook)
    optimizer = task.optimizer(1.0, 0.0)
    counts = torch.zeros(options.steps, 2, dtype=torch.float64)
    for step in range(options.steps):
        optimizer.zero_grad()
        task.loss(model, rank, size, step).backward()
        optimizer.step()
        counts[step] = memory.counts
        memory.counts.zero_()
    dist.all_reduce(counts)
    if rank == 0:
        elements = sum(parameter.numel() for parameter in task.model.parameters())
        result = {
            "accuracy": task.accuracy(),
            "density": (counts[:, 0] / (elements * size)).tolist(),
            "errors": counts[:, 1].tolist(),
        }
        options.output.write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
