"""Options of all tests. Figures that tests measure are printed after the tests, whether those passed or not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# pytest puts the checkout first in the path, but there `switchml` lacks its native modules. At the end of the path, the
# checkout still provides the packages that are not installed: ptf_tests and model.
sys.path.remove(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that targets of the Makefile use."""
    parser.addoption("--long", action="store_true", help="also run the tests that are too long for `make test`")
    parser.addoption("--lost-workers", type=int, default=1, help="how often a worker is killed, over each transport")
    parser.addoption("--pictures", action="store_true", help="write the pictures of the documentation that tests take")
    parser.addoption("--quiet-machine", action="store_true", help="check times against the limits of the documentation")


def pytest_configure(config: pytest.Config) -> None:
    """Let no example of a hypothesis test fail for the time that it takes: a busy machine decides that.

    The examples are the same at each run, so that a newly found defect does not block an unrelated change. With
    `--hypothesis-seed NUMBER` they are others.
    """
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        always_alike = config.getoption("--hypothesis-seed") is None
        settings.register_profile("switchml", deadline=None, derandomize=always_alike)
        settings.load_profile("switchml")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip long tests, unless `--long` is given."""
    for item in items:
        if item.get_closest_marker("long") is not None and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="skipped: runs with --long"))


@pytest.fixture
def lost_worker_runs(pytestconfig: pytest.Config) -> int:
    """Return how often to run the test of a lost worker."""
    return int(pytestconfig.getoption("--lost-workers"))


@pytest.fixture
def limit(pytestconfig: pytest.Config) -> Callable[[float], float]:
    """Return the most seconds that a measured time may be, given the limit of a quiet machine.

    That is the limit with `--quiet-machine`. Otherwise it is 20 s, which is still less than the timeouts of the calls
    that are measured: a busy machine may stall any process for seconds.
    """
    quiet = pytestconfig.getoption("--quiet-machine")
    return lambda seconds: seconds if quiet else max(seconds, 20.0)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line about this test at the end."""

    def say(line: str) -> None:
        request.node.user_properties.append(("figure", line))

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {value}"
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "figure"
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))
