"""Sub-groups: each is a separate job, or uses Gloo with a reason."""

import logging
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import switchml.torch
from tests.support.fabric_harness import Ctl
from tests.torch.torch_harness import Ranks, RendezvousServer


def overlapping(rank: int) -> dict[str, str]:
    """Test pairs of ranks in overlapping groups and a group of a single rank, and their jobs."""
    low, high, outer = (dist.new_group(members) for members in ([0, 1], [2, 3], [0, 3]))
    alone = dist.new_group([1])
    pair = low if rank < 2 else high
    jobs = {"default": dist.group.WORLD.job}
    assert pair.state == "not joined yet"
    x = torch.full((700,), float(rank))
    works = [dist.all_reduce(x, group=pair, async_op=True)]
    y = torch.full((900,), float(rank))
    works.append(dist.all_reduce(y, async_op=True))
    if rank in (0, 3):
        z = torch.full((5,), rank, dtype=torch.int64)
        dist.all_reduce(z, group=outer)
        assert z[0] == 3
        jobs["outer"] = outer.job
    if rank == 1:
        own = torch.full((5,), 7.0)
        dist.all_reduce(own, dist.ReduceOp.AVG, group=alone)
        dist.barrier(group=alone)
        assert own[0] == 7
        assert alone.state.startswith("gloo: one rank")
    for work in works:
        work.wait()
    assert x[0] == (1 if rank < 2 else 5)
    assert y[0] == 6
    assert pair.state == "network"
    jobs["pair"] = pair.job
    source = dist.get_global_rank(pair, 1)
    b = torch.full((3,), float(rank))
    dist.broadcast(b, source, group=pair)
    assert b[0] == source
    dist.destroy_process_group(pair)
    return jobs


def test_groups_are_jobs_of_their_own(ranks: Ranks) -> None:
    jobs = ranks.run(4, overlapping)
    assert jobs[0]["default"] == jobs[3]["default"]
    assert jobs[0]["pair"] == jobs[1]["pair"]
    assert jobs[2]["pair"] == jobs[3]["pair"]
    assert jobs[0]["outer"] == jobs[3]["outer"]
    assert len({jobs[0]["default"], jobs[0]["pair"], jobs[2]["pair"], jobs[0]["outer"]}) == 4


def meshes(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    x = torch.ones(10) * rank
    dist.all_reduce(x, group=mesh.get_group("inner"))
    assert x[0] == (1 if rank < 2 else 5)
    dist.all_reduce(x, group=mesh.get_group("outer"))
    assert x[0] == 6


def test_device_meshes(ranks: Ranks) -> None:
    ranks.run(4, meshes)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def refused(rank: int) -> tuple[str, list[str]]:
    handler = _Lines()
    logging.getLogger("switchml.torch").addHandler(handler)
    assert dist.group.WORLD.state == "network"
    group = dist.new_group([0, 1])
    for dtype in (torch.float32, torch.float16, torch.int64, torch.float64, torch.bool, torch.int16):
        x = torch.ones(300).to(dtype)
        dist.all_reduce(x, group=group)
        assert bool((x == (1 if dtype == torch.bool else 2)).all())
    x = torch.full((3,), float(rank))
    dist.broadcast(x, 1, group=group)
    assert x[0] == 1
    dist.reduce(x, 0, dist.ReduceOp.AVG, group=group)
    assert x[0] == 1
    dist.barrier(group=group)
    works = [dist.all_reduce(torch.ones(10), group=group, async_op=True) for _ in range(5)]
    assert all(work.wait() for work in works)
    counters = switchml.torch.statistics()
    assert (counters["gloo_groups"], counters["network_groups"]) == (1, 1)
    return group.state, handler.lines


def test_a_group_without_room_uses_gloo_and_says_so_once(server: RendezvousServer, tmp_path: object) -> None:
    from tests.torch.conftest import running_fabric

    for control in running_fabric("--slots", "64"):
        variables = {"SWITCHML_SLOTS": "64"}
        states = Ranks(server, control.run_dir).run(2, refused, environment=variables)
    for state, _ in states:
        assert state.startswith("gloo:")
        assert "rank 0, 1" in state
    [line] = states[0][1]
    assert "uses Gloo for everything" in line
    assert states[1][1] == []


def remade(rank: int) -> list[str]:
    """Create and destroy the default group repeatedly in one process."""
    jobs = []
    store = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        x = torch.ones(4)
        dist.all_reduce(x)
        assert x[0] == 2
        jobs.append(dist.group.WORLD.job)
        dist.destroy_process_group()
        dist.init_process_group("switchml", store=store, rank=rank, world_size=2)
    return jobs


def test_a_group_made_again_is_another_job(ranks: Ranks) -> None:
    first, second = ranks.run(2, remade)
    assert first == second
    assert len(set(first)) == 3


def with_aggregators(rank: int) -> str:
    """Test a group whose options name its aggregators, and one that names a switch that does not exist."""
    group = dist.new_group(pg_options=switchml.torch.Options(aggregators=("switch-0",)))
    x = torch.ones(1000)
    dist.all_reduce(x, group=group)
    assert (x == 2).all()
    assert group.state == "network"
    unknown = dist.new_group(pg_options=switchml.torch.Options(aggregators=("nowhere",)))
    dist.all_reduce(x, group=unknown)
    assert (x == 4).all()
    return str(unknown.state)


def test_a_group_names_its_aggregators(ranks: Ranks) -> None:
    for state in ranks.run(2, with_aggregators):
        assert state.startswith("gloo:")
        assert "no switch has the name 'nowhere'" in state


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="nccl"):
        switchml.torch.Options(fallback="nccl")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'wire is 16; it must be "auto", Blocks'):
        switchml.torch.Options(wire=16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'16' is not a wire"):
        switchml.torch.configure(wire="16")
    with pytest.raises(ValueError, match="wire is integers; it is for floating-point numbers"):
        switchml.torch.Options(wire="integers")
    with pytest.raises(TypeError, match=r"Options\(\) has no argument 'rounding'; write wire=Blocks"):
        switchml.torch.Options(rounding="stochastic")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"configure\(\) has no argument 'arithmetic'; write wire=Floats\(\)"):
        switchml.torch.configure(arithmetic="float")
    with pytest.raises(ValueError, match="priority is 8; it must be from 0 to 7"):
        switchml.torch.Options(priority=8)
    with pytest.raises(TypeError, match="priority is True, a bool"):
        switchml.torch.configure(priority=True)
    with pytest.raises(TypeError, match="aggregators is 's1'; it must be a tuple of names"):
        switchml.torch.Options(aggregators="s1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'s 2' in 's1,s 2' is not the name of a switch"):
        switchml.torch.configure(aggregators=("s1", "s 2"))
    monkeypatch.setenv("SWITCHML_TORCH_FALLBACK", "nccl")
    with pytest.raises(ValueError, match=r"SWITCHML_TORCH_FALLBACK.*gloo"):
        switchml.torch.current_options()
    monkeypatch.setenv("SWITCHML_TORCH_FALLBACK", "gloo")
    monkeypatch.setenv("SWITCHML_STAGE_CUDA", "1")
    assert switchml.torch.current_options() == switchml.torch.Options("gloo", True)


