"""Tensors that wrap a tensor, in every collective; a pipeline of tensor-parallel stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.two_tensor import TwoTensor

import switchml
import switchml.torch
from tests.torch.torch_harness import Ranks

SIZE = 2
TOTAL = 3.0  # of the ranks' contributions


def pending(rank: int) -> torch.Tensor:
    """Return the result of a functional collective that may still be under way: the total, four times."""
    tensor = functional.all_reduce(torch.full((4,), rank + 1.0), "sum", dist.group.WORLD)
    assert isinstance(tensor, functional.AsyncCollectiveTensor)
    return tensor


def values(tensor: torch.Tensor) -> list[float]:
    return list((tensor + 0).tolist())


def every_collective(rank: int) -> None:
    group: Any = dist.group.WORLD
    parts = [pending(rank), torch.full((4,), TOTAL)]
    calls: tuple[tuple[Callable[[torch.Tensor], object], float], ...] = (
        (lambda x: dist.all_reduce(x), SIZE * TOTAL),
        (lambda x: dist.all_reduce(x, dist.ReduceOp.MAX), TOTAL),
        (lambda x: dist.all_reduce(x, async_op=True).wait(), SIZE * TOTAL),
        (lambda x: dist.reduce(x, 0), TOTAL if rank else SIZE * TOTAL),
        (lambda x: dist.broadcast(x, 0), TOTAL),
        (lambda x: group.all_reduce_over(x, "sum", switchml.Blocks()).wait(), SIZE * TOTAL),
        (lambda x: dist.all_reduce_coalesced([x, torch.ones(2)]), SIZE * TOTAL),
        (lambda x: dist.scatter(x, None if rank else parts), TOTAL),
        (lambda x: dist.all_to_all_single(x, torch.full((4,), TOTAL)), TOTAL),
        (lambda x: dist.all_gather_single(x, torch.full((2,), TOTAL)), TOTAL),
        (lambda x: dist.reduce_scatter_single(x, torch.ones(8)), float(SIZE)),
    )
    for call, expected in calls:
        tensor = pending(rank)
        call(tensor)
        assert values(tensor) == [expected] * 4
    calls_with: tuple[Callable[[torch.Tensor, list[torch.Tensor]], object], ...] = (
        lambda x, out: dist.all_gather(out, x),
        lambda x, out: dist.all_to_all(out, [x, pending(rank)]),
        lambda x, out: dist.all_gather(list(map(functional.AsyncCollectiveTensor, out)), x),
    )
    for call_with in calls_with:
        out = [torch.zeros(4) for _ in range(SIZE)]
        call_with(pending(rank), out)
        assert [part.tolist() for part in out] == [[TOTAL] * 4] * SIZE
    gathered = None if rank else [torch.zeros(4) for _ in range(SIZE)]
    dist.gather(pending(rank), gathered)
    assert gathered is None or [part.tolist() for part in gathered] == [[TOTAL] * 4] * SIZE
    for scatter in (dist.reduce_scatter_single, lambda out, x: dist.reduce_scatter(out, [x[:2], x[2:]])):
        part = torch.zeros(2)
        scatter(part, pending(rank))
        assert part.tolist() == [SIZE * TOTAL] * 2
    tensor, received = pending(rank), torch.zeros(4)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(functional.AsyncCollectiveTensor(received), 0)
        assert received.tolist() == [TOTAL] * 4
    with pytest.raises(switchml.UnsupportedTensor, match="TwoTensor consists of 2 tensors"):
        dist.all_reduce(TwoTensor(torch.ones(4), torch.ones(4)))


def test_results_of_functional_collectives_in_every_collective(ranks: Ranks) -> None:
    ranks.run(SIZE, every_collective)


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def pipeline(rank: int) -> list[float]:
    """Train two stages of a pipeline, each on two ranks by tensor parallelism; return the losses of the last one."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "tensors"))
    torch.manual_seed(rank // 2)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(use_local_output=True)}
    stage = parallelize_module(Stage(), mesh["tensors"], plan)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    schedule = ScheduleGPipe(
        PipelineStage(stage, rank // 2, 2, torch.device("cpu"), group=mesh.get_group("stages")),
        n_microbatches=2,
        loss_fn=nn.functional.mse_loss,
    )
    torch.manual_seed(9)
    inputs, targets = torch.randn(4, 8), torch.randn(4, 8)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        of_step: list[torch.Tensor] = []
        schedule.step(*([inputs] if rank < 2 else []), **({"target": targets, "losses": of_step} if rank >= 2 else {}))
        optimizer.step()
        losses += [loss.item() for loss in of_step]
    return losses


def test_a_pipeline_of_tensor_parallel_stages_trains_as_over_gloo(ranks: Ranks) -> None:
    losses, expected = (ranks.run(4, pipeline, backend=backend) for backend in ("switchml", "gloo"))
    assert losses[2] == losses[3]
    assert losses[2][-1] < losses[2][0]
    assert losses[2] == pytest.approx(expected[2], rel=1e-4)
