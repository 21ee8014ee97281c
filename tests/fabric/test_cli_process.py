"""switchml-ctl as a process: early interrupts, and terminals that lack characters."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CTL = str(Path(sys.executable).with_name("switchml-ctl"))
SECONDS = 60


def blocked_import(package: str, place: Path) -> dict[str, str]:
    """Return an environment in which a package prints a line when it is imported, and then blocks."""
    (place / package).mkdir()
    (place / package / "__init__.py").write_text("import signal\nprint('importing', flush=True)\nsignal.pause()\n")
    return {**os.environ, "PYTHONPATH": str(place)}


def started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start a program, and return when it has begun to import the package that blocks."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job of a shell ignores it
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    return process


@pytest.mark.parametrize(
    ("package", "status"),
    [("click", -signal.SIGINT), ("grpc", 128 + signal.SIGINT)],
    ids=["before the command is known", "of the command"],
)
def test_an_interrupt_while_modules_are_imported_ends_it_silently(package: str, status: int, tmp_path: Path) -> None:
    process = started([CTL, "job", "list"], blocked_import(package, tmp_path))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr.strip()) == (status, "")


@pytest.mark.parametrize("program", ["switchml-switch", "switchml-controller", "switchml-agent"])
def test_an_interrupt_while_a_daemon_is_imported_ends_it_silently(program: str, tmp_path: Path) -> None:
    importing_click = blocked_import("click", tmp_path)
    process = started([str(Path(CTL).with_name(program)), "--version"], importing_click)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stderr.strip()) == (-signal.SIGINT, "")


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


def on_a_terminal(*arguments: str, environment: dict[str, str]) -> str:
    """Run a command whose standard error is a terminal, and return what it shows there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [CTL, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the command has ended
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    assert process.wait(SECONDS) == 0, shown
    return shown.decode()


@pytest.mark.parametrize("command", ["bench kernels --sizes 8KiB --seconds 0.001", "up --agents 2"])
def test_what_takes_long_has_a_bar_and_the_time_left_on_a_terminal(command: str) -> None:
    base = Path(tempfile.mkdtemp(prefix="swml-"))  # paths of Unix sockets must be short
    environment = {**os.environ, "SWITCHML_RUN_DIR": str(base / "run"), "TERM": "xterm", "COLUMNS": "100"}
    try:
        shown = on_a_terminal(*command.split(), environment=environment)
    finally:
        subprocess.run([CTL, "down"], env=environment, check=True, capture_output=True, timeout=SECONDS)
        shutil.rmtree(base, ignore_errors=True)
    assert "100%" in shown
    assert "left:" in shown
    assert "0:00:00" in shown
