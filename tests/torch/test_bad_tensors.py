"""Tensors that no collective accepts: only their call raises an error, and the group remains usable."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import switchml
import switchml.torch
from tests.torch.torch_harness import Ranks

BAD = {
    "shared by expand": lambda: torch.ones(1).expand(4),
    "shared by as_strided": lambda: torch.arange(10.0).as_strided((4, 3), (2, 1)),
    "zeros without memory": lambda: torch._efficientzerotensor((4,)),
    "a freed storage": lambda: _freed(torch.ones(4)),
    "meta": lambda: torch.ones(4, device="meta"),
    "sparse rows": lambda: torch.eye(4).to_sparse_csr(),
}


def _freed(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def one_bad_tensor(rank: int, name: str) -> None:
    group = dist.new_group([0, 1])  # the group joins its job with its first call, which is a bad one
    calls: list[Callable[[torch.Tensor], object]] = [
        lambda x: dist.all_reduce(x, group=group),
        lambda x: dist.all_reduce(x, dist.ReduceOp.MAX, group=group),
        lambda x: dist.broadcast(x, 0, group=group),
        lambda x: dist.reduce(x, 0, group=group),
        lambda x: dist.all_reduce_coalesced([torch.ones(4), x], group=group),
    ]
    for call in calls:
        with pytest.raises(switchml.UnsupportedTensor, match="unchanged"):
            call(BAD[name]())
        good = torch.ones(3)
        dist.all_reduce(good, group=group)
        assert good[0] == 2


@pytest.mark.parametrize("name", list(BAD))
def test_a_tensor_that_cannot_be_used_is_refused_and_the_group_lives_on(ranks: Ranks, name: str) -> None:
    ranks.run(2, one_bad_tensor, name)


def read_only_parts(rank: int) -> None:
    """Test inputs whose elements share memory: they are copied, whereas Gloo would read beyond their end."""
    gathered = torch.zeros(8)
    dist.all_gather_single(gathered, torch.full((1,), float(rank)).expand(4))
    assert gathered.tolist() == [0.0] * 4 + [1.0] * 4
    output = torch.zeros(2)
    dist.reduce_scatter_single(output, torch.full((1,), rank + 1.0).expand(4))
    assert output.tolist() == [3.0, 3.0]
    with pytest.raises(switchml.UnsupportedTensor, match="memory"):
        dist.all_gather_single(gathered, torch._efficientzerotensor((4,)))


def test_expanded_tensors_can_be_read(ranks: Ranks) -> None:
    ranks.run(2, read_only_parts)


def misaligned(rank: int) -> None:
    x = torch.frombuffer(bytearray(21), offset=1, dtype=torch.float32)
    x.fill_(rank + 1.0)
    assert x.data_ptr() % 4
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 5


def test_a_tensor_at_an_odd_address_is_copied(ranks: Ranks) -> None:
    ranks.run(2, misaligned)


class ReadOnly(torch.Tensor):
    """A tensor type that refuses to be copied into."""

    @classmethod
    def __torch_function__(
        cls, function: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        if getattr(function, "__name__", "") == "copy_":
            raise RuntimeError("this tensor is read-only")
        return super().__torch_function__(function, types, args, kwargs or {})


def cannot_be_written(rank: int) -> None:
    """Test a result that rank 0 cannot write: only this call fails, and only at rank 0."""
    x = torch.ones(500, 2)[:, 0]
    # dist.all_reduce would convert it to an ordinary tensor.
    work = dist.group.WORLD.allreduce([x.as_subclass(ReadOnly) if rank == 0 else x])
    if rank == 0:
        with pytest.raises(switchml.torch.SwitchMLBackendError, match="this tensor is read-only"):
            work.wait()
    else:
        assert work.wait()
        assert x[0] == 2
    good = torch.ones(3)
    dist.all_reduce(good)
    assert good[0] == 2


@pytest.mark.parametrize("environment", [{}, {"SWITCHML_TORCH_FALLBACK": "gloo"}])
def test_a_result_that_cannot_be_written_fails_alone(ranks: Ranks, environment: dict[str, str]) -> None:
    ranks.run(2, cannot_be_written, environment=environment)


def in_the_library(rank: int, path: str) -> None:
    """Test the same for calls of the library with torch tensors."""
    with switchml.connect(job=path, rank=rank, world_size=2, create=True) as comm:
        refused = [
            torch._efficientzerotensor((4,)),
            _freed(torch.ones(4)),
            torch.frombuffer(bytearray(21), offset=1, dtype=torch.float32),
        ]
        for bad in refused:
            with pytest.raises(switchml.UnsupportedTensor, match="unchanged"):
                comm.all_reduce(bad)
            good = torch.ones(3)
            comm.all_reduce(good)
            assert good[0] == 2


def test_the_library_refuses_them_too(ranks: Ranks) -> None:
    ranks.run(2, in_the_library, "bad-tensors")
