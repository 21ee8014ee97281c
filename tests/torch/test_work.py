"""Work handles: waiting, timeouts, futures and their order, errors, and overlapping calls."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import switchml.torch
from tests.torch.torch_harness import Ranks


def store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


def handles(rank: int) -> None:
    if rank == 1:
        store().wait(["the call is in flight"])
    x = torch.ones(5000)
    work = dist.all_reduce(x, async_op=True)
    assert isinstance(work, dist.Work)
    if rank == 0:
        assert not work.is_completed()
        assert not work.is_success()
        with pytest.raises(dist.DistBackendError, match=r"all_reduce.*5000 float32 has not ended within"):
            work.wait(timedelta(milliseconds=50))
        assert "in flight" in repr(work)
        store().set("the call is in flight", "")
    assert work.wait()
    assert work.wait(timedelta(seconds=30))
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert work.result()[0] is x
    work.synchronize()
    assert x[0] == 2


def test_wait_timeout_and_result(ranks: Ranks) -> None:
    ranks.run(2, handles)


def short_calls(_rank: int) -> None:
    """Test that the thread that waits does all the work of a short call: no other one is woken."""
    x = torch.ones(64)
    dist.all_reduce(x)
    threads = [task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "switchml\n"]
    assert threads
    before = sum(_sleeps(thread) for thread in threads)
    for _ in range(200):
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert sum(_sleeps(thread) for thread in threads) - before < 100  # a call that takes long is left to them
    assert x[0] == 2


def _sleeps(thread: Path) -> int:
    lines = (thread / "status").read_text().splitlines()
    [count] = [line.split(":")[1] for line in lines if line.startswith("voluntary_ctxt_switches:")]
    return int(count)


def test_short_calls_wake_no_thread(ranks: Ranks) -> None:
    ranks.run(2, short_calls)


def shares_memory(rank: int) -> None:
    """Test that a second call on memory in flight is refused at all ranks, and that the group remains usable."""
    matrix = torch.ones(100, 10)
    group = dist.new_group([0, 1])
    for number, of in enumerate((None, group)):  # the second group has yet to join
        if rank == 1:
            store().wait([f"refused {number}"])  # until then the call of rank 0 is in flight
        works = [dist.all_reduce(matrix[:50], group=of, async_op=True)]
        if rank == 0:
            for overlapping in (matrix, matrix[49], matrix[:50].t()):
                with pytest.raises(ValueError, match="shares memory"):
                    dist.all_reduce(overlapping, group=of, async_op=True)
            store().set(f"refused {number}", "")
        works.append(dist.all_reduce(matrix[50:], group=of, async_op=True))
        assert all(work.wait() for work in works)
        columns = [matrix[:, column] for column in range(3)]
        works = [dist.all_reduce(column, group=of, async_op=True) for column in columns]
        assert all(work.wait() for work in works)
    with pytest.raises(ValueError, match="shares memory"):
        dist.all_reduce_coalesced([columns[0], columns[0]])
    dist.all_reduce(matrix)
    assert matrix[:, :3].unique().item() == 32
    assert matrix[:, 3:].unique().item() == 8


def test_calls_in_flight_may_not_share_memory(ranks: Ranks) -> None:
    ranks.run(2, shares_memory)


def streamed(rank: int) -> list[int]:
    """Start calls of many sizes and types; return the order in which they complete."""
    ended: list[int] = []
    dtypes = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32)
    tensors = [torch.full(((37 * n) % 3000,), float(n)).to(dtypes[n % 5]) for n in range(100)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    barrier = dist.barrier(async_op=True)
    barrier.wait()
    assert all(work.is_completed() for work in works)
    for n, (tensor, work) in enumerate(zip(tensors, works, strict=True)):
        work.get_future().then(lambda _, n=n: ended.append(n))
        work.wait()
        assert bool((tensor == 2 * n).all())
    return ended


def test_a_hundred_calls_in_flight_end_in_order(ranks: Ranks) -> None:
    assert ranks.run(2, streamed) == [list(range(100))] * 2


def futures(rank: int) -> None:
    x = torch.ones(1000)
    future = dist.all_reduce(x, async_op=True).get_future()
    assert isinstance(future, torch.futures.Future | torch._C.Future)
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert doubled.wait()[0] == 4
    assert future.wait()[0] is x
    assert future.done()

    # Test callbacks that wait for another collective, as PowerSGD's hook does; more of them than a pool has threads.
    def again(f: torch.futures.Future) -> float:
        y = f.wait()[0]
        return float(dist.all_reduce(y[:1].clone(), async_op=True).get_future().wait()[0])

    late = rank == 1
    for width in (1, 40):
        if late:
            store().wait([f"{width} callbacks"])  # so that they are registered before the results
        works = [dist.all_reduce(torch.full((10,), float(n)), async_op=True) for n in range(width)]
        if not late or width == 1:
            chained = [work.get_future().then(again) for work in works]
            store().set(f"{width} callbacks", "")
            assert len([f.wait() for f in chained]) == width
        else:
            for work in works:
                again(work.get_future())
    inside = threading.Event()
    if late:
        store().wait(["the callback that blocks"])
        dist.all_reduce(torch.ones(1))
    else:
        blocked = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda _: inside.wait(30))
        store().set("the callback that blocks", "")
    dist.all_reduce(torch.ones(1))  # is not delayed by a callback that blocks
    assert dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0] == 2
    inside.set()
    assert late or blocked.wait()
    with pytest.raises(RuntimeError, match="accident"):
        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(_accident).wait()


def _accident(_: object) -> None:
    raise ValueError("accident")


def test_futures_and_callbacks_that_wait(ranks: Ranks) -> None:
    ranks.run(2, futures)


def overlapping(rank: int) -> None:
    tensors = [torch.ones(2_000_000) for _ in range(4)]
    if rank == 1:
        store().wait(["rank 0 made its calls"])
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if rank == 0:
        assert not any(work.is_completed() for work in works)  # rank 1 has made no call yet
        store().set("rank 0 made its calls", "")
    for work in works:
        work.wait()
    assert all(tensor[-1] == 2 for tensor in tensors)


def test_the_caller_goes_on_while_calls_are_in_flight(ranks: Ranks) -> None:
    """Let rank 1 wait until rank 0's calls have returned, so that a call that waited for its result would never end."""
    ranks.run(2, overlapping)


