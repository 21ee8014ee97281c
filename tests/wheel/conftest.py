"""The options with which the tests take wheels that have been built, and the interpreter that they install them for."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--wheels", type=Path, help="test the wheel of this folder that fits, instead of building one")
    parser.addoption("--python", metavar="PROGRAM", help="install for this interpreter; default: the one of pytest")
