"""One rank of the recommender's benchmark: DDP of the same model over Gloo and through the switch, in turns.

The model scores users by the mean of the rows of an embedding table that they have used; most of it is the table. Its
gradient is a dense tensor, nearly all of whose rows are zero, or a sparse one (`Embedding(sparse=True)`). Which rows
are used follows a Zipf distribution. Every round makes one step in each way, with the same data, so that other load on
the machine affects all alike. Rank 0 writes to the file that --output names: the bytes of the table, and for each way
lists over the rounds of "seconds" of the slowest rank and of the "loss", a mean over the ranks.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchml.torch import Options

ITEMS = 20  # that a user has used
USERS = 32  # in the batch of a rank
ZIPF_POWER = 1.05
WARM_UP = 2  # rounds: after the first, DDP lays out its buckets again


class Recommender(nn.Module):  # type: ignore[misc]
    """The logarithm of the odds that a user wants more, from the items that this user has had."""

    def __init__(self, rows: int, dimension: int, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(rows, dimension, sparse=sparse)
        self.scores = nn.Sequential(nn.Linear(dimension, dimension), nn.ReLU(), nn.Linear(dimension, 1))

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Return a number for each row of `items`, which has the numbers of ITEMS rows of the table."""
        scores: torch.Tensor = self.scores(self.table(items).mean(1))
        return scores.squeeze(1)


class RecommenderTraining:
    """A separate model, whose gradients are of one kind and use one group."""

    def __init__(self, rows: int, dimension: int, sparse: bool, group: Any) -> None:
        self._model = DistributedDataParallel(
            Recommender(rows, dimension, sparse), process_group=group, gradient_as_bucket_view=True
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1.0)
        self._group = group
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def step(self, items: torch.Tensor, wants: torch.Tensor) -> None:
        """Make one step, and note its time and its loss."""
        dist.barrier()
        begin = time.perf_counter()
        loss = nn.functional.binary_cross_entropy_with_logits(self._model(items), wants)
        loss.backward()
        self._optimizer.step()
        elapsed = time.perf_counter() - begin
        self._optimizer.zero_grad()
        slowest, mean = torch.tensor(elapsed, dtype=torch.float64), loss.detach().double()
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        self.seconds.append(float(slowest))
        self.losses.append(float(mean))


def batch(rows: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return items of users, and whether these want more: those who have had many of the popular ones."""
    generator = torch.Generator().manual_seed(1000 * number + dist.get_rank())
    popularity = torch.arange(1, rows + 1, dtype=torch.float64) ** -ZIPF_POWER
    items = torch.multinomial(popularity, USERS * ITEMS, replacement=True, generator=generator).view(USERS, ITEMS)
    return items, ((items < rows // 1000 + 1).float().mean(1) > 0.5).float()


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--dimension", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("switchml")
    groups = {
        "gloo": dist.new_group(backend="gloo"),
        "switchml": dist.group.WORLD,
        "switchml, skip_zeros=auto": dist.new_group(pg_options=Options(skip_zeros="auto")),
    }
    ways = {
        f"{name}, {'sparse' if sparse else 'dense'} gradients": RecommenderTraining(
            options.rows, options.dimension, sparse, group
        )
        for sparse in (False, True)
        for name, group in groups.items()
        if not (sparse and name == "switchml, skip_zeros=auto")  # it is for dense tensors
    }
    for number in range(WARM_UP + options.rounds):
        data = batch(options.rows, number)
        for way in ways.values():
            way.step(*data)
    if dist.get_rank() == 0:
        result = {
            "table_bytes": 4 * options.rows * options.dimension,
            "ways": {name: {"seconds": way.seconds[WARM_UP:], "losses": way.losses} for name, way in ways.items()},
        }
        options.output.write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
