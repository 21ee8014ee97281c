"""Ranks that end while others go on, and calls that a signal interrupts."""

import signal
import time
from collections.abc import Callable
from types import FrameType

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from tests.torch.torch_harness import Ranks

ENVIRONMENTS = [{}, {"SWITCHML_TORCH_FALLBACK": "gloo"}, {"SWITCHML_TORCH_FALLBACK": "gloo-exact"}]
NAMES = ["none", "gloo", "exact"]


def store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


def fewer_batches(rank: int) -> tuple[float, str]:
    """Train with 5 batches, on rank 2 with 3; return how long the last pass took, and its error."""
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    begin, message = time.monotonic(), ""
    try:
        for _ in range(3 if rank == 2 else 5):
            begin = time.monotonic()
            model(torch.ones(2, 4)).sum().backward()
    except RuntimeError as error:
        message = str(error)
        last = switchml.torch.last_error()
        assert last is not None
        assert (last.reason, last.ranks) == ("RankClosed", (2,))
    seconds = time.monotonic() - begin
    dist.destroy_process_group()
    return seconds, message


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=NAMES)
def test_a_rank_with_fewer_batches_is_named_at_once(
    ranks: Ranks, environment: dict[str, str], limit: Callable[[float], float]
) -> None:
    results = ranks.run(3, fewer_batches, environment=environment)
    assert results[2][1] == ""
    for seconds, message in results[:2]:
        assert "rank 2 has closed its communicator after" in message
        assert seconds < limit(2)


def destroyed_group(rank: int) -> None:
    """Destroy a sub-group on rank 2 after its first collective; ranks 1 and 2 are 0 and 1 in it."""
    group = dist.new_group([1, 2])
    if rank:
        dist.all_reduce(torch.ones(3), group=group)
    if rank == 1:
        with pytest.raises(switchml.torch.SwitchMLBackendError, match="rank 1 has closed its communicator") as raised:
            dist.all_reduce(torch.ones(3), group=group)
        assert raised.value.ranks == (2,)
    elif rank == 2:
        dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=NAMES)
def test_a_sub_group_that_a_rank_has_destroyed_fails_at_once(ranks: Ranks, environment: dict[str, str]) -> None:
    ranks.run(3, destroyed_group, environment=environment)


class Preempted(Exception):
    """Raised by a signal handler, as at the notice of a scheduler."""


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise `Preempted` if the signal comes while a call waits; otherwise the next signal will."""
    while frame is not None:
        if frame.f_code.co_name == "wait":
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Preempted
        frame = frame.f_back


def preempted(rank: int, asynchronous: bool) -> None:
    """Interrupt the first call on rank 0, while it waits for rank 1; then make others, as to save a checkpoint."""
    x, y = torch.ones(50_000), torch.ones(3)
    dist.barrier()
    if rank == 0:
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(Preempted):
            reduced(x, asynchronous)
        store().set("interrupted", "")
    else:
        store().wait(["interrupted"])
        dist.all_reduce(x)
    dist.barrier()
    assert x.unique().item() == 2  # the call went on
    dist.all_reduce(y)
    assert y.unique().item() == 2
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, rank)
    assert objects == [0, 1]
    assert dist.group.WORLD.state == "network"


def reduced(x: torch.Tensor, asynchronous: bool) -> None:
    work = dist.all_reduce(x, async_op=asynchronous)
    if work is not None:
        work.wait()


@pytest.mark.parametrize("environment", ENVIRONMENTS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_call_goes_on_after_an_exception_of_a_signal_handler(
    ranks: Ranks, environment: dict[str, str], asynchronous: bool
) -> None:
    ranks.run(2, preempted, asynchronous, environment=environment)
