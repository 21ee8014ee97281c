"""One rank of the benchmark of sparse tensors: the same all-reduce over Gloo and through the switch, in turns.

The tensor is the gradient of an embedding table whose rows are drawn from a Zipf distribution, with a row for each
draw; popular rows are anywhere in the table. Every round makes one call in each way, so that other load on the machine
affects both alike. Rank 0 writes to the file that --output names: the number of rows that any rank has, and for each
way a list of the seconds of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ZIPF_POWER = 1.05
WARM_UP = 2  # rounds
TOLERANCE = 1e-5  # of a sum of the ranks' values, which are normal


def gradient(rows: int, dimension: int, draws: int) -> torch.Tensor:
    """Return this rank's tensor, which is not coalesced."""
    popularity = torch.arange(1, rows + 1, dtype=torch.float64) ** -ZIPF_POWER
    generator = torch.Generator().manual_seed(dist.get_rank())
    drawn = torch.multinomial(popularity, draws, replacement=True, generator=generator)
    place = torch.randperm(rows, generator=torch.Generator().manual_seed(0))  # the same at all ranks
    values = torch.randn(draws, dimension, generator=generator)
    return torch.sparse_coo_tensor(place[drawn][None], values, (rows, dimension), check_invariants=False)


def seconds_of(tensor: torch.Tensor, group: Any, gloo: Any) -> float:
    """Reduce a tensor, and return the time of the slowest rank."""
    dist.barrier(group=gloo)
    begin = time.perf_counter()
    dist.all_reduce(tensor, group=group)
    slowest = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=gloo)
    return float(slowest)


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("rounds", "rows", "dimension", "draws"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("switchml")
    gloo = dist.new_group(backend="gloo")
    given = gradient(options.rows, options.dimension, options.draws)
    ways: dict[str, list[float]] = {"gloo": [], "switchml": []}
    for number in range(WARM_UP + options.rounds):
        tensors = {name: given.clone() for name in ways}
        for name in sorted(ways, reverse=number % 2 == 1):
            seconds = seconds_of(tensors[name], gloo if name == "gloo" else dist.group.WORLD, gloo)
            if number >= WARM_UP:
                ways[name].append(seconds)
    ours, theirs = tensors["switchml"].coalesce(), tensors["gloo"].coalesce()
    if not torch.equal(ours.indices(), theirs.indices()):
        raise RuntimeError("the sums of both ways have other rows")
    torch.testing.assert_close(ours.values(), theirs.values(), rtol=TOLERANCE, atol=options.draws * TOLERANCE)
    if dist.get_rank() == 0:
        result = {"union": ours.indices().shape[1], "ways": ways}
        options.output.write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
