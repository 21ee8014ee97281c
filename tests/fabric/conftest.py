"""A run directory of one's own for each test."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_harness import Ctl


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also the tests that `make faults` adds to `make test`")
    parser.addoption("--lost-workers", type=int, default=1, help="how often a worker is killed, over each transport")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") is not None and not config.getoption("--long", default=False):
            item.add_marker(pytest.mark.skip(reason="skipped: one of `make faults`"))


@pytest.fixture
def lost_worker_runs(pytestconfig: pytest.Config) -> int:
    """How often the test of a lost worker is run."""
    return int(pytestconfig.getoption("--lost-workers", default=1))


@pytest.fixture
def ctl() -> Iterator[Ctl]:
    """Short, because Unix sockets have short paths; removed after a test that leaves no process behind."""
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
    """A fabric that `up` has started."""
    ctl.run("up")
    return ctl
