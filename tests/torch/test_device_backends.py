"""Groups in which SwitchML is the back end of one device, and another one that of the others."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from switchml.torch import compression
from switchml.torch.device_backend import DeviceBackend
from switchml.torch.torch_version import BEFORE_2_14
from tests.torch.torch_harness import Ranks

SIZE = 2
needs_parts = pytest.mark.skipif(BEFORE_2_14, reason="PyTorch 2.13 has no back ends in Python")
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
needs_cpu_splits = pytest.mark.skipif(VERSION < (2, 15), reason="PyTorch splits groups of accelerators only")
MIXED = "cpu:switchml,cuda:gloo"


def has_both(rank: int) -> None:
    """Test collectives of CPU tensors, and that the other device kept its back end."""
    world = dist.group.WORLD
    assert isinstance(world._get_backend(torch.device("cpu")), DeviceBackend)
    assert isinstance(world._get_backend(torch.device("cuda")), dist.ProcessGroupGloo)
    part = switchml.torch.switchml_group(world)
    assert part is not None
    assert part.state == "network"
    x = torch.full((1000,), float(rank + 1))
    dist.all_reduce(x)
    assert x.eq(3).all()
    whole = torch.empty(SIZE * 5)
    dist.all_gather_single(whole, torch.full((5,), float(rank)))
    assert whole.tolist() == [0.0] * 5 + [1.0] * 5
    own = torch.empty(4)
    dist.reduce_scatter_single(own, torch.arange(8.0), op=dist.ReduceOp.AVG)
    assert own.tolist() == [4.0 * rank + place for place in range(4)]
    numbers = [torch.tensor([rank, number]) for number in range(SIZE)]
    received = [torch.empty(2, dtype=torch.int64) for _ in range(SIZE)]
    dist.all_to_all(received, numbers)
    assert [one.tolist() for one in received] == [[0, rank], [1, rank]]
    y = torch.full((3,), float(rank))
    dist.broadcast(y, 1)
    assert y.tolist() == [1.0] * 3
    sums = torch.ones(7, dtype=torch.int64)
    dist.reduce(sums, 0)
    assert sums[0] == (SIZE if rank == 0 else 1)
    if rank == 0:
        dist.send(torch.tensor([5]), 1)
    else:
        got = torch.zeros(1, dtype=torch.int64)
        assert dist.recv(got, 0) == 0
        assert got == 5
    objects: list[str | None] = [None] * SIZE
    dist.all_gather_object(objects, f"rank {rank}")
    assert objects == ["rank 0", "rank 1"]
    dist.barrier()
    dist.monitored_barrier()
    pair = dist.new_group([0, 1])
    assert switchml.torch.switchml_group(pair) is not None
    z = torch.ones(3)
    dist.all_reduce(z, group=pair)
    assert z.tolist() == [2.0] * 3


@needs_parts
def test_both_devices_have_their_back_end(ranks: Ranks) -> None:
    ranks.run(SIZE, has_both, backend=MIXED)


def trains(rank: int) -> list[float]:
    """Train with DDP, also with a compressor, which makes its own groups."""
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(20, 20))
    state = compression.CompressionState(model, compression.by_name("none"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.full((4, 20), float(rank + 1))
    for step in range(4):
        if step == 2:
            model = DistributedDataParallel(model.module)
            model.register_comm_hook(state, compression.compression_hook)
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return [float(parameter.detach().sum()) for parameter in model.parameters()]


@needs_parts
def test_training_in_a_group_with_two_back_ends(ranks: Ranks) -> None:
    mixed = ranks.run(SIZE, trains, backend=MIXED)
    assert mixed[0] == mixed[1]
    assert mixed == ranks.run(SIZE, trains)


def wrapped(rank: int) -> None:
    """Make a group with the level that TORCH_DISTRIBUTED_DEBUG=DETAIL sets when torch is imported."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    with pytest.raises(switchml.torch.SwitchMLBackendError, match="TORCH_DISTRIBUTED_DEBUG=DETAIL makes PyTorch"):
        dist.new_group(backend=MIXED)
    x = torch.ones(3)
    dist.all_reduce(x, group=dist.new_group(backend="switchml"))
    assert x[0] == SIZE


@needs_parts
def test_a_part_that_torch_would_wrap_is_refused(ranks: Ranks) -> None:
    """Otherwise torch fails with an internal error in the first collective, or before."""
    ranks.run(SIZE, wrapped)


