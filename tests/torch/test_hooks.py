"""The communication hooks: their results, the order in which buckets finish, and ranks that are out of step."""

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch_harness import Ranks

import switchml.torch
from switchml.torch.agreed_order import AgreedOrder
from switchml.torch.hooks import InOrder, PriorityState, all_reduce_hook, in_order_hook, priority_hook
from switchml.torch.priority import PriorityScheduler
from switchml.torch.scheduler import Bucket, Partition

SIZES = (1_000_000, 300_001, 0, 70_000, 500_000)  # elements; the third bucket is empty
PASSES = 4


@dataclass
class Given:
    """A bucket that becomes ready when the test decides; DDP always hands over its buckets in the same order."""

    number: int
    gradients: torch.Tensor
    last: bool

    def index(self) -> int:
        return self.number

    def buffer(self) -> torch.Tensor:
        return self.gradients

    def is_last(self) -> bool:
        return self.last


def buckets(rank: int, seed: int, sizes: tuple[int, ...] = SIZES) -> list[Given]:
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return [Given(n, torch.randn(size, generator=generator), n == len(sizes) - 1) for n, size in enumerate(sizes)]


def record_all_reduces() -> list[int]:
    """Record the address of each tensor that is reduced from now on; calls end in the order in which they are made."""
    addresses: list[int] = []
    all_reduce = dist.all_reduce

    def noting(tensor: torch.Tensor, **options: Any) -> Any:
        addresses.append(tensor.data_ptr())
        return all_reduce(tensor, **options)

    dist.all_reduce = noting
    return addresses


def hand_over(state: AgreedOrder, given: list[Given], order: list[int], pause: float = 0.0) -> list[int]:
    """Submit all buckets in `order`; return the numbers of those with gradients, in the order in which they ended."""
    calls = record_all_reduces()
    if dist.get_rank() != 0:
        dist.barrier()  # rank 0 has all buckets ready, so that it can change their order
    futures = []
    for number in order:
        time.sleep(pause)  # the backward pass of a slow rank
        futures.append(state.submit(given[number]))
    if dist.get_rank() == 0:
        dist.barrier()
    for number, future in zip(order, futures, strict=True):
        assert future.wait() is given[number].gradients
    ends = {}
    for bucket in given:
        begin = bucket.gradients.data_ptr()
        end = begin + bucket.gradients.nbytes
        ends[bucket.number] = max((n for n, address in enumerate(calls) if begin <= address < end), default=None)
    return sorted((number for number, end in ends.items() if end is not None), key=lambda number: ends[number])


def test_the_most_urgent_bucket_overtakes_between_partitions() -> None:
    asked: list[int] = []

    def urgency(bucket: Bucket) -> int:
        asked.append(bucket.index())
        return bucket.index()

    scheduler = PriorityScheduler(partition_bytes=20_000, priority=urgency)  # 5000 elements, cut down to 4096
    assert not scheduler.waits
    assert scheduler.next() is None
    low, high, empty = buckets(0, 1, (10_000, 3000, 0))
    scheduler.ready(low)
    assert scheduler.waits
    assert scheduler.next() == Partition(0, 0, 4096)
    scheduler.ready(high)
    scheduler.ready(empty)
    assert [scheduler.next() for _ in range(4)] == [
        Partition(1, 0, 3000),
        Partition(0, 4096, 4096),
        Partition(0, 8192, 1808),
        None,
    ]
    assert not scheduler.waits
    assert asked == [0, 1, 2]
    assert [scheduler.may_start(range(count)) for count in (0, 1, 2)] == [True, True, False]  # type: ignore[arg-type]


class LastFirst:
    """A scheduler that waits for all buckets, and sends them whole, one at a time, from the last to the first."""

    def __init__(self) -> None:
        self.held: list[Bucket] = []
        self.given: list[Bucket] = []

    def ready(self, bucket: Bucket) -> None:
        self.held.append(bucket)
        if bucket.is_last():
            self.given = self.held

    @property
    def waits(self) -> bool:
        return bool(self.given)

    def may_start(self, in_flight: Any) -> bool:
        return not in_flight

    def next(self) -> Partition | None:
        if not self.given:
            return None
        bucket = self.given.pop()
        return Partition(bucket.index(), 0, bucket.buffer().numel())


def with_another_scheduler(rank: int) -> tuple[list[int], int]:
    made: list[LastFirst] = []

    def new_scheduler() -> LastFirst:
        made.append(LastFirst())
        return made[-1]

    state = AgreedOrder(None, new_scheduler, timeout=60.0)
    order: list[int] = []
    for number in range(2):
        order += hand_over(state, buckets(rank, number, (1_000_000, 2000, 3000)), [0, 1, 2])
    return order, len(made)


def test_any_scheduler_decides_for_all_ranks(ranks: Ranks) -> None:
    order = [2, 1, 0] * 2
    assert ranks.run(2, with_another_scheduler) == [(order, 2), (order, 0)]  # one for each pass, on rank 0 only


