"""The commands of docs/start/pytorch.md: the same training over Gloo and through the switch."""

from __future__ import annotations

import re
import shlex

from tests.fabric.doc_blocks import ROOT, blocks_of
from tests.support.fabric_harness import SCRIPTS, Ctl


def test_the_first_training_of_the_page(own_fabric: Ctl) -> None:
    [block] = [block for block in blocks_of("docs/start/pytorch.md") if "test_start.py" in block.rest]
    accuracies = []
    for line in block.text.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "switchml-ctl"
        script = [str(ROOT / word) if word.startswith("examples/") else word for word in arguments]
        script[script.index("python")] = str(SCRIPTS / "python")
        printed = own_fabric.run(*script, "--epochs", "2").stderr  # lines of ranks
        found = re.search(r"accuracy (0\.\d+), .* parameters the same on all ranks, sha256", printed)
        assert found is not None, printed
        accuracies.append(float(found[1]))
    over_gloo, through_the_switch = accuracies
    assert abs(over_gloo - through_the_switch) < 0.01
