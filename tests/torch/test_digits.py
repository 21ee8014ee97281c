"""The examples on the digits: Gloo compared with the switch in lanes of each width, and two runs through the switch."""

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torch.torch_harness import Ranks

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """Return a module of the examples."""
    sys.path.insert(0, str(EXAMPLES))
    return __import__(name)


def trained(rank: int, model: str, seeds: list[int], epochs: int) -> list[dict[str, Any]]:
    options = argparse.Namespace(epochs=epochs, batch=64, learning_rate=3e-3)
    return [example("torch_digits").train(model, seed, options) for seed in seeds]


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
    [gloo] = ranks.run(world_size, trained, model, [1], epochs, backend="gloo")[0]
    [ours], [again] = (ranks.run(world_size, trained, model, [1], epochs)[0] for _ in range(2))
    assert (gloo["backend"], ours["backend"]) == ("gloo", "switchml")
    assert abs(ours["test_accuracy"] - gloo["test_accuracy"]) <= 0.005
    assert ours["test_accuracy"] > 0.95
    assert len(ours["loss"]) == epochs * 18
    assert len(ours["parameters_sha256"]) == world_size
    assert len(set(ours["parameters_sha256"])) == 1
    assert ours["parameters_sha256"] == again["parameters_sha256"]
    assert ours["loss"] == again["loss"]
    assert ours["loss"][-1] < ours["loss"][0] / 10


def test_narrow_lanes_end_like_gloo(ranks: Ranks) -> None:
    compare = example("torch_digits_compare")

    def train(way: str, *seeds: int) -> list[dict[str, Any]]:
        backend, environment = compare.backend_of(way)
        every = ranks.run(4, trained, "perceptron", list(seeds), 6, backend=backend, environment=environment)
        return list(every[0])

    lanes = ("32", "16", "8-stochastic")
    results = {way: train(way, 1, 2, 3) for way in ("gloo", *lanes)}
    assert compare.judge(results, {way: train(way, 1)[0] for way in lanes}) == []
    assert min(result["test_accuracy"] for result in results["8-stochastic"]) > 0.9
    assert len({of_way[0]["parameters_sha256"][0] for of_way in results.values()}) == 4  # the lanes were used


def test_the_comparison_says_what_does_not_hold_and_draws(tmp_path: Path) -> None:
    compare = example("torch_digits_compare")
    gloo = {"model": "m", "workers": 2, "test_accuracy": 0.95, "parameters_sha256": ["a", "b"], "loss": [1.0, 0.5]}
    good = gloo | {"test_accuracy": 0.954, "parameters_sha256": ["c", "c"]}
    worse, apart = good | {"test_accuracy": 0.942}, good | {"parameters_sha256": ["c", "d"]}

    def judged(way: str, *results: dict[str, Any], again: dict[str, Any] = good) -> list[str]:
        return list(compare.judge({"gloo": [gloo] * len(results), way: list(results)}, {way: again}))

    assert judged("32", good) == []
    [wrong] = judged("16", worse, again=worse)
    assert wrong == "m, 2 workers, 16 bits: the mean accuracy differs from Gloo's by -0.80 points"
    assert judged("8-stochastic", worse, again=worse) == []
    assert judged("16", good, worse) == []  # the mean differs by 0.2 points
    assert "between ranks" in judged("32", apart, again=apart)[0]
    assert "two runs" in judged("32", good, again=good | {"loss": [1.0, 0.4]})[0]
    results = {("m", 2): {"gloo": [gloo, gloo], "8-stochastic": [good, worse]}}
    compare.draw(tmp_path / "loss.png", results)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert compare.table(results).splitlines() == [
        "| model | workers | Gloo | 8 bits, stochastic |",
        "|---|---|---|---|",
        "| m | 2 | 95.00 % | 94.80 % (-0.20 ± 0.60) |",
    ]
    assert compare.fill("a\n<!-- digits -->\nold\n<!-- end -->\nb\n", "new") == (
        "a\n<!-- digits -->\nnew\n<!-- end -->\nb\n"
    )
    with pytest.raises(SystemExit, match="no place for the table"):
        compare.fill("a\n", "new")
