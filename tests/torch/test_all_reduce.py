"""Every reduction of every dtype, compared with Gloo's result or with exact arithmetic."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from tests.torch.torch_harness import Ranks, RendezvousServer

SHAPES = ((), (0,), (1,), (255,), (257,), (3, 5, 7), (1500,))
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)


def contribution(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a rank's contribution; integers use all of their bits."""
    generator = torch.Generator().manual_seed(1000 * rank + math.prod(shape) + len(str(dtype)))
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.3
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, generator=generator, dtype=torch.int64).to(dtype)


def wrapped(value: int, dtype: torch.dtype) -> int:
    info = torch.iinfo(dtype)
    return int((value - info.min) % (info.max - info.min + 1) + info.min)


def exact_sum(contributions: list[torch.Tensor], dtype: torch.dtype, average: bool) -> torch.Tensor:
    """Return sums of Python's integers or fractions, converted to the dtype."""
    columns = list(zip(*(c.flatten().tolist() for c in contributions), strict=True))
    count = len(contributions) if average else 1
    if dtype == torch.bool:
        values: list[object] = [any(column) for column in columns]
    elif dtype.is_floating_point:
        values = [float(sum(map(Fraction, column)) / count) for column in columns]
        return torch.tensor(values, dtype=torch.float64).view(contributions[0].shape)
    elif average:
        values = [wrapped(math.trunc(Fraction(sum(column), count)), dtype) for column in columns]
    else:
        values = [wrapped(sum(column), dtype) for column in columns]
    return torch.tensor(values, dtype=dtype).view(contributions[0].shape)


def unit_of_float64(world_size: int, largest: float) -> Fraction:
    """Return the unit of which a contribution is rounded to a multiple (docs/understand/protocol.md)."""
    bits = (world_size - 1).bit_length()
    return Fraction(2) ** (math.frexp(largest)[1] + 8 - (2 * (32 - bits) + 31 - bits))


