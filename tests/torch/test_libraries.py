"""Transformers, Accelerate, Lightning and Ray Train: the lines of docs/guides/pytorch-libraries.md, on small models."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "pytorch-libraries.md"

BEFORE = """
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
model = BertForSequenceClassification(
    BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=50, num_labels=3
    )
)
dataset = [{"input_ids": torch.arange(8) + n, "labels": torch.tensor(n % 3)} for n in range(40)]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2)
started_from = [parameter.detach().clone() for parameter in model.parameters()]
"""

MODULE = """
import lightning


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model

    def training_step(self, batch, number):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


module = Module()
"""

AFTER = """
import torch.distributed as dist
import switchml.torch

assert dist.get_backend() == "switchml"
assert dist.group.WORLD.state == "network"
assert switchml.torch.statistics()["network_calls"] >= 4
trained = [parameter.detach() for parameter in model.parameters()]
assert not all(map(torch.equal, trained, started_from))
everyones = [None, None]
dist.all_gather_object(everyones, [parameter.numpy().tobytes() for parameter in trained])
assert everyones[0] == everyones[1]
dist.destroy_process_group()
"""


RAY = """
import ray
import torch
import torch.distributed as dist
import switchml.torch
from ray.train.torch import prepare_model


def train():
    assert dist.get_backend() == "switchml"
    model = prepare_model(torch.nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 10)).square().mean().backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, weights)
    assert all(torch.equal(weights, other) for other in everyones)
    assert dist.group.WORLD.state == "network"
    assert switchml.torch.statistics()["network_calls"] >= 4


ray.init(num_cpus=4, include_dashboard=False, _temp_dir={directory!r})
"""


def lines_of(library: str) -> str:
    """Return the lines of the documentation on a library."""
    pattern = rf"<!-- library: {library} -->\n<!-- run by: .*? -->\n```python\n(.*?)```"
    found = re.search(pattern, DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("library", ["transformers", "accelerate", "lightning"])
def test_the_lines_of_the_documentation_train(fabric: Ctl, tmp_path: Path, library: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(BEFORE + (MODULE if library == "lightning" else "") + lines_of(library) + AFTER)
    command = ["env", "-C", str(tmp_path), "HF_HUB_OFFLINE=1", sys.executable, str(script)]
    result = fabric.json("job", "start", "--workers", "2", "--", *command)
    assert result["state"] == "COMPLETED", (Path(result["run_dir"]) / "rank-0.log").read_text()


def test_ray_trains_by_the_lines_of_the_documentation(fabric: Ctl, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="swml-ray-") as directory:  # its sockets need a short path
        script = tmp_path / "script.py"
        script.write_text(RAY.replace("{directory!r}", repr(directory)) + lines_of("ray") + "trainer.fit()\n")
        environment = {**os.environ, "SWITCHML_RUN_DIR": str(fabric.run_dir), "RAY_USAGE_STATS_ENABLED": "0"}
        ended = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )
    if "The current node timed out during startup" in ended.stderr:
        pytest.skip("skipped: Ray did not start within its own 30 s, which cannot be changed; the machine is busy")
    assert ended.returncode == 0, ended.stderr[-4000:]
