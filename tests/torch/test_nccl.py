"""NCCL with SwitchML's plugin. One GPU is enough: two ranks share it, as two hosts for NCCL, by NCCL_HOSTID."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from switchml.config import prefix

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

SECONDS = 300.0
RANKS = 2
CONTROL = str(Path(sys.executable).parent / "switchml-ctl")
PROGRAM = """
import hashlib
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(0)
dist.init_process_group("nccl")
rank = dist.get_rank()
x = torch.full((1 << 20,), rank + 1.0, device="cuda")
dist.all_reduce(x)
assert bool((x == 3).all())
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1000, 1000).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(16, 1000, device="cuda")).square().mean().backward()
    optimizer.step()
weights = model.module.weight.detach().cpu().numpy().tobytes()
print(hashlib.sha256(weights).hexdigest())
dist.destroy_process_group()
"""


@pytest.fixture
def run_directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "run"
    environment = os.environ | {"SWITCHML_RUN_DIR": str(directory)}
    subprocess.run([CONTROL, "up"], env=environment, check=True, timeout=SECONDS)
    yield directory
    subprocess.run([CONTROL, "down"], env=environment, check=True, timeout=SECONDS)


def test_ddp_sums_between_hosts_in_the_network(run_directory: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    common = os.environ | {
        "SWITCHML_RUN_DIR": str(run_directory),
        "NCCL_NET_PLUGIN": str(prefix() / "lib" / "libnccl-net-switchml.so"),
        "NCCL_COLLNET_ENABLE": "1",
        "NCCL_ALGO": "allreduce:collnetchain",
        "NCCL_SOCKET_IFNAME": "=lo",
        "NCCL_DEBUG": "INFO",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "WORLD_SIZE": str(RANKS),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)],
            env=common
            | {"RANK": str(rank), "NCCL_HOSTID": f"host-{rank}", "NCCL_DEBUG_FILE": str(tmp_path / f"nccl-{rank}.log")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    digests = {rank.communicate(timeout=SECONDS)[0].strip() for rank in ranks}
    said = (tmp_path / "nccl-0.log").read_text()
    assert all(rank.returncode == 0 for rank in ranks), said
    assert len(digests) == 1
    assert "via COLLNET/SwitchML" in said
    jobs = subprocess.run(
        [CONTROL, "job", "list", "--all", "--json"],
        env=common,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    ).stdout
    assert '"nccl-' in jobs
