"""Cross-barrier training: the same parameters under every policy, the same order of calls everywhere, and refusals."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from switchml.torch.scheduling import POLICIES, Policy, ScheduledOptimizer
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import WIDTH, assert_close, assert_same_on_all_ranks, loss_of, parameters, run_steps

STEPS = 4
BUCKET = 16 << 10
CUT: dict[str, Any] = {"partition": 32 << 10, "credit": 48 << 10}


def make_model(seed: int = 1) -> nn.Module:
    """Return a model of six buckets, of which the largest one takes 250 KB."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 480), nn.ReLU(),
        nn.Linear(480, 64), nn.LayerNorm(64), nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 10),
    )  # fmt: skip


def scheduled(model: nn.Module, policy: str | Policy = "bytescheduler", **options: Any) -> ScheduledOptimizer:
    inner = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    return ScheduledOptimizer(inner, model, policy, bucket_bytes=BUCKET, **options)


def trained(model: nn.Module, rank: int, optimizer: Any, after_backward: Callable[[], object] = lambda: None) -> None:
    """Make steps with a learning rate that changes after each."""
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
        after_backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def parameters_under_all_policies(rank: int) -> None:
    policies = [replace(policy, **CUT) if policy.partition else policy for policy in POLICIES.values()]
    found: dict[str, list[torch.Tensor]] = {}
    for policy in [*policies, Policy("many classes", "first use", classes=8, partition=1), POLICIES["bytescheduler"]]:
        model = make_model(seed=1 + rank)  # rank 0's is the one that counts
        optimizer = scheduled(model, policy)
        trained(model, rank, optimizer)
        optimizer.close()
        found[policy.name] = parameters(model)
    model = make_model()
    optimizer = scheduled(model)
    trained(model, rank, optimizer, optimizer.average_gradients)  # step() steps all parameters at once
    optimizer.synchronize()
    found["at once"] = parameters(model)
    for name, tensors in found.items():
        assert_same_on_all_ranks(tensors)
        assert all(map(torch.equal, tensors, found["fifo"])), name
    model = make_model()
    wrapped = DistributedDataParallel(model)
    trained(wrapped, rank, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1))
    assert_close(found["fifo"], parameters(model), 1e-4)


def test_parameters_are_those_of_fifo_bit_for_bit(ranks: Ranks) -> None:
    ranks.run(3, parameters_under_all_policies)


@contextlib.contextmanager
def recorded(groups: list[dist.ProcessGroup]) -> Iterator[list[list[tuple[int, str]]]]:
    """Yield the calls that this rank makes in each of the groups."""
    calls: list[list[tuple[int, str]]] = [[] for _ in groups]
    submit = dist.all_reduce

    def all_reduce(tensor: torch.Tensor, **options: Any) -> Any:
        calls[groups.index(options["group"])].append((tensor.storage_offset(), f"{tensor.shape} {tensor.dtype}"))
        return submit(tensor, **options)

    dist.all_reduce = all_reduce
    try:
        yield calls
    finally:
        dist.all_reduce = submit


def order_of_calls(rank: int) -> list[list[list[tuple[int, str]]]]:
    model = make_model()
    optimizer = scheduled(model, Policy("", "first use", classes=3, **CUT))
    for number, module in enumerate(model):
        # Each rank is slow at another place of its backward pass, and of its forward pass.
        if number % 2 == rank % 2:
            module.register_full_backward_hook(lambda *_: time.sleep(0.01 * rank))
        else:
            module.register_forward_pre_hook(lambda *_: time.sleep(0.005 * (3 - rank)))
    steps = []
    for step in range(STEPS):
        with recorded(optimizer._streams.groups) as calls:
            loss_of(model, rank, step).backward()
            optimizer.step()
            optimizer.synchronize()
        steps.append(calls)
    return steps


def test_the_order_of_calls_is_the_same_at_all_ranks_and_steps(ranks: Ranks) -> None:
    first, *others = ranks.run(3, order_of_calls)
    assert others == [first, first]
    assert first[2:] == [first[1]] * (STEPS - 2)  # the first step records the order
    assert [bool(calls) for calls in first[1]] == [True] * 3
    assert sum(map(len, first[1])) > 10


