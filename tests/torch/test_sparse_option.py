"""The option that leaves blocks of zeros out of all-reduces of dense tensors."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml.torch import Options
from tests.support.fabric_harness import Ctl
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks, RendezvousServer

ELEMENTS = 300_000  # more than 1 MiB, from which "auto" may choose a sparse call


def test_the_environment_and_configure_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert switchml.torch.current_options().skip_zeros is False
    for text, skip_zeros in (("off", False), ("on", True), ("auto", "auto")):
        monkeypatch.setenv("SWITCHML_TORCH_SKIP_ZEROS", text)
        assert switchml.torch.current_options().skip_zeros == skip_zeros
    monkeypatch.setenv("SWITCHML_TORCH_SKIP_ZEROS", "1")
    with pytest.raises(ValueError, match="SWITCHML_TORCH_SKIP_ZEROS is '1'; it must be one of 'off', 'on', 'auto'"):
        switchml.torch.current_options()
    with pytest.raises(ValueError, match='it must be False, True or "auto"'):
        Options(skip_zeros="on")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def small_packets() -> Iterator[Ctl]:
    yield from running_fabric("--values", "256")


def table_gradient(rank: int, step: int, full: bool) -> torch.Tensor:
    """Return values in a few places, or in all."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    values = torch.randn(ELEMENTS, generator=generator)
    return values if full else values * (torch.arange(ELEMENTS) // 1000 % 20 == rank)


def sparse_steps(rank: int, steps: int, full: bool) -> list[int]:
    """Return for each step the number of sparse calls; a small tensor and one of float64 are never sparse with auto."""
    counts, before = [], switchml.torch.statistics()["sparse_calls"]
    dense = dist.new_group(pg_options=Options())
    for step in range(steps):
        ours, theirs = (table_gradient(rank, step, full) for _ in range(2))
        dist.all_reduce(ours, dist.ReduceOp.AVG)
        dist.all_reduce(theirs, dist.ReduceOp.AVG, group=dense)
        assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32))
        dist.all_reduce(torch.zeros(ELEMENTS, dtype=torch.float64))
        now = switchml.torch.statistics()["sparse_calls"]
        counts.append(now - before)
        before = now
    return counts


@pytest.mark.parametrize(
    ("sparse", "full", "expected"),
    [("off", False, [0] * 8), ("on", True, [1] * 8), ("auto", False, [1] * 8), ("auto", True, [1] * 6 + [0] * 2)],
)
def test_sparse_calls_have_the_bits_of_dense_ones(
    server: RendezvousServer, small_packets: Ctl, sparse: str, full: bool, expected: list[int]
) -> None:
    ranks = Ranks(server, small_packets.run_dir, SWITCHML_DIRECT="0")  # direct calls are never sparse
    environment = {"SWITCHML_TORCH_SKIP_ZEROS": sparse}
    assert ranks.run(2, sparse_steps, len(expected), full, environment=environment) == [expected] * 2
