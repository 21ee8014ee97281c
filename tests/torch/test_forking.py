"""Processes that a rank forks: SwitchML's objects do nothing in them, and the rank continues."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import switchml.torch
from tests.support.fabric_harness import Ctl
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import STEPS, WIDTH, assert_same_on_all_ranks, parameters

EXITED_WELL = 7


class Samples(Dataset):
    """Samples; the first of each batch collects garbage, as a worker of a DataLoader does at some time."""

    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 8 == 0:
            gc.collect()
        return torch.full((WIDTH,), float(index)), index % 10


class Cycle:
    """Keeps a group until a garbage collection."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.itself = self


def use_groups(world_size: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Use groups that are then kept, destroyed, or left to the garbage collector; return one kept and one destroyed."""
    groups = [dist.new_group(list(range(world_size))) for _ in range(4)]
    for group in groups:
        x = torch.ones(1000)
        dist.all_reduce(x, group=group)
        assert x[0] == world_size
    for group in groups[1:]:
        dist.destroy_process_group(group)
    Cycle(groups[3])
    return groups[0], groups[1]


def status_of_child(act: Callable[[], None]) -> int:
    """Fork a child that calls `act` and collects garbage; return its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            gc.collect()
            status = EXITED_WELL
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def trains_with_workers(rank: int) -> None:
    """Train with batches from forked workers, in which garbage is collected."""
    gc.disable()  # so that objects in a cycle still exist when the workers are forked
    kept, _ = use_groups(2)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(Samples(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    steps = 0
    for samples, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(samples), labels).backward()
        optimizer.step()
        dist.all_reduce(torch.ones(10), group=kept)
        steps += 1
    assert steps == STEPS
    assert_same_on_all_ranks(parameters(model))
    gc.enable()


def test_workers_of_a_loader_are_forked_after_groups_were_used(ranks: Ranks) -> None:
    ranks.run(2, trains_with_workers, daemon=False)


def forks(rank: int) -> None:
    """Fork children that release groups in every way; the rank continues after each."""
    gc.disable()
    groups: tuple[Any, ...] = use_groups(2)
    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)

    def let_go() -> None:
        nonlocal groups, work
        groups, work = (), None
        for group in list(dist.distributed_c10d._world.pg_map):
            if group is not dist.group.WORLD:
                dist.distributed_c10d._world.pg_map.pop(group)

    for act in (let_go, dist.destroy_process_group):
        assert status_of_child(act) == EXITED_WELL
        x = torch.ones(1000)
        dist.all_reduce(x)
        assert x[0] == 2
    work.wait()
    gc.enable()


def test_a_child_that_lets_go_of_groups_ends_well_and_the_rank_goes_on(ranks: Ranks) -> None:
    ranks.run(2, forks)


def calls_in_child(rank: int) -> None:
    """Test that every call on its parent's group raises an error at once in a child."""
    [group], x = [dist.new_group([0, 1])], torch.ones(10)
    dist.all_reduce(x, group=group)
    work = dist.all_reduce(x, group=group, async_op=True)

    def use() -> None:
        calls: list[Callable[[], object]] = [
            lambda: dist.all_reduce(x, group=group),
            lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=group),
            lambda: dist.broadcast(x, 0),
            lambda: dist.all_gather_into_tensor(torch.ones(20), x),
            dist.barrier,
            work.wait,
        ]
        for call in calls:
            with pytest.raises(switchml.torch.SwitchMLBackendError, match="forked"):
                call()

    assert status_of_child(use) == EXITED_WELL
    work.wait()
    dist.barrier()


def test_a_child_cannot_use_its_parents_groups(ranks: Ranks) -> None:
    ranks.run(2, calls_in_child)


SCRIPT = """
import gc, os, sys
import torch
import torch.distributed as dist

gc.disable()
dist.init_process_group("switchml")
group = dist.new_group([0, 1])
dist.all_reduce(torch.ones(1000), group=group)
cycle = [group]
cycle.append(cycle)
dist.destroy_process_group(group)
work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
pid = os.fork()
if pid == 0:
    del group, cycle, work
    {last}
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
work.wait()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("last", ["gc.collect()", "dist.destroy_process_group()"])
def test_a_child_ends_as_programs_do(fabric: Ctl, tmp_path: Path, last: str) -> None:
    """Fork a child that exits normally: its interpreter is finalized, and C++ runs its destructors."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(last=last))
    result = fabric.json("job", "start", "--workers", "2", "--", sys.executable, str(path))
    assert result["state"] == "COMPLETED"
    assert (Path(result["run_dir"]) / "rank-0.log").read_text() == ""
