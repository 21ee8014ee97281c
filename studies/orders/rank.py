"""One rank of this study: the first gradient and a training of digits, with one method and one order.

The ranks stand for hosts with several of them. Rank 0 writes the bytes that a host sends of the second gradient, the
error of the first average relative to the exact one, and the accuracy after the training.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import switchml.torch
from studies.grace.arguments import method_arguments
from studies.grace.tasks import Digits
from switchml.torch.compression import HostCompressionState, by_name, compression_hook


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("hosts", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--order", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("switchml")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(
        "cpu",
        (options.hosts, size // options.hosts),
        mesh_dim_names=("hosts", "inside"),
        backend_override={"hosts": "switchml", "inside": "gloo"},
    )
    task = Digits(options.seed)
    task.loss(task.model, rank, size, 0).backward()
    exact = torch.cat([parameter.grad.view(-1) for parameter in task.model.parameters()])
    dist.all_reduce(exact)
    exact /= size
    name, arguments = method_arguments(options.method)
    model = DistributedDataParallel(task.model)
    groups = {"group": mesh["hosts"].get_group(), "inside": mesh["inside"].get_group()}
    state = HostCompressionState(
        model, by_name(name, **arguments), order=options.order, warm_up_steps=0, seed=options.seed, **groups
    )
    model.register_comm_hook(state, compression_hook)
    optimizer = task.optimizer(1.0, 0.0)
    for step in range(options.steps):
        optimizer.zero_grad()
        task.loss(model, rank, size, step).backward()
        if step == 0:
            found = torch.cat([parameter.grad.view(-1) for parameter in task.model.parameters()])
            before = switchml.torch.statistics()["wire_bytes"]
        elif step == 1:  # the groups between hosts are jobs of the switch by now
            sent = torch.tensor(switchml.torch.statistics()["wire_bytes"] - before)
        optimizer.step()
    dist.all_reduce(sent, dist.ReduceOp.MAX)
    if rank == 0:
        error = float((found - exact).norm() / exact.norm())
        result = {"bytes": int(sent), "error": error, "accuracy": task.accuracy(), "elements": exact.numel()}
        options.output.write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
