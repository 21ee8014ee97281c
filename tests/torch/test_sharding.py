"""Sharded training: fully_shard, FullyShardedDataParallel, ZeroRedundancyOptimizer, distributed checkpoints."""

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import (
    STEPS,
    WIDTH,
    assert_close,
    assert_same_on_all_ranks,
    loss_of,
    parameters,
    run_steps,
)


class Stack(nn.Module):
    """A model with layers of odd sizes, which are not divisible by the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((WIDTH, 37), (37, 41), (41, 10)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def trained_alone(world_size: int) -> list[torch.Tensor]:
    """Do the same training in one process, with the mean over all ranks' batches."""
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world_size):
            (loss_of(model, rank, step) / world_size).backward()
        optimizer.step()
    return parameters(model)


def sharded(policy: MixedPrecisionPolicy | None = None, shape: tuple[int, ...] = ()) -> nn.Module:
    names = ("replicas", "shards") if len(shape) == 2 else None
    model, mesh = Stack(), init_device_mesh("cpu", shape or (dist.get_world_size(),), mesh_dim_names=names)
    policy = policy or MixedPrecisionPolicy()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def fully_sharded(rank: int) -> None:
    model = sharded()
    assert dist.get_backend(model.layers[0].weight.device_mesh.get_group()) == "switchml"
    run_steps(model, rank, range(STEPS), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    whole = [parameter.full_tensor() for parameter in parameters(model)]
    assert_same_on_all_ranks(whole)
    assert_close(whole, trained_alone(dist.get_world_size()))
    model = sharded(MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    run_steps(model, rank, range(STEPS), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert_close([parameter.full_tensor() for parameter in parameters(model)], whole, tolerance=3e-2)


@pytest.mark.parametrize("world_size", [2, 4])
def test_fully_shard(ranks: Ranks, world_size: int) -> None:
    ranks.run(world_size, fully_sharded)


def trained_shards(shape: tuple[int, ...]) -> tuple[list[torch.Tensor], list[float]]:
    """Train in a mesh of this shape; return the parameters and the losses, averaged over all ranks."""
    model = sharded(shape=shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, dist.get_rank(), step)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    whole = [parameter.full_tensor() for parameter in parameters(model)]
    average = torch.stack(losses)
    dist.all_reduce(average)
    return whole, (average / dist.get_world_size()).tolist()


def sharded_in_the_network(rank: int, shape: tuple[int, ...]) -> list[float]:
    """Train twice, with no call of Gloo and the same bits."""
    assert switchml.torch.path_of("reduce_scatter_single", torch.float32, dist.ReduceOp.AVG) == "network"
    before = switchml.torch.statistics()
    (one, losses), (two, again) = trained_shards(shape), trained_shards(shape)
    after = switchml.torch.statistics()
    assert after["gloo_calls"] == before["gloo_calls"]
    assert after["network_calls"] - before["network_calls"] > 2 * STEPS * len(Stack().layers)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert losses == again
    assert_same_on_all_ranks(one)
    assert_close(one, trained_alone(dist.get_world_size()))
    return losses


def sharded_over_gloo(rank: int, shape: tuple[int, ...]) -> list[float]:
    return trained_shards(shape)[1]


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2)], ids=["2 ranks", "4 ranks", "HSDP"])
def test_fully_shard_runs_through_the_switch(ranks: Ranks, shape: tuple[int, ...]) -> None:
    size = math.prod(shape)
    [losses, *_] = ranks.run(size, sharded_in_the_network, shape)
    [expected, *_] = ranks.run(size, sharded_over_gloo, shape, backend="gloo")
    assert losses == pytest.approx(expected, abs=1e-5)


def fsdp(rank: int, strategy: ShardingStrategy) -> None:
    model = FullyShardedDataParallel(
        Stack(), device_id=torch.device("cpu"), sharding_strategy=strategy, use_orig_params=True
    )
    run_steps(model, rank, range(STEPS), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    with FullyShardedDataParallel.summon_full_params(model):
        whole = [parameter.clone() for parameter in parameters(model)]
    assert_same_on_all_ranks(whole)
    assert_close(whole, trained_alone(dist.get_world_size()))


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(
    "strategy", [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP], ids=lambda s: s.name
)
def test_fsdp_of_the_first_kind(ranks: Ranks, world_size: int, strategy: ShardingStrategy) -> None:
    ranks.run(world_size, fsdp, strategy)


def zero_redundancy(rank: int) -> None:
    def train(shared_out: bool) -> list[torch.Tensor]:
        model = DistributedDataParallel(Stack())
        if shared_out:
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        else:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        run_steps(model, rank, range(STEPS), optimizer)
        if shared_out:
            optimizer.consolidate_state_dict(to=0)
            if rank == 0:
                assert len(optimizer.state_dict()["state"]) == len(parameters(model))
        return parameters(model)

    before = switchml.torch.statistics()["network_calls"]
    ours, plain = train(shared_out=True), train(shared_out=False)
    assert switchml.torch.statistics()["network_calls"] > before
    assert_same_on_all_ranks(ours)
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("world_size", [2, 4])
def test_zero_redundancy_optimizer(ranks: Ranks, world_size: int) -> None:
    ranks.run(world_size, zero_redundancy)


def checkpointed(rank: int, directory: Path) -> None:
    for shard in (False, True):
        place = directory / ("sharded" if shard else "replicated")

        def prepared(shard: bool = shard) -> tuple[nn.Module, torch.optim.Optimizer]:
            model = sharded() if shard else DistributedDataParallel(Stack())
            return model, torch.optim.AdamW(model.parameters(), lr=0.01)

        model, optimizer = prepared()
        run_steps(model, rank, range(3), optimizer)
        model_state, optimizer_state = get_state_dict(model, optimizer)
        dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=place)
        run_steps(model, rank, range(3, STEPS), optimizer)
        uninterrupted = copy.deepcopy(parameters(model))

        model, optimizer = prepared()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        dcp.load(state, checkpoint_id=place)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        run_steps(model, rank, range(3, STEPS), optimizer)
        for resumed, expected in zip(parameters(model), uninterrupted, strict=True):
            if shard:
                assert torch.equal(resumed.to_local(), expected.to_local())
            else:  # DDP restarts with its first layout of buckets, and thus with other quantization blocks
                torch.testing.assert_close(resumed, expected, rtol=0, atol=1e-6)
        if not shard:
            assert_same_on_all_ranks(parameters(model))


def test_a_training_goes_on_from_a_checkpoint_as_if_never_interrupted(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(2, checkpointed, tmp_path)
    assert (tmp_path / "sharded" / ".metadata").exists()