def destroyed(rank: int) -> None:
    group = dist.distributed_c10d._get_default_group()
    common = store()
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)  # the other rank never makes this call
        future = work.get_future()
        dist.destroy_process_group()
        common.set("rank 0 has no group", "")
        with pytest.raises(dist.DistBackendError, match="destroyed"):
            work.wait()
        assert isinstance(work.exception(), switchml.torch.SwitchMLBackendError)
        assert not work.is_success()
        with pytest.raises(RuntimeError, match="destroyed"):
            future.wait()
    else:
        common.wait(["rank 0 has no group"])  # otherwise this rank's end could be the reason
        dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="destroyed"):
        group.allreduce([torch.ones(1)])
    assert group.state.startswith("failed")


def test_what_is_in_flight_when_the_group_is_destroyed_fails(ranks: Ranks) -> None:
    ranks.run(2, destroyed)


def timed_out(rank: int) -> str:
    group = dist.distributed_c10d._get_default_group()
    if rank == 1:
        store().wait(["the other rank is out of time"])
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=1)
    with pytest.raises(dist.DistBackendError) as raised:
        group.allreduce([torch.ones(1)], options).wait()
    if rank == 0:
        assert raised.value.ranks == (1,)
        store().set("the other rank is out of time", "")
    return str(raised.value.reason)


def test_a_collective_that_is_out_of_time_names_the_rank_that_is_missing(ranks: Ranks) -> None:
    assert ranks.run(2, timed_out) == ["CollectiveTimeout", "WorkerLost"]


def future_after_the_end(rank: int) -> None:
    x = torch.tensor([float(rank)])
    work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)  # over Gloo
    work.wait()
    assert work.get_future().wait()[0].item() == 1


def test_a_future_of_gloo_that_is_asked_for_after_the_end_has_ended(ranks: Ranks) -> None:
    ranks.run(2, future_after_the_end)
