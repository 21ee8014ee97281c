"""Programs that divide a model, over groups of switchml: their losses are those of the same program over Gloo.

A pipeline of tensor-parallel stages is in test_wrapped_tensors.py, and sharding alone in test_sharding.py.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.distributed import rpc
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from tests.torch.torch_harness import Ranks

WORDS, WIDTH, HEAD, LENGTH = 48, 32, 8, 12
STEPS = 5


class Block(nn.Module):
    """A block of a transformer, which has the heads whose projections are on this rank."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        query, key, value = (
            part(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(heads.transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.second_norm(x))))


def language_model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))


def plan() -> dict[str, object]:
    """Divide matrices over the ranks; between them each rank has a part of each sequence (`Shard(1)`)."""
    divided: dict[str, object] = {
        "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "3": SequenceParallel(),
        "4": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    for block in ("1", "2"):
        divided |= {f"{block}.{name}": SequenceParallel() for name in ("norm", "second_norm")}
        inward = ("query", "key", "value", "up")
        divided |= {f"{block}.{name}": ColwiseParallel(input_layouts=Shard(1)) for name in inward}
        divided |= {f"{block}.{name}": RowwiseParallel(output_layouts=Shard(1)) for name in ("merge", "down")}
    return divided


def network_calls() -> int:
    return switchml.torch.statistics()["network_calls"]


def divided(rank: int, shape: tuple[int, int]) -> list[float]:
    """Train with tensor, sequence and loss parallelism, and with sharding between the groups that do so."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("shards", "tensors"))
    backend = dist.get_backend()
    assert dist.get_backend(mesh.get_group("tensors")) == backend
    model = parallelize_module(language_model(), mesh["tensors"], plan())
    if shape[0] > 1:
        for block in (model[1], model[2], model):
            fully_shard(block, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before, losses = network_calls(), []
    for step in range(STEPS):
        words = torch.Generator().manual_seed(10 * step + mesh.get_local_rank("shards"))
        text = torch.randint(0, WORDS, (4, LENGTH + 1), generator=words)
        optimizer.zero_grad()
        with loss_parallel():
            loss = cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        losses.append(float(loss.full_tensor().detach()))
    assert (network_calls() > before) == (backend == "switchml")
    return losses


@pytest.mark.parametrize("shape", [(1, 2), (1, 4), (2, 2)], ids=["2 ranks", "4 ranks", "2 x 2, sharded"])
def test_tensor_and_sequence_parallelism(ranks: Ranks, shape: tuple[int, int]) -> None:
    size = shape[0] * shape[1]
    losses, expected = (ranks.run(size, divided, shape, backend=backend) for backend in ("switchml", "gloo"))
    assert losses == [pytest.approx(of_rank, rel=1e-5) for of_rank in expected]
    assert losses[0] == losses[shape[1] - 1]


ROWS = 20


def table(seed: int) -> nn.Embedding:
    """Make a table of a trainer, on the rank that keeps it."""
    numbers = torch.Generator().manual_seed(seed)
    return nn.Embedding.from_pretrained(torch.randn(ROWS, WIDTH, generator=numbers), freeze=False)


def looked_up(kept: RRef, rows: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = kept.local_value()(rows)
    return found


def weight_of(kept: RRef) -> RRef:
    return RRef(kept.local_value().weight)


def beside_rpc(rank: int, rendezvous: str) -> list[float]:
    """Train two replicas with DDP; each has its embeddings on rank 2, which it reads and trains by RPC."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=rendezvous)
    rpc.init_rpc(f"rank-{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    trainers, losses = dist.new_group([0, 1]), []
    if rank < 2:
        kept = rpc.remote("rank-2", table, (rank,))
        torch.manual_seed(7)
        model = DistributedDataParallel(nn.Linear(WIDTH, 5), process_group=trainers)
        parameters = [rpc.rpc_sync("rank-2", weight_of, (kept,)), *map(RRef, model.parameters())]
        optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.5)
        numbers = torch.Generator().manual_seed(rank)
        before = network_calls()
        for _ in range(STEPS):
            rows, labels = (torch.randint(0, most, (16,), generator=numbers) for most in (ROWS, 5))
            with dist_autograd.context() as context:
                loss = cross_entropy(model(rpc.rpc_sync("rank-2", looked_up, (kept, rows))), labels)
                dist_autograd.backward(context, [loss])
                optimizer.step(context)
            losses.append(loss.item())
        assert (network_calls() > before) == (dist.get_backend() == "switchml")
    dist.barrier()
    rpc.shutdown()
    return losses


def test_rpc_beside_the_group(ranks: Ranks, tmp_path: Path) -> None:
    losses, expected = (
        ranks.run(
            3, beside_rpc, f"file://{tmp_path}/{backend}", backend=backend, environment={"TP_SOCKET_IFNAME": "lo"}
        )
        for backend in ("switchml", "gloo")
    )
    assert losses == [pytest.approx(of_rank, rel=1e-5) for of_rank in expected]
    assert losses[0] != losses[1]
