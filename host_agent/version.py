"""The version of this software, as pyproject.toml has it (a test compares them), and who may talk to it."""

from typing import Final

__all__ = ["VERSION", "same_release"]

VERSION: Final = "0.1.0"


def same_release(version: str) -> bool:
    """Tell whether `version` has our MAJOR.MINOR: what a training process must have."""
    return version.split(".")[:2] == VERSION.split(".")[:2]
