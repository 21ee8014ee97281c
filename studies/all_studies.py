"""`python -m studies all`: one study after the other, a line for each, and a table at the end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from studies import claims
from studies.command import StudyCommand
from switchml.benchmarks import report
from switchml.benchmarks.results import load
from switchml.commands import bench_parameters as parameters
from switchml.commands.exit_status import ExitCode

__all__ = ["StudyEnd", "run_all", "summary"]

_ROOT: Final = Path(__file__).parents[1]
_SHORT_SECONDS: Final = 300
_LONG_SECONDS: Final = 4 * 3600
_GRACE_SECONDS: Final = 30  # for the end of what a study has started
_LAST_LINES: Final = 15  # of the output of a study that failed


@dataclass(frozen=True)
class StudyEnd:
    """The end of a study: "done", "failed" or "skipped". `says` is its figure, or why it has not been measured."""

    study: str
    state: str
    says: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@click.command("all", epilog="\b\nExample:\n  sudo python -m studies all --short --torch-python venv/bin/python")
@click.argument("names", nargs=-1, metavar="[STUDY]...")
@click.option("--short", is_flag=True, help="Run the short form of each: at most 20 minutes in all, on two CPUs.")
@click.option(
    "--results",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep the results in this directory, NAME.json; `python -m studies show` shows them.",
)
@parameters.torch_python
@click.pass_context
def run_all(context: click.Context, names: Sequence[str], short: bool, folder: Path | None, torch_python: str) -> None:
    """Run every study, or those that are named, one after the other. A study that lacks root or a package is skipped.

    The last table has the figure of each run and the verdicts of studies/README.md. The exit status is 1 if a study
    failed.
    """
    assert context.parent is not None
    group = context.parent.command
    assert isinstance(group, click.Group)
    found = [command for command in group.commands.values() if isinstance(command, StudyCommand)]
    unknown = set(names) - {str(command.name) for command in found}
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: there is no such study")
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swml-studies-")))
        folder.mkdir(parents=True, exist_ok=True)
        ends = []
        for command in found:
            if not names or command.name in names:
                ends.append(_end_of(command, short, folder, torch_python))
                click.echo(_line(ends[-1]))
    click.echo()
    click.echo(summary(ends), nl=False)
    if any(end.state == "failed" for end in ends):
        context.exit(ExitCode.ERROR)


def summary(ends: Sequence[StudyEnd]) -> str:
    """Return the table of all studies, in Markdown."""
    verdicts = {study.study: dict.fromkeys(claim.verdict for claim in study.claims) for study in claims.load()}
    rows = [
        [
            end.study,
            end.state,
            f"{end.seconds:.0f}",
            f"{end.cpu_seconds:.0f}",
            ", ".join(verdicts.get(end.study, {})),
            end.says,
        ]
        for end in ends
    ]
    seconds, cpu = sum(one.seconds for one in ends), sum(one.cpu_seconds for one in ends)
    counts = {state: sum(one.state == state for one in ends) for state in ("done", "failed", "skipped")}
    title = f"{', '.join(f'{count} {state}' for state, count in counts.items())}: {seconds:.0f} s, {cpu:.0f} s of CPU"
    columns = ["study", "", "seconds", "CPU seconds", "verdicts of the full form", "figure of this run"]
    return report.markdown(report.ReportTable(title, columns, rows))


def _line(end: StudyEnd) -> str:
    took = "" if end.state == "skipped" else f" ({end.seconds:.0f} s)"
    return f"{end.study}: {end.state}{took}: {end.says}"


def _end_of(command: StudyCommand, short: bool, folder: Path, torch_python: str) -> StudyEnd:
    assert command.name is not None
    missing = command.missing(torch_python)
    if missing:
        return StudyEnd(command.name, "skipped", missing)
    result = folder / f"{command.name}.json"
    line = [sys.executable, "-m", "studies", command.name, "--json", str(result)]
    line += [*(["--short"] if short else []), *(["--torch-python", torch_python] if command.takes_torch else [])]
    begin, cpu = time.monotonic(), _cpu_seconds()
    failure = _failure(line, _SHORT_SECONDS if short else _LONG_SECONDS)
    took = {"seconds": time.monotonic() - begin, "cpu_seconds": _cpu_seconds() - cpu}
    if failure:
        return StudyEnd(command.name, "failed", failure, **took)
    return StudyEnd(command.name, "done", command.headline(load(result, report.TABLES)), **took)


def _failure(line: Sequence[str], seconds: float) -> str:
    """Run a program; return why it failed, "" if it did not. Its last output goes to standard error if it did."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(line, cwd=_ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(seconds)
            failure = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            failure = f"not done in {seconds:.0f} s"
        finally:
            _end(process)
        if failure:
            output.seek(0)
            lines = output.read().splitlines()
            click.echo("\n".join(f"  {one}" for one in lines[-_LAST_LINES:]), err=True)
            failure += f": {lines[-1].strip()}" if lines else ""
        return failure


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs: SIGTERM, with which it ends what it has started, and in the end SIGKILL."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cpu_seconds() -> float:
    """Return the CPU time of all ended descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
