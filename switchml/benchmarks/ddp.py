"""`bench ddp`: training steps over links of a chosen rate, with DistributedDataParallel and with FSDP.

The backends switchml and gloo of torch.distributed take turns on the same links (`linked_systems`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import RankFailed
from switchml.benchmarks.figures import median_ratio
from switchml.benchmarks.link_rows import in_network_bound, ring_bound, why_cpus_limit
from switchml.benchmarks.linked_systems import PORT, LinkedSystems, linked_systems, own_run_directory
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.torch_ranks import torch_group, torch_version
from switchml.benchmarks.workers import STEP_LAYERS
from switchml.common.progress import Progress
from switchml.launch.run_directory import RunDirectory
from switchml.topologies.namespaces import require_privileges
from switchml.topologies.shaped_links import Shape, queue_text, rate_text, require_shaping

__all__ = ["BACKENDS", "WRAPPERS", "DdpOptions", "DdpRow", "StepTurn", "run", "summarize"]

BACKENDS: Final = ("switchml", "gloo")
WRAPPERS: Final = ("ddp", "fsdp", "fsdp-overlap")

_FIRST_STEPS: Final = 2  # before all turns: ranks share their models, and DDP lays out its buckets after the first
_WARM_UP: Final = 1  # steps of a turn that are not timed
_RANK: Final = "switchml.benchmarks.workers.steps"


@dataclasses.dataclass(frozen=True)
class DdpOptions:
    """Options of this benchmark; `steps` are those of a turn."""

    rates: list[int]
    queues: list[float]
    workers: list[int]
    repetitions: int
    steps: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class StepTurn:
    """The steps of one backend and wrapper in one turn, as the slowest rank timed them.

    `bytes`, `packets`, `drops` and `idle` are those of `linked_systems.LinkUse`, of `all_steps`: with warm-up.
    """

    backend: str
    wrapper: str
    rate: int
    queue: float
    workers: int
    repetition: int
    parameters: int
    seconds: tuple[float, ...]
    all_steps: int
    bytes: int
    packets: int
    drops: int
    idle: float


@dataclasses.dataclass(frozen=True)
class DdpRow:
    """Statistics of a backend and wrapper on one kind of link; the fields are those of `LinkRow`.

    `bound` is the least time for the bytes of a step: a step also computes, some of it while bytes travel.
    """

    backend: str
    wrapper: str
    rate: int
    queue: float
    workers: int
    parameters: int
    steps: int
    median: float
    bound: float
    link_bytes: float
    busy: float
    idle: float
    dropped: float
    why_not: str
    ratio: float | None


def run(options: DdpOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, what starting a fabric raises and what ControllerClient raises.
    """
    require_privileges()
    require_shaping()
    version = torch_version(options.torch_python, _RANK)
    record = Record(report, systems={"gloo": version})
    shapes = [Shape(rate, queue) for rate in options.rates for queue in options.queues]
    progress.expect(len(options.workers) * len(shapes) * options.repetitions)
    with own_run_directory(run_dir) as (run_directory, directory):
        for workers in options.workers:
            report(f"{workers} workers: starting hosts and process groups")
            with _groups(run_directory, directory, workers, shapes[0], options) as (systems, groups):
                record.systems["switchml"] = systems.switchml.description
                _take_first_steps(groups)
                for shape in shapes:
                    systems.links.shape(shape)
                    for repetition in range(options.repetitions):
                        record.states.append(machine_state.now())
                        found = _take_turns(systems, groups, shape, repetition, options.steps)
                        record.samples += found
                        report(_line(found))
                        progress.did(1)
    return BenchmarkResult.of("ddp", options, summarize(record.samples), record)


@contextlib.contextmanager
def _groups(
    run_directory: RunDirectory, directory: Path, workers: int, shape: Shape, options: DdpOptions
) -> Iterator[tuple[LinkedSystems, dict[str, RankGroup]]]:
    with contextlib.ExitStack() as stack:
        systems = stack.enter_context(linked_systems(run_directory, workers, shape))
        groups = {
            backend: stack.enter_context(
                torch_group(systems, _RANK, backend, PORT + number, options.torch_python, directory)
            )
            for number, backend in enumerate(BACKENDS)
        }
        yield systems, groups


def _take_first_steps(groups: Mapping[str, RankGroup]) -> None:
    for backend in BACKENDS:
        for wrapper in WRAPPERS:
            groups[backend].command(f"step {wrapper} 0 {_FIRST_STEPS}")


