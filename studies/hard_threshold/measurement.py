"""The elements sent, the total error and the accuracy of trainings with error feedback.

Each hard threshold that has sent anything is followed by a Top-k that sends as many elements in the whole training.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from studies.grace.arguments import method_arguments
from studies.torchrun import run_ranks
from switchml.benchmarks.errors import RankFailed
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.common.progress import Progress

__all__ = ["HARD", "HardThresholdOptions", "HardThresholdRow", "run"]

HARD: Final = "hard_threshold"
_RANK: Final = Path(__file__).with_name("rank.py")
_FIRST_STEPS: Final = 20  # in which estimates adapt; they are not in `least` and `most`


@dataclasses.dataclass(frozen=True)
class HardThresholdOptions:
    """Options: `steps` of a training on `workers` ranks with each method."""

    methods: list[str]
    workers: int
    steps: int
    seed: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class HardThresholdRow:
    """A training: the mean share of elements sent, and the first and the last tenth of the steps.

    `quality` is the share sent / that wanted, its mean, smallest and largest of five consecutive steps; None for a
    method without a density. `total_error` is the sum over steps of the squared norm of what was not sent, in a mean
    rank.
    """

    method: str
    density: float
    first: float
    last: float
    quality: tuple[float, float, float] | None
    total_error: float
    accuracy: float


def run(options: HardThresholdOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises RankFailed."""
    record = Record(report)
    rows = []
    progress.expect(sum(2 if _is_hard(method) else 1 for method in options.methods))
    for method in options.methods:
        rows.append(_trained(options, method, record, progress))
        if _is_hard(method) and rows[-1].density:
            rows.append(_trained(options, f"topk:density={rows[-1].density:.6g}", record, progress))
    return BenchmarkResult.of("hard_threshold", options, rows, record)


def _is_hard(method: str) -> bool:
    return method_arguments(method)[0] == HARD


def _trained(options: HardThresholdOptions, method: str, record: Record, progress: Progress) -> HardThresholdRow:
    arguments = [f"--steps={options.steps}", f"--seed={options.seed}", f"--method={method}"]
    with tempfile.TemporaryDirectory(prefix="swml-") as directory:
        try:
            found = run_ranks(_RANK, options.workers, arguments, Path(directory), python=options.torch_python)
        except subprocess.SubprocessError as error:
            raise RankFailed(f"{method}: {error}") from error
    row = _row(method, found, options.workers)
    record.report(f"  {method}: {row.density:.2%} sent, total error {row.total_error:.3g}, {row.accuracy:.1%}")
    progress.did(1)
    return row


def _row(method: str, found: dict[str, Any], workers: int) -> HardThresholdRow:
    sent: list[float] = found["density"]
    tenth = max(1, len(sent) // 10)
    _, arguments = method_arguments(method)
    return HardThresholdRow(
        method=method,
        density=statistics.fmean(sent),
        first=statistics.fmean(sent[:tenth]),
        last=statistics.fmean(sent[-tenth:]),
        quality=_quality(sent, arguments["density"]) if "density" in arguments else None,
        total_error=sum(found["errors"]) / workers,
        accuracy=found["accuracy"],
    )


def _quality(sent: list[float], wanted: float) -> tuple[float, float, float]:
    """Return the mean, the smallest and the largest of the means of five consecutive steps, over what was wanted."""
    later = sent[_FIRST_STEPS:] or sent
    fives = [statistics.fmean(later[first : first + 5]) / wanted for first in range(0, max(1, len(later) - 4), 5)]
    return statistics.fmean(later) / wanted, min(fives), max(fives)
