"""The computing time, the bytes, the steps and the accuracy of methods of gradient compression.

All methods share the ranks and the links of one run. Steps are compared with those of the same repetition with no
compression (`none`) and over Gloo.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import RankFailed
from switchml.benchmarks.figures import median_ratio
from switchml.benchmarks.linked_systems import PORT, LinkedSystems, linked_systems, own_run_directory
from switchml.benchmarks.ranks import TURN_SECONDS, RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.torch_ranks import torch_group, torch_version
from switchml.common.progress import Progress
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, rate_text, require_shaping

__all__ = ["TRAININGS", "GraceOptions", "GraceRow", "GraceSample", "run", "summarize"]

TRAININGS: Final = {
    "digits": "accuracy",
    "text": "accuracy",
    "ratings": "hit rate at 10",
    "shapes": "mean intersection over union",
}
"""The trainings, and what is measured of each."""

_RANK: Final = "studies.grace.rank"
_FIRST_STEPS: Final = 3  # before all turns: DDP lays out its buckets after the first, and PowerSGD begins after two
_WARM_UP: Final = 1  # steps of a turn that are not timed
_BASE: Final = "none"
_PEER: Final = "gloo"
_BUDGET: Final = 0.1  # of the bytes of the whole training without compression
_SEED: Final = 1
_STEP_SECONDS: Final = 1.0  # that a step of a training may take


@dataclasses.dataclass(frozen=True)
class GraceOptions:
    """Options: gradients of `elements`, `steps` of a turn, and `training_steps` of each training of `tasks`.

    Each method trains with the learning rate of the task times each of `learning_rates`, and each of the `momenta`.
    """

    methods: list[str]
    elements: int
    rates: list[int]
    queue: float
    workers: int
    repetitions: int
    steps: int
    calls: int
    tasks: list[str]
    training_steps: int
    learning_rates: list[float]
    momenta: list[float]
    torch_python: str


@dataclasses.dataclass(frozen=True)
class GraceSample:
    """A measurement of a method: `kind` is compute, step or train, and `found` what this kind has."""

    kind: str
    method: str
    found: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class StepRow:
    """Steps on links of one rate: seconds of the slowest rank, medians over all steps.

    `link_bytes` are those of a step on the link and direction that carried most; `none` and `gloo` are the times of
    these divided by this one. `busy` is the share of the time in which that link carried data, `idle` that of the CPUs.
    """

    rate: int
    steps: int
    median: float
    link_bytes: float
    busy: float
    idle: float
    none: float | None
    gloo: float | None


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """The accuracy after all steps, and when the bytes were `_BUDGET` of those without compression, after `steps`.

    It is that of the best training, with `learning_rate` times the learning rate of the task, and `momentum`. `steps`
    is 0 if the first point of the curve took more bytes.
    """

    task: str
    learning_rate: float
    momentum: float
    final: float
    at_budget: float | None
    steps: int
    bits: float


@dataclasses.dataclass(frozen=True)
class GraceRow:
    """A method: median seconds of its computing, bits that a rank sends for an element, steps and accuracies."""

    method: str
    compress: float | None
    decompress: float | None
    bits: float | None
    steps: list[StepRow]
    accuracies: list[Accuracy]


def run(options: GraceOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    record = Record(report)
    version = torch_version(options.torch_python, _RANK)
    methods = list(dict.fromkeys([_PEER, _BASE, *options.methods]))
    trained = [method for method in methods if method != _PEER]
    trainings = len(options.tasks) * len(trained) * len(options.learning_rates) * len(options.momenta)
    progress.expect(len(options.rates) * options.repetitions + trainings)
    with own_run_directory(run_dir) as (run_directory, directory):
        report(f"{options.workers} workers: starting hosts and a process group")
        shapes = [Shape(rate, options.queue) for rate in options.rates]
        with (
            linked_systems(run_directory, options.workers, shapes[-1]) as systems,
            torch_group(systems, _RANK, "switchml", PORT, options.torch_python, directory) as group,
        ):
            measurement = _Measurement(options, systems, group, record, progress)
            measurement.compute(methods)
            for shape in shapes:
                measurement.take_turns(methods, shape)
            for task in options.tasks:
                measurement.train(trained, task)
            record.systems |= {"switchml": systems.switchml.description, "gloo": version}
    return BenchmarkResult.of("grace", options, summarize(record.samples), record)


class _Measurement:
    """The samples of all methods on one group of ranks."""

    def __init__(
        self, options: GraceOptions, systems: LinkedSystems, group: RankGroup, record: Record, progress: Progress
    ) -> None:
        self._options = options
        self._systems = systems
        self._group = group
        self._record = record
        self._progress = progress

    def compute(self, methods: Sequence[str]) -> None:
        """Time the methods themselves. Raises RankFailed, also for unknown methods."""
        self._record.report(f"computing with {self._options.elements:,} elements")
        for method in methods:
            [found, *_] = self._group.command(f"compute {method} {self._options.elements} {self._options.calls}")
            self._record.samples.append(GraceSample("compute", method, found))
        for method in methods:
            self._step(method, 0, _FIRST_STEPS)

    def take_turns(self, methods: Sequence[str], shape: Shape) -> None:
        """Let all methods make steps on links of this shape, in another order each time. Raises RankFailed."""
        self._systems.links.shape(shape)
        steps = self._options.steps
        for repetition in range(self._options.repetitions):
            self._record.states.append(machine_state.now())
            first = repetition * len(methods) // self._options.repetitions
            said = []
            for method in [*methods[first:], *methods[:first]]:
                answers, use = self._systems.watch(functools.partial(self._step, method, steps, _WARM_UP))
                seconds = [max(step) for step in zip(*(answer["seconds"] for answer in answers), strict=True)]
                found = {
                    "rate": shape.rate,
                    "repetition": repetition,
                    "seconds": seconds,
                    "steps_on_link": steps + _WARM_UP,
                    "bytes": answers[0]["bytes"],
                    "parameters": answers[0]["parameters"],
                    "link": dataclasses.asdict(use),
                }
                self._record.samples.append(GraceSample("step", method, found))
                said.append(f"{method} {statistics.median(seconds):.3g} s")
            self._record.report(f"  {rate_text(shape.rate)}, repetition {repetition + 1}: {', '.join(said)}")
            self._progress.did(1)

    def train(self, methods: Sequence[str], task: str) -> None:
        """Train with each method, learning rate and momentum from the same beginning. Raises RankFailed."""
        options = self._options
        for method, factor, momentum in itertools.product(methods, options.learning_rates, options.momenta):
            self._record.states.append(machine_state.now())
            training = f"train {task} {method} {options.training_steps} {_SEED} {factor} {momentum}"
            answers = self._group.command(training, TURN_SECONDS + options.training_steps * _STEP_SECONDS)
            _require_same(method, answers)
            found = answers[0] | {"task": task, "learning_rate": factor, "momentum": momentum}
            self._record.samples.append(GraceSample("train", method, found))
            optimizer = f"learning rate x {factor:g}, momentum {momentum:g}"
            self._record.report(f"  {task}, {method}, {optimizer}: accuracy {found['curve'][-1][2]:.3f}")
            self._progress.did(1)

    def _step(self, method: str, steps: int, warm_up: int) -> list[dict[str, Any]]:
        answers = self._group.command(f"step {method} {self._options.elements} {steps} {warm_up}")
        _require_same(method, answers)
        return answers


def _require_same(method: str, answers: Sequence[Mapping[str, Any]]) -> None:
    if len({answer["digest"] for answer in answers}) != 1:
        raise RankFailed(f"{method}: the ranks have different parameters after the same steps")


# ---- statistics -----------------------------------------------------------------------------------------------------


def summarize(samples: Sequence[GraceSample]) -> list[GraceRow]:
    """Return a row for each method, in the order in which they were measured."""
    return [_row(method, samples) for method in dict.fromkeys(sample.method for sample in samples)]


def _row(method: str, samples: Sequence[GraceSample]) -> GraceRow:
    own = {
        kind: [sample.found for sample in samples if sample.method == method and sample.kind == kind]
        for kind in ("compute", "step", "train")
    }
    counted = [found for found in own["step"] if found["bytes"] is not None]
    values = sum(len(found["seconds"]) * found["parameters"] for found in counted)
    others = [sample for sample in samples if sample.kind == "step" and sample.method in (_BASE, _PEER)]
    base = [sample.found for sample in samples if sample.kind == "train" and sample.method == _BASE]
    return GraceRow(
        method=method,
        compress=_median([second for found in own["compute"] for second in found["compress"]]),
        decompress=_median([second for found in own["compute"] for second in found["decompress"]]),
        bits=8 * sum(found["bytes"] for found in counted) / values if counted else None,
        steps=[_steps(rate, own["step"], others) for rate in dict.fromkeys(found["rate"] for found in own["step"])],
        accuracies=[_accuracy(found, base) for found in _best(own["train"])],
    )


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


class _Times(NamedTuple):
    """The seconds of a method's steps in one repetition."""

    repetition: int
    seconds: list[float]


