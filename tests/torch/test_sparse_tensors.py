"""All-reduces of sparse tensors through the network: as over Gloo, and with the same bits on all ranks."""

from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import switchml
import switchml.torch
from switchml.torch import Options
from switchml.torch.collectives import Conditions
from switchml.torch.deadlines import Deadline
from switchml.torch.reductions import reduction_of
from switchml.torch.sparse_tensors import SparseAllReduce
from tests.torch.torch_harness import Ranks, RendezvousServer
from tests.torch.training_tasks import assert_close, assert_same_on_all_ranks, parameters

ROWS = 300


def network_calls() -> int:
    return switchml.torch.statistics()["network_calls"]


def random_sparse(
    rank: int, shape: tuple[int, ...], sparse_dims: int, entries: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return a tensor with `entries` random places, some of them several times."""
    generator = torch.Generator().manual_seed(rank)
    indices = torch.stack([torch.randint(0, size, (entries,), generator=generator) for size in shape[:sparse_dims]])
    values = torch.randn(entries, *shape[sparse_dims:], generator=generator) * 10
    return torch.sparse_coo_tensor(indices, values.to(dtype), shape)


SHAPES = [((ROWS, 17), 1, 90), ((40, 30, 5), 2, 200), ((ROWS,), 1, 40), ((ROWS, 3), 1, 0)]
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-13, torch.int64: 0.0, torch.int32: 0.0}


def sums(rank: int) -> None:
    """Rank 1 has no entries."""
    gloo = dist.new_group(backend="gloo")
    for shape, sparse_dims, entries in SHAPES:
        for dtype, tolerance in TOLERANCES.items():
            ours = random_sparse(rank, shape, sparse_dims, entries if rank != 1 else 0, dtype)
            theirs = ours.clone()
            calls = network_calls()
            dist.all_reduce(ours)
            assert network_calls() == calls + 1
            dist.all_reduce(theirs, group=gloo)
            theirs = theirs.coalesce()
            assert ours.is_coalesced()
            assert torch.equal(ours.indices(), theirs.indices())
            assert_close([ours.values()], [theirs.values()], tolerance)
            assert_same_on_all_ranks([ours.indices(), ours.values()])


@pytest.mark.parametrize("world_size", [2, 3])
def test_sums_are_those_of_gloo(ranks: Ranks, world_size: int) -> None:
    ranks.run(world_size, sums)


def averages(rank: int) -> None:
    x = torch.sparse_coo_tensor([[rank, 9, 9]], [[1.0], [2.0], [2.0]], (12, 1), dtype=torch.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.dtype == torch.bfloat16
    assert x.indices().tolist() == [[0, 1, 9]]
    assert x.values().tolist() == [[0.5], [0.5], [4.0]]
    with pytest.raises(switchml.UnsupportedTensor, match="real and imaginary"):
        dist.group.WORLD.allreduce([torch.sparse_coo_tensor([[rank]], [1 + 2j], (2,))])
    mixed = [torch.ones(3), torch.sparse_coo_tensor([[0]], [1.0], (2,))]
    dist.all_reduce_coalesced(mixed)
    assert [tensor.to_dense().tolist() for tensor in mixed] == [[2.0] * 3, [2.0, 0.0]]
    with torch.inference_mode():
        inferred = torch.sparse_coo_tensor([[0]], [1.0], (2,))
    dist.all_reduce(inferred)
    assert inferred.to_dense().tolist() == [2.0, 0.0]
    work = dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)), async_op=True)
    [result] = work.get_future().wait()
    result.mul_(2)  # in place, so the values do not belong to inference mode
    assert result.to_dense().tolist() == [4.0, 0.0]


def test_averages_layouts_and_futures(ranks: Ranks) -> None:
    ranks.run(2, averages)


def rows_by_keys(rank: int) -> None:
    """The library takes torch tensors too, of a dtype that numpy does not have."""
    with switchml.connect(job="keyed", rank=rank, world_size=2, create=True) as comm:
        ids, rows = torch.tensor([rank, 5]), torch.full((2, 3), 1.5, dtype=torch.bfloat16, requires_grad=True)
        union, totals = comm.sparse_all_reduce(ids, rows)
        assert union.tolist() == [0, 1, 5]
        assert totals.dtype == torch.bfloat16
        assert totals.tolist() == [[1.5] * 3, [1.5] * 3, [3.0] * 3]
        with pytest.raises(ValueError, match="coalesce"):
            comm.sparse_all_reduce(torch.tensor([2, 1]), rows)


def test_rows_by_keys_of_torch_tensors(ranks: Ranks) -> None:
    ranks.run(2, rows_by_keys)


def other_shapes(rank: int) -> None:
    x = torch.sparse_coo_tensor([[0]], [1.0], (2 + rank,))
    with pytest.raises(switchml.torch.SwitchMLBackendError) as raised:
        dist.all_reduce(x)
    assert raised.value.reason == "CollectiveMismatch"


def test_other_shapes_are_a_mismatch(ranks: Ranks) -> None:
    ranks.run(2, other_shapes)


def without_a_switch(rank: int) -> None:
    assert dist.group.WORLD.state.startswith("gloo")
    x = torch.sparse_coo_tensor([[rank, 2]], [1.0, 2.0], (4,))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.indices().tolist() == [[0, 1, 2]]
    assert x.values().tolist() == [0.5, 0.5, 2.0]


def test_the_fallback_reduces_over_gloo(server: RendezvousServer) -> None:
    environment = {"SWITCHML_TORCH_FALLBACK": "gloo"}
    Ranks(server, None).run(2, without_a_switch, environment=environment)


def shares(rank: int, world_size: int, private: bool) -> None:
    """Give the result of each rank in turn to the others, as after a loss of the network."""
    gloo = dist.group.WORLD._gloo
    conditions = Conditions(rank, world_size, private, Options(), timedelta(seconds=30))
    for giver in range(world_size):
        ours = random_sparse(rank + giver, (ROWS, 3), 1, 0 if rank == 1 else 20, torch.float32)
        lacking = ours.clone()
        reduced = SparseAllReduce(ours, reduction_of("sum"), conditions)
        reduced.start_over_gloo(gloo)
        for handle in reduced.handles:
            handle.wait()
        reduced.finish()
        if rank != giver:
            reduced = SparseAllReduce(lacking, reduction_of("sum"), conditions)
        reduced.share(gloo, giver, None, Deadline.after(timedelta(seconds=30)))
        reduced.deliver()
        shared = ours if rank == giver else lacking
        assert shared.is_coalesced()
        assert torch.equal(shared.indices(), ours.indices())
        assert torch.equal(shared.values(), ours.values())


@pytest.mark.parametrize("private", [False, True])
def test_ranks_that_lack_a_result_get_that_of_another(ranks: Ranks, private: bool) -> None:
    ranks.run(3, shares, 3, private)


class Recommender(nn.Module):
    """Scores of the mean of a few rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(ROWS, 16, sparse=True)
        self.last = nn.Linear(16, 10)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.table(items).mean(1)))


