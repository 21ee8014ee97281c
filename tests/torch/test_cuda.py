"""CUDA tensors: staged through pinned memory if requested, otherwise refused with an error that says what to do."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import switchml
import switchml.torch
from tests.torch.test_sharding import Stack, trained_alone
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import STEPS, assert_close, assert_same_on_all_ranks, batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def refuses(rank: int) -> None:
    for call in (dist.all_reduce, lambda x: dist.broadcast(x, 0), lambda x: dist.all_gather([x, x.clone()], x)):
        with pytest.raises(switchml.UnsupportedTensor, match="SWITCHML_STAGE_CUDA=1"):
            call(torch.ones(4, device="cuda"))


def test_without_staging_the_error_names_it(ranks: Ranks) -> None:
    ranks.run(2, refuses)


def stages(rank: int) -> None:
    """Test tensors that slow kernels produce and use, also on other streams."""
    torch.cuda.set_device(rank % torch.cuda.device_count())
    busy = torch.randn(2000, 2000, device="cuda")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                busy = (busy @ busy).tanh()
            x = torch.full((100_000,), rank + 1, dtype=dtype, device="cuda") + (busy[0, 0] * 0).to(dtype)
            for _ in range(2):
                dist.all_reduce(x, async_op=True).wait()
            works = [dist.all_reduce(part, async_op=True) for part in x.chunk(3)]
            for work in works:
                work.wait()
            assert bool((x * 1 == 3 * 2 * 2).all())
    future = dist.all_reduce(torch.ones(1000, device="cuda"), async_op=True).get_future()
    assert float(future.then(lambda f: f.value()[0] * 2).wait()[0]) == 4
    b = torch.full((10,), float(rank), device="cuda")
    dist.broadcast(b, 1)
    assert b[0] == 1
    dist.all_reduce(b, dist.ReduceOp.MAX)
    out = torch.zeros(20, device="cuda")
    dist.all_gather_single(out, b * (rank + 1))
    assert out.tolist() == [1.0] * 10 + [2.0] * 10
    part = torch.zeros(5, device="cuda")
    dist.reduce_scatter_single(part, b, dist.ReduceOp.AVG)
    assert part.tolist() == [1.0] * 5
    device = torch.device("cuda", torch.cuda.current_device())
    module = DistributedDataParallel(torch.nn.Linear(100, 100).to(device), device_ids=[device])
    module(torch.ones(4, 100, device=device) * (rank + 1)).sum().backward()
    assert torch.allclose(module.module.weight.grad, torch.full_like(module.module.weight, 6.0))


@pytest.mark.parametrize("fallback", ["none", "gloo"])
def test_staging_orders_the_streams(ranks: Ranks, fallback: str) -> None:
    ranks.run(2, stages, environment={"SWITCHML_STAGE_CUDA": "1", "SWITCHML_TORCH_FALLBACK": fallback})


def sharded_and_replicated(rank: int) -> None:
    """Train replicas on one device, whose gradients are averaged in the network."""
    torch.cuda.set_device(0)
    replicas = ("switchml", switchml.torch.Options(stage_cuda=True))
    mesh = init_device_mesh(
        "cuda", (2, 1), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": replicas}
    )
    model = Stack().cuda()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        x, target = (one.cuda() for one in batch(rank, step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
    whole = [parameter.full_tensor().cpu() for parameter in model.parameters()]
    assert_same_on_all_ranks(whole)
    assert_close(whole, trained_alone(2))


def test_replicas_of_a_sharded_model(ranks: Ranks) -> None:
    ranks.run(2, sharded_and_replicated, backend="gloo")