def out_of_step(rank: int) -> list[list[int]]:
    """Submit the buckets in a different order on every rank, and later on rank 2 than on the others."""
    state = PriorityState(partition_bytes=1 << (17 + rank))  # that of rank 0 counts, else calls would differ
    orders = []
    for number in range(PASSES):
        given, plain = buckets(rank, number), buckets(rank, number)
        order = list(range(len(SIZES)))
        if rank != 0:
            random.Random(10 * number + rank).shuffle(order)
        orders.append(hand_over(state, given, order, pause=0.02 if rank == 2 else 0.0))
        for ours, theirs in zip(given, plain, strict=True):
            dist.all_reduce(theirs.gradients, op=dist.ReduceOp.AVG)
            assert torch.equal(ours.gradients, theirs.gradients)  # cutting up a bucket changes no bit
    assert switchml.torch.statistics()["gloo_calls"] == 0
    return orders


def test_ranks_out_of_step_finish_in_rank_zeros_order(ranks: Ranks) -> None:
    for orders in ranks.run(3, out_of_step, seconds=150):
        # The first bucket began alone; each later one has a higher priority, and is sent before those that wait.
        assert orders == [[4, 3, 1, 0]] * PASSES


def changed_priorities(rank: int) -> list[list[int]]:
    """Change the priorities on rank 0 before every pass; those of the other ranks have no effect."""
    urgency = [0, 0, 0, 0]
    state = PriorityState(partition_bytes=1 << 16, priority=lambda bucket: urgency[bucket.index()])
    orders = []
    for preferred in ((0, 9, 5, 7), (0, 1, 2, 3), (0, 3, 2, 1)):
        urgency[:] = preferred if rank == 0 else [random.Random(rank).random() for _ in preferred]
        orders.append(hand_over(state, buckets(rank, 7, (200_000,) * 4), [0, 1, 2, 3]))
    return orders


def test_priorities_are_those_of_rank_zero_and_may_change(ranks: Ranks) -> None:
    assert ranks.run(2, changed_priorities) == [[[1, 3, 2, 0], [3, 2, 1, 0], [1, 2, 3, 0]]] * 2


def late_but_urgent(rank: int) -> tuple[list[int], int]:
    """Submit an urgent bucket when the first part of a large one has been reduced."""
    calls = switchml.torch.statistics()["network_calls"]
    state = PriorityState(partition_bytes=1 << 16)
    large, urgent = buckets(rank, 1, (1_000_000, 20_000))
    finished: list[int] = []
    first = state.submit(large).then(lambda _: finished.append(0))
    deadline = time.monotonic() + 30
    while rank == 0 and switchml.torch.statistics()["network_calls"] < calls + 6:
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)
    second = state.submit(urgent).then(lambda _: finished.append(1))
    torch.futures.wait_all([first, second])
    return finished, switchml.torch.statistics()["network_calls"] - calls


