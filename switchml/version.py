"""The version of this software, as pyproject.toml has it (a test compares them)."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
