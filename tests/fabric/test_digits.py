"""The demo job: eight workers train on the digits through the embedded switch."""

import json
import re
import sys
from pathlib import Path

from switchml.launch.settings import EMBEDDED_VALUES
from tests.support.fabric_harness import Ctl

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


def test_eight_workers_train_as_well_as_one_process(ctl: Ctl) -> None:
    ctl.environment["SWITCHML_DIRECT"] = "0"  # so that the switch adds up all values
    result = ctl.json("job", "start", "--workers", "8", "--", sys.executable, str(EXAMPLE))
    assert result["state"] == "COMPLETED"
    assert result["exit_codes"] == [0] * 8
    training = json.loads((Path(result["run_dir"]) / "training.json").read_text())
    assert training["test_accuracy"] >= 0.95
    assert abs(training["test_accuracy"] - training["reference_accuracy"]) <= 0.01
    assert len(training["parameters_sha256"]) == 8
    assert len(set(training["parameters_sha256"])) == 1
    assert re.fullmatch(r"[0-9a-f]{64}", training["parameters_sha256"][0])
    assert len(training["loss"]) == len(training["reference_loss"]) == training["steps"]
    assert training["loss"][-1] < training["loss"][0] / 10
    assert training["elements"] % training["steps"] == 0
    # Every element was sent: the switch has received at least as many values as each rank summed.
    assert result["switch"]["results"] * EMBEDDED_VALUES >= training["elements"]
    assert training["seconds"] < 60
    assert (Path(result["run_dir"]) / "training.png").read_bytes().startswith(b"\x89PNG")
