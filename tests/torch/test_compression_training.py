"""Compression in trainings: the hook of DDP, residuals and checkpoints, gradients that are not finite, fully_shard."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch.compression import (
    CompressionState,
    Compressor,
    ErrorFeedback,
    Exchange,
    Outcome,
    Place,
    Rounds,
    Sum,
    by_name,
    compression_hook,
)
from switchml.torch.compression.compressor import flagged
from switchml.torch.compression.sharded import CompressedAllGather, CompressedReduceScatter
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import WIDTH, assert_same_on_all_ranks, loss_of, parameters


class Delayed(torch.autograd.Function):
    """Passes gradients on after a time that differs between ranks and calls."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(_delays.uniform(0, 0.01))
        return gradient


_delays = random.Random()


class Stack(nn.Module):
    """A model with a parameter without dimensions, one without elements, and one that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((WIDTH, 37), (37, 41), (41, 10)))
        self.factor = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.spare = nn.Linear(WIDTH, 37)

    def forward(self, x: torch.Tensor, spare: int = 0) -> torch.Tensor:
        x = torch.relu(self.layers[0](x) + (self.spare(x) if spare else 0))
        x = torch.relu(Delayed.apply(self.layers[1](x)))
        return self.layers[2](Delayed.apply(x)) * self.factor + self.empty.sum()


def ddp(state_of: Any) -> tuple[DistributedDataParallel, CompressionState]:
    """Return a model with many buckets, and the state of its hook."""
    _delays.seed(dist.get_rank())
    model = DistributedDataParallel(Stack(), bucket_cap_mb=0.004, find_unused_parameters=True)
    state = state_of(model)
    model.register_comm_hook(state, compression_hook)
    return model, state


def train(model: nn.Module, rank: int, steps: range) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step, spare=(step + rank) % 2).backward()
        optimizer.step()
    return parameters(model)


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("none", {}),
    ("lanes", {"bits": 8}),
    ("int8", {}),
    ("efsign", {}),
    ("signum", {}),
    ("shared_topk", {"density": 0.2}),
    ("block_topk", {"density": 0.3, "block": 16}),
    ("onebit", {}),
    ("topk", {"density": 0.2}),
    ("dgc", {"density": 0.2}),
]


def recorded_buckets(state: CompressionState, of_bucket: Callable[[dist.GradBucket], Any]) -> set[Any]:
    """Return a set that gets a property of each bucket that the state is given."""
    buckets: set[Any] = set()
    submit = state.submit

    def record(bucket: dist.GradBucket) -> Any:
        buckets.add(of_bucket(bucket))
        return submit(bucket)

    state.submit = record  # type: ignore[method-assign]
    return buckets


def trained_with_each_method(rank: int) -> None:
    """Train with methods of one and two rounds; buckets are ready in another order on each rank."""
    without = DistributedDataParallel(Stack(), find_unused_parameters=True)
    exact = train(without, rank, range(3))
    for name, options in METHODS:
        model, state = ddp(lambda model, n=name, o=options: CompressionState(model, by_name(n, **o), timeout=60.0))
        with model.no_sync():
            loss_of(model, rank, 100).backward()  # the hook is not called
        assert state.step == 0
        model.zero_grad()
        buckets = recorded_buckets(state, lambda bucket: bucket.index())
        found = train(model, rank, range(3))
        assert len(buckets) > 3
        assert state.step == 2
        assert_same_on_all_ranks(found)
        assert set(state.memory.tensors) == {parameter for parameter, _ in Stack().named_parameters()}
        difference = max(float((a - b).abs().max()) for a, b in zip(found, exact, strict=True) if a.numel())
        assert (difference < 1e-6) == (name == "none"), name
        for group in state._exchange.groups:
            dist.destroy_process_group(group)


def test_all_ranks_train_alike(ranks: Ranks) -> None:
    ranks.run(3, trained_with_each_method)


def arrays(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    return [tensor.numpy().copy() for tensor in tensors]


def residuals_of(state: CompressionState) -> dict[str, np.ndarray]:
    return {name: kept["residual"].numpy().copy() for name, kept in state.memory.tensors.items()}


def saved(rank: int, directory: Path) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Save a training after two steps; return the parameters after four, and the residuals after two."""
    model, state = ddp(lambda model: CompressionState(model, by_name("topk", density=0.1), seed=4))
    train(model, rank, range(2))
    residuals = residuals_of(state)
    dcp.save({"model": model.module.state_dict(), "compression": state}, checkpoint_id=directory)
    return arrays(train(model, rank, range(2, 4))), residuals