def sums(rank: int, world_size: int) -> list[str]:
    """Test SUM and AVG of all dtypes and shapes; return what was wrong."""
    wrong = []
    for dtype, shape, average in itertools.product(DTYPES, SHAPES, (False, True)):
        if average and dtype == torch.bool:
            continue
        x = contribution(rank, shape, dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
        every = [contribution(r, shape, dtype) for r in range(world_size)]
        expected = exact_sum(every, dtype, average)
        assert x.dtype == dtype
        assert x.shape == shape
        if dtype.is_floating_point:
            # The bound for a block or tensor: N/2 units, and one rounding.
            largest = max((float(c.double().abs().max()) for c in every if c.numel()), default=0.0)
            unit = math.ldexp(1.0, math.frexp(largest)[1] - 31 + (world_size - 1).bit_length())
            if dtype == torch.float64:
                unit = float(unit_of_float64(world_size, largest))
            if dtype in (torch.float16, torch.bfloat16):  # in lanes of 16 bits
                unit = math.ldexp(1.0, math.frexp(largest)[1]) / ((2**15 - 1) // world_size)
            rounding = expected.abs() * torch.finfo(dtype).eps + torch.finfo(dtype).tiny
            error = (x.double() - expected).abs() - world_size / 2 * unit - rounding
            if bool((error > 0).any()):
                wrong.append(f"{dtype} {shape} average={average}: {float(error.max())} too much")
        elif not torch.equal(x, expected):
            wrong.append(f"{dtype} {shape} average={average}: {x.flatten()[:4]} for {expected.flatten()[:4]}")
    calls = switchml.torch.statistics()
    assert calls["network_calls"] == len(DTYPES) * len(SHAPES) * 2 - len(SHAPES)
    assert calls["gloo_calls"] == 0
    return wrong


@pytest.mark.parametrize("world_size", [2, 3])
def test_sums_and_averages_of_every_dtype_go_through_the_switch(ranks: Ranks, world_size: int) -> None:
    assert ranks.run(world_size, sums, world_size) == [[]] * world_size


def averages_of_the_largest(rank: int, world_size: int, backend: str) -> None:
    """Averages are right even if the sums do not fit: through the switch, over Gloo, and in parts."""
    assert dist.group.WORLD.state.startswith(backend)
    largest = torch.finfo(torch.float32).max
    x = torch.full((300,), largest if rank else -largest)
    y = torch.full((300,), largest)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    dist.all_reduce(y, dist.ReduceOp.AVG)
    if backend == "network":  # Gloo sums float32 in float32
        assert bool((y == largest).all())
        assert x[0] == torch.tensor(largest * (world_size - 2) / world_size, dtype=torch.float64).float()
    ends = torch.iinfo(torch.int64)
    for values in ([ends.max] * world_size, [ends.min] * world_size, [ends.min, *[0] * (world_size - 2), 1]):
        expected = math.trunc(Fraction(sum(values), world_size))
        z = torch.full((7, 5), values[rank])
        dist.all_reduce(z, dist.ReduceOp.AVG)
        assert bool((z == expected).all())
        part = torch.zeros(4, dtype=torch.int64)
        dist.reduce_scatter_single(part, torch.full((4 * world_size,), values[rank]), dist.ReduceOp.AVG)
        assert part.tolist() == [expected] * 4


def test_averages_of_numbers_whose_sums_do_not_fit(server: RendezvousServer, ranks: Ranks) -> None:
    ranks.run(3, averages_of_the_largest, 3, "network")
    Ranks(server, None).run(3, averages_of_the_largest, 3, "gloo", environment={"SWITCHML_TORCH_FALLBACK": "gloo"})


def other_operations(rank: int, world_size: int) -> list[str]:
    wrong = []
    gloo = dist.new_group(backend="gloo")
    for name in ("MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"):
        op = getattr(dist.ReduceOp, name)
        for dtype, shape in itertools.product(DTYPES, ((), (0,), (257,), (3, 5))):
            x = contribution(rank, shape, dtype)
            if name.startswith("B") and dtype.is_floating_point:
                with pytest.raises(switchml.UnsupportedTensor, match=str(dtype)):
                    dist.all_reduce(x, op)
                continue
            native = dtype not in (torch.int16, torch.bool)
            expected = x.clone() if native else x.to(torch.int32)
            dist.all_reduce(expected, op, group=gloo)
            dist.all_reduce(x, op)
            if not torch.equal(x, expected if native else expected.to(dtype)):
                wrong.append(f"{name} {dtype} {shape}")
            assert switchml.torch.path_of("all_reduce", dtype, op) == "gloo"
    return wrong


def test_other_operations_are_gloos(ranks: Ranks) -> None:
    assert ranks.run(3, other_operations, 3) == [[]] * 3


def premultiplied(rank: int) -> None:
    for dtype in FLOATS:
        x = torch.full((300,), 2.0 + rank, dtype=dtype)
        dist.all_reduce(x, dist.ReduceOp.PREMUL_SUM(0.5))
        assert torch.equal(x, torch.full((300,), 2.5, dtype=dtype))
        x = torch.full((300,), 2.0 + rank, dtype=dtype)
        dist.all_reduce(x, dist.ReduceOp.PREMUL_SUM(torch.tensor([float(rank)])))  # each rank's own factor
        assert torch.equal(x, torch.full((300,), 3.0, dtype=dtype))
    with pytest.raises(switchml.UnsupportedTensor, match=r"int64.*PREMUL_SUM|PREMUL_SUM.*int64"):
        dist.all_reduce(torch.ones(3, dtype=torch.int64), dist.ReduceOp.PREMUL_SUM(0.5))
    assert switchml.torch.statistics()["gloo_calls"] == 0


def test_premultiplied_sums(ranks: Ranks) -> None:
    ranks.run(2, premultiplied)


def magnitudes(rank: int, world_size: int) -> float:
    """Sum float64 values of all magnitudes; return the largest error as a fraction of the documented bound."""
    shares = [0.0]
    for low, high in ((-1074, 1000), (-1074, -1000), (-3, 3), (900, 1023), (-600, 600)):
        every = []
        for r in range(world_size):
            generator = torch.Generator().manual_seed(r * 7919 + low)
            exponents = torch.randint(low, high, (400,), generator=generator)
            every.append(torch.ldexp(torch.rand(400, generator=generator, dtype=torch.float64) - 0.5, exponents))
        x = every[rank].clone()
        dist.all_reduce(x)
        largest = max(float(c.abs().max()) for c in every)
        unit = unit_of_float64(world_size, largest)
        for index, column in enumerate(zip(*(c.tolist() for c in every), strict=True)):
            exact = sum(map(Fraction, column), Fraction())
            result = float(x[index])
            if math.isinf(result):
                assert abs(exact) >= Fraction(2) ** 1024 - Fraction(2) ** 970
                continue
            bound = world_size * unit / 2 + Fraction(math.ulp(result)) / 2
            shares.append(float(abs(Fraction(result) - exact) / bound))
    return max(shares)


def test_float64_keeps_its_bound(ranks: Ranks) -> None:
    for share in ranks.run(3, magnitudes, 3):
        assert 0 < share <= 1


def non_finite(rank: int) -> None:
    nan, inf = math.nan, math.inf
    given = ([1.0, nan, inf, inf, 2.0, inf], [1.0, 1.0, 1.0, inf, -inf, -inf])[rank]
    for dtype in FLOATS:
        x = torch.tensor(given, dtype=dtype)
        dist.all_reduce(x)
        assert x.isnan().tolist() == [False, *[True] * 5], (dtype, x)
        assert x[0] == 2
    assert switchml.torch.statistics()["non_finite_results"] == len(FLOATS)
    x = torch.ones(10)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((10,), 2.0))
    # The sum exceeds the largest float16, so it is infinity, as with Gloo.
    x = torch.full((3,), 60000.0, dtype=torch.float16)
    dist.all_reduce(x)
    assert bool(x.isinf().all())


def test_nan_and_infinity_raise_nothing_and_are_seen_by_all(ranks: Ranks) -> None:
    ranks.run(2, non_finite)


def layouts(rank: int) -> None:
    base = torch.arange(120, dtype=torch.float32).view(6, 20) * (rank + 1)
    whole = torch.arange(120, dtype=torch.float32).view(6, 20) * 3
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        *(lambda t: t.t(), lambda t: t[:, ::3], lambda t: t[2:4], lambda t: t[1], lambda t: t[:, 4:5])
    ]
    for view in views:
        x = base.clone()
        dist.all_reduce(view(x))
        expected = base.clone()
        view(expected).copy_(view(whole))
        assert torch.equal(x, expected)
    parameter = torch.nn.Parameter(torch.ones(7))
    dist.all_reduce(parameter)
    assert torch.equal(parameter.data, torch.full((7,), 2.0))
    with torch.inference_mode():
        inferred = torch.ones(4, dtype=torch.float16)
    dist.all_reduce(inferred)
    assert inferred.tolist() == [2.0] * 4
    for complexes in (
        torch.complex(torch.ones(5), torch.full((5,), float(rank))),
        torch.ones(3, 4, dtype=torch.cfloat).t(),
    ):
        x = complexes.clone()
        dist.all_reduce(x)
        imaginary = 1.0 if complexes.dim() == 1 else 0.0
        assert torch.equal(x.imag, torch.full_like(x.imag, imaginary))
        assert torch.equal(x.real, torch.full_like(x.real, 2.0))
    conjugate = torch.complex(torch.ones(5), torch.ones(5)).conj()
    dist.distributed_c10d._get_default_group().allreduce([conjugate]).wait()
    assert torch.equal(conjugate.resolve_conj(), torch.complex(torch.full((5,), 2.0), torch.full((5,), -2.0)))
    sparse = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0, 1.0, 0.0]


