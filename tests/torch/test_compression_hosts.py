"""Compression on hosts with several ranks, whose gradients are summed inside the host before it or after it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch.compression import HostCompressionState, by_name, compression_hook
from switchml.torch.compression.compressor import kept_elements
from switchml.torch.compression.hosts import Order
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import assert_close, assert_same_on_all_ranks, loss_of, parameters, run_steps

HOSTS = 2
ORDERS: tuple[Order, ...] = ("intra-compress-inter", "compress-intra-inter")
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("topk", {"density": 0.1}),
    ("shared_topk", {"density": 0.2}),
    ("int8", {}),
    ("onebit", {}),
]
WIDE = 1 << 16


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((40, 37), (37, 41), (41, 10)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def state_of(model: nn.Module, order: Order, name: str, **options: Any) -> HostCompressionState:
    mesh = init_device_mesh(
        "cpu",
        (HOSTS, dist.get_world_size() // HOSTS),
        mesh_dim_names=("hosts", "inside"),
        backend_override={"hosts": "switchml", "inside": "gloo"},
    )
    groups = mesh["hosts"].get_group(), mesh["inside"].get_group()
    return HostCompressionState(model, by_name(name, **options), group=groups[0], inside=groups[1], order=order)


def ddp(order: Order, name: str, **options: Any) -> tuple[DistributedDataParallel, HostCompressionState]:
    """Return a model with many buckets, and the state of its hook."""
    model = DistributedDataParallel(Stack(), bucket_cap_mb=0.004)
    state = state_of(model, order, name, **options)
    model.register_comm_hook(state, compression_hook)
    return model, state


def train(model: nn.Module, rank: int, steps: range) -> list[torch.Tensor]:
    run_steps(model, rank, steps, torch.optim.SGD(model.parameters(), lr=0.05))
    return parameters(model)


def trained(rank: int) -> None:
    exact = train(DistributedDataParallel(Stack()), rank, range(3))
    for order in ORDERS:
        for name, options in METHODS:
            model, state = ddp(order, name, **options)
            found = train(model, rank, range(3))
            assert_same_on_all_ranks(found)
            if name == "none":
                assert_close(found, exact)
            keeps = any(bool(one.any()) for kept in state.memory.tensors.values() for one in kept.values())
            leads = rank % (dist.get_world_size() // HOSTS) == 0
            assert keeps == (name != "none" and (leads or order == ORDERS[1])), (order, name)


def test_all_ranks_train_alike(ranks: Ranks) -> None:
    ranks.run(4, trained, backend="gloo")


class Weights(nn.Module):
    """Weights whose gradient is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(WIDE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weights * x).sum()


def gradient(rank: int) -> torch.Tensor:
    return torch.randn(WIDE, generator=torch.Generator().manual_seed(rank))


def exchanged(rank: int, order: Order) -> int:
    """Compare what Top-k gives with its definition; return the bytes that this rank put into packets."""
    model = DistributedDataParallel(Weights())
    model.register_comm_hook(
        state_of(
            model,
            order,
            "topk",
            density=0.001,
        ),
        compression_hook,
    )
    before = switchml.torch.statistics()["wire_bytes"]
    model(gradient(rank)).backward()
    found = model.module.weights.grad
    assert found is not None
    hosts = torch.stack([gradient(number) for number in range(dist.get_world_size())]).view(HOSTS, -1, WIDE)

    def kept(values: torch.Tensor) -> torch.Tensor:
        places = values.abs().topk(kept_elements(0.001, WIDE)).indices
        return torch.zeros(WIDE).index_put((places,), values[places])

    if order == ORDERS[0]:
        averages = torch.stack([kept(host.mean(0)) for host in hosts])
    else:
        averages = torch.stack([torch.stack([kept(one) for one in host]).mean(0) for host in hosts])
    torch.testing.assert_close(found, averages.mean(0), rtol=1e-5, atol=1e-6)
    sent = switchml.torch.statistics()["wire_bytes"] - before
    if rank % hosts.shape[1]:
        assert sent == 0
    elif order == ORDERS[0]:
        payload = 8 * kept_elements(0.001, WIDE) + 1  # values and places, and the flag of gradients that are not finite
        assert sent == payload
    else:  # a size, then values and places, as many as of the larger host
        most = max(int(host.count_nonzero()) for host in averages)
        assert sent == 4 + 8 * most
    return sent


@pytest.mark.parametrize("order", ORDERS)
def test_the_bytes_between_hosts(ranks: Ranks, order: Order) -> None:
    ranks.run(8, exchanged, order, backend="gloo")


def not_finite(rank: int) -> None:
    for order in ORDERS:
        model, state = ddp(order, "topk", density=0.1)
        train(model, rank, range(2))
        kept = {name: tensors["residual"].clone() for name, tensors in state.memory.tensors.items()}
        loss = loss_of(model, rank, 2)
        (loss * (math.inf if rank == 3 else 1)).backward()
        assert all(bool(one.grad.isnan().all()) for one in model.parameters())
        for name, tensors in state.memory.tensors.items():
            assert torch.equal(tensors["residual"], kept[name])


def test_a_gradient_that_is_not_finite_is_nan_on_all_ranks_and_changes_no_memory(ranks: Ranks) -> None:
    ranks.run(4, not_finite, backend="gloo")


def resumed(rank: int, directory: Path) -> None:
    for order in ORDERS:
        model, state = ddp(order, "topk", density=0.1)
        train(model, rank, range(2))
        place = directory / order
        dcp.save({"model": model.module.state_dict(), "compression": state.state_dict()}, checkpoint_id=place)
        expected = train(model, rank, range(2, 4))
        again, state = ddp(order, "topk", density=0.1)
        loaded = {"model": again.module.state_dict(), "compression": state.state_dict()}
        dcp.load(loaded, checkpoint_id=place)
        again.module.load_state_dict(loaded["model"])
        state.load_state_dict(loaded["compression"])
        for mine, theirs in zip(train(again, rank, range(2, 4)), expected, strict=True):
            assert torch.equal(mine, theirs)
        with pytest.raises(ValueError, match="the checkpoint is of 8 ranks, and this training has 4"):
            state.load_state_dict(loaded["compression"] | {"world_size": 8})
        _, other = ddp(ORDERS[order == ORDERS[0]], "topk", density=0.1)
        with pytest.raises(ValueError, match=f"the checkpoint is of the order {order}"):
            other.load_state_dict(loaded["compression"])


def test_a_training_continues_from_a_checkpoint(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(4, resumed, tmp_path, backend="gloo")


def refused(rank: int) -> None:
    with pytest.raises(ValueError, match="order is 'inter'; it must be one of intra-compress-inter, compress-intra"):
        state_of(Stack(), "inter", "topk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lanes does not know what a contribution stands for"):
        state_of(Stack(), "compress-intra-inter", "lanes", bits=8)


def test_what_is_refused(ranks: Ranks) -> None:
    ranks.run(2, refused, backend="gloo")
