"""Parts of several training tests: a task with the same data on all ranks, and comparisons."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 40
STEPS = 6


def batch(rank: int, step: int, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(size, WIDTH, generator=generator), torch.randint(0, 10, (size,), generator=generator)


def loss_of(model: Callable[..., torch.Tensor], rank: int, step: int, **arguments: int) -> torch.Tensor:
    x, target = batch(rank, step)
    return nn.functional.cross_entropy(model(x, **arguments), target)


def run_steps(model: nn.Module, rank: int, numbers: range, optimizer: torch.optim.Optimizer) -> None:
    for step in numbers:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def parameters(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in model.parameters()]


def assert_same_on_all_ranks(tensors: list[torch.Tensor]) -> None:
    """Check that the tensors have the same bits on all ranks."""
    mine = torch.cat([tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors])
    everyones: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, mine.numpy().tobytes())
    assert len(set(everyones)) == 1


def assert_close(ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float = 1e-5) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=10 * tolerance, atol=tolerance)