def _steps(rate: int, found: Sequence[Mapping[str, Any]], others: Sequence[GraceSample]) -> StepRow:
    here = [turn for turn in found if turn["rate"] == rate]
    seconds = [second for turn in here for second in turn["seconds"]]
    link_bytes = sum(turn["link"]["bytes"] for turn in here) / sum(turn["steps_on_link"] for turn in here)
    ours = [_Times(turn["repetition"], turn["seconds"]) for turn in here]
    theirs: dict[str, list[_Times]] = {_BASE: [], _PEER: []}
    for other in others:
        if other.method in theirs and other.found["rate"] == rate:
            theirs[other.method].append(_Times(other.found["repetition"], other.found["seconds"]))
    ratios = {name: median_ratio(times, ours) for name, times in theirs.items()}
    median = statistics.median(seconds)
    return StepRow(
        rate=rate,
        steps=len(seconds),
        median=median,
        link_bytes=link_bytes,
        busy=link_bytes / (rate / 8) / median,
        idle=statistics.median(turn["link"]["idle"] for turn in here),
        none=ratios[_BASE],
        gloo=ratios[_PEER],
    )


def _best(trainings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the training of each task with the highest accuracy at its end."""
    return [
        max((found for found in trainings if found["task"] == task), key=lambda found: found["curve"][-1][2])
        for task in dict.fromkeys(found["task"] for found in trainings)
    ]


def _accuracy(found: Mapping[str, Any], base: Sequence[Mapping[str, Any]]) -> Accuracy:
    steps, sent, final = found["curve"][-1]
    of_base = next(training["curve"][-1][1] for training in base if training["task"] == found["task"])
    within = [point for point in found["curve"] if point[1] <= _BUDGET * of_base]
    return Accuracy(
        task=found["task"],
        learning_rate=found["learning_rate"],
        momentum=found["momentum"],
        final=final,
        at_budget=within[-1][2] if within else None,
        steps=int(within[-1][0]) if within else 0,
        bits=8 * sent / (steps * found["parameters"]),
    )
