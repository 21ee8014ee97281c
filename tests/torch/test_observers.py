"""PyTorch's observers see collectives: profiler, execution trace, flight recorder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from tests.torch.torch_harness import Ranks

SIZE = 2
NETWORK = (
    "all_reduce",
    "reduce",
    "broadcast",
    "barrier",
    "all_gather",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_single",
)
GLOO = ("all_reduce", "gather", "scatter", "all_to_all")


def collectives(rank: int) -> None:
    x, parts = torch.ones(1000), [torch.ones(1000) for _ in range(SIZE)]
    dist.all_reduce(x)
    dist.all_reduce(torch.eye(4).to_sparse())
    dist.reduce(x, 0)
    dist.broadcast(x, 0)
    dist.barrier()
    dist.all_gather(parts, x)
    dist.all_gather_single(torch.empty(1000 * SIZE), x)
    dist.reduce_scatter(x, parts)
    dist.reduce_scatter_single(torch.empty(1000 // SIZE), x)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.gather(x, None if rank else parts)
    dist.scatter(x, None if rank else parts)
    dist.all_to_all_single(torch.empty(1000), x)


def profiled(rank: int, directory: Path) -> None:
    """Test that profile and execution trace have each collective, until its end, with the shapes of its tensors."""
    model = DistributedDataParallel(nn.Linear(64, 64))
    model(torch.ones(1, 64)).sum().backward()
    trace = directory / f"trace-{rank}.json"
    observer = ExecutionTraceObserver().register_callback(str(trace))
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, record_shapes=True, execution_trace_observer=observer) as profiler:
        model(torch.ones(1, 64)).sum().backward()
        collectives(rank)
        late = dist.all_reduce(torch.ones(10), async_op=True)
    late.wait()  # ends after the profiler
    names = [f"switchml:{name}" for name in NETWORK] + [f"gloo:{name}" for name in GLOO]
    events: list[Any] = profiler.events()
    assert set(names) <= {event.name for event in events}
    shapes = [event.input_shapes for event in events if event.name == "switchml:all_reduce"]
    assert [[64 * 64 + 64]] in shapes  # DDP's bucket
    assert [[1000]] in shapes
    nodes = json.loads(trace.read_text())["nodes"]
    assert set(names) <= {node["name"] for node in nodes}


def test_the_profiler_and_its_execution_trace_show_collectives(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(SIZE, profiled, tmp_path)


def awaited_by_the_other(rank: int, directory: Path) -> None:
    """Test that the record of a call lasts until its end, which is in another thread, and no longer than its wait."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has computed"])
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        if rank == 0:
            torch.ones(300, 300) @ torch.ones(300, 300)
            store.set("rank 0 has computed", "")
        work.wait()
        with record_function("the step goes on"):
            torch.ones(7)
    trace = directory / f"profile-{rank}.json"
    profiler.export_chrome_trace(str(trace))
    found = {event["name"]: event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}
    call, wait = found["switchml:all_reduce"], found["switchml:wait for all_reduce (sum) of 10 float32"]
    assert call["args"]["Input Dims"] == [[10]]
    assert call["args"]["Input type"] == ["float"]
    assert call["ts"] <= wait["ts"]
    assert wait["ts"] + wait["dur"] <= call["ts"] + call["dur"] <= found["the step goes on"]["ts"]
    if rank == 0:
        assert wait["ts"] > found["aten::mm"]["ts"]


def test_a_record_ends_with_its_collective_in_the_exported_trace(ranks: Ranks, tmp_path: Path) -> None:
    ranks.run(SIZE, awaited_by_the_other, tmp_path)


def recorded(rank: int) -> list[str]:
    collectives(rank)
    dumped = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    assert {tuple(entry["process_group"]) for entry in dumped["entries"]} == {("0", "default_pg")}
    return [entry["profiling_name"] for entry in dumped["entries"]]


def test_the_flight_recorder_has_what_goes_over_gloo(ranks: Ranks) -> None:
    for names in ranks.run(SIZE, recorded, environment={"TORCH_FR_BUFFER_SIZE": "100"}):
        assert {f"gloo:{name}" for name in GLOO} == set(names)
