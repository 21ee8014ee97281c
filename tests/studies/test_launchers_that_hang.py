"""A launcher whose ranks do not end is ended so that it ends them: in studies, and in the checks of the tutorial."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from studies import torchrun

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"

LAUNCHER = """
import signal, subprocess, sys
rank = subprocess.Popen(["sleep", "infinity"], start_new_session=True)  # as torchrun does
def end(*_):
    rank.kill()
    rank.wait()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
with open(sys.argv[1], "w") as file:
    file.write(str(rank.pid))
while True:
    signal.pause()
"""


class Launcher:
    """A launcher that has one rank.

    Attributes:
        command: starts it.
        rank: the process of the rank, once it is known to run.

    """

    def __init__(self, place: Path) -> None:
        self._ready = place / "ready"
        os.mkfifo(self._ready)
        self.command = [sys.executable, "-c", LAUNCHER, str(self._ready)]
        self.rank = 0

    def not_in_time(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        """Let the first call of a method of Popen time out, as soon as the rank runs."""
        real = getattr(subprocess.Popen, method)

        def waits(process: subprocess.Popen[Any], timeout: float | None = None) -> object:
            if self.rank:
                return real(process, timeout=timeout)
            self.rank = int(self._ready.read_text())
            raise subprocess.TimeoutExpired(process.args, timeout or 0.0)

        monkeypatch.setattr(subprocess.Popen, method, waits)

    def require_no_rank(self) -> None:
        with pytest.raises(ProcessLookupError):
            os.kill(self.rank, 0)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    if launcher.rank:
        with contextlib.suppress(ProcessLookupError):
            os.kill(launcher.rank, signal.SIGKILL)


def test_of_a_study(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher.not_in_time(monkeypatch, "wait")
    with pytest.raises(subprocess.TimeoutExpired):
        torchrun._run(launcher.command, dict(os.environ))
    launcher.require_no_rank()


def test_of_a_lesson(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TUTORIAL))
    harness = importlib.import_module("harness")
    launcher.not_in_time(monkeypatch, "communicate")
    with pytest.raises(
        harness.Wrong, match="not ended after 240 s: a rank loops, or waits for what no other rank sends"
    ):
        harness.run(launcher.command)
    launcher.require_no_rank()
