"""The wires of tensors: the options of a group, what they cost and what they give."""

from __future__ import annotations

import math
import os

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml import Blocks, Floats
from switchml.torch import Options, wire_bits
from tests.torch.torch_harness import Ranks

HALVES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", HALVES)
def test_auto_is_16_bits_for_halves_of_up_to_8_ranks(dtype: torch.dtype) -> None:
    assert [wire_bits(dtype, ranks, Options()) for ranks in (2, 8, 9, 64)] == [16, 16, 32, 32]
    assert wire_bits(torch.float32, 2, Options()) == 32


@pytest.mark.parametrize("wire", [32, 16, 8])
def test_a_width_is_for_all_floats_of_one_word(wire: int) -> None:
    options = Options(wire=Blocks(wire))
    assert {wire_bits(dtype, 64, options) for dtype in (torch.float32, *HALVES)} == {wire}
    assert [wire_bits(dtype, 64, options) for dtype in (torch.float64, torch.int64)] == [96, 96]
    assert [wire_bits(dtype, 64, options) for dtype in (torch.int8, torch.uint8, torch.bool)] == [16, 16, 8]
    assert [wire_bits(dtype, 64, options) for dtype in (torch.int16, torch.int32)] == [32, 32]


def test_the_environment_chooses_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    assert switchml.torch.current_options() == Options(wire="auto")
    monkeypatch.setenv("SWITCHML_TORCH_WIRE", "blocks:bits=8,rounding=stochastic")
    assert switchml.torch.current_options() == Options(wire=Blocks(8, "stochastic"))
    monkeypatch.setenv("SWITCHML_TORCH_WIRE", "floats")
    assert switchml.torch.current_options() == Options(wire="floats") == Options(wire=Floats())
    for text, message in (("12", "it must begin with blocks"), ("blocks:bits=16,rounding=up", "rounding is 'up'")):
        monkeypatch.setenv("SWITCHML_TORCH_WIRE", text)
        with pytest.raises(ValueError, match=rf"SWITCHML_TORCH_WIRE: '{text}' is not a wire: {message}"):
            switchml.torch.current_options()


def sums_of_codes(rank: int) -> None:
    group = dist.new_group(pg_options=Options(wire="codes:name=natural8"))
    x, zeros = torch.full((1000,), 1.0 + rank), torch.zeros(1000)
    dist.all_reduce(zeros, group=group)
    dist.all_reduce(x, group=group)
    assert group.state == "network"
    assert x.tolist() == [3.0] * 1000  # powers of two are codes


def test_a_group_sums_codes(ranks: Ranks) -> None:
    ranks.run(2, sums_of_codes)


def never_runs(rank: int) -> None:
    raise AssertionError("the group was made")


def test_no_group_is_made_with_a_wrong_environment(ranks: Ranks) -> None:
    started = ranks.start(2, never_runs, environment={"SWITCHML_TORCH_WIRE": "12"})
    for rank in ranks.finish(started):
        assert "ValueError: SWITCHML_TORCH_WIRE: '12' is not a wire" in rank.failure


