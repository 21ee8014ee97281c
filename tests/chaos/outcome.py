"""The outcome of one run at its ranks, and the table of all runs."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.fabric_under_fire import Words


@dataclass
class Outcome:
    """`noticed`: seconds after which each rank learnt of the fault; `stood_still`: the longest time around it without a
    step of any rank, in a job that continued; `usable`: from the end of the job until the next one had completed, or
    could start; `late`: ranks that learnt of the fault later than they should; `faults`: those of a storm."""

    completed: int = 0
    went_on: int = 0
    sums: int = 0
    errors: list[str] = field(default_factory=list)
    noticed: list[float] = field(default_factory=list)
    stood_still: list[float] = field(default_factory=list)
    usable: float | None = None
    late: int = 0
    leaks: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def outcome_of(words: Words, hit: float, names: Sequence[str]) -> Outcome:
    """Return the outcome of a fault that struck at `hit`, from the messages of the ranks; `names` are its errors."""
    outcome = Outcome()
    outcome.wrong += [line for line in words.lines if "a wrong sum" in line]
    steps: list[float] = []
    for _, said in words.said:
        if "step" in said:
            outcome.sums += 1
            steps.append(said["at"])
        outcome.completed += "steps" in said
        outcome.went_on += "changed" in said
        if "error" in said:
            outcome.errors.append(said["error"].split(":")[0])
            if not names:
                outcome.wrong.append(f"a rank noticed: {said['error']}")
            elif not said["error"].startswith(tuple(names)):
                outcome.wrong.append(f"an error that does not name a fault: {said['error']}")
        outcome.noticed += [said[key] - hit for key in ("error_at", "changed") if key in said]
    if not outcome.completed and not outcome.errors:
        outcome.wrong.append(f"no rank completed or reported an error: {words.lines[-5:]}")
    if outcome.completed:
        outcome.stood_still.append(_longest_gap(sorted(steps), hit))
    return outcome


def _longest_gap(steps: Sequence[float], hit: float) -> float:
    """Return the longest time without a step that ends after the fault has struck."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps) if later > hit]
    return max(gaps, default=0.0)


_COLUMNS = (
    "fault",
    "runs",
    "ranks done",
    "continued",
    "errors",
    "noticed after",
    "late",
    "stood still",
    "next job after",
    "sums checked",
    "wrong",
    "leaks",
)


def table(outcomes: Iterable[tuple[str, Outcome]]) -> list[str]:
    """Return a row for each fault; times are in seconds, median and longest."""
    by_fault: dict[str, list[Outcome]] = defaultdict(list)
    for name, outcome in outcomes:
        by_fault[name].append(outcome)
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for name, found in by_fault.items():
        errors = [error for outcome in found for error in outcome.errors]
        kinds = ", ".join(f"{errors.count(kind)} {kind}" for kind in sorted(set(errors)))
        cells: list[Any] = [
            name,
            len(found),
            sum(outcome.completed for outcome in found),
            sum(outcome.went_on for outcome in found),
            kinds,
            _times([seconds for outcome in found for seconds in outcome.noticed]),
            sum(outcome.late for outcome in found),
            _times([seconds for outcome in found for seconds in outcome.stood_still]),
            _times([outcome.usable for outcome in found if outcome.usable is not None]),
            sum(outcome.sums for outcome in found),
            sum(bool(outcome.wrong) for outcome in found),
            sum(len(outcome.leaks) for outcome in found),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _times(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f}, {max(seconds):.2f}" if seconds else ""
