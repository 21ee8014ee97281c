"""Transformers, Accelerate and Lightning: the lines of docs/pytorch.md, on models of a few layers."""

import re
import sys
from pathlib import Path

import pytest
from fabric_harness import Ctl

DOCUMENT = Path(__file__).parents[2] / "docs" / "pytorch.md"

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


@pytest.mark.parametrize("library", ["transformers", "accelerate", "lightning"])
def test_the_lines_of_the_documentation_train(fabric: Ctl, tmp_path: Path, library: str) -> None:
    pattern = rf"<!-- library: {library} -->\n<!-- run by: .*? -->\n```python\n(.*?)```"
    found = re.search(pattern, DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    script = tmp_path / "script.py"
    script.write_text(BEFORE + (MODULE if library == "lightning" else "") + found[1] + AFTER)
    command = ["env", "-C", str(tmp_path), "HF_HUB_OFFLINE=1", sys.executable, str(script)]
    result = fabric.json("job", "start", "--workers", "2", "--", *command)
    assert result["state"] == "COMPLETED", (Path(result["run_dir"]) / "rank-0.log").read_text()
