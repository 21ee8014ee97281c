"""Check the protocol with SPIN and print the outcomes: ``python -m model.run [--short] [--pictures FOLDER]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model.cases import CASES, Case
from model.drawing import draw
from model.spin import Outcome, SpinError, missing_tools, run

__all__ = ["main", "table"]

_AT_ONCE = 2
_HEADINGS = ("model", "workers", "slots", "phases", "states", "depth", "time", "result", "expected")


def main() -> int:
    """Run the cases; return 0 if every outcome is the expected one, or if SPIN is not installed, else 1."""
    arguments = _parse()
    missing = missing_tools()
    if missing is not None:
        sys.stdout.write(f"skipped: {missing}\n")
        return 0
    if arguments.pictures:
        cases: Sequence[Case] = [case for case in CASES if case.picture]
    else:
        cases = [case for case in CASES if case.short or not arguments.short]
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outcomes = list(pool.map(run, cases))
    except SpinError as error:
        sys.stderr.write(f"model: {error}\n")
        return 1
    sys.stdout.write(table(outcomes))
    wrong = [outcome for outcome in outcomes if outcome.result != outcome.case.expected]
    for outcome in wrong:
        sys.stderr.write(f"model: {outcome.case.title}: {outcome.result}, expected {outcome.case.expected}\n")
        for event in outcome.trace:
            sys.stderr.write(f"  {event.name} {' '.join(f'{key}={value}' for key, value in event.values.items())}\n")
    if arguments.pictures and not wrong:
        for outcome in outcomes:
            draw(outcome.case, outcome.trace, arguments.pictures / f"{outcome.case.picture}.svg")
    return 1 if wrong else 0


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes as a Markdown table with one row each."""
    rows = [_HEADINGS, tuple("-" * len(heading) for heading in _HEADINGS)]
    for outcome in outcomes:
        case = outcome.case
        sizes = (str(case.workers), str(case.slots), str(case.phases))
        search = (f"{outcome.states:,}", str(outcome.depth), f"{outcome.seconds:.1f} s")
        rows.append((case.title, *sizes, *search, _words(outcome.result), _words(case.expected)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |\n" for row in rows
    )


def _words(result: str) -> str:
    return result.replace("_", " ")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m model.run", description="Check the protocol with SPIN.")
    parser.add_argument("--short", action="store_true", help="check only the cases that take seconds")
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="check only the cases with a picture, and draw them in FOLDER"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
