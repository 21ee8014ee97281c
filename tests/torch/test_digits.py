"""The examples on the digits: Gloo compared with the switch, and two runs through the switch."""

import argparse
import sys
from pathlib import Path

import pytest
from torch_harness import Ranks

EXAMPLES = Path(__file__).parents[2] / "examples"


def trained(rank: int, model: str, epochs: int) -> dict:
    sys.path.insert(0, str(EXAMPLES))
    import torch_digits

    options = argparse.Namespace(model=model, epochs=epochs, batch=64, learning_rate=3e-3, seed=1)
    return torch_digits.train(options)


@pytest.mark.parametrize(
    ("model", "world_size", "epochs"),
    [
        ("convolutional", 4, 8),
        pytest.param("transformer", 4, 10, marks=pytest.mark.long),
        pytest.param("convolutional", 8, 8, marks=pytest.mark.long),
    ],
)
def test_gloo_and_the_switch_end_alike_and_the_switch_always_the_same(
    ranks: Ranks, model: str, world_size: int, epochs: int
) -> None:
    gloo = ranks.run(world_size, trained, model, epochs, backend="gloo", seconds=200)[0]
    ours, again = (ranks.run(world_size, trained, model, epochs, seconds=200)[0] for _ in range(2))
    assert (gloo["backend"], ours["backend"]) == ("gloo", "switchml")
    assert abs(ours["test_accuracy"] - gloo["test_accuracy"]) <= 0.005
    assert ours["test_accuracy"] > 0.95
    assert len(ours["loss"]) == epochs * 18
    assert len(ours["parameters_sha256"]) == world_size
    assert len(set(ours["parameters_sha256"])) == 1
    assert ours["parameters_sha256"] == again["parameters_sha256"]
    assert ours["loss"] == again["loss"]
    assert ours["loss"][-1] < ours["loss"][0] / 10


def test_the_comparison_says_what_does_not_hold_and_draws(tmp_path: Path) -> None:
    sys.path.insert(0, str(EXAMPLES))
    import torch_digits_compare

    gloo = {"model": "m", "workers": 2, "test_accuracy": 0.95, "parameters_sha256": ["a", "b"], "loss": [1.0, 0.5]}
    good = gloo | {"test_accuracy": 0.954, "parameters_sha256": ["c", "c"]}
    assert torch_digits_compare.judge(gloo, good, good) == []
    worse, apart = good | {"test_accuracy": 0.94}, good | {"parameters_sha256": ["c", "d"]}
    assert "1.00 points" in torch_digits_compare.judge(gloo, worse, worse)[0]
    assert "between ranks" in torch_digits_compare.judge(gloo, apart, apart)[0]
    assert "two runs" in torch_digits_compare.judge(gloo, good, good | {"loss": [1.0, 0.4]})[0]
    torch_digits_compare.draw(tmp_path / "loss.png", {("m", 2): {"gloo": gloo, "switchml": good}})
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