def resumed(rank: int, directory: Path) -> list[np.ndarray]:
    """Continue with as many ranks."""
    model, state = ddp(lambda model: CompressionState(model, by_name("topk", density=0.1)))
    stored = {"model": model.module.state_dict(), "compression": state}
    dcp.load(stored, checkpoint_id=directory)
    model.module.load_state_dict(stored["model"])
    assert (state.step, state.state_dict()["seed"]) == (2, 4)
    return arrays(train(model, rank, range(2, 4)))


def resumed_by_fewer(rank: int, directory: Path) -> dict[str, np.ndarray]:
    """Continue with another number of ranks; return the residuals."""
    model, state = ddp(lambda model: CompressionState(model, by_name("topk", density=0.1)))
    with pytest.raises(ValueError, match=r"of 3 ranks, and the state given lacks rank \d; load it into state_dict\(wo"):
        dcp.load({"compression": state}, checkpoint_id=directory)
    theirs = state.state_dict(world_size=3)
    dcp.load({"compression": theirs}, checkpoint_id=directory)
    state.load_state_dict(theirs)
    train(model, rank, range(2, 3))
    state.load_state_dict(theirs)
    for other, message in (
        (CompressionState(model, by_name("topk", density=0.2)), "by_name('topk', density=0.1), and this training has"),
        (CompressionState(model, by_name("topk", density=0.1), "none"), "is of the memory ErrorFeedback(beta=1.0"),
        (
            CompressionState(nn.Linear(2, 2), by_name("topk", density=0.1)),
            "has no parameter 'weight', which this model",
        ),
        (CompressionState(model.module.layers[0], by_name("topk", density=0.1)), "no parameter 'weight'"),
    ):
        with pytest.raises(ValueError, match=r".+") as raised:
            other.load_state_dict(theirs)
        assert message in str(raised.value)
    return residuals_of(state)


def test_a_training_continues_from_a_checkpoint_also_with_fewer_ranks(ranks: Ranks, tmp_path: Path) -> None:
    first = ranks.run(3, saved, tmp_path)
    for (expected, _), found in zip(first, ranks.run(3, resumed, tmp_path), strict=True):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for found in ranks.run(2, resumed_by_fewer, tmp_path):
        for name, residual in found.items():
            mean = np.mean([residuals[name] for _, residuals in first], 0)
            np.testing.assert_allclose(residual, mean, rtol=1e-5, atol=1e-9)
            assert len(residual) < 2 or np.abs(residual).max() > 0


