"""Thresholds of fitted distributions (SIDCo), and hard thresholds: how many elements they select."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from switchml.torch.compression import Compressor, ErrorFeedback, Place, by_name
from switchml.torch.compression.selection import count_of
from switchml.torch.compression.table import memory_for
from switchml.torch.compression.thresholds import HardThreshold, Sidco, fitted_threshold
from tests.torch.compression_references import ReferenceSidco, simulated
from tests.torch.training_tasks import WIDTH, loss_of

PLACE = Place("w", 0, 0, 1)


@functools.cache
def samples(distribution: str, elements: int, seed: int = 1) -> torch.Tensor:
    """Return random gradients with a symmetric distribution."""
    random = np.random.default_rng(seed)
    if distribution == "Gauss":
        values = random.standard_normal(elements)
    else:
        draw: dict[str, Callable[[], npt.NDArray[np.float64]]] = {
            "Laplace": lambda: random.exponential(size=elements),
            "gamma": lambda: random.gamma(0.6, size=elements),
            "Pareto": lambda: (random.uniform(size=elements) ** -0.2 - 1) / 0.2,
            "Student": lambda: np.abs(random.standard_t(3, elements)),
        }
        values = draw[distribution]() * random.choice([-1, 1], elements)
    return torch.from_numpy(values.astype(np.float32))


@pytest.mark.parametrize(
    ("distribution", "density", "fit", "ratios"),
    [
        ("Laplace", 0.001, "exponential", (1.00, 1.00, 1.00, 0.99)),
        ("Laplace", 0.001, "pareto", (1.01, 1.01, 1.00, 0.99)),
        ("gamma", 0.01, "exponential", (2.53, 1.09, 0.97, 0.93)),
        ("gamma", 0.01, "pareto", (0.98, 1.09, 1.08, 1.06)),
        ("gamma", 0.01, "gamma", (0.97, 1.03, 1.02, 1.00)),
        ("Pareto", 0.001, "pareto", (1.01, 1.01, 1.01, 1.01)),
        ("Gauss", 0.001, "exponential", (0.0, 0.10, 0.69, 1.04)),
    ],
)
def test_fits_of_known_distributions_select_the_known_numbers(
    distribution: str, density: float, fit: str, ratios: tuple[float, ...]
) -> None:
    magnitudes = samples(distribution, 1_000_000).abs()
    for stages, ratio in enumerate(ratios, 1):
        threshold = fitted_threshold(magnitudes, density, len(magnitudes), fit, stages)  # type: ignore[arg-type]
        selected = int((magnitudes > threshold).sum()) / (density * len(magnitudes))
        assert selected == pytest.approx(ratio, rel=0.04, abs=4 / math.sqrt(density * len(magnitudes)))


@pytest.mark.parametrize("distribution", ["Laplace", "gamma", "Gauss"])
@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
@pytest.mark.parametrize(("density", "band"), [(0.1, 0.05), (0.01, 0.05), (0.001, 0.2)])
def test_adaptive_stages_reach_the_density(distribution: str, fit: str, density: float, band: float) -> None:
    """Check nine of ten calls after the first changes of the stages; each call has another window of random numbers."""
    elements = 200_000
    gradients = samples(distribution, 2_000_000)
    method = Sidco(density, fit)  # type: ignore[arg-type]
    begins = np.random.default_rng(2).integers(len(gradients) - elements, size=80)
    ratios = [
        count_of(method.selected(gradients[begin : begin + elements], "w")) / (density * elements) for begin in begins
    ]
    inside = [abs(ratio - 1) <= band for ratio in ratios[40:]]
    assert sum(inside) >= 0.9 * len(inside)
    assert np.mean(ratios[40:]) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
def test_adaptive_stages_of_heavy_tails(fit: str) -> None:
    elements, density = 50_000, 0.02
    method = Sidco(density, fit)  # type: ignore[arg-type]
    ratios = [
        count_of(method.selected(samples("Student", elements, seed), "w")) / (density * elements) for seed in range(80)
    ]
    inside = [abs(ratio - 1) <= 0.2 for ratio in ratios[40:]]
    assert sum(inside) >= 0.9 * len(inside)


@pytest.mark.parametrize(("distribution", "stages"), [("Laplace", 1), ("gamma", 2), ("Gauss", 3)])
def test_stages_and_their_correction_follow_the_reference(distribution: str, stages: int) -> None:
    elements, density = 50_000, 0.01  # all of them are fitted
    method = Sidco(density, "exponential")
    expected = ReferenceSidco(density)
    for seed in range(60):
        gradient = samples(distribution, elements, seed)
        selected = expected.selected(np.abs(gradient.numpy()))
        assert abs(count_of(method.selected(gradient, "w")) - selected) <= 1  # sums of float32 end differently
    assert (method.state_dict()["w"][0], expected.stages) == (stages, stages)
    assert method.state_dict()["w"][-1] == pytest.approx(expected.correction, rel=0.02)
    assert abs(expected.correction - 1) > 0.001


@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
def test_a_sample_of_a_large_gradient_gives_nearly_the_same_threshold(fit: str) -> None:
    elements, density = 1_000_000, 0.01
    gradient = samples("Laplace", elements)
    selected = int(Sidco(density, fit, 1).selected(gradient, "w").sum())  # type: ignore[arg-type]
    threshold = fitted_threshold(gradient.abs(), density, elements, fit, 1)  # type: ignore[arg-type]
    everything = int((gradient.abs() > threshold).sum())
    assert selected != everything  # a sample was fitted
    assert selected == pytest.approx(everything, rel=0.08)


def test_a_gradient_of_few_rows_is_fitted_as_a_whole() -> None:
    elements, density = 1_000_000, 0.01
    rows = samples("Laplace", 100_000)
    gradient = torch.zeros(elements)
    gradient[500_000:600_000] = rows
    selected = Sidco(density, "exponential", 1).selected(gradient, "w")
    threshold = fitted_threshold(rows.abs(), density, elements, "exponential", 1)
    assert torch.equal(selected, gradient.abs() > threshold)


@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_fits_of_few_or_equal_values(fit: str, stages: int) -> None:
    for values in ([], [2.0], [2.0, 2.0, 2.0], [1.0, 2.0], [1e-30, 1.0, 1e30]):
        magnitudes = torch.tensor(values)
        threshold = fitted_threshold(magnitudes, 0.01, 1000, fit, stages)  # type: ignore[arg-type]
        assert not math.isnan(threshold)
        assert threshold >= 0
    assert fitted_threshold(torch.ones(3), 1.0, 3, fit, stages) == 0.0  # type: ignore[arg-type]


def test_stages_belong_to_parameters_and_to_checkpoints() -> None:
    method = Sidco(0.001, "exponential")
    for seed in range(20):
        method.selected(samples("Student", 20_000, seed), "heavy")
        method.selected(samples("Laplace", 20_000, seed), "light")
        method.selected(torch.zeros(5), "zero")
    other = Sidco(0.001, "exponential")
    other.load_state_dict(method.state_dict())
    assert other.state_dict() == method.state_dict()
    count = {name: values[0] for name, values in method.state_dict().items()}
    assert count["heavy"] > 1
    assert (count["light"], count["zero"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"fit": "normal"}, "fit is 'normal'"), ({"stages": 0}, "stages is 0"), ({"density": 2}, "density is 2")],
)
def test_arguments_of_sidco(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        by_name("sidco", **options)


def test_a_hard_threshold_stays_and_sends_less_as_gradients_shrink() -> None:
    assert HardThreshold(budget=11_174).threshold == pytest.approx(0.00473, rel=1e-3)
    with pytest.raises(ValueError, match="budget is 0"):
        HardThreshold(budget=0)
    method = HardThreshold(threshold=0.5)
    gradient = samples("Gauss", 10_000)
    counts = [
        int((simulated(method, [gradient * factor], PLACE)[0].average != 0).sum()) for factor in (2.0, 1.0, 0.5, 0.1)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0] / 10
    method.rescale(4.0)  # the loss, and so all gradients, are four times as large
    assert int((simulated(method, [gradient * 4.0], PLACE)[0].average != 0).sum()) == counts[1]
    other = HardThreshold(threshold=0.5)
    other.load_state_dict(method.state_dict())
    assert other.state_dict() == method.state_dict()
    assert method.warm_up_steps == 1


def sent_in_training(method: Compressor, steps: int) -> list[float]:
    """Return the elements that each step of a training with error feedback sends, as multiples of the wanted number."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.dim() > 1}
    memory = memory_for(method, "auto")
    memory.attach({name: parameter.numel() for name, parameter in parameters.items()})
    wanted = method.density * sum(parameter.numel() for parameter in parameters.values())  # type: ignore[attr-defined]
    ratios = []
    for step in range(steps):
        model.zero_grad()
        loss_of(model, 0, step % 20).backward()
        sent = 0
        for name, parameter in parameters.items():
            given = memory.begin(name, parameter.grad.flatten())
            [outcome] = simulated(method, [given], Place(name, step, 0, 1))
            assert outcome.own is not None
            memory.end(name, outcome.own)
            sent += count_of(outcome.own)
            parameter.data.sub_(0.05 * outcome.average.view_as(parameter))
        ratios.append(sent / wanted)
    return ratios


