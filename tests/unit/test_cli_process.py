"""switchml-ctl as a process: interrupted early, and in terminals that cannot show everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CTL = str(Path(sys.executable).with_name("switchml-ctl"))
SECONDS = 30


def test_an_interrupt_while_modules_are_imported_ends_it_silently(tmp_path: Path) -> None:
    """A package that is found before the real one says when the import has come to it, and stays there."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("import signal\nprint('importing', flush=True)\nsignal.pause()\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(
        [CTL, "job", "list"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr) == (-signal.SIGINT, "")


def test_what_a_terminal_cannot_show_is_replaced() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(
        [CTL, "topology", "show"], env=environment, capture_output=True, encoding="latin-1", timeout=SECONDS
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "port 8 ?? h8  10.0.0.8/24" in shown.stdout


def test_an_argument_that_is_not_text_is_a_usage_error() -> None:
    shown = subprocess.run([CTL, "job", "show", b"\xff"], capture_output=True, text=True, timeout=SECONDS)
    assert shown.returncode == 2
    assert "an argument is not text" in shown.stderr
    assert "Traceback" not in shown.stderr