class Reversed(nn.Module):
    """A model whose layers are called in another order than it has them, so that DDP reorders its bucket."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.last = nn.Linear(53, 10)
        self.first = nn.Linear(WIDTH, 61)
        self.middle = nn.Linear(61, 53)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.middle(torch.relu(self.first(x)))))


OF_BUCKETS: dict[str, dict[str, Any]] = {
    "none": {},
    "lanes": {"rounding": "nearest"},
    "codes": {"codes": "dynamic8"},
    "int8": {},
    "qsgd": {},
    "terngrad": {},
    "thc": {},
    "randomk": {"density": 0.2},
    "shared_topk": {"density": 0.1},
    "block_topk": {"density": 0.3, "block": 16},
}


def interrupted(rank: int, methods: list[str]) -> None:
    """Train four steps, with and without a new process's state after two of them; the first step is a warm-up."""
    for name in methods:
        found = []
        for parts in ((range(4),), (range(2), range(2, 4))):
            plain, saved_state = Reversed(), None
            for steps in parts:
                model = DistributedDataParallel(plain)
                state = CompressionState(model, by_name(name, **OF_BUCKETS[name]), warm_up_steps=1, timeout=60.0)
                if saved_state is not None:
                    state.load_state_dict(saved_state)
                orders = recorded_buckets(state, lambda bucket: tuple(one.numel() for one in bucket.parameters()))
                model.register_comm_hook(state, compression_hook)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
                for step in steps:
                    optimizer.zero_grad()
                    loss_of(model, rank, step).backward()
                    optimizer.step()
                saved_state = state.state_dict()
                assert len(orders) == 2, f"DDP has not changed the order of its bucket: {orders}"
            found.append(parameters(plain))
        assert all(map(torch.equal, *found)), name


@pytest.mark.parametrize("methods", [list(OF_BUCKETS)[begin::4] for begin in range(4)], ids="+".join)
def test_a_training_continues_with_the_same_bits_when_ddp_reorders_its_bucket(ranks: Ranks, methods: list[str]) -> None:
    ranks.run(2, interrupted, methods)


def not_finite(rank: int) -> None:
    """Put a NaN or an infinity into one gradient of rank 1."""
    exchange = Exchange(by_name("qsgd"), timeout=60.0)
    for name in ("none", "qsgd", "signsgd", "shared_topk", "block_topk", "topk", "threshold"):
        method = by_name(name)
        for bad in (False, True, False):
            gradient = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
            rounds = flagged(method.rounds(gradient, Place("w", 0, rank, 3)), bad and rank == 1)
            outcome = exchange.submit(rounds, method.requests).wait()
            assert (outcome is None) == bad
    model, state = ddp(lambda model: CompressionState(model, by_name("shared_topk", density=0.1)))
    train(model, rank, range(2))
    before = {name: kept["residual"].clone() for name, kept in state.memory.tensors.items()}
    model.zero_grad()
    factor = math.inf if rank == 1 else 1.0
    (loss_of(model, rank, 2, spare=1) + factor * model.module.layers[2].bias[3]).backward()
    last = dict(model.module.named_parameters())["layers.2.bias"]
    assert bool(last.grad.isnan().all())
    for name, parameter in model.module.named_parameters():
        if parameter.numel() and bool(parameter.grad.isnan().any()):
            assert bool(parameter.grad.isnan().all())
            assert torch.equal(state.memory.tensors[name]["residual"], before[name])
    train(model, rank, range(3, 4))
    assert_same_on_all_ranks(parameters(model))


@pytest.mark.parametrize(
    "environment",
    [{}, {"SWITCHML_TORCH_FALLBACK": "gloo", "SWITCHML_RUN_DIR": "/nonexistent"}],
    ids=["network", "gloo"],
)
def test_a_gradient_that_is_not_finite_is_nan_on_all_ranks_and_changes_no_memory(
    ranks: Ranks, environment: dict[str, str]
) -> None:
    ranks.run(3, not_finite, environment=environment)


def alone(rank: int) -> None:
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    exchange = Exchange(by_name("shared_sidco"), timeout=60.0)
    for name in switchml.torch.compression.METHODS:
        method = by_name(name)
        outcome = exchange.submit(method.rounds(gradient, Place("w", 0, 0, 1)), method.requests).wait()
        if outcome.own is not None:
            torch.testing.assert_close(outcome.average, outcome.own)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("switchml-compression")]
    assert len(threads) == 1 + len(exchange.groups)
    del exchange
    assert not any(thread.is_alive() for thread in threads)  # otherwise the end of the program could abort
    part = torch.empty(1000)
    CompressedReduceScatter(by_name("signsgd"))(part, gradient, dist.group.WORLD, dist.ReduceOp.AVG)
    assert torch.equal(part, torch.where(gradient >= 0, 1.0, -1.0))
    CompressedAllGather()(part, gradient, dist.group.WORLD)
    torch.testing.assert_close(part, gradient, rtol=0, atol=0.02)


