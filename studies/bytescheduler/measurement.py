"""Training steps with the policies of `switchml.client.schedules`, and those that a simulation predicts.

All policies share the ranks and the links of one run. Steps are compared with those of fifo in the same repetition.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from studies.bytescheduler.policies import policy
from studies.bytescheduler.simulation import Layer, step_time
from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import RankFailed
from switchml.benchmarks.figures import median_ratio
from switchml.benchmarks.linked_systems import PORT, LinkedSystems, linked_systems, own_run_directory
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.torch_ranks import torch_group, torch_version
from switchml.common.progress import Progress
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, require_shaping

__all__ = ["Costs", "ByteSchedulerOptions", "ByteSchedulerRow", "ByteSchedulerSample", "run", "summarize"]

_RANK: Final = "studies.bytescheduler.rank"
_WARM_UP: Final = 2  # steps of a turn that are not timed: the first one records the order
_BASE: Final = "fifo"
_CALLS: Final = 3


@dataclasses.dataclass(frozen=True)
class ByteSchedulerOptions:
    """Options: a model of `bytes`, whose forward pass takes `forward` seconds."""

    policies: list[str]
    bytes: int
    forward: float
    rate: int
    queue: float
    workers: int
    repetitions: int
    steps: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class Costs:
    """The input of the simulation: the layers, and the rate of one large all-reduce, each measured alone."""

    layers: list[Layer]
    bytes_per_second: float
    grain: int


@dataclasses.dataclass(frozen=True)
class ByteSchedulerSample:
    """A turn: `seconds` of each step of the slowest rank, and `found` with the use of links and CPUs."""

    policy: str
    repetition: int
    seconds: list[float]
    found: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ByteSchedulerRow:
    """A policy: median seconds of a step, measured and simulated, and their ratios to fifo.

    `busy` is the share of the time in which the busiest link carried data, `idle` that of the CPUs, `dropped` the
    fraction of the packets that the links' queues dropped.
    """

    policy: str
    steps: int
    median: float
    ratio: float
    simulated: float
    simulated_ratio: float
    busy: float
    idle: float
    dropped: float


def run(options: ByteSchedulerOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    record = Record(report)
    version = torch_version(options.torch_python, _RANK)
    policies = list(dict.fromkeys([_BASE, *options.policies]))
    progress.expect(options.repetitions * len(policies))
    with own_run_directory(run_dir) as (run_directory, directory):
        report(f"{options.workers} workers: starting hosts and a process group")
        shape = Shape(options.rate, options.queue)
        with (
            linked_systems(run_directory, options.workers, shape) as systems,
            torch_group(systems, _RANK, "switchml", PORT, options.torch_python, directory) as group,
        ):
            measurement = _Measurement(options, systems, group, record, progress)
            costs = measurement.costs()
            for repetition in range(options.repetitions):
                measurement.take_turns(policies, repetition)
            record.systems |= {"switchml": systems.switchml.description, "torch": version}
    return BenchmarkResult.of("bytescheduler", options, summarize(record.samples, costs, options.rate), record)


class _Measurement:
    """The turns of all policies on one group of ranks."""

    def __init__(
        self,
        options: ByteSchedulerOptions,
        systems: LinkedSystems,
        group: RankGroup,
        record: Record,
        progress: Progress,
    ) -> None:
        self._options = options
        self._systems = systems
        self._group = group
        self._record = record
        self._progress = progress
        self._digest = ""

    def costs(self) -> Costs:
        """Measure the layers and the link, each alone. Raises RankFailed."""
        model = f"{self._options.bytes} {self._options.forward}"
        answers = self._group.command(f"costs {model} {_CALLS}")
        seconds = statistics.median(max(call) for call in zip(*(answer["sums"] for answer in answers), strict=True))
        layers = [
            Layer(max(each["forward"] for each in of_ranks), max(each["backward"] for each in of_ranks), size)
            for size, *of_ranks in zip(answers[0]["sizes"], *(answer["layers"] for answer in answers), strict=True)
        ]
        speed = sum(layer.size for layer in layers) / seconds
        self._record.report(
            f"  computing {sum(layer.forward for layer in layers):.3f} s forward and "
            f"{sum(layer.backward for layer in layers):.3f} s backward; all gradients at once {seconds:.3f} s"
        )
        return Costs(layers, speed, answers[0]["grain"])

    def take_turns(self, policies: Sequence[str], repetition: int) -> None:
        """Let all policies make steps, in another order each time. Raises RankFailed."""
        self._record.states.append(machine_state.now())
        first = repetition * len(policies) // self._options.repetitions
        said = []
        for word in [*policies[first:], *policies[:first]]:
            self._group.command(f"begin {word} {self._options.bytes} {self._options.forward} {_WARM_UP}")
            answers, use = self._systems.watch(functools.partial(self._steps, word))
            seconds = [max(step) for step in zip(*(answer["seconds"] for answer in answers), strict=True)]
            steps_on_link = self._options.steps + 1  # and the one before the timed ones
            found = {"link": dataclasses.asdict(use), "steps_on_link": steps_on_link}
            self._record.samples.append(ByteSchedulerSample(word, repetition, seconds, found))
            said.append(f"{word.partition(':')[0]} {statistics.median(seconds):.3f} s")
            self._progress.did(1)
        self._record.report(f"  repetition {repetition + 1}: {', '.join(said)}")

    def _steps(self, word: str) -> list[dict[str, Any]]:
        answers = self._group.command(f"steps {self._options.steps}")
        digests = {answer["digest"] for answer in answers}
        self._digest = self._digest or answers[0]["digest"]
        if digests != {self._digest}:
            raise RankFailed(f"{word}: the parameters are not those of the other ranks and policies after these steps")
        return answers


def summarize(samples: Sequence[ByteSchedulerSample], costs: Costs, rate: int) -> list[ByteSchedulerRow]:
    """Return a row for each policy, in the order in which they were first measured."""
    simulated = {
        word: step_time(costs.layers, policy(word), costs.bytes_per_second, streams=True, grain=costs.grain)
        for word in dict.fromkeys(sample.policy for sample in samples)
    }
    return [_row(word, samples, simulated, rate) for word in simulated]


def _row(
    word: str, samples: Sequence[ByteSchedulerSample], simulated: Mapping[str, float], rate: int
) -> ByteSchedulerRow:
    own = [sample for sample in samples if sample.policy == word]
    base = [sample for sample in samples if sample.policy == _BASE]
    seconds = [second for sample in own for second in sample.seconds]
    median = statistics.median(seconds)
    uses = [sample.found["link"] for sample in own]
    on_link = sum(use["bytes"] for use in uses) / sum(sample.found["steps_on_link"] for sample in own)
    ratio = median_ratio(own, base)
    assert ratio is not None  # fifo takes its turn in each repetition
    return ByteSchedulerRow(
        policy=word,
        steps=len(seconds),
        median=median,
        ratio=ratio,
        simulated=simulated[word],
        simulated_ratio=simulated[word] / simulated[_BASE],
        busy=on_link / (rate / 8) / median,
        idle=statistics.median(use["idle"] for use in uses),
        dropped=sum(use["drops"] for use in uses) / max(1, sum(use["packets"] for use in uses)),
    )
