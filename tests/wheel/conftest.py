"""The option with which the tests take wheels that have been built, such as those of `make wheels`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--wheels", type=Path, help="test the wheel of this folder that fits, instead of building one")
