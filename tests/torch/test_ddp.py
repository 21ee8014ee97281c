"""DistributedDataParallel: unused parameters, gradient accumulation, mixed precision, loss scaling."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import STEPS, WIDTH, assert_close, assert_same_on_all_ranks, batch, loss_of, parameters


class Network(nn.Module):
    """Three layers; which of the two in the middle is used depends on `branch`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor, branch: int = 0) -> torch.Tensor:
        middle = (self.left, self.right)[branch]
        return self.last(torch.relu(middle(torch.relu(self.first(x)))))


def network_calls() -> int:
    return switchml.torch.statistics()["network_calls"]


def beside_gloo(train: Callable[[dist.ProcessGroup], list[torch.Tensor]], tolerance: float = 1e-5) -> None:
    """Train over both backends; the parameters are close, and under switchml the same bits on all ranks."""
    calls = network_calls()
    ours = train(dist.group.WORLD)
    assert network_calls() > calls
    assert_same_on_all_ranks(ours)
    assert_close(ours, train(dist.new_group(backend="gloo")), tolerance)


def unused_parameters(rank: int) -> None:
    def train(group: dist.ProcessGroup) -> list[torch.Tensor]:
        model = DistributedDataParallel(Network(), process_group=group, find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            # First all ranks use one branch, then each its own; at the end no rank uses the right one.
            branch = (1, rank % 2, 0)[step // 2]
            loss_of(model, rank, step, branch=branch).backward()
            assert (model.module.right.weight.grad is None) == (step >= 4)
            optimizer.step()
        return parameters(model)

    beside_gloo(train)


def test_parameters_that_some_ranks_do_not_use(ranks: Ranks) -> None:
    ranks.run(3, unused_parameters)


def accumulated(rank: int) -> None:
    """Three small batches with one exchange give the same as one exchange of their mean."""
    world_size = dist.get_world_size()
    alone, together = Network(), Network()
    for network in (alone, together):
        network.right.requires_grad_(False)
    model = DistributedDataParallel(together)
    optimizers = [torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1) for m in (model, alone)]
    for step in range(3):
        for part in range(3):
            with model.no_sync() if part < 2 else nullcontext():
                loss = loss_of(model, rank, 10 * step + part) / 3
                calls = network_calls()
                loss.backward()
            assert (network_calls() > calls) == (part == 2)
            for other in range(world_size):
                (loss_of(alone, other, 10 * step + part) / 3 / world_size).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert_same_on_all_ranks(parameters(model))
    assert_close(parameters(model), parameters(alone))


def test_gradient_accumulation_with_no_sync(ranks: Ranks) -> None:
    ranks.run(2, accumulated)


def mixed_precision(rank: int) -> None:
    def train(group: dist.ProcessGroup, dtype: torch.dtype) -> list[torch.Tensor]:
        """Train with parameters of `dtype`; if it is float32, autocast computes in bfloat16."""
        model = DistributedDataParallel(Network().to(dtype), process_group=group, find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            x, target = batch(rank, step)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
                scores = model(x.to(dtype))
            assert scores.dtype == torch.bfloat16
            nn.functional.cross_entropy(scores.float(), target).backward()
            assert model.module.first.weight.grad.dtype == dtype
            optimizer.step()
        return parameters(model)

    beside_gloo(lambda group: train(group, torch.float32), tolerance=1e-3)
    beside_gloo(lambda group: train(group, torch.bfloat16), tolerance=1e-2)


def test_bfloat16_by_autocast_and_throughout(ranks: Ranks) -> None:
    ranks.run(2, mixed_precision)


def scaled_loss(rank: int, dtype: torch.dtype) -> None:
    model = DistributedDataParallel(Network().to(dtype), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for step in range(4):
        before = [parameter.clone() for parameter in parameters(model)]
        optimizer.zero_grad()
        x, target = batch(rank, step)
        loss = nn.functional.cross_entropy(model(x.to(dtype)).float(), target)
        overflows = step == 2 and rank == 1
        scaler.scale(loss * (float("inf") if overflows else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        unchanged = all(torch.equal(a, b) for a, b in zip(before, parameters(model), strict=True))
        assert unchanged == (step == 2)
        assert scaler.get_scale() == (1024.0 if step < 2 else 512.0)
        assert all(bool(parameter.isfinite().all()) for parameter in parameters(model))
        assert_same_on_all_ranks(parameters(model))
    assert switchml.torch.statistics()["non_finite_results"] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_one_ranks_infinity_makes_all_ranks_skip_the_step(ranks: Ranks, dtype: torch.dtype) -> None:
    ranks.run(3, scaled_loss, dtype)
