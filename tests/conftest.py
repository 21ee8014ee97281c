"""Figures that tests measure are printed after the tests, whether those passed or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line about this test at the end."""

    def say(line: str) -> None:
        request.node.user_properties.append(("figure", line))

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
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
