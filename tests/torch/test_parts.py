"""Reduce-scatter and all-gather in the network: their forms, dtypes, memory, paths and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml.torch import Link, path_of, wire_bits
from switchml.torch.paths import MOST_GATHERED_BYTES
from tests.support.fabric_harness import Ctl
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks, RendezvousServer

SUMMED = (
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
MOVED = (*SUMMED, torch.complex64, torch.float8_e4m3fn)
PART = 3001  # elements


def values_of(rank: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.rand(size, generator=generator) < 0.3
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size, generator=generator).to(dtype)
    return torch.randint(0, 9, (size,), generator=generator).to(dtype)


def expect_path(path: str, call: Callable[[], object], calls: int = 1) -> None:
    """Make a call, and check by the counters that it takes this path."""
    before = switchml.torch.statistics()
    call()
    after = switchml.torch.statistics()
    made = {name: after[f"{name}_calls"] - before[f"{name}_calls"] for name in ("network", "gloo")}
    assert made == {"network": 0, "gloo": 0, path: calls}


def forms_of_reduce_scatter(given: torch.Tensor, op: Any) -> list[Callable[[torch.Tensor], object]]:
    return [
        lambda out: dist.reduce_scatter_single(out, given, op),
        lambda out: dist.reduce_scatter(out, list(given.split(PART)), op),
        lambda out: dist.reduce_scatter_single(out, given, op, async_op=True).wait(),
    ]


def reduce_scatters(rank: int, world_size: int) -> None:
    """Every form gives the bits of an all-reduce of the part."""
    for dtype in SUMMED:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM(0.25)):
            if (op != dist.ReduceOp.SUM and dtype == torch.bool) or (
                op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG) and not dtype.is_floating_point
            ):
                continue
            given = values_of(rank, dtype, world_size * PART)
            before = given.clone()
            parts = [part.clone() for part in given.split(PART)]
            for part in parts:
                dist.all_reduce(part, op)
            expected = parts[rank]
            for form in forms_of_reduce_scatter(given, op):
                out = torch.zeros(PART, dtype=dtype)
                expect_path("network", partial(form, out))
                if dtype == torch.float64:  # the exponent is that of the whole tensor, not of a part
                    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-15)
                else:
                    assert torch.equal(out, expected), (dtype, op)
            assert torch.equal(given, before)
            within = given[rank * PART : (rank + 1) * PART]
            dist.reduce_scatter_single(within, given, op)
            assert torch.equal(given[rank * PART : (rank + 1) * PART], out)


def test_every_form_of_reduce_scatter_has_the_bits_of_an_all_reduce_of_the_part(ranks: Ranks) -> None:
    ranks.run(3, reduce_scatters, 3)


def scatters_of_odd_memory(rank: int, world_size: int) -> None:
    shape = (2 * world_size, 50)
    every = [torch.full(shape, float(r + 1)) for r in range(world_size)]
    total = float(sum(range(1, world_size + 1)))
    transposed = every[rank].t().contiguous().t()
    out = torch.zeros(50, 2).t()
    expect_path("network", lambda: dist.reduce_scatter_single(out, transposed))
    assert torch.equal(out, torch.full((2, 50), total))
    other = every[rank].clone()
    dist.reduce_scatter_single(other[1:3], other)  # memory that belongs to parts of several ranks
    assert torch.equal(other[1:3], torch.full((2, 50), total))
    numbers = torch.complex(every[rank], -every[rank])
    part = torch.zeros(2, 50, dtype=torch.complex64)
    dist.reduce_scatter_single(part, numbers.conj())
    assert torch.equal(part, torch.full((2, 50), complex(total, total)))
    nothing = torch.zeros(0)
    dist.reduce_scatter_single(nothing, torch.zeros(0))
    nan = every[rank].clone()
    if rank == 1:
        nan[0, 3] = math.inf
    result = torch.zeros(2, 50)
    dist.reduce_scatter_single(result, nan)
    assert result.isnan().nonzero().tolist() == ([[0, 3]] if rank == 0 else [])
    works = [dist.reduce_scatter_single(torch.zeros(2, 50), every[rank], async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    group = dist.distributed_c10d._get_default_group()
    outs = [torch.zeros(2), torch.zeros(300)]
    options = dist.ReduceScatterOptions()
    options.reduceOp = dist.ReduceOp.AVG
    given = [torch.ones(2 * world_size), torch.full((300 * world_size,), 2.0)]
    expect_path("network", lambda: group.reduce_scatter_single_coalesced(outs, given, options).wait())
    assert [out.unique().tolist() for out in outs] == [[1.0], [2.0]]
    expect_path("gloo", lambda: dist.reduce_scatter_single(result, every[rank], dist.ReduceOp.MAX))
    with pytest.raises((ValueError, RuntimeError)):
        dist.reduce_scatter_single(torch.zeros(3), torch.zeros(4))


def test_reduce_scatters_of_views_and_of_several_tensors(ranks: Ranks) -> None:
    ranks.run(3, scatters_of_odd_memory, 3)


def bytes_of_scatters(rank: int, world_size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        given = values_of(rank, dtype, world_size * PART)
        before = switchml.torch.statistics()["wire_bytes"]
        dist.reduce_scatter_single(torch.zeros(PART, dtype=dtype), given)
        words = -(-PART * wire_bits(dtype, world_size) // 32)
        assert switchml.torch.statistics()["wire_bytes"] - before == 4 * words * world_size


@pytest.mark.parametrize("wire", ["auto", "blocks:bits=16", "blocks:bits=8"])
def test_reduce_scatters_take_the_bytes_of_their_width(ranks: Ranks, wire: str) -> None:
    ranks.run(3, bytes_of_scatters, 3, environment={"SWITCHML_TORCH_WIRE": wire})


def all_gathers(rank: int, world_size: int) -> None:
    """Gather random bytes, also those of NaN."""
    for dtype in MOVED:
        for size in (0, 1, 5, PART):
            item = torch.empty(0, dtype=dtype).element_size()
            raw = (
                [
                    torch.randint(0, 2 if dtype == torch.bool else 256, (size * item,), dtype=torch.uint8)
                    for _ in range(world_size)
                ]
                if rank == 0
                else [torch.empty(size * item, dtype=torch.uint8) for _ in range(world_size)]
            )
            for part in raw:
                dist.broadcast(part, 0)
            given = raw[rank].view(dtype)
            whole = torch.zeros(size * world_size, dtype=dtype)
            expect_path("network", partial(dist.all_gather_single, whole, given))
            assert torch.equal(whole.view(torch.uint8), torch.cat(raw)), (dtype, size)
            within = torch.zeros(size * world_size, dtype=dtype)
            within[rank * size : (rank + 1) * size] = given
            dist.all_gather_single(within, within[rank * size : (rank + 1) * size])
            assert torch.equal(within.view(torch.uint8), torch.cat(raw))
            apart = [torch.zeros(size, dtype=dtype) for _ in range(world_size)]
            expect_path("network", partial(dist.all_gather, apart, given))
            assert all(torch.equal(a.view(torch.uint8), b) for a, b in zip(apart, raw, strict=True))
    columns = [torch.zeros(4, 3).t() for _ in range(world_size)]
    dist.all_gather(columns, torch.full((3, 4), float(rank)))
    assert [column.unique().tolist() for column in columns] == [[float(r)] for r in range(world_size)]
    group = dist.distributed_c10d._get_default_group()
    outs = [torch.zeros(3 * PART * world_size) for _ in range(2)]
    expect_path(
        "network",
        lambda: group.all_gather_single_coalesced(outs, [torch.ones(3 * PART) for _ in range(2)]).wait(),
    )
    assert all(bool((out == 1).all()) for out in outs)
    with pytest.raises((ValueError, RuntimeError)):
        dist.all_gather_single(torch.zeros(5), torch.zeros(4))


def test_all_gathers_of_every_dtype_over_shared_memory(ranks: Ranks) -> None:
    ranks.run(3, all_gathers, 3)


@pytest.fixture
def udp_fabric() -> Iterator[Ctl]:
    yield from running_fabric("--transport", "udp")


def test_all_gathers_of_every_dtype_over_packets(server: RendezvousServer, udp_fabric: Ctl) -> None:
    Ranks(server, udp_fabric.run_dir).run(3, all_gathers, 3)


def gathers_of_a_group(rank: int, world_size: int) -> None:
    group = dist.new_group([0, 2])
    if rank != 1:
        whole = torch.zeros(2 * PART)
        expect_path("network", lambda: dist.all_gather_single(whole, torch.full((PART,), rank + 1.0), group))
        assert whole.unique().tolist() == [1.0, 3.0]
        part = torch.zeros(PART)
        expect_path("network", lambda: dist.reduce_scatter_single(part, whole, group=group))
        assert part.unique().tolist() == [2.0 if rank == 0 else 6.0]


def test_the_first_collective_of_a_group_may_be_one_of_parts(ranks: Ranks) -> None:
    ranks.run(3, gathers_of_a_group, 3)


def test_paths_of_parts() -> None:
    for name in ("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced"):
        assert path_of(name) == "network"
        assert path_of(name, torch.bfloat16, dist.ReduceOp.AVG, 1 << 30) == "network"
        assert path_of(name, op="max") == "gloo"
    for name in ("all_gather", "all_gather_coalesced", "all_gather_single", "all_gather_single_coalesced"):
        assert path_of(name, torch.complex128, nbytes=MOST_GATHERED_BYTES) == "network"
        assert path_of(name, nbytes=MOST_GATHERED_BYTES + 1) == "gloo"
        assert path_of(name, nbytes=1 << 30, link=Link(optional_values=True)) == "network"
