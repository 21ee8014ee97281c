"""Train a model with DeepSpeed's ZeRO, with each of its stages in turn.

usage: zero.py BACKEND WIDTH DIRECTORY STAGE...
Each rank writes its losses, a list for each stage, to DIRECTORY/losses-RANK.json.
"""

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

STEPS, CLASSES, BATCH = 5, 8, 4


def trained(stage: int, width: int) -> list[float]:
    """Return the losses of a few steps of a stage."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "overlap_comm": False, "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    numbers = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, 16, generator=numbers)
        labels = torch.randint(0, CLASSES, (BATCH,), generator=numbers)
        loss = nn.functional.cross_entropy(engine(inputs), labels)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def main(backend: str, width: str, directory: str, *stages: str) -> None:
    """Train with each stage."""
    deepspeed.init_distributed(dist_backend=backend)
    torch.set_num_threads(1)
    losses = [trained(int(stage), int(width)) for stage in stages]
    dist.destroy_process_group()
    (Path(directory) / f"losses-{os.environ['RANK']}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
