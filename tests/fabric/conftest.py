"""Fixtures: a separate run directory for each test."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fabric_harness import Ctl


@pytest.fixture
def ctl() -> Iterator[Ctl]:
    """Provide switchml-ctl with a short run directory, for Unix sockets; fail if the test leaves a process behind."""
    base = Path(tempfile.mkdtemp(prefix="swml-"))
    control = Ctl(base / "run")
    try:
        yield control
    finally:
        control.run("down")
        for process in control.processes():
            os.kill(process["pid"], signal.SIGKILL)
        shutil.rmtree(base)


@pytest.fixture
def fabric(ctl: Ctl) -> Ctl:
    """Provide a fabric that `up` has started."""
    ctl.run("up")
    return ctl
