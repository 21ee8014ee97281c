"""Sums over Gloo that have the bits of sums through the switch, for all dtypes, operations and numbers of ranks."""

from __future__ import annotations

import hashlib
import math
import os
import signal
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from switchml.client.wire import CODES, Codes
from switchml.launch.settings import EMBEDDED_VALUES
from switchml.torch.paths import EMBEDDED
from tests.support.fabric_harness import Ctl
from tests.torch.conftest import running_fabric
from tests.torch.test_failures import EXACT, pid_of
from tests.torch.torch_harness import Ranks, RendezvousServer

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
SEVERAL_PACKETS = 10_007


def values_of(rank: int, dtype: torch.dtype, elements: int = SEVERAL_PACKETS) -> Tensor:
    """Return values of very different magnitudes, many of them zeros in long runs."""
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.rand(elements, generator=generator) < 0.2
    values = torch.randn(elements, generator=generator, dtype=torch.float64)
    values *= torch.pow(10.0, torch.linspace(-6, 4, elements, dtype=torch.float64))
    values[1000:5000] = 0
    return values.to(dtype) if dtype.is_floating_point else (100 * values).clamp(-100, 100).to(dtype)


def not_finite(rank: int, dtype: torch.dtype) -> Tensor:
    values = values_of(rank, dtype)
    values[7 + rank] = math.nan
    values[3000] = math.inf if rank else 1
    values[3001] = -math.inf
    return values


def sums(rank: int, world_size: int) -> Iterator[tuple[str, Tensor]]:
    """Make sums of all kinds, and yield their results."""
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        for op in (dist.ReduceOp.SUM, *([] if dtype == torch.bool else [dist.ReduceOp.AVG])):
            x = values_of(rank, dtype)
            dist.all_reduce(x, op)
            yield f"{op} of {dtype}", x
    for dtype in FLOATS:
        x = not_finite(rank, dtype)
        dist.all_reduce(x)
        yield f"{dtype} that are not finite", x
        y = values_of(rank, dtype)
        dist.all_reduce(y, dist._make_nccl_premul_sum(0.3))
        yield f"products of {dtype}", y
        part, whole = torch.empty(1001, dtype=dtype), values_of(rank, dtype, world_size * 1001)
        dist.reduce_scatter_single(part, whole, dist.ReduceOp.AVG)
        yield f"parts of {dtype}", part
    for elements in (0, 1, 2049):
        x = values_of(rank, torch.float32, elements)
        dist.all_reduce(x)
        yield f"{elements} elements", x
    for codes in CODES:
        x = values_of(rank, torch.float32)
        part, whole = torch.empty(1001), values_of(rank, torch.float32, world_size * 1001)
        coded = Codes(codes, 9)
        dist.group.WORLD.all_reduce_over(x, "avg", coded).wait()
        yield f"{codes} codes", x
        dist.group.WORLD.reduce_scatter_over(part, whole, "sum", coded).wait()
        yield f"parts of {codes} codes", part
    root = values_of(rank, torch.float32)
    dist.reduce(root, 1)
    yield "reduce", root
    rows = torch.sparse_coo_tensor([[rank, 10]], values_of(rank, torch.float32, 6).view(2, 3), (40, 3))
    dist.all_reduce(rows)
    yield "rows", rows.to_dense()
    last = values_of(rank, torch.float32)  # its random numbers depend on the number of all calls before it
    dist.all_reduce(last)
    yield "last", last


