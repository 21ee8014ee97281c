"""Lesson 5: a compressor of gradients, whose integers the switch can add up.

switchml-ctl job start --workers 3 -- python docs/tutorial/5_a_compressor/exercise.py
"""

import json
from collections.abc import Generator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch import compression

BATCH = 60  # pictures of all ranks in a step
EPOCHS = 4


class EightBits(compression.Compressor):
    """Each element as one of floor(127 / N) levels on both sides of 0, in the same unit on all N ranks."""

    name = "eight_bits"
    sent = "8"
    requests = (compression.Largest, compression.Sum)
    memory = "error feedback"

    def rounds(
        self, gradient: Tensor, place: compression.Place
    ) -> Generator[compression.Request, Tensor, compression.Outcome]:
        """Agree on a unit, then sum levels."""
        most = 127 // place.size  # so that the sum of all ranks' levels fits 8 bits
        # ---- hole 1: yield a Largest of this rank's largest magnitude (one element); `unit` is what a level stands for
        raise NotImplementedError("hole 1: agree on the unit of all ranks")
        # ---- end of hole 1
        unit = unit.clamp(min=1e-30)  # of gradients that are zero on all ranks
        levels = (gradient / unit).round()
        # ---- hole 2: yield a Sum of the levels (int32, bound=most); return an Outcome of the average and what was sent
        raise NotImplementedError("hole 2: sum the levels, and return the average and what was sent")
        # ---- end of hole 2


def train(compressor: compression.Compressor) -> dict[str, float]:
    """Train with a compressor, and return the accuracy and the bytes that this rank has sent."""
    torch.manual_seed(1)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    model.register_comm_hook(compression.CompressionState(model, compressor), compression.compression_hook)
    pixels, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    pixels = pixels.float() / 16
    test = torch.arange(len(labels)) % 3 == 0
    training = (~test).nonzero().flatten()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    shuffles = torch.Generator().manual_seed(1)
    before = switchml.torch.statistics()["wire_bytes"]
    for _ in range(EPOCHS):
        for batch in training[torch.randperm(len(training), generator=shuffles)].split(BATCH):
            own = batch[rank::size]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[own]), labels[own]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = float((model(pixels[test]).argmax(1) == labels[test]).float().mean())
    return {"accuracy": round(accuracy, 4), "bytes": switchml.torch.statistics()["wire_bytes"] - before}


def main() -> None:
    """Train without compression, then with it."""
    torch.set_num_threads(1)  # because the ranks share the machine's cores
    dist.init_process_group("switchml")
    results = {"none": train(compression.by_name("none")), "yours": train(EightBits())}
    print(json.dumps({"rank": dist.get_rank(), **results}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
