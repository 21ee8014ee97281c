"""The collectives other than all-reduce: in the network or over Gloo, with the results that torch documents."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import switchml.torch
from switchml.torch.paths import MOST_BROADCAST_BYTES, PATHS, Link, table
from tests.support.fabric_harness import Ctl
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks, RendezvousServer

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)


def of(rank: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(size) % 2 + rank).to(dtype)


def broadcasts(rank: int, world_size: int, shared_memory: bool) -> None:
    sizes = (0, 1, 7, 300, MOST_BROADCAST_BYTES // 4, MOST_BROADCAST_BYTES // 4 + 1, 100_000)
    for root in range(world_size):
        for dtype in (*DTYPES, torch.complex64, torch.float8_e4m3fn):
            x = of(rank, 5, dtype)
            dist.broadcast(x, root)
            assert torch.equal(x.to(torch.complex64), of(root, 5, dtype).to(torch.complex64)), dtype
        for size in sizes:
            x = of(rank, size)
            before = switchml.torch.statistics()
            dist.broadcast(x, root)
            assert torch.equal(x, of(root, size))
            path = "network" if shared_memory or x.nbytes <= MOST_BROADCAST_BYTES else "gloo"
            after = switchml.torch.statistics()
            assert after[f"{path}_calls"] == before[f"{path}_calls"] + 1
    x = of(rank, 40).view(4, 10).t()
    dist.broadcast(x, 1)
    assert torch.equal(x, of(1, 40).view(4, 10).t())
    nan = torch.tensor([float("nan"), float("inf"), 1.0]) * (rank + 1)
    dist.broadcast(nan, 0)
    assert nan[2] == 1
    assert bool(nan[0].isnan())
    objects = [{"rank": rank}, "text"] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"rank": 0}, "text"]


def test_broadcasts_of_every_dtype_and_size_over_shared_memory(ranks: Ranks) -> None:
    ranks.run(3, broadcasts, 3, True)


@pytest.fixture
def udp_fabric() -> Iterator[Ctl]:
    yield from running_fabric("--transport", "udp")


def test_broadcasts_of_every_dtype_and_size_over_packets(server: RendezvousServer, udp_fabric: Ctl) -> None:
    Ranks(server, udp_fabric.run_dir).run(3, broadcasts, 3, False)


def reduces(rank: int, world_size: int) -> None:
    for root in range(world_size):
        for op, expected in ((dist.ReduceOp.SUM, 6.0), (dist.ReduceOp.AVG, 2.0), (dist.ReduceOp.MAX, 3.0)):
            for dtype in (torch.float32, torch.float16, torch.int64):
                x = torch.full((300,), rank + 1).to(dtype)
                dist.reduce(x, root, op)
                # Unchanged on all ranks but the root.
                assert bool((x == (expected if rank == root else rank + 1)).all()), (root, op, dtype)


def test_reduces_change_the_roots_tensor_only(ranks: Ranks) -> None:
    ranks.run(3, reduces, 3)


def gathers(rank: int, world_size: int) -> None:
    everyone = range(world_size)
    for dtype in DTYPES:
        out = [torch.zeros(4, dtype=dtype) for _ in everyone]
        dist.all_gather(out, of(rank, 4, dtype))
        assert all(torch.equal(out[r], of(r, 4, dtype)) for r in everyone)
    single = torch.zeros(4 * world_size)
    work = dist.all_gather_single(single, of(rank, 4), async_op=True)
    work.wait()
    assert torch.equal(single, torch.cat([of(r, 4) for r in everyone]))
    group = dist.distributed_c10d._get_default_group()
    singles = [torch.zeros(2 * world_size), torch.zeros(3 * world_size)]
    group.all_gather_single_coalesced(singles, [of(rank, 2), of(rank, 3)]).wait()
    assert torch.equal(singles[1], torch.cat([of(r, 3) for r in everyone]))
    gathered = [torch.zeros(4) for _ in everyone] if rank == 1 else None
    dist.gather(of(rank, 4), gathered, dst=1)
    assert gathered is None or all(torch.equal(gathered[r], of(r, 4)) for r in everyone)
    scattered = torch.zeros(4)
    dist.scatter(scattered, [of(10 + r, 4) for r in everyone] if rank == 2 else None, src=2)
    assert torch.equal(scattered, of(10 + rank, 4))
    objects: list[object] = [None] * world_size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in everyone]
    collected = [None] * world_size if rank == 0 else None
    dist.gather_object(("of", rank), collected)
    assert collected is None or collected == [("of", r) for r in everyone]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in everyone] if rank == 0 else None)
    assert mine == [f"for {rank}"]


def test_gathers_scatters_and_objects(ranks: Ranks) -> None:
    ranks.run(3, gathers, 3)


def forms_of_reduce_scatter(parts: list[torch.Tensor], op: Any) -> list[Callable[[torch.Tensor], object]]:
    return [
        lambda out: dist.reduce_scatter(out, parts, op),
        lambda out: dist.reduce_scatter_single(out, torch.cat(parts), op),
        lambda out: dist.reduce_scatter_single(out, torch.cat(parts), op, async_op=True).wait(),
    ]


def reduce_scatters(rank: int, world_size: int) -> None:
    everyone = range(world_size)
    operations: dict[Any, Callable[[list[float]], float]] = {
        dist.ReduceOp.SUM: lambda columns: sum(columns),
        dist.ReduceOp.AVG: lambda columns: sum(columns) / world_size,
        dist.ReduceOp.MAX: lambda columns: max(columns),
        dist.ReduceOp.PRODUCT: lambda columns: columns[0] * columns[1] * columns[2],
    }
    for op, function in operations.items():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            expected = torch.full((4,), float(function([r + 1.0 + rank for r in everyone])), dtype=torch.float64)
            parts = [torch.full((4,), rank + 1.0 + r, dtype=dtype) for r in everyone]
            for call in forms_of_reduce_scatter(parts, op):
                out = torch.zeros(4, dtype=dtype)
                call(out)
                assert torch.allclose(out.double(), expected, rtol=0.01), (op, dtype, out)
    out = torch.zeros(4)
    dist.reduce_scatter_single(out, torch.ones(4 * world_size), dist.ReduceOp.PREMUL_SUM(0.5))
    assert out.tolist() == [1.5] * 4
    outs = [torch.zeros(2), torch.zeros(3)]
    group = dist.distributed_c10d._get_default_group()
    options = dist.ReduceScatterOptions()
    options.reduceOp = dist.ReduceOp.AVG
    group.reduce_scatter_single_coalesced(outs, [torch.ones(6), torch.full((9,), 2.0)], options).wait()
    assert [o.tolist() for o in outs] == [[1.0] * 2, [2.0] * 3]


def test_reduce_scatters(ranks: Ranks) -> None:
    ranks.run(3, reduce_scatters, 3)


def points(rank: int, world_size: int) -> None:
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    got = torch.zeros(3)
    requests = [dist.isend(of(rank, 3), after, tag=5), dist.irecv(got, before, tag=5)]
    for request in requests:
        request.wait()
    assert torch.equal(got, of(before, 3))
    if rank == 0:
        # A separate tag, because the last rank's next message is also on its way to rank 0.
        sources = [dist.recv(got, tag=7) for _ in range(world_size - 1)]
        assert sorted(sources) == list(range(1, world_size))
    else:
        dist.send(of(rank, 3), 0, tag=7)
    batch = [dist.P2POp(dist.isend, of(rank, 3), after), dist.P2POp(dist.irecv, got, before)]
    for request in dist.batch_isend_irecv(batch):
        request.wait()
    assert torch.equal(got, of(before, 3))
    if rank < 2:
        objects = [rank] if rank == 0 else [None]
        (dist.send_object_list if rank == 0 else dist.recv_object_list)(objects, 1 - rank)
        assert objects == [0]
    out = torch.zeros(2 * world_size)
    dist.all_to_all_single(out, torch.cat([of(10 * rank + r, 2) for r in range(world_size)]))
    assert torch.equal(out, torch.cat([of(10 * r + rank, 2) for r in range(world_size)]))
    outs = [torch.zeros(r + 1) for r in range(world_size)]
    dist.all_to_all(outs, [of(10 * rank + r, rank + 1) for r in range(world_size)])
    assert all(torch.equal(outs[r], of(10 * r + rank, r + 1)) for r in range(world_size))
    uneven = torch.zeros(world_size * (rank + 1))
    given = torch.cat([torch.full((r + 1,), float(rank)) for r in range(world_size)])
    dist.all_to_all_single(uneven, given, [rank + 1] * world_size, [r + 1 for r in range(world_size)])
    assert torch.equal(uneven, torch.arange(world_size).repeat_interleave(rank + 1).float())
    dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    group.monitored_barrier(timedelta(seconds=20))


def test_point_to_point_and_all_to_all(ranks: Ranks) -> None:
    ranks.run(3, points, 3)


def functionals(rank: int, world_size: int) -> None:
    group = dist.group.WORLD
    for op, expected in (("sum", 6.0), ("avg", 2.0), ("max", 3.0)):
        assert functional.all_reduce(torch.full((3,), rank + 1.0), op, group).tolist() == [expected] * 3
    before = switchml.torch.statistics()["network_calls"]
    both = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    assert [b.tolist() for b in both] == [[3.0] * 2, [3.0] * 3]
    assert switchml.torch.statistics()["network_calls"] == before + 1
    assert functional.all_gather_single(torch.full((1,), float(rank)), 0, group).tolist() == [0.0, 1.0, 2.0]
    assert functional.reduce_scatter_single(torch.ones(6), "sum", 0, group).tolist() == [3.0] * 2
    assert functional.broadcast(torch.full((2,), float(rank)), 1, group).tolist() == [1.0] * 2
    assert functional.all_to_all_single(torch.full((3,), float(rank)), None, None, group).tolist() == [0.0, 1.0, 2.0]


def test_functional_collectives_which_come_from_cpp(ranks: Ranks) -> None:
    ranks.run(3, functionals, 3)


def test_paths_can_be_asked_for() -> None:
    assert switchml.torch.path_of("all_reduce") == "network"
    assert switchml.torch.path_of("all_reduce", torch.int64, dist.ReduceOp.AVG) == "network"
    assert switchml.torch.path_of("all_reduce", op=dist.ReduceOp.PREMUL_SUM(2.0)) == "network"
    assert switchml.torch.path_of("all_reduce", op="max") == "gloo"
    assert switchml.torch.path_of("all_reduce", sparse=True) == "network"
    assert switchml.torch.path_of("all_reduce", op="max", sparse=True) == "gloo"
    assert switchml.torch.path_of("reduce", sparse=True) == "gloo"
    assert switchml.torch.path_of("broadcast", torch.complex128, nbytes=100) == "network"
    assert switchml.torch.path_of("broadcast", nbytes=MOST_BROADCAST_BYTES) == "network"
    assert switchml.torch.path_of("broadcast", nbytes=10**6, link=Link(optional_values=True)) == "gloo"
    assert switchml.torch.path_of("broadcast", nbytes=1 << 30, link=Link(medium="shared memory")) == "network"
    assert switchml.torch.path_of("all_to_all") == "gloo"
    with pytest.raises(KeyError):
        switchml.torch.path_of("all_reduces")
    with pytest.raises(ValueError, match="median"):
        switchml.torch.path_of("all_reduce", op="median")
    assert len(table().splitlines()) == len(PATHS) + 2