def _take_turns(
    systems: LinkedSystems, groups: Mapping[str, RankGroup], shape: Shape, repetition: int, steps: int
) -> list[StepTurn]:
    """Let every backend make steps with every wrapper. Raises RankFailed, also if ranks end with other parameters."""
    turns = []
    order = BACKENDS if repetition % 2 == 0 else BACKENDS[::-1]
    for wrapper in WRAPPERS:
        for backend in order:
            command = f"step {wrapper} {steps} {_WARM_UP}"
            answers, use = systems.watch(functools.partial(groups[backend].command, command))
            digests = groups[backend].command(f"digest {wrapper}")
            if len({answer["digest"] for answer in digests}) != 1:
                raise RankFailed(f"{backend}, {wrapper}: the ranks have different parameters after the same steps")
            turns.append(
                StepTurn(
                    backend=backend,
                    wrapper=wrapper,
                    rate=shape.rate,
                    queue=shape.queue,
                    workers=len(answers),
                    repetition=repetition,
                    parameters=digests[0]["parameters"],
                    seconds=tuple(max(step) for step in zip(*(answer["seconds"] for answer in answers), strict=True)),
                    all_steps=steps + _WARM_UP,
                    **dataclasses.asdict(use),
                )
            )
    return turns


def _line(turns: Sequence[StepTurn]) -> str:
    shape = f"{rate_text(turns[0].rate)}, queue {queue_text(turns[0].queue)}"
    said = [f"{turn.wrapper} {turn.backend} {statistics.median(turn.seconds):.3f} s" for turn in turns]
    return f"  {shape}, repetition {turns[0].repetition + 1}: {', '.join(said)}"


def summarize(turns: Iterable[StepTurn]) -> list[DdpRow]:
    """Return a row for each kind of link, wrapper and backend."""
    found: dict[tuple[int, int, float, str], dict[str, list[StepTurn]]] = defaultdict(lambda: defaultdict(list))
    for turn in turns:
        found[turn.workers, turn.rate, turn.queue, turn.wrapper][turn.backend].append(turn)
    rows: list[DdpRow] = []
    for place in sorted(found):
        backends = found[place]
        judged = {backend: _row(backends[backend]) for backend in BACKENDS if backend in backends}
        if len(judged) == len(BACKENDS) and not any(row.why_not for row in judged.values()):
            ratio = median_ratio(backends["gloo"], backends["switchml"])
            judged["switchml"] = dataclasses.replace(judged["switchml"], ratio=ratio)
        rows += judged.values()
    return rows


def _row(turns: Sequence[StepTurn]) -> DdpRow:
    first = turns[0]
    seconds = [second for turn in turns for second in turn.seconds]
    median = statistics.median(seconds)
    speed = first.rate / 8
    link_bytes = sum(turn.bytes for turn in turns) / sum(turn.all_steps for turn in turns)
    busy, idle = link_bytes / speed / median, statistics.median(turn.idle for turn in turns)
    packets, drops = sum(turn.packets for turn in turns), sum(turn.drops for turn in turns)
    return DdpRow(
        backend=first.backend,
        wrapper=first.wrapper,
        rate=first.rate,
        queue=first.queue,
        workers=first.workers,
        parameters=first.parameters,
        steps=len(seconds),
        median=median,
        bound=_bound(first.backend, first.wrapper, 4 * first.parameters, speed, first.workers),
        link_bytes=link_bytes,
        busy=busy,
        idle=idle,
        dropped=drops / max(1, packets + drops),
        why_not=why_cpus_limit(idle, busy),
        ratio=None,
    )


def _bound(backend: str, wrapper: str, size: int, speed: float, workers: int) -> float:
    """Return the seconds that the bytes of a step take.

    With FSDP a step gathers the parameters in the forward and in the backward pass, and scatters the gradients. With
    overlap the last layer is gathered once, and in the backward pass one direction of the link has the most bytes.
    """
    bound = in_network_bound if backend == "switchml" else ring_bound
    if wrapper == "ddp":
        return bound(size, speed, workers)
    gather, scatter = (bound(size, speed, workers, name) for name in ("all_gather", "reduce_scatter"))
    if wrapper == "fsdp":
        return 2 * gather + scatter
    again = (STEP_LAYERS - 1) / STEP_LAYERS * gather
    if backend == "gloo":
        return gather + again + scatter
    to_the_switch, from_the_switch = scatter + again / (workers - 1), again + scatter / (workers - 1)
    return gather + max(to_the_switch, from_the_switch)
