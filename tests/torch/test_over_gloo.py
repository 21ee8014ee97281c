"""Operations that Gloo does for the backend, with tensors that Gloo itself does not take; when their works complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import switchml
from switchml.torch.paths import MOST_GATHERED_BYTES
from tests.support.fabric_harness import Ctl
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks, RendezvousServer

SECONDS = 30.0
SIZE = 2
FEW = 6  # elements
MANY = MOST_GATHERED_BYTES  # elements: more bytes than packets gather or broadcast
MAX = dist.ReduceOp.MAX
MOVED = (
    torch.float32,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int64,
    torch.uint16,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
)
REDUCED = (torch.float32, torch.bfloat16, torch.int16, torch.bool)

Tensors = list[torch.Tensor]
Call = Callable[[int, Tensors, Tensors], Any]


def _group() -> Any:
    return dist.group.WORLD


def _max(options: Any) -> Any:
    options.reduceOp = MAX
    return options


MOVES: dict[str, tuple[int, int, Call]] = {
    "scatter": (1, 2, lambda rank, out, x: dist.scatter(out[0], None if rank else x, src=0, async_op=True)),
    "gather": (2, 1, lambda rank, out, x: dist.gather(x[0], None if rank else out, dst=0, async_op=True)),
    "all_to_all": (2, 2, lambda _, out, x: dist.all_to_all(out, x, async_op=True)),
    "all_to_all_single": (1, 1, lambda _, out, x: dist.all_to_all_single(out[0], x[0], async_op=True)),
    "send, recv": (1, 1, lambda rank, out, x: dist.irecv(out[0], 0) if rank else dist.isend(x[0], 1)),
    "recv_anysource": (1, 1, lambda rank, out, x: dist.irecv(out[0]) if rank else dist.isend(x[0], 1)),
    "broadcast": (1, 0, lambda _, out, __: dist.broadcast(out[0], 1, async_op=True)),
    "all_gather": (2, 1, lambda _, out, x: dist.all_gather(out, x[0], async_op=True)),
    "all_gather_coalesced": (2, 1, lambda _, out, x: _group().allgather_coalesced([[one] for one in out], x)),
    "all_gather_single": (
        1,
        1,
        lambda _, out, x: dist.all_gather_single(out[0], x[0][: len(x[0]) // 2], async_op=True),
    ),
}
REDUCTIONS: dict[str, tuple[int, int, Call]] = {
    "all_reduce": (1, 0, lambda _, out, __: dist.all_reduce(out[0], MAX, async_op=True)),
    "all_reduce_coalesced": (
        2,
        0,
        lambda _, out, __: _group().allreduce_coalesced(out, _max(dist.AllreduceCoalescedOptions())),
    ),
    "reduce": (1, 0, lambda _, out, __: dist.reduce(out[0], 1, MAX, async_op=True)),
    "reduce_scatter": (1, 2, lambda _, out, x: dist.reduce_scatter(out[0], x, MAX, async_op=True)),
    "reduce_scatter_single": (
        1,
        1,
        lambda _, out, x: dist.reduce_scatter_single(out[0][: len(out[0]) // 2], x[0], MAX, async_op=True),
    ),
}
OPERATIONS = MOVES | REDUCTIONS


def in_gaps(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a column of a table with these values, and the other columns, which are zero."""
    table = torch.zeros((len(values), 3), dtype=values.dtype)
    table[:, 1] = values
    return table[:, 1], table[:, ::2]


