"""Generators of checked-in files. Each returns the text of every file by its path."""

from pathlib import Path
from typing import Final

__all__ = ["ROOT"]

ROOT: Final = Path(__file__).resolve().parents[2]
