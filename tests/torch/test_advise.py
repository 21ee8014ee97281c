"""`switchml-ctl advise`: a program's own steps, recorded over Gloo and through a switch."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric_harness import Ctl, needs_namespaces

TRAINING = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
dist.init_process_group(sys.argv[1])
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))), bucket_cap_mb=0.3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[2])):
    model(torch.randn(4, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained to the end")
"""
PARAMETERS = 4 * (256 * 256 + 256)
COMPUTING = 0.6  # seconds of a step that a CPU is not needed for, so that other work on the machine hardly matters
PACED = (
    TRAINING.replace("256", "200")
    .replace("import sys,", "import sys, time,")
    .replace("    model(", f"    time.sleep({COMPUTING})\n    model(")
)
PACED_BYTES = 4 * 4 * (200 * 200 + 200)
SECONDS = 900  # for seven starts of two processes that import PyTorch, on a machine with other work


@pytest.fixture
def ctl() -> Iterator[Ctl]:
    with tempfile.TemporaryDirectory(prefix="swml-") as base:  # short enough for the paths of Unix sockets
        yield Ctl(Path(base) / "run")


@pytest.mark.parametrize("backend", ["gloo", "switchml"])
def test_a_program_gets_advice(ctl: Ctl, backend: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    options = ["--workers", "2", "--link", "1mbit", "--steps", "5"]  # so slow that computing hardly matters
    found = ctl.json("advise", *options, "--", sys.executable, str(script), backend, "1000000")
    assert found["command"] == [sys.executable, str(script), backend, "1000000"]
    assert found["bytes"] == 4 * PARAMETERS
    assert 1 < found["calls"] <= 5
    assert min(found["gloo_here"], found["switch_here"], found["computing"]) > 0
    gloo, plain, *options_that_pay = found["choices"]
    assert (gloo["name"], plain["name"]) == ("gloo", "switchml")
    # With two ranks both send every byte once, so that only fewer bits make a step faster.
    assert plain["gain"] == pytest.approx(1, abs=0.3)
    assert gloo["seconds"] > 4 * PARAMETERS / 125e3
    *options_that_pay, compressed = options_that_pay
    assert compressed["name"] == "shared Top-k of 1% in place of all others"
    assert compressed["lines"][0] == "from switchml.torch import compression"
    names = [choice["name"] for choice in options_that_pay]
    assert names[-2:] == ["16 bits for a value", "8 bits for a value"]
    # It pays where computing takes a while, as it does on a busy machine.
    assert names[:-2] in ([], ["gradients that travel during the next forward pass"])
    assert options_that_pay[-1]["lines"] == ["export SWITCHML_TORCH_WIRE=blocks:bits=8,rounding=stochastic"]


@needs_namespaces
@pytest.mark.timeout(2 * SECONDS)
def test_predictions_are_measured(ctl: Ctl, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    options = ["--workers", "2", "--link", "1gbit", "--steps", "5", "--measure"]
    command = [sys.executable, str(script), "gloo", "1000000"]
    found = ctl.json("advise", *options, "--", *command, timeout=SECONDS)
    measured = {choice["name"]: choice["measured"] for choice in found["choices"]}
    # The links allow no less; a busy machine is slower.
    assert min(measured["gloo"], measured["switchml"]) > 4 * PARAMETERS / 125e6
    assert not Path(f"{ctl.run_dir}-advise").exists()


def advice_on_paced_steps(ctl: Ctl, directory: Path, link: str) -> dict[str, Any]:
    """Return the advice for a program that computes for 0.6 s a step, measured over such links too."""
    script = directory / "train.py"
    script.write_text(PACED)
    options = ["--workers", "2", "--link", link, "--steps", "5", "--measure"]
    command = [sys.executable, str(script), "gloo", "1000000"]
    found: dict[str, Any] = ctl.json("advise", *options, "--", *command, timeout=SECONDS)
    assert found["bytes"] == PACED_BYTES
    assert found["computing"] == pytest.approx(COMPUTING, rel=0.15)
    return found


def require_measured_gains(choices: list[dict[str, Any]]) -> None:
    """Check that predicted steps and gains of all choices that were measured are within 15 % of what was measured."""
    over_gloo = choices[0]["measured"]
    for choice in choices:
        if choice["measured"] is not None:
            assert choice["measured"] == pytest.approx(choice["seconds"], rel=0.15), choice["name"]
            assert over_gloo / choice["measured"] == pytest.approx(choice["gain"], rel=0.15), choice["name"]


@needs_namespaces
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
def test_nothing_to_gain_on_a_fast_link(ctl: Ctl, tmp_path: Path) -> None:
    """The link takes 5 ms for the bytes of a step of 600 ms, so that no option can pay, and none is named."""
    found = advice_on_paced_steps(ctl, tmp_path, "1gbit")
    assert found["communicating"] < 0.05
    assert [choice["name"] for choice in found["choices"]] == ["gloo", "switchml"]
    assert all(choice["measured"] is not None for choice in found["choices"])
    require_measured_gains(found["choices"])


@needs_namespaces
@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS)
def test_fewer_bits_pay_on_a_slow_link(ctl: Ctl, tmp_path: Path) -> None:
    """The link takes 0.5 s for the bytes of a step, and 8 bits for a value save most of that."""
    found = advice_on_paced_steps(ctl, tmp_path, "10mbit")
    measured = {choice["name"]: choice for choice in found["choices"] if choice["measured"] is not None}
    narrow = next(choice for name, choice in measured.items() if name.startswith("8 bits for a value"))
    assert narrow["gain"] > 1.3
    assert found["communicating"] == pytest.approx(1 - COMPUTING / (COMPUTING + PACED_BYTES / 1.25e6), abs=0.1)
    require_measured_gains(found["choices"])


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (TRAINING.replace("int(sys.argv[2])", "2"), "made 2 steps of an optimizer"),
        ("print('no steps')", "made 0 steps"),
    ],
)
def test_a_program_that_ends_early(ctl: Ctl, program: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(program)
    command = ["advise", "--workers", "2", "--link", "1gbit", "--", sys.executable, str(script), "gloo"]
    failure = ctl.json(*command, status=1)
    assert failure["error"] == "NoStepsError"
    assert said in failure["message"]
    assert "; rank 0 wrote:\n" in failure["message"]
    assert failure["message"].endswith(("trained to the end", "no steps"))
