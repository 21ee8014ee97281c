"""The command that checks the tutorial: the lessons that it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[2] / "docs" / "tutorial" / "check.py"


def refused(*arguments: str) -> str:
    done = subprocess.run([sys.executable, CHECK, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    return done.stderr


def test_a_lesson_must_be_named_and_exist() -> None:
    assert "name a lesson, such as 1" in refused()
    assert "there is no lesson 9; the lessons are 1 to 6" in refused("9")