def split(rank: int) -> None:
    """Test groups that `split_group` makes of the default group, and one of those."""
    pairs = dist.split_group(split_ranks=[[0, 1], [3, 2]], group_desc="pairs")
    part = switchml.torch.switchml_group(pairs)
    assert part is not None
    assert part is not switchml.torch.switchml_group(dist.group.WORLD)
    assert dist.get_process_group_ranks(pairs) == ([0, 1] if rank < 2 else [3, 2])
    assert dist.get_group_rank(pairs, rank) == dist.get_rank(pairs) == (0, 1, 1, 0)[rank]
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x, group=pairs)
    assert x.eq(1 if rank < 2 else 5).all()
    assert part.state == "network"
    y = torch.full((2,), rank)
    dist.broadcast(y, group=pairs, group_src=0)
    assert y[0] == (0 if rank < 2 else 3)
    if rank in (1, 2) and isinstance(dist.group.WORLD, switchml.torch.SwitchMLProcessGroup):
        assert dist.split_group(split_ranks=[[0, 3]]) is dist.GroupMember.NON_GROUP_MEMBER
    elif rank in (1, 2):
        with pytest.raises(RuntimeError, match=f"leaves out rank {rank}, .* use new_group"):
            dist.split_group(split_ranks=[[0, 3]])
    else:
        dist.all_reduce(x, group=dist.split_group(split_ranks=[[0, 3]]))
        assert x.eq(6).all()
    alone = dist.split_group(pairs, split_ranks=[[0], [1]])
    z = torch.full((5,), float(rank))
    dist.all_reduce(z, group=alone)
    assert z.eq(rank).all()
    with pytest.raises(ValueError, match="empty"):
        dist.split_group(split_ranks=[[]])
    again = dist.split_group(split_ranks=[[0, 1], [3, 2]])
    dist.destroy_process_group(pairs)
    dist.all_reduce(x, group=again)


@needs_cpu_splits
@pytest.mark.parametrize("backend", ["switchml", MIXED])
def test_groups_are_split(ranks: Ranks, backend: str) -> None:
    """C++'s own split ended the process by a segmentation fault, or never ended asking whether there is one."""
    ranks.run(4, split, backend=backend)


def bound_to_a_device(rank: int, backend: str) -> None:
    """Make the default group again as programs do that name their device, and groups of it."""
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.init_process_group(backend, store=store, rank=rank, world_size=4, device_id=torch.device("cpu:0"))
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        low = dist.new_group([0, 1])
    x = torch.full((100,), float(rank))
    dist.all_reduce(x, group=mesh.get_group("replicate"))
    assert x.eq(2 * (rank % 2) + 2).all()
    assert switchml.torch.switchml_group(mesh.get_group("replicate")) is not None
    if rank < 2:
        dist.all_reduce(x, group=low)
        assert x.eq(6).all()


@needs_cpu_splits
@pytest.mark.parametrize("backend", ["switchml", MIXED])
def test_a_group_that_is_bound_to_a_device(ranks: Ranks, backend: str) -> None:
    ranks.run(4, bound_to_a_device, backend)


def makes_groups(rank: int, backend: str) -> None:
    """Make groups in each way, and end them, in a program whose warnings are errors."""
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.init_process_group(backend, store=store, rank=rank, world_size=SIZE)
        pair = dist.new_group([0, 1], pg_options=switchml.torch.Options(priority=1))
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
        for group in (None, pair, mesh.get_group("shard")):
            dist.all_reduce(torch.ones(10), group=group)
            dist.barrier(group)
        dist.destroy_process_group(pair)
        dist.destroy_process_group()


@pytest.mark.parametrize("backend", ["switchml", "cpu:switchml", pytest.param(MIXED, marks=needs_parts)])
def test_nothing_warns_of_the_making_of_groups(ranks: Ranks, backend: str) -> None:
    ranks.run(SIZE, makes_groups, backend)


def is_one_group(rank: int) -> None:
    assert isinstance(dist.group.WORLD, switchml.torch.SwitchMLProcessGroup)
    assert switchml.torch.switchml_group(dist.group.WORLD) is dist.group.WORLD
    assert switchml.torch.switchml_group(dist.new_group([0, 1], backend="gloo")) is None


@pytest.mark.parametrize("backend", ["switchml", "cpu:switchml", "cpu:switchml,cuda:switchml"])
def test_a_group_with_one_back_end_is_ours(ranks: Ranks, backend: str) -> None:
    ranks.run(SIZE, is_one_group, backend=backend)


@pytest.mark.skipif(not BEFORE_2_14, reason="this PyTorch has back ends in Python")
@pytest.mark.parametrize("backend", [MIXED, "cpu:gloo,cuda:switchml"])
def test_older_versions_name_both_back_ends(ranks: Ranks, backend: str) -> None:
    with pytest.raises(AssertionError, match=rf'makes no group with the back ends "{backend}"'):
        ranks.run(SIZE, is_one_group, backend=backend)


@pytest.mark.parametrize("backend", ["cpu:switchml,gloo", "switchml,switchml", "abacus:switchml,cpu:gloo"])
def test_texts_that_are_no_back_ends(ranks: Ranks, backend: str) -> None:
    with pytest.raises(AssertionError, match=r"[Ii]nvalid|Expected one of|makes no group|Unknown c10d backend"):
        ranks.run(SIZE, is_one_group, backend=backend)