@pytest.mark.parametrize("density", [0.01, 0.002])
@pytest.mark.parametrize(
    ("method", "options", "band"),
    [
        ("sidco", {}, (0.8, 1.25)),
        ("sidco", {"fit": "exponential"}, (0.8, 1.25)),
        ("sidco", {"fit": "gamma"}, (0.8, 1.25)),
        ("shared_sidco", {}, (0.8, 1.25)),
        ("dgc", {}, (0.7, 1.3)),  # its own band
        ("adaq", {}, (0.75, 1.25)),
    ],
)
def test_trainings_with_error_feedback_send_the_density(
    method: str, options: dict[str, str], band: tuple[float, float], density: float
) -> None:
    ratios = sent_in_training(by_name(method, density=density, **options), 50)[20:]
    assert band[0] <= min(ratios)
    assert max(ratios) <= band[1]


@pytest.mark.parametrize("fit", ["exponential", "pareto", "gamma"])
def test_a_distribution_that_ends_at_the_threshold_is_not_missed(fit: str) -> None:
    elements, density = 1_000_000, 0.01
    method = Sidco(density, fit)  # type: ignore[arg-type]
    for seed in range(8):
        gradient = samples("Gauss", elements, seed).clamp(-1.5, 1.5) + 0.001 * samples("Gauss", elements, 100 + seed)
        selected = count_of(method.selected(gradient, "w"))
        assert selected == pytest.approx(density * elements, rel=0.3)