def test_an_urgent_bucket_overtakes_a_large_one_under_way(ranks: Ranks) -> None:
    for finished, calls in ranks.run(3, late_but_urgent):
        assert finished == [1, 0]
        assert calls >= 2 * (1_000_000 * 4 // (1 << 16))  # it is cut up, and every part is announced


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(12)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Slow(torch.autograd.Function):
    """A network whose backward pass takes longer on one rank."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 * dist.get_rank())
        return gradient


def trained(rank: int, hook: str) -> list[torch.Tensor]:
    model = DistributedDataParallel(Network(), bucket_cap_mb=0.5, gradient_as_bucket_view=hook == "priority")
    if hook == "plain":
        model.register_comm_hook(None, all_reduce_hook)
    if hook == "priority":
        model.register_comm_hook(PriorityState(partition_bytes=100_000), priority_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(8, 200, generator=generator)
        if step % 3 == 1:
            with model.no_sync():  # the hook is not called
                Slow.apply(model(x)).square().sum().backward()
        Slow.apply(model(x)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def both_hooks(rank: int) -> bytes:
    plain, priority, without = (trained(rank, hook) for hook in ("plain", "priority", "none"))
    for ours, theirs in zip(plain, priority, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(plain, without, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    return torch.cat([parameter.flatten() for parameter in priority]).numpy().tobytes()


def test_ddp_with_either_hook_ends_with_the_same_bits(ranks: Ranks) -> None:
    assert len(set(ranks.run(3, both_hooks, seconds=150))) == 1


def interrupted(rank: int) -> str:
    """Submit only one of two buckets on rank 1, as if its backward pass had failed; its next pass raises an error."""
    state = PriorityState(timeout=6.0, priority=lambda bucket: -bucket.index())
    given = buckets(rank, 1, (5000, 5000))
    futures = [state.submit(bucket) for bucket in given[: 1 if rank == 1 else 2]]
    futures[0].wait()
    if rank == 1:
        with pytest.raises(RuntimeError, match="bucket 0 came again before its backward pass was complete") as caught:
            state.submit(given[0])
        return str(caught.value)  # leaves the job
    with pytest.raises(Exception, match=r".+") as caught:
        futures[1].wait()
    with pytest.raises(RuntimeError, match="averaging an earlier bucket failed"):
        state.submit(given[0])
    return str(caught.value)


def test_a_backward_pass_that_raised_is_an_error_on_all_ranks(ranks: Ranks) -> None:
    messages = ranks.run(3, interrupted)
    assert "rank 1" in messages[0]
    assert "rank 1" in messages[2]


def different_models(rank: int) -> str:
    state = PriorityState(timeout=3.0)
    with pytest.raises(Exception, match=r".+") as caught:
        state.submit(buckets(rank, 1, (5000 - rank,))[0]).wait()
    return str(caught.value)


def test_different_buckets_are_an_error_that_says_so(ranks: Ranks) -> None:
    _, message = ranks.run(2, different_models)
    assert "4999 elements on this rank" in message


def wrong_arguments(rank: int) -> None:
    for options in ({"partition_bytes": 0}, {"timeout": 0.0}):
        with pytest.raises(ValueError, match="must be positive"):
            PriorityState(**options)  # type: ignore[arg-type]


def test_arguments_are_checked_before_anything_is_made(ranks: Ranks) -> None:
    ranks.run(2, wrong_arguments)


def deep_model() -> DistributedDataParallel:
    """Return a model with one bucket of gradients per layer."""
    torch.manual_seed(3)
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)


def backward(model: DistributedDataParallel, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(100 * step + rank)
    model(torch.randn(16, 64, generator=generator)).square().sum().backward()


def power_sgd(rank: int) -> tuple[int, list[bytes]]:
    """Train with PowerSGD's hook, which starts its second collective from a callback of its first one."""
    model = deep_model()
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1
    )
    buckets = set()

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.add(bucket.index())
        return powerSGD_hook.powerSGD_hook(state, bucket)

    model.register_comm_hook(InOrder(state, hook), in_order_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(40):
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.step()
    return len(buckets), [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def test_power_sgd_with_many_buckets_runs_in_one_order(ranks: Ranks) -> None:
    results = ranks.run(3, power_sgd)
    for buckets, parameters in results:
        assert buckets > 5
        assert parameters == results[0][1]


def failing_hook(rank: int) -> None:
    calls: list[int] = []

    def hook(calls: list[int], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        calls.append(bucket.index())
        if bucket.index() == 2:
            raise ValueError("no room for a third bucket")
        return all_reduce_hook(None, bucket)

    model = deep_model()
    model.register_comm_hook(InOrder(calls, hook), in_order_hook)
    backward(model, rank, 0)  # one bucket: DDP uses the given size after its first pass
    calls.clear()
    with pytest.raises(RuntimeError, match="no room for a third bucket"):
        backward(model, rank, 1)
    assert calls == [0, 1, 2]  # the hook was not called after the error


def test_the_error_of_a_hook_that_runs_in_order_is_raised(ranks: Ranks) -> None:
    ranks.run(2, failing_hook)


def on_cuda(rank: int) -> None:
    torch.cuda.set_device(rank % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device())
    ends = []
    for hook, state in ((all_reduce_hook, None), (priority_hook, PriorityState(partition_bytes=100_000))):
        model = DistributedDataParallel(Network().to(device), device_ids=[device], bucket_cap_mb=0.5)
        model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(5):
            optimizer.zero_grad()
            x = torch.randn(8, 200, generator=torch.Generator().manual_seed(100 * step + rank))
            model(x.to(device)).square().sum().backward()
            optimizer.step()
        ends.append([parameter.detach().cpu() for parameter in model.parameters()])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*ends, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_gradients_on_cuda_with_either_hook(ranks: Ranks) -> None:
    ranks.run(2, on_cuda, environment={"SWITCHML_STAGE_CUDA": "1"})


def builtin_hooks(rank: int) -> None:
    """Test that PyTorch's built-in C++ hooks average as they do over Gloo."""
    gloo = dist.new_group(backend="gloo")
    for kind, tolerance in ((dist.BuiltinCommHookType.ALLREDUCE, 1e-6), (dist.BuiltinCommHookType.FP16_COMPRESS, 1e-2)):
        gradients = []
        for group in (gloo, dist.group.WORLD):
            torch.manual_seed(7)
            model = DistributedDataParallel(torch.nn.Linear(30, 20), process_group=group)
            model._register_builtin_comm_hook(kind)
            for step in range(3):
                model.zero_grad()
                x = torch.randn(8, 30, generator=torch.Generator().manual_seed(10 * step + rank))
                model(x).square().mean().backward()
            gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
        torch.testing.assert_close(gradients[1], gradients[0], rtol=tolerance, atol=tolerance * 0.1)
    assert switchml.torch.statistics()["network_calls"] >= 6


def test_pytorchs_builtin_hooks(ranks: Ranks) -> None:
    ranks.run(3, builtin_hooks)