def digests(rank: int, world_size: int) -> tuple[str, dict[str, str]]:
    found = {}
    for name, result in sums(rank, world_size):
        found[name] = hashlib.sha256(result.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
    return dist.group.WORLD.state, found


@pytest.mark.parametrize(
    ("world_size", "options"),
    [
        (2, {}),
        (4, {}),
        (8, {}),
        (3, {"SWITCHML_TORCH_WIRE": "blocks:bits=16"}),
        (4, {"SWITCHML_TORCH_WIRE": "blocks:bits=8,rounding=stochastic"}),
        (2, {"SWITCHML_TORCH_SKIP_ZEROS": "on"}),
    ],
    ids=["2", "4", "8", "3-16-bits", "4-8-bits-stochastic", "2-sparse"],
)
def test_all_sums_have_the_bits_of_the_network(
    server: RendezvousServer, ranks: Ranks, world_size: int, options: dict[str, str]
) -> None:
    """Compare the sums of a job with those of ranks that have no switch."""
    environment = EXACT | options
    network = ranks.run(world_size, digests, world_size, environment=environment)
    exact = Ranks(server, None).run(world_size, digests, world_size, environment=environment)
    for (state, expected), (other_state, found) in zip(network, exact, strict=True):
        assert state == "network"
        assert other_state.startswith("gloo-exact: ")
        assert found == expected


def test_without_a_job_the_bits_are_those_of_the_embedded_fabric() -> None:
    assert EMBEDDED.values == EMBEDDED_VALUES


class Trained:
    """A model, its data and its optimizer; the same at all ranks but for the data."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh()]
        self.middle = layers[2]
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(256, 8)), bucket_cap_mb=0.1)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self._random = torch.Generator().manual_seed(100 + rank)

    def step(self) -> None:
        """Make one step."""
        x = torch.randn(16, 64, generator=self._random)
        self._optimizer.zero_grad()
        (self.model(x) - x[:, :8].sin()).square().mean().backward()
        self._optimizer.step()

    def digest(self) -> str:
        """Return the SHA-256 of the parameters."""
        return hashlib.sha256(
            b"".join(parameter.detach().numpy().tobytes() for parameter in self.model.parameters())
        ).hexdigest()


def trains(rank: int, steps: int, pid: int, number: int) -> tuple[str, str]:
    """Train; in the backward pass in the middle, with buckets in flight, rank 0 sends a signal."""
    trained = Trained(rank)
    for step in range(steps):
        if rank == 0 and step == steps // 2:
            trained.middle.register_full_backward_hook(signals_once(pid, number))
        trained.step()
    return dist.group.WORLD.state, trained.digest()


def signals_once(pid: int, number: int) -> Callable[..., None]:
    pids = [pid]

    def hook(*_: object) -> None:
        if pids:
            os.kill(pids.pop(), number)

    return hook


def test_a_training_that_loses_its_switch_ends_with_the_same_parameters(
    server: RendezvousServer, own_fabric: Ctl
) -> None:
    ranks, pid = Ranks(server, own_fabric.run_dir), pid_of(own_fabric, "switch")
    no_signal = 0
    undisturbed = ranks.run(4, trains, 20, pid, no_signal, environment=EXACT)
    disturbed = ranks.run(4, trains, 20, pid, signal.SIGKILL, environment=EXACT)
    assert all(state == "network" for state, _ in undisturbed)
    assert all(state.startswith("gloo-exact: ") for state, _ in disturbed)
    assert len({digest for _, digest in (*undisturbed, *disturbed)}) == 1


def sub_group(rank: int, pid: int) -> tuple[str, str]:
    """Lose the switch before a sub-group has joined it; its packets would have been those of the default group."""
    dist.all_reduce(torch.ones(1))
    group = dist.new_group([0, 1])
    x = values_of(rank, torch.float32)
    if pid:
        if rank == 0:
            os.kill(pid, signal.SIGKILL)
        dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1))
    dist.all_reduce(x, group=group)
    return group.state, hashlib.sha256(x.numpy().tobytes()).hexdigest()


def test_groups_that_have_not_joined_have_the_packets_of_the_default_group(server: RendezvousServer) -> None:
    for control in running_fabric("--values", "64"):
        ranks, pid = Ranks(server, control.run_dir), pid_of(control, "switch")
        undisturbed = ranks.run(2, sub_group, 0, environment=EXACT)
        disturbed = ranks.run(2, sub_group, pid, environment=EXACT)
    assert all(state == "network" for state, _ in undisturbed)
    assert all(state.startswith("gloo-exact: ") for state, _ in disturbed)
    assert len({digest for _, digest in (*undisturbed, *disturbed)}) == 1
