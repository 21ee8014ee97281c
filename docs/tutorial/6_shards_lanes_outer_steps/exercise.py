"""Lesson 6: parameters in shards, 16 and 8 bits for a value, and averages of parameters after many steps (DiLoCo).

switchml-ctl job start --workers 3 -- python docs/tutorial/6_shards_lanes_outer_steps/exercise.py
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch.fsdp import overlap

BATCH = 60  # pictures of all ranks in a step
STEPS = 100
INNER = 10  # steps of a replica between two averages of DiLoCo


def sharded(network: nn.Sequential) -> nn.Module:
    """Return the network with each rank holding one part of every parameter, and with collectives that overlap."""
    # ---- hole 1: fully_shard each nn.Linear of the network, then the network itself; then overlap(network)
    raise NotImplementedError("hole 1: shard the layers and the network, and let collectives overlap")
    # ---- end of hole 1


def outer_step(replica: nn.Module, shared: Sequence[Tensor], outer: torch.optim.Optimizer, group: Any) -> None:
    """Average how far the replicas have come since they were all at `shared`, step `outer` by it, and go on from there.

    `shared` are the parameters of the optimizer `outer`. Its gradient is the way back: from where the replicas are now,
    on average, to `shared`.
    """
    with torch.no_grad():
        for parameter, place in zip(replica.parameters(), shared, strict=True):
            # ---- hole 2: set place.grad, and average it over `group` (dist.all_reduce, dist.ReduceOp.AVG)
            raise NotImplementedError("hole 2: average the way back to the shared parameters")
            # ---- end of hole 2
        outer.step()
        for parameter, place in zip(replica.parameters(), shared, strict=True):
            parameter.copy_(place)


class Digits:
    """The pictures of scikit-learn's handwritten digits."""

    def __init__(self) -> None:
        pixels, self.labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
        self.pixels = pixels.float() / 16
        self.test = torch.arange(len(self.labels)) % 3 == 0

    def batches(self) -> Iterator[Tensor]:
        """Yield this rank's part of the batch of each step."""
        training = (~self.test).nonzero().flatten()
        shuffles = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            chosen = torch.randint(0, len(training), (BATCH,), generator=shuffles)
            yield training[chosen][dist.get_rank() :: dist.get_world_size()]

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Return the loss of a batch."""
        return nn.functional.cross_entropy(model(self.pixels[batch]), self.labels[batch])

    def accuracy(self, model: nn.Module) -> float:
        """Return the share of the test's pictures that a model names correctly."""
        with torch.no_grad():
            right = model(self.pixels[self.test]).argmax(1) == self.labels[self.test]
        return round(float(right.float().mean()), 4)


def network() -> nn.Sequential:
    """Return the same network on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def group_of(wire: str) -> Any:
    """Return a group of all ranks whose floats travel in this form."""
    return dist.new_group(pg_options=switchml.torch.Options(wire=wire))


def train(digits: Digits, model: nn.Module, after: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Train a model, calling `after` behind each step, and return its accuracy and what this rank has sent and held."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = switchml.torch.statistics()["wire_bytes"]
    for step, batch in enumerate(digits.batches()):
        optimizer.zero_grad()
        digits.loss(model, batch).backward()
        optimizer.step()
        after(step)
    sent = switchml.torch.statistics()["wire_bytes"] - before
    parameters = [
        getattr(parameter, "to_local", lambda parameter=parameter: parameter)() for parameter in model.parameters()
    ]
    total = float(sum(parameter.double().sum() for parameter in parameters))
    held = sum(parameter.numel() for parameter in parameters)
    return {"accuracy": digits.accuracy(model), "bytes": sent, "held": held, "sum_of_parameters": total}


def diloco(digits: Digits, group: Any) -> dict[str, Any]:
    """Train a replica on each rank, with an outer step after every INNER steps."""
    replica = network()
    shared = [parameter.detach().clone() for parameter in replica.parameters()]
    outer = torch.optim.SGD(shared, lr=0.7, momentum=0.9, nesterov=True)

    def after(step: int) -> None:
        if step % INNER == INNER - 1:
            outer_step(replica, shared, outer, group)

    return train(digits, replica, after)


def main() -> None:
    """Make each training, and print what it took."""
    torch.set_num_threads(1)  # because the ranks share the machine's cores
    dist.init_process_group("switchml")
    digits = Digits()
    results = {"ddp": train(digits, DistributedDataParallel(network()))}
    results["fsdp"] = train(digits, sharded(network()))
    for bits in (16, 8):
        group = group_of(f"blocks:bits={bits},rounding=stochastic")
        results[f"lanes of {bits}"] = train(digits, DistributedDataParallel(network(), process_group=group))
    results["diloco"] = diloco(digits, group)
    print(json.dumps({"rank": dist.get_rank(), **results}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