def test_parameters_of_few_or_equal_elements_are_sent() -> None:
    method = Sidco(0.01, "exponential")
    for name, values in (("one", [3.0]), ("equal", [2.0] * 300), ("few", [0.5, -4.0, 0.25])):
        gradient = torch.tensor(values)
        assert bool(method.selected(gradient, name)[gradient.abs().argmax()])


def gap(method: Compressor, workers: int = 4, width: int = 60, steps: int = 150) -> float:
    """Return how far least squares with error feedback end from the solution."""
    generator = torch.Generator().manual_seed(3)
    data = [torch.randn(80, width, generator=generator) for _ in range(workers)]
    solution = torch.randn(width, generator=generator)
    targets = [x @ solution + 0.1 * torch.randn(80, generator=generator) for x in data]
    whole, target = torch.cat(data), torch.cat(targets)
    best = torch.linalg.lstsq(whole, target[:, None]).solution.flatten()
    memories = [ErrorFeedback() for _ in range(workers)]
    for memory in memories:
        memory.attach({"w": width})
    weight = torch.zeros(width)
    for step in range(steps):
        gradients = [x.T @ (x @ weight - y) / len(x) for x, y in zip(data, targets, strict=True)]
        given = [memory.begin("w", gradient) for memory, gradient in zip(memories, gradients, strict=True)]
        outcomes = simulated(method, given, Place("w", step, 0, workers))
        for memory, outcome in zip(memories, outcomes, strict=True):
            memory.end("w", outcome.own)
        weight = weight - 0.3 * outcomes[0].average
    return float((whole @ (weight - best)).square().mean())


def test_a_larger_hard_threshold_ends_farther_from_the_solution() -> None:
    gaps = [gap(by_name("hard_threshold", threshold=threshold)) for threshold in (1e-2, 1e-1, 1.0)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 1e-4 < gaps[-1]