def test_one_rank_alone(ranks: Ranks) -> None:
    ranks.run(1, alone, environment={"SWITCHML_TORCH_FALLBACK": "gloo", "SWITCHML_RUN_DIR": "/nonexistent"})


class Undeclared(Compressor):
    """A compressor that asks for another collective than it says."""

    name = "undeclared"
    requests = (Sum,)

    def rounds(self, gradient: torch.Tensor, place: Place) -> Rounds:
        return Outcome((yield from by_name("none").rounds(gradient, place)).average)


def train_embedding(model: nn.Module) -> None:
    model(torch.tensor([1, 2])).sum().backward()


def bad_input(rank: int) -> None:
    method = by_name("topk", density=0.1)
    for model, error in (
        (nn.Embedding(9, 4, sparse=True), "a parameter has sparse ones"),
        (nn.Embedding(9, 4).double(), r"not torch\.float64; train the model in one of them"),
    ):
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(CompressionState(parallel, method), compression_hook)
        with pytest.raises(Exception, match=error):
            train_embedding(parallel)
    parallel = DistributedDataParallel(nn.Embedding(9, 4))
    parallel.register_comm_hook(CompressionState(nn.Linear(2, 2), method), compression_hook)
    with pytest.raises(Exception, match="in a bucket is not one of the model"):
        train_embedding(parallel)
    parallel = DistributedDataParallel(nn.Embedding(9, 4))
    parallel.register_comm_hook(CompressionState(parallel, method), compression_hook)
    with pytest.raises(Exception, match=r"cannot be used in the context model\.join\(\)"), parallel.join():
        train_embedding(parallel)
    # The context has a collective in flight, which would fail instead at a rank that comes later than this one leaves.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"rank {rank} was refused", "")
    store.wait([f"rank {other} was refused" for other in range(dist.get_world_size())])


def bad_arguments(rank: int) -> None:
    model = nn.Linear(2, 2)
    for arguments, error, message in (
        ((model, "topk"), TypeError, "compressor is 'topk'; make one with"),
        ((model, by_name("qsgd", levels=2**30)), ValueError, "do not fit lanes of 32 bits"),
        ((model, by_name("lanes"), ErrorFeedback()), ValueError, "does not know what it has sent"),
        ((model, by_name("topk"), "auto", None, -1), ValueError, "warm_up_steps is -1"),
        ((model, by_name("topk"), "auto", dist.new_group(backend="gloo")), TypeError, "of the switchml backend"),
    ):
        with pytest.raises(error) as raised:
            CompressionState(*arguments)
        assert message in str(raised.value)
    state = CompressionState(model, by_name("topk"))
    with pytest.raises(ValueError, match="factor is 0"):
        state.rescale(0)
    exchange = Exchange(Undeclared(), timeout=30.0)
    gradient = torch.ones(10)
    for message in ("is of the kind Average; the compressor's requests are declared as .Sum.", "an earlier gradient"):
        with pytest.raises((TypeError, RuntimeError), match=message):
            exchange.submit(Undeclared().rounds(gradient, Place("w", 0, rank, 2))).wait()


def test_bad_input_is_refused(ranks: Ranks) -> None:
    ranks.run(2, bad_arguments)
    ranks.run(2, bad_input)


