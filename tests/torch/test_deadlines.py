"""Deadlines of calls: with any fallback, a call ends with an error if a rank is missing, slow or stopped."""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml.torch import deadlines, disagreement
from switchml.torch.process_group import SwitchMLProcessGroup
from tests.torch.torch_harness import HOST, Ranks

TIMEOUT = timedelta(seconds=2)
NARROW = {"SWITCHML_TORCH_FALLBACK": "gloo-exact", "SWITCHML_TORCH_WIRE": "blocks:bits=8"}
FALLBACKS = [{}, {"SWITCHML_TORCH_FALLBACK": "gloo"}, {"SWITCHML_TORCH_FALLBACK": "gloo-exact"}, NARROW]


def store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


CALLS: dict[str, Callable[[dist.ProcessGroup], dist.Work]] = {
    "float32": lambda group: dist.all_reduce(torch.ones(9), group=group, async_op=True),
    "float64": lambda group: dist.all_reduce(torch.ones(9).double(), group=group, async_op=True),
    "sparse": lambda group: dist.all_reduce(torch.eye(3).to_sparse(), group=group, async_op=True),
    "broadcast": lambda group: dist.broadcast(torch.ones(9), group=group, group_src=1, async_op=True),
    "all_gather": lambda group: dist.all_gather_single(torch.ones(18), torch.ones(9), group=group, async_op=True),
    "reduce_scatter": lambda group: dist.reduce_scatter_single(
        torch.ones(9), torch.ones(18), group=group, async_op=True
    ),
    "barrier": lambda group: dist.barrier(group=group, async_op=True),
}


def alone(rank: int) -> None:
    """Let rank 0 make each call without rank 1, each in another group, and wait for it in one of two ways."""
    for number, (name, call) in enumerate(CALLS.items()):
        group = dist.new_group([0, 1])
        dist.barrier(group=group)
        group.set_timeout(TIMEOUT)
        if rank == 0:
            work = call(group)
            with pytest.raises(RuntimeError) as raised:
                work.wait() if number % 2 else work.get_future().wait()
            assert "rank 1 had not taken part" in str(raised.value), name
            with pytest.raises(switchml.torch.SwitchMLBackendError) as later:
                dist.all_reduce(torch.ones(1), group=group)
            assert later.value.ranks == (1,)
            assert later.value.reason == "CollectiveTimeout"
    if rank == 0:
        store().set("rank 0 has called", "")
    else:
        store().wait(["rank 0 has called"])


@pytest.mark.parametrize("environment", FALLBACKS, ids=["none", "gloo", "exact", "narrow"])
def test_a_missing_rank_ends_each_call_at_its_deadline(ranks: Ranks, environment: dict[str, str]) -> None:
    ranks.run(2, alone, environment=environment)


def first_call_alone(rank: int) -> None:
    """Let rank 1 not come to the first collective of a sub-group, whose timeout is shorter than the group's."""
    group = dist.new_group([0, 1])
    if rank == 0:
        group.set_timeout(TIMEOUT)
        with pytest.raises(switchml.torch.SwitchMLBackendError, match="Timed out after 2 s in the first collective"):
            dist.all_reduce(torch.ones(1), group=group)
        store().set("rank 0 has called", "")
    else:
        store().wait(["rank 0 has called"])


@pytest.mark.parametrize("environment", FALLBACKS[:2], ids=["none", "gloo"])
def test_the_first_collective_of_a_group_looks_at_its_own_timeout(ranks: Ranks, environment: dict[str, str]) -> None:
    ranks.run(2, first_call_alone, environment=environment)


def stopped(rank: int, message: str) -> None:
    """Stop rank 1, which holds the store of the group, after the first collective."""
    common = store()
    if rank == 1:
        own = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        common.set("port", str(own.port))
        common.set("pid", str(os.getpid()))
    else:
        own = dist.TCPStore(HOST, int(common.get("port")), is_master=False)
    options = dist.distributed_c10d._DistributedBackendOptions()
    options.store, options.group_id, options.timeout = own, "stopped", timedelta(seconds=60)
    options.group_rank, options.group_size, options.global_ranks_in_group = rank, 2, [0, 1]
    group = SwitchMLProcessGroup(options)
    group.allreduce([torch.ones(1)]).wait()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # until rank 0 has its error
        group.shutdown()
        return
    pid = int(common.get("pid"))
    while _state(pid) != "T":
        time.sleep(0.01)
    try:
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=8)  # longer than it takes to suspect the switch, which asks the store
        work = group.allreduce([torch.ones(1)], options)
        with pytest.raises(dist.DistBackendError, match=message):
            work.wait()
        group.shutdown()
    finally:
        os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("environment", "message"),
    [({}, "rank 1 had not taken part"), ({"SWITCHML_TORCH_FALLBACK": "gloo"}, "was not complete after 8 s")],
    ids=["none", "gloo"],
)
def test_a_stopped_rank_that_holds_the_store_does_not_hold_up_the_others(
    ranks: Ranks, environment: dict[str, str], message: str
) -> None:
    ranks.run(2, stopped, message, environment=environment)


def different_paths(rank: int, asynchronous: bool, operation: str) -> str:
    """Let rank 0 ask for a maximum, which goes over Gloo, and rank 1 for a sum; return this rank's error."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(disagreement, "_WAIT_SECONDS", 60.0)  # a busy machine may hold up one of them
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 60.0)
    group, op = dist.group.WORLD, dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX
    calls: dict[str, Callable[[], dist.Work]] = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(64), op, async_op=True),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(torch.ones(64), torch.ones(128), op, async_op=True),
    }
    dist.barrier()
    group.set_timeout(TIMEOUT)
    work = calls[operation]()
    with pytest.raises(RuntimeError) as raised:
        work.get_future().wait() if asynchronous else work.wait()
    return str(raised.value)


@pytest.mark.parametrize("environment", FALLBACKS[:2], ids=["none", "gloo"])
@pytest.mark.parametrize(
    ("asynchronous", "operation"), [(False, "all_reduce"), (True, "all_reduce"), (False, "reduce_scatter_single")]
)
def test_calls_on_different_paths_are_named_when_their_time_is_over(
    ranks: Ranks, environment: dict[str, str], asynchronous: bool, operation: str
) -> None:
    for message in ranks.run(2, different_paths, asynchronous, operation, environment=environment):
        assert "The ranks call differently: rank 0: " in message
        assert f"{operation} (max) over Gloo; rank 1: {operation}" in message
        assert "(sum) in the network" in message
