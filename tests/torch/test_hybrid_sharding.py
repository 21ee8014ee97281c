"""Models that are sharded inside a host by one back end, and averaged between hosts by the switch.

A host here is a row of the mesh; its ranks share nothing else.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import switchml.torch
from switchml.torch import Options
from switchml.torch.compression import by_name
from switchml.torch.compression.sharded import CompressedReplicas
from tests.torch.test_sharding import Stack, trained_alone
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import (
    STEPS,
    assert_close,
    assert_same_on_all_ranks,
    parameters,
    run_steps,
)

HOSTS = 2


def mesh_of(replicas: Any) -> DeviceMesh:
    """Return a mesh of two hosts, whose replicas have this back end, and the shards that of the default group."""
    shape = (HOSTS, dist.get_world_size() // HOSTS)
    return init_device_mesh(
        "cpu", shape, mesh_dim_names=("replicate", "shard"), backend_override={"replicate": replicas}
    )


def sharded(mesh: DeviceMesh) -> nn.Module:
    model = Stack()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained(model: nn.Module, rank: int) -> list[torch.Tensor]:
    run_steps(model, rank, range(STEPS), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return [parameter.full_tensor() for parameter in parameters(model)]


def padded(model: nn.Module, shards: int) -> int:
    """Return the number of elements of the parameters, as `fully_shard` pads them."""
    return sum(-(-len(one) // shards) * shards * (one.numel() // len(one)) for one in model.parameters())


def replicas_in_the_network(rank: int) -> int:
    """Train, and return the bytes of values that this rank has sent to the switch in each step."""
    mesh = mesh_of(("switchml", Options(wire="floats")))
    replicate = switchml.torch.switchml_group(mesh["replicate"].get_group())
    assert replicate is not None
    assert str(replicate.options.wire) == "floats"
    assert dist.get_backend(mesh["shard"].get_group()) == "gloo"
    whole = trained(sharded(mesh), rank)
    assert replicate.state == "network", replicate.state
    assert_same_on_all_ranks(whole)
    again = trained(sharded(mesh_of("gloo")), rank)
    for ours, theirs in zip(whole, again, strict=True):
        assert float((ours - theirs).abs().max()) <= 3e-7
    assert_close(whole, trained_alone(dist.get_world_size()))
    return switchml.torch.statistics()["wire_bytes"] // STEPS


@pytest.mark.parametrize("world_size", [4, 8])
def test_a_host_sends_one_tensor_s_worth(ranks: Ranks, world_size: int) -> None:
    sent = ranks.run(world_size, replicas_in_the_network, backend="gloo")
    shards = world_size // HOSTS
    for host in range(HOSTS):
        assert sum(sent[host * shards : (host + 1) * shards]) == 4 * padded(Stack(), shards)


def overridden_badly(rank: int) -> None:
    with pytest.raises(TypeError, match=r"the switchml backend takes switchml\.torch\.Options"):
        mesh_of(("switchml", dist.ProcessGroupGloo._Options()))


def test_options_of_another_back_end_are_refused(ranks: Ranks) -> None:
    ranks.run(2, overridden_badly, backend="gloo")


def compressed(mesh: DeviceMesh, method: str, **arguments: float) -> tuple[nn.Module, CompressedReplicas]:
    model = sharded(mesh["shard"])
    group = mesh["replicate"].get_group()
    return model, CompressedReplicas(model, by_name(method, **arguments), group=group)


def compressed_replicas(rank: int, directory: Path) -> None:
    mesh = mesh_of("switchml")
    exact = trained(sharded(mesh), rank)
    # A method without loss gives the gradients of torch's own averages of replicas.
    model, state = compressed(mesh, "none")
    assert_close(trained(model, rank), exact)
    assert state.step == STEPS - 1
    # With one element in ten sent, what was left out comes later.
    model, state = compressed(mesh, "topk", density=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run_steps(model, rank, range(STEPS), optimizer)
    whole = [parameter.full_tensor() for parameter in parameters(model)]
    assert_same_on_all_ranks(whole)
    part = mesh["shard"].get_local_rank()
    residuals = {name: kept["residual"] for name, kept in state.memory.tensors.items()}
    assert set(residuals) == {f"layers.{number}, part {part} of 2" for number in range(3)}
    assert all(bool(one.any()) for one in residuals.values())
    # A checkpoint has the residuals of every rank; none takes the place of another's.
    dcp.save({"compression": state.state_dict()}, checkpoint_id=directory)
    again_model, again = compressed(mesh, "topk", density=0.1)
    loaded = again.state_dict()
    dcp.load({"compression": loaded}, checkpoint_id=directory)
    again.load_state_dict(loaded)
    assert again.step == STEPS
    for name, kept in again.memory.tensors.items():
        assert torch.equal(kept["residual"], residuals[name])
    del again_model


def test_replicas_are_averaged_with_compression(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(4, compressed_replicas, tmp_path, backend="gloo")


class OneOfTwo(nn.Module):
    """A model that does not use one of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.used).sum()


def refused(rank: int) -> None:
    mesh = mesh_of("switchml")
    group = mesh["replicate"].get_group()
    with pytest.raises(TypeError, match="call fully_shard for it first"):
        CompressedReplicas(Stack(), by_name("topk"), group=group)
    with pytest.raises(ValueError, match="has a dimension of replicas"):
        CompressedReplicas(sharded(mesh), by_name("topk"), group=group)
    with pytest.raises(TypeError, match="needs a process group of the switchml backend"):
        CompressedReplicas(sharded(mesh["shard"]), by_name("topk"), group=mesh["shard"].get_group())
    model = fully_shard(OneOfTwo(), mesh=mesh["shard"])
    CompressedReplicas(model, by_name("topk"), group=group)
    with pytest.raises(RuntimeError, match="each of its parameters must have a gradient"):
        model(torch.ones(4)).backward()


def test_models_and_groups_that_do_not_fit_are_refused(ranks: Ranks) -> None:
    ranks.run(4, refused, backend="gloo")
