"""DDP, hooks with several collectives, sharding with replicas, and their errors when the backend fails."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from tests.torch.torch_harness import Ranks

STEPS = 4


def model() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)
    )


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 20, generator=generator), torch.randint(0, 3, (8,), generator=generator)


def loss_of(module: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    pixels, labels = batch(rank, step)
    return torch.nn.functional.cross_entropy(module(pixels), labels)


def alone(world_size: int) -> list[torch.Tensor]:
    """Do the same training in one process, on the batches of all ranks."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss_of(module, rank, step) for rank in range(world_size)) / world_size).backward()
        optimizer.step()
    return [parameter.detach() for parameter in module.parameters()]


def assert_trained(parameters: list[torch.Tensor], world_size: int) -> None:
    for parameter, expected in zip(parameters, alone(world_size), strict=True):
        assert torch.allclose(parameter, expected, atol=1e-5)
    digests = [None] * world_size
    dist.all_gather_object(digests, [parameter.detach().numpy().tobytes() for parameter in parameters])
    assert all(digest == digests[0] for digest in digests)


def trains(module: torch.nn.Module, rank: int, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(module, rank, step).backward()
        optimizer.step()


def ddp(rank: int, world_size: int) -> None:
    module = model()
    if rank:
        torch.nn.init.zeros_(module[0].weight)  # that of rank 0 is broadcast
    wrapped = DistributedDataParallel(module, bucket_cap_mb=0.01)
    trains(wrapped, rank)
    assert_trained(list(module.parameters()), world_size)
    hooked = DistributedDataParallel(model())
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)  # torch requires NCCL for bf16_compress_hook
    trains(hooked, rank)
    # In one bucket: with several, its callbacks race with the next bucket's hook, on any backend for the CPU.
    slow = DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
    )
    slow.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    trains(slow, rank)


@pytest.mark.parametrize("environment", [{}, {"SWITCHML_TORCH_FALLBACK": "gloo"}])
def test_ddp_trains_as_one_process_does(ranks: Ranks, environment: dict[str, str]) -> None:
    ranks.run(3, ddp, 3, environment=environment)


def hybrid(rank: int) -> None:
    before = switchml.torch.statistics()["network_calls"]
    module = model()
    fully_shard(module, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    trains(module, rank)
    full = [value.full_tensor() for value in get_model_state_dict(module).values()]
    assert_trained(full, 4)
    assert switchml.torch.statistics()["network_calls"] > before


def test_hybrid_sharding_reduces_between_replicas_in_the_network(ranks: Ranks) -> None:
    ranks.run(4, hybrid)


def ddp_fails(rank: int) -> str:
    module = DistributedDataParallel(model())
    assert switchml.torch.last_error() is None
    if rank == 1:
        dist.group.WORLD.abort()
        return ""
    with pytest.raises(RuntimeError) as raised:
        trains(module, rank)
    error = switchml.torch.last_error()
    assert error is not None
    assert (error.ranks, error.reason) == ((1,), "WorkerLost")
    assert isinstance(error.__cause__, switchml.WorkerLost)
    assert error.__cause__.ranks == (1,)
    dist.destroy_process_group()
    assert switchml.torch.last_error() is error
    return str(raised.value)


def test_ddp_says_what_the_backend_said_and_the_error_itself_can_be_had(ranks: Ranks) -> None:
    message = ranks.run(2, ddp_fails)[0]
    assert "WorkerLost" in message or "rank 1" in message
    assert "its process group was aborted" in message
