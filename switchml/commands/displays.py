"""The progress displays of switchml-ctl on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import rich.progress
from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from switchml.commands.standard_streams import note
from switchml.common.progress import Progress
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.launch.detached import leave_terminal
from switchml.ops.stragglers import lag

__all__ = ["DetachedJob", "JobDisplay", "ProgressBar"]

D = TypeVar("D", bound="_Bar")


class _Bar:
    """A bar at the bottom of standard error, if that is a terminal, and messages above it."""

    def __init__(self, *columns: ProgressColumn) -> None:
        self._columns = columns
        self._bar: rich.progress.Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self: D) -> D:
        if sys.stderr.isatty():
            console = Console(stderr=True, highlight=False)
            self._bar = rich.progress.Progress(*self._columns, console=console, transient=True)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def note(self, text: str) -> None:
        """Write a message above the bar."""
        if self._bar is not None:
            self._bar.console.print(Text(f"switchml-ctl: {text}"), soft_wrap=True)
        else:
            note(text)


class ProgressBar(_Bar, Progress):
    """Show how much work is done, and the time left."""

    def __init__(self) -> None:
        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
        super().__init__(*columns)

    def expect(self, work: float) -> None:
        """Show a bar of this much work."""
        if self._bar is not None:
            self._task = self._bar.add_task("", total=work)

    def did(self, work: float = 1.0) -> None:
        """Advance the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, work)


class JobDisplay(_Bar):
    """Show a running job: its workers' output, and its progress in the bar."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[text]}"))
        super().__init__(*columns, TimeElapsedColumn())
        self._first: tuple[float, int] | None = None

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Show which job it is and where its logs are."""
        switches = ", ".join(place.switch for place in job.switches)
        self.note(f"job {job.name} (id {job.id}): {job.workers} workers on {switches}, logs in {run_dir}")
        if self._bar is not None:
            self._task = self._bar.add_task(job.name, total=None, text="")

    def output(self, rank: int, line: bytes) -> None:
        """Show a line that a worker has written."""
        text = f"[{rank}] {line.decode('utf-8', 'replace').rstrip(chr(13))}"
        if self._bar is not None:
            self._bar.console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            click.echo(text, err=True)

    def progress(self, job: pb.Job) -> None:
        """Show the job's progress in the bar."""
        if self._bar is None or self._task is None:
            return
        position = min((rank.position for rank in job.ranks), default=0)
        now = time.monotonic()
        self._first = self._first or (now, position)
        elapsed = now - self._first[0]
        text = f"{enum_word(pb.JobState, job.state)}  {position:,} chunks"
        if elapsed > 1:
            text += f"  {(position - self._first[1]) / elapsed:,.0f}/s"
        if behind := lag(job):
            text += f"  {behind}"
        self._bar.update(self._task, text=text)


class DetachedJob:
    """Leave the terminal as soon as a job is ready, so that its launcher continues in the background.

    `announcement` returns what is written before that about the job and its directory.
    """

    def __init__(self, announcement: Callable[[pb.Job, Path], str]) -> None:
        self._announcement = announcement

    def __enter__(self) -> DetachedJob:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def started(self, job: pb.Job, run_dir: Path) -> None:
        """Print which job it is, and detach from the terminal."""
        leave_terminal(self._announcement(job, run_dir), run_dir)

    def output(self, rank: int, line: bytes) -> None:
        """Ignore the line, which is in the rank's log."""

    def progress(self, job: pb.Job) -> None:
        """Show nothing; `job watch` does."""

    def note(self, text: str) -> None:
        """Write a message."""
        note(text)
