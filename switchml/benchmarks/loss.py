"""`bench loss`: an all-reduce over UDP while the soft switch drops single packets in both directions on purpose."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics

from switchml.benchmarks import machine_state
from switchml.benchmarks.figures import median_ratio, percentile
from switchml.benchmarks.options import size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import SwitchML, own_fabric, work_directory
from switchml.benchmarks.turns import Task, Turn, turn_of
from switchml.common.progress import Progress
from switchml.controller.client import ControllerClient

__all__ = ["LossOptions", "LossRow", "run", "summarize"]

_INJECTED = "injected_loss"  # the drop reason of dataplane/constants.toml


@dataclasses.dataclass(frozen=True)
class LossOptions:
    """Options: all-reduces of `bytes` at each fraction of lost packets, the first of which is 0."""

    workers: list[int]
    bytes: int
    shares: list[float]
    repetitions: int
    calls: int


@dataclasses.dataclass(frozen=True)
class LossTurn:
    """A turn at one fraction of lost packets, and the number lost per call, including the warm-up calls."""

    share: float
    lost: float
    turn: Turn


@dataclasses.dataclass(frozen=True)
class LossRow:
    """Statistics at one fraction. `ratio` is time / time without losses, `cores` the number of CPUs kept busy.

    `lost` is packets per call, `cpu_seconds_per_gb` counts ranks, agent and switch; every result was verified, and
    `largest_error` is the largest difference of any element from its sum (`allowed_error` is the bound).
    """

    workers: int
    bytes: int
    share: float
    calls: int
    median: float
    p99: float
    ratio: float
    lost: float
    cpu_seconds_per_gb: float
    cores: float
    largest_error: float
    allowed_error: float


def run(options: LossOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    record = Record(report)
    with work_directory() as directory, own_fabric("udp", directory) as system, system.client() as client:
        progress.expect(sum(options.workers) * options.repetitions * len(options.shares))
        for workers in options.workers:
            report(f"{workers} workers over udp")
            with system.group(workers, directory) as group:
                for repetition in range(options.repetitions):
                    record.states.append(machine_state.now())
                    first = repetition % len(options.shares)
                    for share in options.shares[first:] + options.shares[:first]:
                        record.samples.append(_turn(system, client, group, share, options, repetition))
                        report(_line(record.samples[-1]))
                        progress.did(workers)
        record.systems[system.name] = system.description
    return BenchmarkResult.of("loss", options, summarize(record.samples), record)


def _turn(
    system: SwitchML, client: ControllerClient, group: RankGroup, share: float, options: LossOptions, repetition: int
) -> LossTurn:
    task = Task(options.bytes, 1, options.calls)
    before = _lost(client)
    with contextlib.ExitStack() as stack:
        if share > 0:
            client.set_loss(ingress=share, egress=share)
            stack.callback(client.set_loss, ingress=0.0, egress=0.0)
        answers = group.command(task.command)
        lost = (_lost(client) - before) / (task.calls + task.warm_up)
    return LossTurn(share, lost, turn_of(answers, system.name, task, repetition))


def _lost(client: ControllerClient) -> int:
    return client.show_switch().drop_reasons.get(_INJECTED, 0)


def _line(sample: LossTurn) -> str:
    milliseconds = 1e3 * statistics.median(sample.turn.seconds)
    what = (
        f"  {size_text(sample.turn.bytes)}, {sample.share:.2%} lost each way, repetition {sample.turn.repetition + 1}"
    )
    return f"{what}: {milliseconds:.4g} ms, {sample.lost:.0f} packets of a call lost"


def summarize(samples: list[LossTurn]) -> list[LossRow]:
    """Return a row for each number of workers and fraction."""
    rows = []
    for workers in sorted({sample.turn.workers for sample in samples}):
        turns = {
            share: [sample for sample in samples if (sample.turn.workers, sample.share) == (workers, share)]
            for share in sorted({sample.share for sample in samples})
        }
        base = [sample.turn for sample in turns[0.0]]
        rows += [_row(share, found, base) for share, found in turns.items()]
    return rows


def _row(share: float, found: list[LossTurn], base: list[Turn]) -> LossRow:
    turns = [sample.turn for sample in found]
    seconds = [second for turn in turns for second in turn.seconds]
    ratio = median_ratio(turns, base)
    assert ratio is not None
    cpu_seconds = sum(turn.cpu_seconds for turn in turns)
    return LossRow(
        workers=turns[0].workers,
        bytes=turns[0].bytes,
        share=share,
        calls=len(seconds),
        median=statistics.median(seconds),
        p99=percentile(seconds, 0.99),
        ratio=ratio,
        lost=statistics.mean(sample.lost for sample in found),
        cpu_seconds_per_gb=cpu_seconds / (len(seconds) * turns[0].bytes / 1e9),
        cores=cpu_seconds / sum(max(pair) for turn in turns for pair in zip(turn.seconds, turn.slowest, strict=True)),
        largest_error=max(turn.largest_error for turn in turns),
        allowed_error=turns[0].allowed_error,
    )
