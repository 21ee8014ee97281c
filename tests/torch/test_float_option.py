"""The option that makes the switch add up floats as such."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from switchml import Floats
from switchml.dataplane.floats import sum_digits
from switchml.torch import Options
from tests.torch.torch_harness import Ranks

ELEMENTS = 5000


def test_what_floats_cannot_be_combined_with() -> None:
    with pytest.raises(ValueError, match="a call over floats has no skip_zeros"):
        Options(wire=Floats(), skip_zeros=True)
    with pytest.raises(ValueError, match="gloo-exact"):
        Options(wire=Floats(), fallback="gloo-exact")


def contribution(rank: int) -> torch.Tensor:
    """Return numbers of very different magnitudes."""
    generator = torch.Generator().manual_seed(rank)
    powers = torch.randint(-40, 40, (ELEMENTS,), generator=generator)
    return torch.randn(ELEMENTS, generator=generator) * torch.exp2(powers.float())


def sums(rank: int) -> list[list[float]]:
    """Return sums in each dtype, floats as their bits; those of integers and float64 are not affected."""
    floats, special = contribution(rank), torch.tensor([1.0, float("inf"), float("nan")])
    halves, integers, doubles = floats.bfloat16(), torch.full((10,), rank), torch.full((10,), rank + 0.5).double()
    for tensor in (floats, special, halves, integers, doubles):
        dist.all_reduce(tensor)
    bits = [floats.view(torch.int32), special.view(torch.int32), halves.view(torch.int16), integers, doubles]
    return [tensor.tolist() for tensor in bits]


def sparse_sum(rank: int) -> list[int]:
    """Return the bits of a sum of sparse tensors, of which only one row is at both ranks."""
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), contribution(rank)[:200].reshape(2, 100), (8, 100))
    dist.all_reduce(tensor)
    bits: list[int] = tensor.to_dense().view(torch.int32).flatten().tolist()
    return bits


def test_sparse_tensors_are_summed_as_floats(ranks: Ranks) -> None:
    results = ranks.run(2, sparse_sum, environment={"SWITCHML_TORCH_WIRE": "floats"})
    given = np.zeros((2, 8, 100), np.float32)
    for rank in range(2):
        given[rank, [rank, 5]] = contribution(rank)[:200].reshape(2, 100).numpy()
    expected = sum_digits(given.reshape(2, 800))
    assert results == [expected.view(np.int32).tolist()] * 2


def test_sums_have_the_bits_of_the_reference(ranks: Ranks) -> None:
    results = ranks.run(2, sums, environment={"SWITCHML_TORCH_WIRE": "floats"})
    given = [contribution(rank) for rank in range(2)]
    expected = torch.from_numpy(sum_digits(np.stack([one.numpy() for one in given])))
    halves = torch.from_numpy(sum_digits(np.stack([one.bfloat16().float().numpy() for one in given]))).bfloat16()
    special = torch.tensor([2.0, float("inf"), float("nan")])
    for result in results:
        assert result == [
            expected.view(torch.int32).tolist(),
            special.view(torch.int32).tolist(),
            halves.view(torch.int16).tolist(),
            [1] * 10,
            [2.0] * 10,
        ]