def test_layouts_views_and_parameters(ranks: Ranks) -> None:
    ranks.run(2, layouts)


def coalesced(rank: int) -> None:
    tensors = [torch.full((size,), float(rank + 1)) for size in (1, 300, 0, 7)]
    dist.all_reduce_coalesced(tensors)
    assert all(torch.equal(tensor, torch.full_like(tensor, 3.0)) for tensor in tensors)
    doubles = [torch.full((3,), math.inf, dtype=torch.float64), torch.ones(4, dtype=torch.float64)]
    future = dist.all_reduce_coalesced(doubles, async_op=True)
    assert future.wait()[1].tolist() == [2.0] * 4
    assert bool(doubles[0].isnan().all())
    maxima = [torch.full((2,), float(rank)), torch.full((3,), -float(rank))]
    dist.all_reduce_coalesced(maxima, dist.ReduceOp.MAX)
    assert [m.tolist() for m in maxima] == [[1.0] * 2, [0.0] * 3]
    group = dist.distributed_c10d._get_default_group()
    group.allreduce_coalesced([]).wait()
    with pytest.raises(ValueError, match="one tensor"):
        group.allreduce([torch.ones(1), torch.ones(1)])
    overloads = [group.allreduce(torch.ones(2)), group.allreduce([torch.ones(2)], dist.ReduceOp.AVG)]
    assert [work.result()[0].tolist() for work in overloads if work.wait()] == [[2.0] * 2, [1.0] * 2]


def test_coalesced_and_overloads(ranks: Ranks) -> None:
    ranks.run(2, coalesced)


def unsupported(rank: int) -> None:
    for dtype in (torch.float8_e4m3fn, torch.uint16):
        with pytest.raises(switchml.UnsupportedTensor, match=f"{dtype}.*convert"):
            dist.all_reduce(torch.zeros(4, dtype=dtype))
    with pytest.raises(switchml.UnsupportedTensor, match=r"torch\.bool"):
        dist.all_reduce(torch.ones(4, dtype=torch.bool), dist.ReduceOp.AVG)
    with pytest.raises(switchml.UnsupportedTensor, match="device meta"):
        dist.all_reduce(torch.ones(4, device="meta"))
    with pytest.raises(switchml.UnsupportedTensor, match="device meta"):
        dist.all_gather_single(torch.ones(8, device="meta"), torch.ones(4, device="meta"))
    x = torch.ones(3)
    dist.all_reduce(x)  # all ranks are still in step
    assert x.tolist() == [2.0] * 3


def test_what_is_not_supported_says_so(ranks: Ranks) -> None:
    ranks.run(2, unsupported)