class Branches(nn.Module):
    """A model with all that makes it hard: `tied` has two names, `twice` is called twice, and others never or rarely.

    `attention` uses the parameters of a module in it without a call.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.never = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10)
        self.tied = nn.Linear(WIDTH, WIDTH)
        self.also_tied = nn.Linear(WIDTH, WIDTH)
        self.also_tied.weight = self.tied.weight
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.odd = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor, odd: int = 0) -> torch.Tensor:
        x = self.twice(torch.relu(self.twice(x * self.scale)))
        x = self.also_tied(self.norm(self.tied(x)))
        y, _ = self.attention(x[:, None], x[:, None], x[:, None])
        if odd:
            x = self.odd(x)
        return self.last(x + y[:, 0])


def hard_models(rank: int) -> None:
    found = []
    for policy in (POLICIES["fifo"], Policy("", "tac", classes=4, partition=BUCKET, credit=BUCKET)):
        model, other = Branches(), make_model()
        never = copy.deepcopy(model.never)
        optimizer = ScheduledOptimizer(torch.optim.AdamW(model.parameters()), model, policy, bucket_bytes=1)
        of_other = scheduled(other, policy)  # two models take turns
        for step in range(6):
            with optimizer.no_sync():
                loss_of(model, rank, step, odd=step % 2).backward()
            loss_of(model, rank, step + 100, odd=int(step == 3 and rank == 1)).backward()
            optimizer.step()
            loss_of(other, rank, step).backward()
            of_other.step()
            of_other.zero_grad()
            optimizer.zero_grad()
        state = optimizer.state_dict()
        assert optimizer.param_groups[0]["lr"] == 1e-3
        of_other.synchronize()
        # No rank has used it, so that it is not stepped: it has no weight decay, and no state.
        assert torch.equal(model.never.weight, never.weight)
        assert len(state["state"]) == len(list(model.parameters())) - 2
        assert_same_on_all_ranks(parameters(model) + parameters(other))
        found.append(parameters(model) + parameters(other))
    assert all(map(torch.equal, *found))


def test_shared_weights_unused_modules_and_two_models(ranks: Ranks) -> None:
    ranks.run(2, hard_models)


def clipped_scaled_and_saved(rank: int) -> None:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("switchml.torch.scheduling.scheduled").addHandler(handler)

    model, same = make_model(), make_model()
    optimizer, plain = scheduled(model), scheduled(same, "fifo")
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
        norm = optimizer.clip_grad_norm_(0.1)
        optimizer.step()
        optimizer.zero_grad()
        loss_of(same, rank, step).backward()
        plain.average_gradients()
        assert torch.equal(norm, torch.nn.utils.clip_grad_norm_(same.parameters(), 0.1))
        plain.step()
    assert all(map(torch.equal, parameters(model), parameters(same)))
    assert [message for message in messages if "clip_grad_norm_" in message] == messages
    assert len(messages) == 1

    # A scaler whose first steps overflow, and which skips them on all ranks.
    model, same = make_model(), make_model()
    optimizer, plain = scheduled(model), scheduled(same, "fifo")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    skipped = 0
    for step in range(8):
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        optimizer.zero_grad()
        if scaler.get_scale() < before:
            skipped += 1
            continue
        loss_of(same, rank, step).backward()
        plain.step()
        # The saved state is that after the step, without synchronize().
        saved, expected = model.state_dict(), same.state_dict()
        assert all(torch.allclose(saved[name], expected[name], atol=1e-6) for name in saved)
    assert 0 < skipped < 8
    loss_of(same, rank, 50).backward()
    plain.step()
    same.load_state_dict(saved)  # after the step, which must not come later
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run_steps(model, rank, range(60, 62), optimizer)
    run_steps(same, rank, range(60, 62), plain)
    optimizer.synchronize()
    plain.synchronize()
    assert all(map(torch.equal, parameters(model), parameters(same)))


def test_clipping_gradient_scalers_and_checkpoints(ranks: Ranks) -> None:
    ranks.run(2, clipped_scaled_and_saved)


def evaluated(rank: int) -> None:
    """Evaluate in between, with gradients off or in inference mode, and also with modules called on their own."""
    model, same = make_model(), make_model()
    optimizer, plain = scheduled(model), scheduled(same)
    for step in range(STEPS):
        for one, of_it in ((model, optimizer), (same, plain)):
            loss_of(one, rank, step).backward()
            of_it.step()
        plain.synchronize()
        x = torch.ones(1, WIDTH)
        with torch.inference_mode() if step % 2 else torch.no_grad():
            found = model(x) if step > 1 else nn.Sequential(*model)(x)
            assert torch.equal(found, same(x))


def test_evaluation_sees_the_parameters_after_the_step(ranks: Ranks) -> None:
    ranks.run(2, evaluated)


def refused(error: type[Exception] | tuple[type[Exception], ...], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=words):
        call()


def refusals(rank: int) -> None:
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    gloo = dist.new_group(backend="gloo")
    sparse = nn.Embedding(10, 4, sparse=True)
    compiled = torch.compile(make_model())
    whole = Policy("", "first use", classes=None)
    made: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "must be one of fifo", lambda: ScheduledOptimizer(inner, model, "lifo")),
        (ValueError, "1 to 8 classes", lambda: ScheduledOptimizer(inner, model, whole)),
        (ValueError, "bucket_bytes is 0", lambda: ScheduledOptimizer(inner, model, bucket_bytes=0)),
        (TypeError, "switchml backend", lambda: ScheduledOptimizer(inner, model, group=gloo)),
        (TypeError, "give the model in it", lambda: scheduled(DistributedDataParallel(model))),
        (TypeError, "compile the modules in it", lambda: scheduled(compiled)),
        (TypeError, "use sparse=False", lambda: scheduled(sparse)),
        (TypeError, "LBFGS", lambda: ScheduledOptimizer(torch.optim.LBFGS(model.parameters()), model)),
        (TypeError, "must be a torch.optim.Optimizer", lambda: ScheduledOptimizer(None, model)),
        (TypeError, "on meta", lambda: scheduled(nn.Linear(2, 2, device="meta"))),
        (ValueError, "does not have", lambda: ScheduledOptimizer(inner, model[0])),
        (ValueError, "other parameters than rank 0: 1", lambda: scheduled(nn.Linear(2, 2 + rank))),
        (ValueError, "other arguments than rank 0: 1", lambda: scheduled(make_model(), ["fifo", "p3"][rank])),
    ]
    for error, words, call in made:
        refused(error, words, call)

    optimizer = scheduled(model)
    refused(TypeError, "give the plain one", lambda: ScheduledOptimizer(optimizer, model))
    refused(TypeError, "neither can its model: copy the model before", lambda: copy.deepcopy(model))
    refused(RuntimeError, "closure", lambda: optimizer.step(lambda: 0.0))  # type: ignore[arg-type]
    refused(RuntimeError, "close\\(\\)", lambda: optimizer.add_param_group({"params": []}))
    refused(RuntimeError, "between the backward pass and step", lambda: optimizer.clip_grad_norm_(1.0))
    clip = torch.nn.utils.clip_grad_norm_
    for step in range(2):
        loss_of(model, rank, step).backward()
        refused(RuntimeError, "clip_grad_norm_\\(\\) of the ScheduledOptimizer", lambda: clip(model.parameters(), 1.0))
        optimizer.step()
    model.zero_grad()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    refused(RuntimeError, "0.weight has a gradient that no backward pass", optimizer.step)
    model.zero_grad()
    loss_of(model, rank, 3).backward()
    model.zero_grad()
    refused(RuntimeError, "0.weight was dropped before step", optimizer.step)

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            super().step(closure)
            self.param_groups[0]["steps"] = self.param_groups[0].get("steps", 0) + 1

    model = make_model()
    counting = Counting(model.parameters(), 0.1)
    counting.param_groups[0]["steps"] = 0
    optimizer = ScheduledOptimizer(counting, model)
    loss_of(model, rank, 0).backward()
    refused(RuntimeError, "Counting changes steps", optimizer.step)


def test_what_cannot_be_scheduled_is_refused_with_a_remedy(ranks: Ranks) -> None:
    ranks.run(2, refusals)


def changed_parameters(rank: int) -> None:
    """Freeze, unfreeze and add parameters, and set gradients by hand, between steps that are fine."""

    def made(frozen: bool = False) -> tuple[nn.Module, ScheduledOptimizer]:
        model = make_model()
        model[2].weight.requires_grad_(not frozen)
        inner = torch.optim.SGD(model.parameters(), 0.1)
        optimizer = ScheduledOptimizer(inner, model, bucket_bytes=BUCKET)
        run_steps(model, rank, range(2), optimizer)
        return model, optimizer

    for average in (False, True):  # all gradients are averaged before step()
        model, optimizer = made(frozen=True)
        model[2].weight.requires_grad_()
        loss_of(model, rank, 2).backward()
        if average:
            refused(RuntimeError, "2.weight was unfrozen, or added", optimizer.average_gradients)
            model[2].weight.requires_grad_(False)
            model[2].weight.grad = None
            optimizer.average_gradients()
            model[2].weight.requires_grad_()
        refused(RuntimeError, "2.weight was unfrozen, or added", optimizer.step)
        model[2].weight.requires_grad_(False)
        model[2].weight.grad = torch.ones_like(model[2].weight)
        refused(RuntimeError, "2.weight is frozen and has a gradient", optimizer.step)
        model[2].weight.grad = None
        optimizer.param_groups[0]["params"].append(nn.Parameter(torch.ones(3)))
        refused(RuntimeError, "not in the model was unfrozen, or added", optimizer.step)
        del optimizer.param_groups[0]["params"][-1]
        model[4].weight.requires_grad_(False)
        refused(RuntimeError, "4.weight was frozen after", optimizer.step)
        model[4].weight.requires_grad_()  # as a program that trains two models in turns does
        optimizer.step()
        optimizer.close()
        assert_same_on_all_ranks(parameters(model))

    # A gradient of this rank alone that appears while parameters wait for their step is not stepped.
    model, optimizer = made(frozen=True)
    before = model[2].weight.detach().clone()
    loss_of(model, rank, 2).backward()
    optimizer.step()
    model[2].weight.grad = torch.ones_like(before)
    optimizer.synchronize()
    assert torch.equal(model[2].weight, before)
    optimizer.zero_grad()
    assert model[2].weight.grad is None

    model, optimizer = made()
    loss_of(model, rank, 2).backward()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    refused(RuntimeError, "0.weight was set by hand after it was sent", optimizer.step)
    model, optimizer = made()
    with optimizer.no_sync():
        loss_of(model, rank, 2).backward()
    model.zero_grad()
    refused(RuntimeError, "0.weight was dropped before step", optimizer.step)
    model, optimizer = made(frozen=True)
    optimizer.close()
    model[2].weight.grad = torch.ones_like(before)
    refused(ValueError, "2.weight has a gradient already", lambda: scheduled(model))


def test_parameters_that_change_and_gradients_set_by_hand_are_refused(ranks: Ranks) -> None:
    ranks.run(2, changed_parameters)


def broken_passes(rank: int) -> None:
    model = make_model()
    optimizer = scheduled(model)
    run_steps(model, rank, range(2), optimizer)
    x = torch.ones(2, WIDTH)
    # The last layer is applied without a call, so with the parameters before the last step.
    loss = nn.functional.linear(model[:-1](x), model[-1].weight).sum()
    refused(RuntimeError, "10.weight was used before its last step was done", loss.backward)
    refused(RuntimeError, "unusable; start the job again", lambda: model(x))

    model = make_model()
    optimizer = scheduled(model)
    loss_of(model, rank, 0).backward()
    refused(RuntimeError, "second gradient before step.*no_sync", loss_of(model, rank, 1).backward)
    refused(RuntimeError, "unusable; start the job again", optimizer.step)

    model = make_model()
    optimizer = scheduled(model, timeout=12.0)
    run_steps(model, rank, range(2), optimizer)

    def fail(_: torch.Tensor) -> None:
        raise ArithmeticError("a hook of the user")

    if rank == 1:
        model[0].weight.register_hook(fail)
        refused(ArithmeticError, "a hook of the user", loss_of(model, rank, 2).backward)
    else:
        loss_of(model, rank, 2).backward()
        optimizer.step()
    if rank == 1:
        refused(RuntimeError, "unusable", optimizer.synchronize)
    else:  # the collectives of this rank wait for the other's: they or the optimizer may notice the timeout first
        refused((RuntimeError, TimeoutError), "has not arrived|have not arrived|failed", optimizer.synchronize)


def test_after_an_error_in_a_backward_pass_the_optimizer_is_unusable(ranks: Ranks) -> None:
    ranks.run(2, broken_passes)
