"""Run SPIN: translate, compile and verify one case, and replay its trace if it ends in a violation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from model.cases import DEADLOCK, HOLDS, STARVATION, Case

__all__ = ["Event", "Outcome", "SpinError", "missing_tools", "parse_report", "parse_trace", "run"]

_HERE = Path(__file__).parent
_MEGABYTES = 3000  # memory limit of one run; two run at the same time
_DEEPEST = 4_000_000
_DEADLINE = 900  # seconds, for one run of the verifier
_TRANSLATION_DEADLINE = 120
_DEEPEST_PICTURE = 80  # steps; a longer run is not drawn


class SpinError(Exception):
    """SPIN, the compiler or the verifier failed or did not finish."""


@dataclass(frozen=True)
class Event:
    """One line that the model printed: the kind of event, and the numbers that identify it."""

    name: str
    values: dict[str, int]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case. ``states`` and ``depth`` are SPIN's; ``seconds`` is the time of the verifier alone."""

    case: Case
    result: str
    states: int
    depth: int
    seconds: float
    trace: tuple[Event, ...]


def missing_tools() -> str | None:
    """Return which tool is missing on PATH and how to install it, or None."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            return f"{tool} not found; on Debian: apt-get install {tool}"
    return None


def run(case: Case) -> Outcome:
    """Check one case.

    Raises SpinError if a tool fails, the search is not exhaustive, or memory or time does not suffice.
    """
    with tempfile.TemporaryDirectory(prefix="switchml-model-") as name:
        directory = Path(name)
        _build(case, directory)
        start = time.monotonic()
        report = _search_shortest(case, directory) if case.picture else _verify(case, directory, _DEEPEST)
        seconds = time.monotonic() - start
        states, depth, errors = parse_report(report)
        if not errors:
            if "max search depth too small" in report or "Search not completed" in report:
                raise SpinError(f"{case.title}: the search was not exhaustive\n{report}")
            return Outcome(case, HOLDS, states, depth, seconds, ())
        trace = _replay(case, directory)
        return Outcome(case, _violated(report, trace), states, depth, seconds, trace)


def _build(case: Case, directory: Path) -> None:
    definitions = [f"-D{definition}" for definition in case.definitions]
    _call(["spin", *definitions, "-a", str(_HERE / f"{case.model}.pml")], directory, _TRANSLATION_DEADLINE)
    if not (directory / "pan.c").exists():
        raise SpinError(f"{case.title}: spin wrote no verifier")
    # No partial order reduction: every step touches state that other processes see, so it would save nothing.
    options = ["-DNOREDUCE", f"-DMEMLIM={_MEGABYTES}"]
    # Weak fairness needs a bound on the number of processes.
    options += ["-DNFAIR=4"] if case.temporal else ["-DSAFETY"]
    options += ["-DREACH"] if case.picture else ["-DCOLLAPSE"]
    # A short search takes less time than the compiler's optimisations.
    options += ["-O0"] if case.short else ["-O2"]
    _call(["gcc", "-w", *options, "-o", "pan", "pan.c"], directory, _TRANSLATION_DEADLINE)


def _verify(case: Case, directory: Path, depth: int) -> str:
    options = ["-a", "-f"] if case.temporal else []
    return _call(["./pan", "-w20", f"-m{depth}", *options], directory, _DEADLINE)


def _search_shortest(case: Case, directory: Path) -> str:
    """Increase the search depth step by step, so that the first trace found is the shortest."""
    for depth in range(1, _DEEPEST_PICTURE + 1):
        report = _verify(case, directory, depth)
        if parse_report(report)[2]:
            return report
    raise SpinError(f"{case.title}: no violation found within {_DEEPEST_PICTURE} steps")


def _replay(case: Case, directory: Path) -> tuple[Event, ...]:
    definitions = [f"-D{definition}" for definition in case.definitions]
    (trail,) = directory.glob("*.trail")
    command = ["spin", *definitions, "-t", "-k", trail.name, "-T", "-B", str(_HERE / f"{case.model}.pml")]
    return parse_trace(_call(command, directory, _TRANSLATION_DEADLINE))


def _call(command: list[str], directory: Path, deadline: float) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, errors="replace", timeout=deadline
        )
    except subprocess.TimeoutExpired as expired:
        raise SpinError(f"{' '.join(command)} did not finish within {deadline} s") from expired
    # A verifier that finds a violation also exits with 0; spin's own exit status counts the errors that it replays.
    if done.returncode != 0 and "-t" not in command:
        raise SpinError(f"{' '.join(command)} failed with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def parse_report(report: str) -> tuple[int, int, int]:
    """Return the states stored, the depth reached and the number of errors in a verifier's report."""
    states = re.search(r"^\s*(\S+) states, stored", report, re.MULTILINE)
    depth = re.search(r"depth reached (\d+), errors: (\d+)", report)
    if states is None or depth is None:
        raise SpinError(f"the verifier's report does not say how many states it stored:\n{report}")
    return int(float(states[1])), int(depth[1]), int(depth[2])


def parse_trace(output: str) -> tuple[Event, ...]:
    """Return what the model printed: lines ``@name key=value ...``, up to the first violation."""
    events: list[Event] = []
    for line in output.splitlines():
        found = re.match(r"\s*@(\w+)(.*)", line)
        if found is None:
            continue
        pairs = dict(pair.split("=") for pair in found[2].split())
        if found[1] == "violation":
            return (*events, Event(pairs["what"], {}))
        events.append(Event(found[1], {key: int(value) for key, value in pairs.items()}))
    return tuple(events)


def _violated(report: str, trace: tuple[Event, ...]) -> str:
    findings = report.split("(Spin Version")[0]  # what follows lists the properties that SPIN searched for
    if "invalid end state" in findings:
        return DEADLOCK
    if "acceptance cycle" in findings:
        return STARVATION
    return trace[-1].name if trace else "violation"