def misaligned(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor with these values at an odd address, and the byte before it, which is zero."""
    memory = torch.zeros(values.nbytes + 1, dtype=torch.uint8)
    tensor = torch.frombuffer(memory.numpy(), offset=1, dtype=values.dtype)
    tensor.copy_(values)
    return tensor, memory[:1]


LAYOUTS = (in_gaps, misaligned)


def values_of(rank: int, number: int, dtype: torch.dtype, size: int) -> torch.Tensor:
    values = torch.arange(size) % 13 * (rank + 1) + 3 * number
    if dtype.is_complex:
        return torch.complex(values.double(), -values.double()).to(dtype)
    return (values % 3 == 0 if dtype == torch.bool else values).to(dtype)


def completed(work: Any) -> None:
    """Wait until a work says that it has ended, without its help."""
    end = time.monotonic() + SECONDS
    while not work.is_completed():
        assert time.monotonic() < end, work
        time.sleep(0.001)


def bits(tensors: Tensors) -> list[list[int]]:
    return [tensor.contiguous().view(torch.uint8).tolist() for tensor in tensors]


def odd_memory(rank: int, names: list[str], dtypes: tuple[torch.dtype, ...], size: int) -> None:
    """Test that results do not depend on the memory, are there when the work is completed, and alone were written."""
    for name in names:
        outputs, inputs, call = OPERATIONS[name]
        for dtype in dtypes:
            given = [values_of(rank, number, dtype, size) for number in range(inputs)]
            expected = [values_of(rank, 7 + number, dtype, size) for number in range(outputs)]
            call(rank, expected, [tensor.clone() for tensor in given]).wait()
            for layout in LAYOUTS if dtype.itemsize > 1 else (in_gaps,):
                places = [layout(values_of(rank, 7 + number, dtype, size)) for number in range(outputs)]
                read = [layout(tensor)[0] for tensor in given]
                work = call(rank, [tensor for tensor, _ in places], read)
                case = (name, dtype, layout.__name__)
                if "recv" in name and rank == 0:
                    work.wait()  # a send is a work of Gloo itself, which ends in its only `wait`
                    continue
                completed(work)
                assert bits([tensor for tensor, _ in places]) == bits(expected), case
                assert work.wait(), case
                assert not any(bool(other.any()) for _, other in places), case
                assert bits(read) == bits(given), case


def test_moves_over_gloo_to_and_from_any_memory(ranks: Ranks) -> None:
    ranks.run(SIZE, odd_memory, list(MOVES), MOVED, FEW)


def test_reductions_over_gloo_in_any_memory(ranks: Ranks) -> None:
    ranks.run(SIZE, odd_memory, list(REDUCTIONS), REDUCED, FEW)


@pytest.fixture
def udp_fabric() -> Iterator[Ctl]:
    yield from running_fabric("--transport", "udp")


def test_large_moves_that_go_over_gloo_because_of_packets(server: RendezvousServer, udp_fabric: Ctl) -> None:
    large = [name for name in MOVES if name.startswith(("broadcast", "all_gather"))]
    Ranks(server, udp_fabric.run_dir).run(SIZE, odd_memory, large, (torch.float32, torch.int16, torch.complex64), MANY)


def in_inference_mode(rank: int) -> None:
    """Test copies that are made in inference mode, and written by threads of Gloo, which are outside of it."""
    with torch.inference_mode():
        odd_memory(rank, list(OPERATIONS), (torch.float32, torch.int16), FEW)


def test_moves_and_reductions_in_inference_mode(ranks: Ranks) -> None:
    ranks.run(SIZE, in_inference_mode)


def shared_elements(rank: int) -> None:
    """Test that outputs whose elements share memory are refused, and that such inputs are read."""
    for name, (outputs, inputs, call) in OPERATIONS.items():
        if (name == "gather" and rank) or ("recv" in name and not rank):
            continue  # this rank has no output
        with pytest.raises(switchml.UnsupportedTensor, match="share memory"):
            call(rank, [torch.zeros(1).expand(FEW) for _ in range(outputs)], [torch.zeros(FEW) for _ in range(inputs)])
    out = torch.zeros(FEW)
    parts = [torch.full((1,), 1.0 + r).expand(FEW) for r in range(SIZE)]
    dist.scatter(out, None if rank else parts, src=0)
    assert out.tolist() == [1.0 + rank] * FEW


def test_outputs_whose_elements_share_memory_are_refused(ranks: Ranks) -> None:
    ranks.run(SIZE, shared_elements)


def futures(rank: int) -> None:
    """Test that the futures have the caller's tensors, with the result."""
    for name, (outputs, inputs, call) in OPERATIONS.items():
        if "recv" in name and not rank:
            call(rank, [], [torch.ones(FEW)]).wait()
            continue
        tensors, read = [[in_gaps(torch.ones(FEW) * rank)[0] for _ in range(n)] for n in (outputs, inputs)]
        values = call(rank, tensors, read).get_future().then(lambda future: future.wait()).wait()
        if not (name == "gather" and rank):
            assert all(value.data_ptr() == tensor.data_ptr() for value, tensor in zip(values, tensors, strict=True))


def test_futures_have_the_callers_tensors(ranks: Ranks) -> None:
    ranks.run(SIZE, futures)


def unfinished(rank: int) -> None:
    """End the process while Gloo has yet to write results, whose last step needs Python."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        dist.all_reduce(torch.ones(FEW, dtype=torch.int16), MAX, async_op=True)
        dist.irecv(in_gaps(torch.ones(FEW))[0], 1)
        store.set("begun", "")
    else:
        store.wait(["begun"])  # if the others had ended, rank 0 could not begin


def test_a_program_may_end_without_waiting(ranks: Ranks) -> None:
    ranks.run(SIZE, unfinished)
