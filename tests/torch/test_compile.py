"""torch.compile: it does not trace into the backend, so that compiled models train as they do over Gloo."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import STEPS, WIDTH, assert_close, assert_same_on_all_ranks, parameters, run_steps


def trained(rank: int, compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model: nn.Module = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run_steps(torch.compile(model, backend="aot_eager") if compiled else model, rank, range(STEPS), optimizer)
    assert_same_on_all_ranks(parameters(model))
    return parameters(model)


def trains_compiled(rank: int, compiled_autograd: bool) -> None:
    expected = trained(rank, compiled=False)
    with torch._dynamo.config.patch(compiled_autograd=compiled_autograd):
        assert_close(trained(rank, compiled=True), expected)


@pytest.mark.parametrize("compiled_autograd", [False, True])
def test_a_compiled_model_trains(ranks: Ranks, compiled_autograd: bool) -> None:
    ranks.run(2, trains_compiled, compiled_autograd)


def compiled_collectives(rank: int) -> None:
    group = dist.new_group([0, 1])

    @torch.compile(backend="aot_eager", fullgraph=True)
    def in_one_graph(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        dist.all_reduce(y, group=group)
        return y + dist.get_world_size(group)

    @torch.compile(backend="aot_eager")
    def in_several(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, async_op=True).wait()
        dist.broadcast(x, 0)
        dist.barrier()
        gathered = torch.empty(2 * x.numel())
        dist.all_gather_single(gathered, x)
        return gathered

    assert in_one_graph(torch.full((5,), float(rank))).tolist() == [6.0] * 5
    assert in_several(torch.full((5,), float(rank))).tolist() == [1.0] * 10


def test_collectives_in_compiled_functions(ranks: Ranks) -> None:
    ranks.run(2, compiled_collectives)