def values_of(rank: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.rand(1001, generator=generator) < 0.3
    if dtype.is_floating_point:
        return torch.randn(1001, generator=generator).to(dtype)
    return torch.randint(0, 127, (1001,), generator=generator).to(dtype)


def bytes_of_sums(rank: int, world_size: int) -> None:
    """Check that each dtype takes the bytes that its width says, and that its sum is as good as that allows."""
    options = switchml.torch.current_options()
    for dtype in (torch.float32, *HALVES, torch.int8, torch.uint8, torch.bool, torch.int16, torch.int32):
        x = values_of(rank, dtype)
        before = switchml.torch.statistics()["wire_bytes"]
        dist.all_reduce(x)
        bits = wire_bits(dtype, world_size, options)
        assert switchml.torch.statistics()["wire_bytes"] - before == -(-1001 * bits // 32) * 4
        every = [values_of(r, dtype) for r in range(world_size)]
        if dtype == torch.bool:
            assert torch.equal(x, torch.stack(every).any(0))
        elif not dtype.is_floating_point:
            assert torch.equal(x, torch.stack(every).sum(0).to(dtype))
        elif bits < 32:
            largest = max(float(values.abs().max()) for values in every)
            unit = math.ldexp(1.0, math.frexp(largest)[1]) / ((2 ** (bits - 1) - 1) // world_size)
            stochastic = isinstance(options.wire, Blocks) and options.wire.rounding == "stochastic"
            bound = world_size * unit * (1 if stochastic else 0.5)
            exact = torch.stack(every).double().sum(0)
            error = (x.double() - exact).abs() - exact.abs() * torch.finfo(dtype).eps
            assert float(error.max()) <= bound * 1.001


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SWITCHML_TORCH_WIRE": "blocks"},
        {"SWITCHML_TORCH_WIRE": "blocks:bits=16"},
        {"SWITCHML_TORCH_WIRE": "blocks:bits=8"},
        {"SWITCHML_TORCH_WIRE": "blocks:bits=8,rounding=stochastic"},
    ],
    ids=["auto", "32", "16", "8", "8-stochastic"],
)
def test_sums_take_the_bytes_of_their_width(over_switch: Ranks, environment: dict[str, str]) -> None:
    over_switch.run(3, bytes_of_sums, 3, environment=environment)


def averages(rank: int, world_size: int) -> None:
    for dtype in (torch.int8, torch.uint8):
        info = torch.iinfo(dtype)
        for value in (info.min, info.max):
            x = torch.full((77,), value, dtype=dtype)
            dist.all_reduce(x, dist.ReduceOp.AVG)
            assert x.tolist() == [value] * 77
    half = torch.full((300,), torch.finfo(torch.bfloat16).max, dtype=torch.bfloat16)
    dist.all_reduce(half, dist.ReduceOp.AVG)
    assert bool(torch.isfinite(half).all())


def test_averages_of_the_largest_values(ranks: Ranks) -> None:
    ranks.run(3, averages, 3, environment={"SWITCHML_TORCH_WIRE": "blocks:bits=8"})


def not_finite(rank: int) -> None:
    for dtype in (torch.float32, *HALVES):
        x = torch.full((1000,), 1.0, dtype=dtype)
        x[[7, 300]] = torch.tensor([math.nan, math.inf] if rank == 1 else [1.0, -math.inf], dtype=dtype)
        dist.all_reduce(x)
        assert x.isnan().nonzero().flatten().tolist() == [7, 300]
        torch.testing.assert_close(x.nan_to_num(3.0), torch.full_like(x, 3.0), rtol=0.01, atol=0)


@pytest.mark.parametrize("wire", ["blocks:bits=16", "blocks:bits=8"])
def test_nan_and_infinity_raise_nothing_and_are_seen_by_all(ranks: Ranks, wire: str) -> None:
    ranks.run(3, not_finite, environment={"SWITCHML_TORCH_WIRE": wire})


def widths_that_differ(rank: int, widths: list[int]) -> None:
    group = dist.new_group(pg_options=Options(wire=Blocks(widths[rank])))
    said = rf"the ranks call differently.*as {Blocks(widths[0])}\).*as {Blocks(widths[1])}\)"
    with pytest.raises(switchml.torch.SwitchMLBackendError, match=said) as raised:
        dist.all_reduce(torch.ones(100), group=group)
    assert raised.value.reason == "CollectiveMismatch"


@pytest.mark.parametrize("widths", [[8, 16], [32, 8]])
def test_ranks_with_different_options_are_told_so(ranks: Ranks, widths: list[int]) -> None:
    ranks.run(2, widths_that_differ, widths)


def width_of_the_environment(rank: int) -> None:
    os.environ["SWITCHML_TORCH_WIRE"] = "blocks:bits=16" if rank else "auto"
    with pytest.raises(switchml.torch.SwitchMLBackendError, match=r"as blocks\).*as blocks:bits=16\)"):
        dist.all_reduce(torch.ones(100), group=dist.new_group())


def test_ranks_with_different_environments_are_told_so(ranks: Ranks) -> None:
    ranks.run(2, width_of_the_environment)