def urgent_and_other_sums(rank: int) -> str:
    """Let an urgent group and another one of the same ranks reduce at the same time."""
    urgent = dist.new_group(pg_options=switchml.torch.Options(priority=7))
    other = dist.new_group()
    for _ in range(3):
        large, small = torch.full((1 << 20,), rank + 1.0), torch.full((1000,), rank + 1.0)
        work = dist.all_reduce(large, group=other, async_op=True)
        dist.all_reduce(small, group=urgent)
        work.wait()
        assert large.eq(3.0).all()
        assert small.eq(3.0).all()
    assert urgent.job != other.job
    dist.barrier()
    return str(urgent.job)


def test_a_group_may_be_urgent(ranks: Ranks, fabric: Ctl) -> None:
    job = ranks.run(2, urgent_and_other_sums)[0]
    assert fabric.json("job", "show", job)["priority"] == 7


def priorities_that_differ(rank: int) -> None:
    group = dist.new_group(pg_options=switchml.torch.Options(priority=rank))
    with pytest.raises(switchml.torch.SwitchMLBackendError, match="ask for different priorities: 0, 1, in") as raised:
        dist.all_reduce(torch.ones(4), group=group)
    assert raised.value.reason == "RanksDisagree"


def test_ranks_with_different_priorities_are_told_so(ranks: Ranks) -> None:
    ranks.run(2, priorities_that_differ)


def test_ctl_lists_the_jobs(ranks: Ranks, fabric: Ctl) -> None:
    names = ranks.run(2, job_of_default)
    listed = [job["name"] for job in fabric.json("job", "list", "--all")["jobs"]]
    assert names[0] in listed


def job_of_default(rank: int) -> str:
    return str(dist.group.WORLD.job)


def absent(rank: int) -> str:
    """Test a sub-group in which rank 2 never makes the first collective."""
    group = dist.new_group([0, 2], timeout=timedelta(seconds=12))
    message = ""
    if rank == 0:
        with pytest.raises(switchml.torch.SwitchMLBackendError) as caught:
            dist.all_reduce(torch.ones(3), group=group)
        assert caught.value.ranks == (2,)
        message = str(caught.value)
    dist.barrier()
    return message


def test_a_rank_that_does_not_come_to_a_sub_group_is_named(ranks: Ranks) -> None:
    message = ranks.run(3, absent)[0]
    assert "Timed out after 12 s in the first collective: rank 1 had not come to it" in message
    assert "These ranks are 2 in the default group" in message