def train(rank: int, group: dist.ProcessGroup) -> tuple[list[float], list[torch.Tensor]]:
    """Return the losses, which are means over the ranks, and the parameters."""
    model = DistributedDataParallel(Recommender(), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(10):
        generator = torch.Generator().manual_seed(100 * step + rank)
        popular = torch.rand(16, 5, generator=generator) ** 3
        optimizer.zero_grad()
        items = (popular * ROWS).long()
        loss = nn.functional.cross_entropy(model(items), (items[:, 0] < 10).long())
        loss.backward()
        assert model.module.table.weight.grad.is_sparse
        optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(float(mean))
    return losses, parameters(model)


def recommenders(rank: int) -> None:
    calls = switchml.torch.statistics()["gloo_calls"]
    losses, ours = train(rank, dist.group.WORLD)
    assert switchml.torch.statistics()["gloo_calls"] <= calls + 4  # DDP compares the models at its start
    assert_same_on_all_ranks(ours)
    gloos, theirs = train(rank, dist.new_group(backend="gloo"))
    np.testing.assert_allclose(losses, gloos, rtol=1e-5)
    assert losses[-1] < losses[0]
    assert_close(ours, theirs)


@pytest.mark.parametrize("world_size", [2, 4])
def test_embeddings_with_sparse_gradients_train_as_over_gloo(ranks: Ranks, world_size: int) -> None:
    ranks.run(world_size, recommenders)
