"""`switchml.torch.fsdp.overlap`: gathers and scatters at the same time, with the bits of one after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from switchml.torch.compression import by_name
from switchml.torch.compression.sharded import CompressedAllGather, CompressedReduceScatter
from switchml.torch.fsdp import overlap
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import STEPS, WIDTH, loss_of, parameters, run_steps

LAYERS = 5


class Blocks(nn.Module):
    """Layers, and a root that has parameters besides theirs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x)


def sharded(shape: tuple[int, ...] = (), policy: MixedPrecisionPolicy | None = None) -> Any:
    names = ("replicas", "shards") if len(shape) == 2 else None
    mesh = init_device_mesh("cpu", shape or (dist.get_world_size(),), mesh_dim_names=names)
    model = Blocks()
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return model


def trained(model: Any, rank: int) -> list[torch.Tensor]:
    run_steps(model, rank, range(STEPS), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return [parameter.full_tensor() for parameter in parameters(model)]


def accumulated(model: Any, rank: int) -> list[torch.Tensor]:
    """Train with two batches for each step of the optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.full_tensor() for parameter in parameters(model)]


def with_gradients_kept(model: Any, rank: int) -> list[torch.Tensor]:
    """Train with gradients that are set to zero, to which FSDP adds the next ones."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    return [parameter.full_tensor() for parameter in parameters(model)]


def with_hooks(model: Any, rank: int) -> list[torch.Tensor]:
    """Train with an optimizer that a hook of each parameter calls, in the backward pass."""
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step(parameter: Any) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(step)
    for number in range(STEPS):
        loss_of(model, rank, number).backward()
    return [parameter.full_tensor() for parameter in parameters(model)]


def with_a_failure(model: Any, rank: int) -> list[torch.Tensor]:
    """Train on after a backward pass that has ended in its midst, with scatters under way."""

    class Failure(Exception):
        pass

    def fail(*_: object) -> None:
        raise Failure

    handle = model.layers[1].register_full_backward_pre_hook(fail)
    with pytest.raises(Failure):
        loss_of(model, rank, 0).backward()
    handle.remove()
    model.zero_grad()
    model.reset_iter_state()
    return trained(model, rank)


def in_bfloat16() -> Any:
    return sharded(policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))


def over_replicas() -> Any:
    return sharded((2, 2))


def compressed() -> Any:
    model = sharded()
    for module in (*model.layers, model):
        module.set_custom_reduce_scatter(CompressedReduceScatter(by_name("signsgd")))
        module.set_custom_all_gather(CompressedAllGather(bits=8))
    return model


def same_bits(rank: int, made: Callable[[], Any], train: Callable[[Any, int], list[torch.Tensor]]) -> None:
    expected = train(made(), rank)
    for depth in (1, 3):
        model = made()
        overlap(model, depth)
        overlap(model, depth)  # which is the same as once
        found = train(model, rank)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


@pytest.mark.parametrize("train", [trained, accumulated, with_gradients_kept, with_hooks, with_a_failure])
def test_the_bits_are_those_without_overlap(ranks: Ranks, train: Callable[[Any, int], list[torch.Tensor]]) -> None:
    ranks.run(2, same_bits, sharded, train)


@pytest.mark.parametrize(("world_size", "made"), [(4, sharded), (2, in_bfloat16), (4, over_replicas), (2, compressed)])
def test_the_bits_of_other_models(ranks: Ranks, world_size: int, made: Callable[[], Any]) -> None:
    ranks.run(world_size, same_bits, made, trained)


def overlapping(rank: int) -> None:
    """Check that a scatter is under way while the gather of the next layer is made."""
    model = sharded()
    overlap(model, 2)
    trained(model, rank)
    begun: list[int] = []
    in_flight: list[int] = []

    under_way = model._get_fsdp_state()._fsdp_param_groups[0]._reduce_scatter_comm._under_way
    for number, layer in enumerate(model.layers):

        def saw(*_: object, number: int = number) -> None:
            begun.append(number)
            in_flight.append(len(under_way._works))

        layer.register_full_backward_pre_hook(saw)
    loss_of(model, rank, 0).backward()
    assert begun == list(reversed(range(LAYERS)))
    assert max(in_flight) == 2  # no more than `depth`
    assert all(parameter.grad.full_tensor().isfinite().all() for parameter in model.parameters())


def test_scatters_are_under_way_while_the_next_layer_computes(ranks: Ranks) -> None:
    ranks.run(2, overlapping)


def refused(rank: int) -> None:
    with pytest.raises(TypeError, match="takes a model that fully_shard was called for, not Linear"):
        overlap(nn.Linear(2, 2))
    for depth, error in ((0, ValueError), (True, TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="depth is"):
            overlap(sharded(), depth)  # type: ignore[arg-type]


def test_what_cannot_overlap(ranks: Ranks) -> None:
    ranks.run(2, refused)
