"""The communication hooks: their results, and those of other libraries in one order."""

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch.hooks import InOrder, all_reduce_hook, in_order_hook
from tests.torch.torch_harness import Ranks


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(12)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Slow(torch.autograd.Function):
    """A network whose backward pass takes longer on one rank."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 * dist.get_rank())
        return gradient


def trained(rank: int, with_hook: bool) -> list[torch.Tensor]:
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.5)
    if with_hook:
        model.register_comm_hook(None, all_reduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 200, generator=generator)
        if step % 3 == 1:
            with model.no_sync():  # the hook is not called
                Slow.apply(model(x)).square().sum().backward()
        Slow.apply(model(x)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def with_and_without_hook(rank: int) -> bytes:
    ours, without = (trained(rank, with_hook) for with_hook in (True, False))
    for mine, theirs in zip(ours, without, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    return bytes(torch.cat([parameter.flatten() for parameter in ours]).numpy().tobytes())


def test_ddp_with_the_hook_ends_with_the_same_bits_on_all_ranks(ranks: Ranks) -> None:
    assert len(set(ranks.run(3, with_and_without_hook))) == 1


def deep_model() -> DistributedDataParallel:
    """Return a model with one bucket of gradients per layer."""
    torch.manual_seed(3)
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)


def backward(model: DistributedDataParallel, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(100 * step + rank)
    model(torch.randn(16, 64, generator=generator)).square().sum().backward()


def power_sgd(rank: int) -> tuple[int, list[bytes]]:
    """Train with PowerSGD's hook, which starts its second collective from a callback of its first one."""
    model = deep_model()
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
    )
    buckets = set()

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.add(bucket.index())
        return powerSGD_hook.powerSGD_hook(state, bucket)

    model.register_comm_hook(InOrder(state, hook), in_order_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(40):
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.step()
    return len(buckets), [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def test_power_sgd_with_many_buckets_runs_in_one_order(ranks: Ranks) -> None:
    results = ranks.run(3, power_sgd)
    for buckets, parameters in results:
        assert buckets > 5
        assert parameters == results[0][1]


def failing_hook(rank: int) -> None:
    calls: list[int] = []

    def hook(calls: list[int], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        calls.append(bucket.index())
        if bucket.index() == 2:
            raise ValueError("no room for a third bucket")
        return all_reduce_hook(None, bucket)

    model = deep_model()
    model.register_comm_hook(InOrder(calls, hook), in_order_hook)
    backward(model, rank, 0)  # one bucket: DDP uses the given size after its first pass
    calls.clear()
    with pytest.raises(RuntimeError, match="no room for a third bucket"):
        backward(model, rank, 1)
    assert calls == [0, 1, 2]  # the hook was not called after the error


def test_the_error_of_a_hook_that_runs_in_order_is_raised(ranks: Ranks) -> None:
    ranks.run(2, failing_hook)


def on_cuda(rank: int) -> bytes:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device())
    model = DistributedDataParallel(Network().to(device), device_ids=[device], bucket_cap_mb=0.5)
    model.register_comm_hook(None, all_reduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        optimizer.zero_grad()
        x = torch.randn(8, 200, generator=torch.Generator().manual_seed(100 * step + rank))
        model(x.to(device)).square().sum().backward()
        optimizer.step()
    return bytes(torch.cat([parameter.detach().cpu().flatten() for parameter in model.parameters()]).numpy().tobytes())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_gradients_on_cuda_with_the_hook(ranks: Ranks) -> None:
    assert len(set(ranks.run(2, on_cuda, environment={"SWITCHML_STAGE_CUDA": "1"}))) == 1


def builtin_hooks(rank: int) -> None:
    """Test that PyTorch's built-in C++ hooks average as they do over Gloo."""
    gloo = dist.new_group(backend="gloo")
    for kind, tolerance in ((dist.BuiltinCommHookType.ALLREDUCE, 1e-6), (dist.BuiltinCommHookType.FP16_COMPRESS, 1e-2)):
        gradients = []
        for group in (gloo, dist.group.WORLD):
            torch.manual_seed(7)
            model = DistributedDataParallel(torch.nn.Linear(30, 20), process_group=group)
            model._register_builtin_comm_hook(kind)
            for step in range(3):
                model.zero_grad()
                x = torch.randn(8, 30, generator=torch.Generator().manual_seed(10 * step + rank))
                model(x).square().mean().backward()
            gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        torch.testing.assert_close(gradients[1], gradients[0], rtol=tolerance, atol=tolerance * 0.1)
    assert switchml.torch.statistics()["network_calls"] >= 6


def test_pytorchs_builtin_hooks(ranks: Ranks) -> None:
    ranks.run(3, builtin_hooks)
