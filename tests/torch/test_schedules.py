"""Synthesized schedules over process groups, compared with torch's collectives."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from switchml.common.schedules import COLLECTIVES, Schedule, load
from switchml.topologies.synthesis import sketch
from switchml.topologies.synthesis.synthesize import synthesize
from switchml.torch.schedules import ScheduledCollective
from tests.fabric.doc_blocks import blocks_of
from tests.torch.torch_harness import Ranks

pytest.importorskip("highspy", reason="highspy is not installed")

PARTS = 2
VALUES = 1009  # of an all-reduce; no multiple of the chunks


def schedule(directory: Path, collective: str, ranks: int, **topology: Any) -> Schedule:
    """Return the schedule of two hosts, of which GPU 0 sends to GPU 1 of the other one, from its file."""
    gpus = ranks // 2
    files = {
        "topology": {
            "name": "test", "gpus_per_node": gpus, "nics_per_node": 1, "node_betas_list": [4], "node_invbws_list": [5],
            "remote_beta": 20, "remote_invbw": 31,
        } | topology,
        "sketch": {
            "nnodes": 2, "intranode_sketch": {"strategy": "none"},
            "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}},
            "symmetry_offsets": [[gpus, ranks]], "hyperparameters": {"input_chunkup": PARTS},
        },
    }  # fmt: skip
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    network = sketch.load(str(directory / "topology"), str(directory / "sketch"))
    (directory / "schedule.json").write_text(json.dumps(synthesize(network, collective, 120.0).as_dict()))
    return load(directory / "schedule.json")


def compared(rank: int, plan: Schedule) -> None:
    run, ranks = ScheduledCollective(plan), plan.ranks
    for seed in range(2):  # the second call reuses the group
        torch.manual_seed(100 * seed + rank)
        own = (
            torch.randint(-1000, 1000, (ranks, 7)) if plan.collective != "all-reduce" else torch.randint(99, (VALUES,))
        )
        if plan.collective == "all-gather":
            output, expected = own.new_empty(ranks * ranks, 7), own.new_empty(ranks * ranks, 7)
            dist.all_gather_into_tensor(expected, own)
        elif plan.collective == "reduce-scatter":
            output, expected = own.new_empty(1, 7), own.new_empty(1, 7)
            dist.reduce_scatter_tensor(expected, own)
        elif plan.collective == "all-to-all":
            output, expected = own.new_empty(ranks, 7), own.new_empty(ranks, 7)
            dist.all_to_all_single(expected, own)
        else:
            output, expected = own.clone(), own.clone()
            dist.all_reduce(expected)
        before = own.clone()
        run(output, own)
        assert torch.equal(output, expected)
        assert torch.equal(own, before)
    if plan.collective == "all-reduce":
        run(own, own)
        assert torch.equal(own, expected)


@pytest.mark.parametrize("world_size", [4, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_schedules_over_gloo_give_what_torch_gives(
    collective: str, world_size: int, server: Any, tmp_path: Path
) -> None:
    Ranks(server, None).run(world_size, compared, schedule(tmp_path, collective, world_size), backend="gloo")


def through_switch(rank: int, block: str, directory: Path) -> None:
    os.chdir(directory)
    gradients = torch.arange(VALUES, dtype=torch.int32) * (rank + 1)
    exec(block, globals() | {"gradients": gradients})
    assert torch.equal(gradients, torch.arange(VALUES, dtype=torch.int32) * (1 + 2 + 3 + 4))


def test_the_switch_sums_what_hosts_send(ranks: Ranks, tmp_path: Path) -> None:
    cheap = {"gpus": [0], "alpha": 1, "beta": 5}  # so that it wins already with two hosts
    plan = schedule(tmp_path, "all-reduce", 4, aggregation_switch=cheap)
    assert any(len(send.sources) > 1 for send in plan.sends)
    [block] = [block for block in blocks_of("docs/guides/synthesis.md") if block.language == "python"]
    ranks.run(4, through_switch, block.text, tmp_path, backend="gloo")


def refused(rank: int, plan: Schedule, through: Schedule) -> None:
    run = ScheduledCollective(plan)
    numbers = torch.zeros(4)
    for output, given, message in (
        (numbers, numbers, "do not fit the all-gather of 4 ranks"),
        (torch.zeros(16, dtype=torch.int32), numbers, "same type"),
        (torch.zeros(32)[::2], numbers, "contiguous"),
    ):
        with pytest.raises(ValueError, match=message):
            run(output, given)
    if rank in (0, 2):
        with pytest.raises(ValueError, match=r"switch_group must have the global ranks \[0, 2\]"):
            ScheduledCollective(through)
    pair = dist.new_group([0, 1])
    if rank < 2:
        with pytest.raises(ValueError, match="for 4 ranks, the group has 2"):
            ScheduledCollective(plan, pair)


def test_wrong_groups_and_tensors_are_refused(server: Any, tmp_path: Path) -> None:
    gathered = schedule(tmp_path, "all-gather", 4)
    through = schedule(tmp_path, "all-reduce", 4, aggregation_switch={"gpus": [0], "alpha": 1, "beta": 5})
    Ranks(server, None).run(4, refused, gathered, through, backend="gloo")
