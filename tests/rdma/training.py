"""A training with DistributedDataParallel, whose parameters are compared between transports.

``python -m tests.rdma.training DIRECTORY RANK WORLD`` is one rank, in an environment with PyTorch.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-torch" / "bin" / "python"
STEPS = 50
SECONDS = 1500  # PyTorch alone takes minutes to import under emulation on a busy machine
# Guest and host have CPUs with different instructions, and must compute the same gradients.
SAME_BITS = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}


def run_ranks(job: int, world: int, agent: Path) -> list[str]:
    """Run all ranks of a job at one agent, and return what each prints: a digest of its parameters.

    Their other output goes to this process's stderr. Raises AssertionError if one fails.
    """
    environment = {**os.environ, **SAME_BITS, "SWITCHML_AGENT": str(agent), "SWITCHML_JOB": str(job)}
    with tempfile.TemporaryDirectory(dir=agent.parent) as directory:  # the guest can write to few places
        environment["TMPDIR"] = directory
        commands = [
            [str(PYTHON), "-m", "tests.rdma.training", directory, str(rank), str(world)] for rank in range(world)
        ]
        ranks = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
            for command in commands
        ]
        try:
            printed = [process.communicate(timeout=SECONDS)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        assert all(process.returncode == 0 for process in ranks), "a rank has failed"
    return [text.strip() for text in printed]


def train(rank: int, world: int) -> Any:
    """Return the model after STEPS steps, each with a part of a batch."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    pictures, labels = torch.randn(STEPS, 16, 64), torch.randint(10, (STEPS, 16))
    for step in range(STEPS):
        mine = slice(rank, None, world)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures[step, mine]), labels[step, mine]).backward()
        optimizer.step()
    return model


def main() -> None:
    directory, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    begun = time.monotonic()

    def progress(what: str) -> None:
        sys.stderr.write(f"rank {rank}: {what} after {time.monotonic() - begun:.0f} s\n")

    import torch.distributed as dist

    progress("PyTorch is there")
    dist.init_process_group("switchml", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    progress("the process group is there")
    model = train(rank, world)
    progress(f"{STEPS} steps are done")
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    dist.destroy_process_group()
    sys.stdout.write(found.hexdigest() + "\n")


if __name__ == "__main__":
    main()