def scaled(rank: int) -> None:
    """Warm up for a step, then change the scale of the loss."""
    scale = [8.0]
    model, state = ddp(
        lambda model: CompressionState(
            model, by_name("threshold", threshold=1e-3), warm_up_steps=1, scale=lambda: scale[0]
        )
    )
    exact = DistributedDataParallel(Stack(), find_unused_parameters=True)
    for step, factor in enumerate((8.0, 8.0, 2.0)):
        scale[0] = factor
        kept = {name: tensors["residual"].clone() for name, tensors in state.memory.tensors.items()}
        for one in (model, exact):
            one.zero_grad()
            (loss_of(one, rank, step) * factor).backward()
        for (name, ours), theirs in zip(model.module.named_parameters(), exact.parameters(), strict=True):
            if theirs.grad is None or not theirs.numel():
                continue
            if step == 0:
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
                assert not kept[name].any()
        if step == 2:
            assert state.state_dict()["scale"] == 2.0
    before = state.memory.tensors["layers.0.weight"]["residual"].clone()
    state.rescale(0.5)
    assert torch.equal(state.memory.tensors["layers.0.weight"]["residual"], before / 2)
    assert float(before.abs().max()) > 0


def test_warm_up_and_the_scale_of_the_loss(ranks: Ranks) -> None:
    ranks.run(2, scaled)


def sharded(compressed: bool, method: str = "lanes") -> nn.Module:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(WIDTH, 301), nn.ReLU(), nn.Linear(301, 10))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
        if compressed:
            module.set_custom_reduce_scatter(CompressedReduceScatter(by_name(method)))
            if method == "lanes":
                module.set_custom_all_gather(CompressedAllGather(bits=8))
    return model


def gradients(model: nn.Module, rank: int, factor: float = 1.0) -> list[torch.Tensor]:
    model.zero_grad()
    (loss_of(model, rank, 1) * factor).backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def fully_sharded(rank: int) -> None:
    plain = gradients(sharded(False), rank)
    for method in ("lanes", "signsgd"):
        model = sharded(True, method)
        found = gradients(model, rank)
        assert_same_on_all_ranks(found)
        for ours, exact in zip(found, plain, strict=True):
            if method == "signsgd":
                assert set(ours.unique().tolist()) <= {-1.0, 1.0}
            else:
                assert 0 < float((ours - exact).norm() / exact.norm()) < 0.1
        for bad in gradients(model, rank, math.nan if rank == 1 else 1.0):
            assert bool(bad.isnan().all())
    group = dist.group.WORLD
    with pytest.raises(ValueError, match="is an AVG, not"):
        CompressedReduceScatter(by_name("none"))(torch.empty(1), torch.empty(2), group, dist.ReduceOp.SUM)
    with pytest.raises(TypeError, match=r"not torch\.float64 on cpu"):
        CompressedAllGather()(torch.empty(2).double(), torch.empty(1).double(), group)


def test_fully_shard_with_compressed_collectives(ranks: Ranks) -> None:
    ranks.run(2, fully_sharded)


def sharded_bytes(rank: int) -> list[int]:
    """Return the bytes of packets of compressed collectives for 4096 elements and two ranks."""
    sent = []
    group, x, part = dist.group.WORLD, torch.ones(4096), torch.empty(2048)
    calls: tuple[Callable[[], object], ...] = (
        lambda: CompressedReduceScatter(by_name("none"))(part, x, group, dist.ReduceOp.AVG),
        lambda: CompressedReduceScatter(by_name("lanes", bits=8))(part, x, group, dist.ReduceOp.AVG),
        lambda: CompressedReduceScatter(by_name("signsgd"))(part, x, group, dist.ReduceOp.AVG),
        lambda: CompressedAllGather()(x, part, group),
    )
    for call in calls:
        before = switchml.torch.statistics()["wire_bytes"]
        call()
        sent.append(switchml.torch.statistics()["wire_bytes"] - before)
    torch.testing.assert_close(x, torch.ones(4096))
    return sent


def test_compressed_parts_take_the_bytes_of_their_lanes(ranks: Ranks) -> None:
    of_part = [4 * 2049, 4 * 513, 4 * 513]  # a flag for each part
    assert ranks.run(2, sharded_bytes) == [[*(2 * size for size in of_part), 2048 + 4 * 8]] * 2
